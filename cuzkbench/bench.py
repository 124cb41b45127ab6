"""`cuzkbench bench kernels`: verify each kernel, then time it, and set it against ceilings measured in the same run.

On a GPU inputs are resident and an MSM counts until its sum is an affine point on the host. Without one the host
device's own kernels are timed, and the ceilings are null. A row whose result differs raises instead of printing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cuzkbench import bls12_381 as curve
from cuzkbench.device import RunDevice, cuda_missing, open_device
from cuzkbench.device.base import FR_BYTES, DeviceBuffer
from cuzkbench.device.host_math import evaluate
from cuzkbench.events import DeviceError, Memory
from cuzkbench.field import element, from_montgomery, rows, to_montgomery

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


def _multiple_of_generator(group: str, factor: int) -> bytes:
    """factor * G as canonical little-endian affine bytes."""
    import py_arkworks_bls12381 as arkworks

    point = (arkworks.G1Point if group == "g1" else arkworks.G2Point)() * arkworks.Scalar(factor)
    return bytes(point.to_xy_bytes_le())


def _median_ms(work: Callable[[], Any]) -> float:
    work()
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        work()
        seconds.append(time.perf_counter_ns() - start)
    return statistics.median(seconds) / 1e6


def _agree(kernel: str, log2_size: int, same: bool) -> None:
    if not same:
        raise DeviceError(kernel, f"2^{log2_size}", "the result differs from its closed form, so no time is given")


def _device_ms(device: RunDevice, stream: Any, work: Callable[[], None]) -> float:
    """Median milliseconds between two events of a stream around the work."""
    work()
    times = []
    for _ in range(ROUNDS):
        device.head_start(stream)
        start = stream.record()
        work()
        times.append(stream.record().time_ns() - start.time_ns())
    return statistics.median(times) / 1e6


def _ntt_rows(device: RunDevice, ceilings: dict[str, float | None], log2_size: int) -> Iterator[dict[str, Any]]:
    """Forward (natural to reversed), inverse, coset; each against one direct evaluation."""
    n, stream = 1 << log2_size, device.stream()
    there, data, back = device.buffer(FR_BYTES * n), scalars(n, log2_size), np.empty(FR_BYTES * n, np.uint8)
    root, index = curve.root_of_unity(log2_size), 5 % n
    products = n * log2_size / 2
    order = _reversal(log2_size)

    def run(work: Callable[[], None]) -> np.ndarray:
        device.upload(stream, there, data, Memory.PAGEABLE)
        work()
        device.download(stream, back, there)
        stream.synchronize()
        return rows(back, 4)

    def value(coefficients: np.ndarray, factor: int) -> tuple[int, ...]:
        point = factor * pow(root, index, curve.r) % curve.r
        return tuple(int(limb) for limb in evaluate(coefficients, element(point * curve.FR_R % curve.r, 4)))

    given = rows(data, 4)
    works: dict[str, tuple[Callable[[], None], Callable[[np.ndarray], bool]]] = {
        "ntt": (
            lambda: device.ntt_to_reversed(stream, there, log2_size),
            lambda got: tuple(int(limb) for limb in got[order[index]]) == value(given, 1),
        ),
        "ntt_inverse": (
            lambda: device.ntt(stream, there, log2_size, inverse=True),
            lambda got: value(got[order], 1) == tuple(int(limb) for limb in given[index]),
        ),
        "ntt_coset": (
            lambda: device.ntt(stream, there, log2_size, coset=True),
            lambda got: tuple(int(limb) for limb in got[index]) == value(given[order], curve.FR_GENERATOR),
        ),
    }
    for kernel, (work, holds) in works.items():
        _agree(kernel, log2_size, holds(run(work)))
        ms = _device_ms(device, stream, work)
        yield _row(kernel, log2_size, ms, products * WIDE_FR, ceilings)
    device.free(there)


def _reversal(bits: int) -> np.ndarray:
    """The bit-reversal permutation of 2^bits indices."""
    order = np.zeros(1, np.int64)
    for _ in range(bits):
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


def _msm_row(device: RunDevice, ceilings: dict[str, float | None], group: str, log2_size: int) -> dict[str, Any]:
    """Bases (i + 1) G, uniform scalars; the sum against one multiplication of the generator."""
    n, stream = 1 << log2_size, device.stream()
    data = scalars(n, log2_size)
    bases, there = _consecutive_bases(device, stream, group, n), device.buffer(data.nbytes)
    device.upload(stream, there, data, Memory.PAGEABLE)
    nbytes = device.msm_bytes(group, n)
    result, host = device.buffer(nbytes), device.host_buffer(nbytes, Memory.PINNED)

    def work() -> bytes:
        device.msm(stream, group, bases, there, n, result)
        device.download(stream, host.array, result)
        stream.synchronize()
        return bytes(device.finish_msm(group, n, host.array))

    _agree(f"msm_{group}", log2_size, work() == _multiple_of_generator(group, weighted_sum(data)))
    ms = _median_ms(work)
    windows = -(-255 // 16)
    products = n * windows * MIXED_ADDITION_FP * WIDE_FP * (1 if group == "g1" else G2_OVER_G1)
    for buffer in (bases, there, result):
        device.free(buffer)
    device.free_host_buffer(host)
    return _row(f"msm_{group}", log2_size, ms, products, ceilings)


def _consecutive_bases(device: RunDevice, stream: Any, group: str, n: int) -> DeviceBuffer:
    """G, 2 G, … n G in device memory, made by the device's fixed-base kernels or the host's."""
    from cuzkbench.prover.fixed_base import multiples

    counting = np.zeros((n, 4), np.uint64)
    counting[:, 0] = np.arange(1, n + 1, dtype=np.uint64)
    in_montgomery = to_montgomery(counting).reshape(-1).view(np.uint8)
    points = (device.fixed_base or multiples)(group, in_montgomery)
    bases = device.buffer(points.nbytes)
    device.upload(stream, bases, points, Memory.PAGEABLE)
    stream.synchronize()
    return bases


def _row(kernel: str, log2_size: int, ms: float, wide: float, ceilings: dict[str, float | None]) -> dict[str, Any]:
    ceiling = ceilings["wide_mad_per_s"]
    ratio = None if ceiling is None else wide / ceiling / (ms / 1e3)
    return {
        "kernel": kernel,
        "log2_size": log2_size,
        "ms": ms,
        "verified": True,
        "precomputed": False,
        "ceiling_ratio": ratio,
    }


def measure(device: RunDevice) -> dict[str, Any]:
    """The document of `bench kernels --json` for one device."""
    ceilings = device.ceilings()
    found = [row for size in NTT_SIZES[device.kind] for row in _ntt_rows(device, ceilings, size)]
    for group in ("g1", "g2"):
        for size in SIZES[device.kind]:
            if group == "g1" or size <= G2_LARGEST:
                found.append(_msm_row(device, ceilings, group, size))
    facts = device.describe()
    return {"device": facts["device"], "driver": device.driver(), "ceilings": ceilings, "rows": found}


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
