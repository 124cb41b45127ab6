"""Multi-scalar and fixed-base multiplication kernels, run on the host, against py-arkworks and closed forms."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import py_arkworks_bls12381 as arkworks
import pytest

from cuzkbench import bls12_381 as curve
from cuzkbench.device.kernels.finish import finish
from cuzkbench.device.kernels.loader import Kernels
from cuzkbench.device.kernels.shapes import POINT_BYTES, msm_plan
from cuzkbench.field import from_montgomery
from tests.kernels_on_host import HostLauncher, needs_compiler

SEED, R = 11, curve.r
GENERATOR = {"g1": curve.g1_to_montgomery(curve.G1_GENERATOR), "g2": curve.g2_to_montgomery(curve.G2_GENERATOR)}
pytestmark = needs_compiler


def multiple(group: str, scalar: int) -> bytes:
    """scalar * generator from py-arkworks, canonical little-endian coordinates."""
    if scalar % R == 0:
        return bytes(POINT_BYTES[group])
    point = (arkworks.G1Point if group == "g1" else arkworks.G2Point)() * arkworks.Scalar.from_le_bytes(
        (scalar % R).to_bytes(32, "little")
    )
    data = point.to_xy_bytes_be()
    return b"".join(data[i : i + 48][::-1] for i in range(0, len(data), 48))


class Host:
    def __init__(self) -> None:
        self.device = HostLauncher()
        self.kernels = Kernels(launcher=self.device)
        self._bases: dict[tuple[str, int], int] = {}

    def bases(self, group: str, count: int) -> int:
        """The points with the first logarithms, made once."""
        if (group, count) not in self._bases:
            self._bases[group, count] = self.fixed_base(group, list(logarithms(count)))
        return self._bases[group, count]

    def scalars(self, values: list[int]) -> int:
        return self.device.put(b"".join(map(curve.fr_to_montgomery, values)))

    def fixed_base(self, group: str, values: list[int], room: int = 1) -> int:
        need, count = self.kernels.fixed_base_scratch_bytes(group, len(values)), len(values)
        out = self.device.allocate(room * count * POINT_BYTES[group])
        place = self.device.allocate(need)
        self.kernels.fixed_base(0, group, GENERATOR[group], self.scalars(values), count, out, place, need)
        return out

    def msm(self, group: str, bases: int, values: list[int], copies: int = 1, bits: int | None = None) -> bytes:
        plan = msm_plan(group, len(values), copies, bits)
        need, result = plan.layout()["bytes"], self.device.allocate(plan.result_bytes)
        scratch = self.device.allocate(need)
        scalars = self.scalars(values)
        self.kernels.msm(0, group, bases, scalars, len(values), scratch, need, result, copies, bits)
        return finish(plan, self.device.read(result, plan.result_bytes))


@pytest.fixture(scope="module")
def host() -> Host:
    return Host()


@lru_cache
def logarithms(count: int) -> tuple[int, ...]:
    """Discrete logarithms of the bases: random ones, infinity, and equal and opposite neighbours."""
    rng = random.Random(SEED)
    logs = [rng.randrange(R) for _ in range(count)]
    logs[3 % count], logs[5 % count], logs[6 % count] = 0, logs[4 % count], R - logs[4 % count]
    return tuple(logs)


@pytest.mark.parametrize("group", ["g1", "g2"])
def test_fixed_base_vs_arkworks(host: Host, group: str) -> None:
    rng = random.Random(SEED)
    values = [0, 1, 2, 255, 256, R - 1, R - 2, 1 << 248, *(rng.randrange(R) for _ in range(120))]
    size = POINT_BYTES[group]
    data = host.device.read(host.fixed_base(group, values), size * len(values))
    points = from_montgomery(np.frombuffer(data, np.uint8).copy(), 6).tobytes()
    for place, value in enumerate(values):
        point = points[place * size : (place + 1) * size]
        assert point == multiple(group, value), f"scalar {value:#x}, seed {SEED}"


SKEWS: dict[str, Callable[[random.Random, int], int]] = {
    "uniform": lambda rng, i: rng.randrange(R),
    "all zero": lambda rng, i: 0,
    "all one": lambda rng, i: 1,
    "all equal": lambda rng, i: 0x1234567890ABCDEF << 128 | 0x55,
    "all minus one": lambda rng, i: R - 1,
    "powers of two": lambda rng, i: 1 << (i % 255),
    "bits": lambda rng, i: rng.getrandbits(1),
    "witness": lambda rng, i: rng.randrange(R) if i % 4 == 0 else rng.getrandbits(1),
    "heavy": lambda rng, i: R - 1 - rng.getrandbits(100),
    "half": lambda rng, i: (R - 1) // 2 + rng.randrange(3),
}


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize(("group", "count"), [("g1", 1), ("g1", 700), ("g2", 200)])
def test_msm_vs_closed_form(host: Host, group: str, count: int, skew: str) -> None:
    rng, logs = random.Random(SEED), logarithms(count)
    values = [SKEWS[skew](rng, i) for i in range(count)]
    bases = host.bases(group, count)
    expected = multiple(group, sum(s * k for s, k in zip(values, logs, strict=True)))
    assert host.msm(group, bases, values) == expected, f"seed {SEED}"


@pytest.mark.parametrize("bits", [4, 5, 7, 8, 11, 13, 15])
def test_all_window_sizes_agree(host: Host, bits: int) -> None:
    rng, logs = random.Random(SEED), logarithms(150)
    values = [rng.randrange(R) for _ in logs]
    bases = host.bases("g1", len(logs))
    expected = multiple("g1", sum(s * k for s, k in zip(values, logs, strict=True)))
    assert host.msm("g1", bases, values, bits=bits) == expected


@pytest.mark.parametrize(("group", "copies"), [("g1", 3), ("g1", 60), ("g2", 2)])
def test_copies_of_the_bases_agree(host: Host, group: str, copies: int) -> None:
    rng, logs = random.Random(SEED), logarithms(200)
    values = [rng.randrange(R) for _ in logs]
    bases = host.fixed_base(group, list(logs), room=copies)
    scratch = host.device.allocate(2 * POINT_BYTES[group] * len(logs))
    host.kernels.make_copies(0, group, bases, len(logs), copies, scratch)
    expected = multiple(group, sum(s * k for s, k in zip(values, logs, strict=True)))
    assert host.msm(group, bases, values, copies) == expected


def test_msm_refuses_small_scratch(host: Host) -> None:
    with pytest.raises(ValueError, match="bytes of scratch memory, 10 given"):
        host.kernels.msm(0, "g1", 0, 0, 64, 0, 10, 0)
