"""`cuzkbench bench kernels`: verify each kernel, then time it, and set it against ceilings measured in the same run.

On a GPU inputs are resident and an MSM counts until its sum is an affine point on the host. Without one the host
device's own kernels are timed, and the ceilings are null. A row whose result differs raises instead of printing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import py_arkworks_bls12381 as arkworks

from cuzkbench import bls12_381 as curve
from cuzkbench.bls12_381 import FR_BYTES
from cuzkbench.device import RunDevice, cuda_missing, open_device
from cuzkbench.device.host_math import POINT, evaluate
from cuzkbench.events import DeviceError, Memory
from cuzkbench.field import fr, from_montgomery, rows, to_montgomery
from cuzkbench.prover.fixed_base import multiples

SIZES = {"emulated": (8, 10, 12), "cuda": (14, 16, 18, 20, 22, 24)}
NTT_SIZES = {"emulated": (8, 10, 12, 14, 16), "cuda": (16, 18, 20, 22, 24, 26, 27)}
G2_LARGEST = 22  # on a GPU: the bases of 2^24 take a while to make, and say nothing new
ROUNDS = 5
# products of 32 x 32 bits with both halves (wide multiply-adds): an Fp product 300, an Fr product 136
WIDE_FP, WIDE_FR, MIXED_ADDITION_FP, G2_OVER_G1 = 300, 136, 10, 2.9


def scalars(count: int, seed: int) -> np.ndarray:
    """count uniform Fr elements in Montgomery form (uint8), below 2^254; the first 2^20 repeat after that."""
    drawn = min(count, 1 << 20)
    data = np.random.default_rng(seed).integers(0, 256, FR_BYTES * drawn, np.uint8)
    data[FR_BYTES - 1 :: FR_BYTES] &= 0x3F
    return np.tile(data, count // drawn)


def weighted_sum(values: np.ndarray) -> int:
    """Sum of (i + 1) * values[i] mod r of Montgomery scalars: exact 16-bit columns, 2^16 terms at a time."""
    words = from_montgomery(values, 4).view(np.uint16).reshape(-1, FR_BYTES // 2)
    total = 0
    for start in range(0, len(words), 1 << 16):
        part = words[start : start + (1 << 16)].astype(np.uint64)
        weights = np.arange(1, len(part) + 1, dtype=np.uint64)
        plain, weighted = part.sum(axis=0), weights @ part
        columns = (int(w) + start * int(p) for w, p in zip(weighted, plain, strict=True))
        total += sum(column << (16 * place) for place, column in enumerate(columns))
    return total % curve.r


def _median_ms(measure: Callable[[], int]) -> float:
    """Milliseconds, the median of several measurements in nanoseconds after one that warms up."""
    measure()
    return statistics.median(measure() for _ in range(ROUNDS)) / 1e6


class Bench:
    """One device, its ceilings, and the rows measured so far."""

    def __init__(self, device: RunDevice) -> None:
        self.device, self.stream, self.ceilings = device, device.stream(), device.ceilings()
        self.rows: list[dict[str, Any]] = []

    def ntt(self, log2_size: int) -> None:
        """Forward (natural to reversed), inverse, coset; each against one direct evaluation."""
        device, stream, n = self.device, self.stream, 1 << log2_size
        there, data, back = device.buffer(FR_BYTES * n), scalars(n, log2_size), np.empty(FR_BYTES * n, np.uint8)
        given, got, order, index = rows(data, 4), rows(back, 4), _reversal(log2_size), 5 % n
        point = pow(curve.root_of_unity(log2_size), index, curve.r)
        inverse, coset = (partial(device.ntt, stream, there, log2_size, **{how: True}) for how in ("inverse", "coset"))
        # a transform, the value that it has or had at one place, and the coefficients and the point that make it
        kernels: dict[str, tuple[Callable[[], None], Callable[[], tuple[np.ndarray, np.ndarray, int]]]] = {
            "ntt": (
                partial(device.ntt_to_reversed, stream, there, log2_size),
                lambda: (got[order[index]], given, point),
            ),
            "ntt_inverse": (inverse, lambda: (given[index], got[order], point)),
            "ntt_coset": (coset, lambda: (got[index], given[order], curve.FR_GENERATOR * point)),
        }
        for kernel, (work, closed_form) in kernels.items():
            device.upload(stream, there, data, Memory.PAGEABLE)
            work()
            device.download(stream, back, there)
            stream.synchronize()
            value, coefficients, at = closed_form()
            same = tuple(value) == evaluate(coefficients, fr(at))
            self._row(kernel, log2_size, same, partial(self._on_device, work), n * log2_size / 2 * WIDE_FR)
        device.free(there)

    def msm(self, group: str, log2_size: int) -> None:
        """Bases (i + 1) G, uniform scalars; the sum against one multiplication of the generator."""
        device, stream, n = self.device, self.stream, 1 << log2_size
        counting = np.zeros((n, 4), np.uint64)
        counting[:, 0] = np.arange(1, n + 1)
        points, data = (device.fixed_base or multiples)(group, to_montgomery(counting)), scalars(n, log2_size)
        nbytes = device.msm_bytes(group, n)
        bases, there, result = device.buffer(points.nbytes), device.buffer(data.nbytes), device.buffer(nbytes)
        host = device.host_buffer(nbytes, Memory.PINNED)
        device.upload(stream, bases, points, Memory.PAGEABLE)
        device.upload(stream, there, data, Memory.PAGEABLE)

        def work() -> bytes:
            device.msm(stream, group, bases, there, n, result)
            device.download(stream, host.array, result)
            stream.synchronize()
            return device.finish_msm(group, n, host.array)

        def measure() -> int:
            start_ns = time.perf_counter_ns()
            work()
            return time.perf_counter_ns() - start_ns

        expected = (POINT[group]() * arkworks.Scalar(weighted_sum(data))).to_xy_bytes_le()
        products = n * -(-255 // 16) * MIXED_ADDITION_FP * WIDE_FP * (1 if group == "g1" else G2_OVER_G1)
        self._row(f"msm_{group}", log2_size, work() == bytes(expected), measure, products)
        for buffer in (bases, there, result):
            device.free(buffer)
        device.free_host_buffer(host)

    def _on_device(self, work: Callable[[], None]) -> int:
        """Nanoseconds between two events of the stream around the work."""
        self.device.head_start(self.stream)
        start = self.stream.record()
        work()
        return self.stream.record().time_ns() - start.time_ns()

    def _row(self, kernel: str, log2_size: int, same: bool, measure: Callable[[], int], wide: float) -> None:
        """Time a verified kernel of so many wide multiply-adds; raises DeviceError where its result differs."""
        if not same:
            raise DeviceError(kernel, f"2^{log2_size}", "the result differs from its closed form, so no time is given")
        ms, ceiling = _median_ms(measure), self.ceilings["wide_mad_per_s"]
        ratio = None if ceiling is None else wide / ceiling / (ms / 1e3)
        said = {"kernel": kernel, "log2_size": log2_size, "ms": ms, "verified": True, "precomputed": False}
        self.rows.append(said | {"ceiling_ratio": ratio})


def _reversal(bits: int) -> np.ndarray:
    """The bit-reversal permutation of 2^bits indices."""
    order = np.zeros(1, np.int64)
    for _ in range(bits):
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


def measure(device: RunDevice) -> dict[str, Any]:
    """The document of `bench kernels --json` for one device."""
    bench = Bench(device)
    for size in NTT_SIZES[device.kind]:
        bench.ntt(size)
    for group in ("g1", "g2"):
        for size in SIZES[device.kind]:
            if group == "g1" or size <= G2_LARGEST:
                bench.msm(group, size)
    name = device.describe()["device"]
    return {"device": name, "driver": device.driver(), "ceilings": bench.ceilings, "rows": bench.rows}


def kernels(as_json: bool) -> None:
    """`cuzkbench bench kernels`."""
    from cuzkbench.answers import print_json
    from cuzkbench.tables import show

    device = open_device("host" if cuda_missing() else "cuda")
    try:
        document = measure(device)
    finally:
        device.close()
    if as_json:
        return print_json(document)
    show(f"{document['device']}, driver {document['driver'] or 'none'}")
    for name, value in document["ceilings"].items():
        show(f"{name:<20} {'not measured here' if value is None else f'{value:.3g}'}")
    for row in document["rows"]:
        ratio = "" if row["ceiling_ratio"] is None else f"{row['ceiling_ratio']:6.1%} of the ceiling"
        show(f"{row['kernel']:<12} 2^{row['log2_size']:<3} {row['ms']:10.3f} ms  verified  {ratio}")
