"""`Kernels`: every kernel behind a Python call that takes addresses and a stream and only queues work.

`device/cuda.py` wraps it. Tables are made once a size at first use; afterwards nothing allocates or synchronises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from cuzkbench import bls12_381 as curve
from cuzkbench.device.kernels import finish, shapes
from cuzkbench.device.kernels.launch import CupyLauncher, Launcher
from cuzkbench.device.kernels.shapes import msm_plan, ntt_passes

NORMALISE_BATCH = 64  # points that share one inversion
FIXED_BITS, FIXED_WINDOWS = 8, 32
FIXED_TABLE_POINTS = FIXED_WINDOWS * 255
SPIN_BLOCK = 512
CEILING_ROUNDS = 1 << 14
u32, u64 = np.uint32, np.uint64


class Kernels:
    """The kernels on one CUDA device. Calls may come from several threads; each names its stream."""

    def __init__(self, index: int = 0, launcher: Launcher | None = None) -> None:
        self.launcher: Any = launcher or CupyLauncher(index)
        self._tables: dict[Any, int] = {}
        self._lock = threading.Lock()

    def _launch(self, module: str, kernel: str, threads: int, block: int, *args: Any, stream: int) -> None:
        self.launcher.launch(module, kernel, (-(-threads // block),), block, args, 0, stream)

    # -- tables

    def _powers(self, base: int, scale: int, count: int) -> int:
        """Address of a table of scale * base^i, i < count, in Montgomery form."""
        constants = self.launcher.allocate(2 * curve.FR_BYTES)
        self.launcher.write(constants, curve.fr_to_montgomery(base) + curve.fr_to_montgomery(scale))
        table = int(self.launcher.allocate(count * curve.FR_BYTES))
        self._launch("pointwise", "powers", -(-count // 64), 128, u64(table), u64(constants), u64(count), stream=0)
        self.launcher.synchronize(0)
        return table

    def _table(self, key: Any, base: int, scale: int, count: int) -> int:
        with self._lock:
            if key not in self._tables:
                self._tables[key] = self._powers(base, scale, count)
            return self._tables[key]

    def _twiddles(self, log2_size: int) -> int:
        return self._table(("w", log2_size), curve.root_of_unity(log2_size), 1, 1 << log2_size)

    def _scale(self, log2_size: int, inverse: bool, coset: bool) -> tuple[int, int]:
        """Addresses of the low and high table of what multiplies coefficient i: 0 where nothing does."""
        size_inverse = pow(1 << log2_size, -1, curve.r) if inverse else 1
        if not coset:
            return (self._table(("1/n", log2_size), 1, size_inverse, 1), 0) if inverse else (0, 0)
        shift = pow(curve.FR_GENERATOR, -1 if inverse else 1, curve.r)
        split = shapes.SCALE_SPLIT_LOG2
        low = self._table(("low", log2_size, inverse), shift, size_inverse, 1 << split)
        high_step = pow(shift, 1 << split, curve.r)
        high = self._table(("high", inverse, log2_size), high_step, 1, 1 << max(log2_size - split, 0))
        return low, high

    # -- transforms

    def ntt(self, stream: int, values: int, log2_size: int, *, inverse: bool = False, coset: bool = False) -> None:
        """See `device.base.Device.ntt`: forward reversed to natural, inverse natural to reversed, in place."""
        scale = self._scale(log2_size, inverse, coset)
        self._transform(stream, values, log2_size, "dif_inverse" if inverse else "dit_forward", scale)

    def ntt_to_reversed(self, stream: int, values: int, log2_size: int) -> None:
        """Forward from natural-order coefficients to bit-reversed values, in place."""
        self._transform(stream, values, log2_size, "dif_forward", (0, 0))

    def _transform(self, stream: int, values: int, log2_size: int, kind: str, scale: tuple[int, int]) -> None:
        passes, twiddles = ntt_passes(log2_size), self._twiddles(log2_size)
        for step in passes if kind.startswith("dit") else reversed(passes):
            low, high = scale if step.low == 0 else (0, 0)
            tables = (u64(twiddles), u64(low), u64(high), u32(shapes.SCALE_SPLIT_LOG2))
            place = (u32(log2_size), u32(step.low), u32(step.bits), u32(step.group), u32(step.tile))
            args = (u64(values), *tables, *place)
            kernel = f"ntt_{kind}_{1 << step.radix}"
            shared = shapes.SLOT_BYTES << step.tile
            self.launcher.launch("ntt", kernel, (step.blocks,), step.threads, args, shared, stream)

    def quotient(self, stream: int, a: int, b: int, c: int, log2_size: int) -> None:
        """a = (a * b - c) / Z pointwise on the coset, Z = 7^n - 1."""
        count = 1 << log2_size
        zinv = pow(pow(curve.FR_GENERATOR, count, curve.r) - 1, -1, curve.r)
        table = self._table(("zinv", log2_size), 1, zinv, 1)
        self._launch("pointwise", "quotient", count, 128, u64(a), u64(b), u64(c), u64(table), u64(count), stream=stream)

    def to_montgomery(self, stream: int, values: int, count: int) -> None:
        """Canonical scalars to Montgomery form, in place."""
        self._launch("pointwise", "to_montgomery", count, 128, u64(values), u64(count), stream=stream)

    def from_montgomery(self, stream: int, values: int, count: int) -> None:
        """Scalars out of Montgomery form, in place."""
        self._launch("pointwise", "from_montgomery", count, 128, u64(values), u64(count), stream=stream)

    def gather(self, stream: int, out: int, values: int, index: int, count: int) -> None:
        """out[i] = values[index[i]], index being 32-bit."""
        self._launch("pointwise", "gather", count, 128, u64(out), u64(values), u64(index), u64(count), stream=stream)

    def nothing(self, stream: int) -> None:
        """An empty kernel."""
        self._launch("pointwise", "nothing", 1, 1, stream=stream)

    def spin(self, stream: int, seconds: float) -> None:
        """Hold every multiprocessor's threads for that long."""
        blocks = self.launcher.multiprocessors * (self.launcher.threads_per_multiprocessor // SPIN_BLOCK)
        self._launch("pointwise", "spin", blocks * SPIN_BLOCK, SPIN_BLOCK, u64(round(seconds * 1e9)), stream=stream)

    def ceilings(self, buffer: int, nbytes: int) -> dict[str, tuple[float, Callable[[int], None]]]:
        """What to time for `device.base.CEILINGS`: amount of work and a launch on a stream; buffer: 2 * nbytes."""
        blocks, block = 8 * self.launcher.multiprocessors, 256

        def arithmetic(kernel: str) -> Callable[[int], None]:
            args = (u64(buffer), u32(0x9E3779B1), u32(CEILING_ROUNDS))
            return lambda stream: self._launch("pointwise", kernel, blocks * block, block, *args, stream=stream)

        def copy(stream: int) -> None:
            args = (u64(buffer), u64(buffer + nbytes), u64(nbytes // 16))
            self._launch("pointwise", "ceiling_copy", 2 * blocks * 512, 512, *args, stream=stream)

        work = 8.0 * CEILING_ROUNDS * blocks * block
        return {
            "imad_per_s": (work, arithmetic("ceiling_narrow")),
            "wide_mad_per_s": (work, arithmetic("ceiling_wide")),
            "copy_bytes_per_s": (2.0 * nbytes, copy),
        }

    # -- multi-scalar multiplication

    def msm_scratch_bytes(self, group: str, count: int, copies: int = 1) -> int:
        """Device memory that `msm` needs beside its operands."""
        return msm_plan(group, count, copies).layout()["bytes"]

    def msm_result_bytes(self, group: str, count: int, copies: int = 1) -> int:
        """Bytes that `msm` leaves at `result` for `finish_msm`."""
        return msm_plan(group, count, copies).result_bytes

    def finish_msm(self, group: str, count: int, result: Any, copies: int = 1) -> bytes:
        """The downloaded result as one affine point: canonical little-endian coordinates, zeros for infinity."""
        return finish.finish(msm_plan(group, count, copies), bytes(result))

    def msm(
        self,
        stream: int,
        group: str,
        bases: int,
        scalars: int,
        count: int,
        scratch: int,
        scratch_bytes: int,
        result: int,
        copies: int = 1,
        bits: int | None = None,
    ) -> None:
        """Queue sum of scalars[i] * bases[i]; `bases` holds `copies` blocks as `make_copies` lays them out."""
        plan = msm_plan(group, count, copies, bits)
        at = plan.layout()
        if scratch_bytes < at["bytes"]:
            raise ValueError(f"msm of {count} in {group}: {at['bytes']} bytes of scratch memory, {scratch_bytes} given")
        module, place = f"msm_{group}", {name: u64(scratch + offset) for name, offset in at.items()}

        def launch(kernel: str, threads: int, block: int, *args: Any) -> None:
            self._launch(module, kernel, threads, block, *args, stream=stream)

        n, width, shared, buckets = u32(count), u32(plan.bits), u32(plan.shared), u32(plan.buckets)
        ends, entries, sums, work = place["ends"], place["entries"], place["block_sums"], place["work"]
        launch("msm_clear", min(plan.buckets, 1 << 20), 256, ends, u64(plan.buckets))
        launch("msm_digits", count, 256, u64(scalars), n, width, u32(plan.windows), shared, work, ends)
        blocks = -(-plan.buckets // shapes.SCAN_BLOCK)
        launch("msm_scan_blocks", blocks * 256, 256, ends, buckets, sums)
        launch("msm_scan_sums", 1024, 1024, sums, u32(blocks))
        launch("msm_scan_apply", blocks * 256, 256, ends, buckets, sums)
        grid = (-(-count // 256), plan.windows)
        self.launcher.launch(module, "msm_scatter", grid, 256, (work, n, width, shared, ends, entries), 0, stream)
        self._accumulate(launch, plan, bases, place)
        self._reduce(stream, module, plan, place, result)

    def _accumulate(self, launch: Any, plan: shapes.MsmPlan, bases: int, place: dict[str, Any]) -> None:
        ends, buckets = place["ends"], place["buckets"]
        pieces, below = int(place["work"]), (0, 0, 0)
        for level, (threads, span) in enumerate(plan.spans()):
            ids = pieces + _aligned(2 * threads * plan.point)
            out = (buckets, u64(pieces), u64(ids))
            if level == 0:
                entries = (u64(bases), place["entries"], ends, u32(plan.buckets), u32(span), u32(threads))
                launch("msm_accumulate", threads, 128, *entries, *out)
            else:
                level_below = (u64(below[0]), u64(below[1]), u32(below[2]), u32(shapes.FAN))
                launch("msm_merge", threads, 64, *level_below, u64(span), u32(threads), ends, *out)
            below = (pieces, ids, threads)
            pieces = ids + _aligned(8 * threads)

    def _reduce(self, stream: int, module: str, plan: shapes.MsmPlan, place: dict[str, Any], result: int) -> None:
        sums, previous = int(place["work"]), int(place["buckets"])
        for level, (segments, length) in enumerate(zip(plan.segments(), plan.lengths, strict=True)):
            out = result if level == len(plan.lengths) - 1 else sums
            grid = (-(-segments // 64), level + 1 if level else 1)
            first = (place["ends"],) if level == 0 else (u32(level + 1),)
            kernel = "msm_reduce_next" if level else "msm_reduce_first"
            args = (u64(previous), *first, u32(length), u32(segments), u64(out))
            self.launcher.launch(module, kernel, grid, 64, args, 0, stream)
            previous = sums
            sums += _aligned((level + 2) * segments * plan.point)

    # -- keys

    def fixed_base_scratch_bytes(self, group: str, count: int) -> int:
        """Device memory that `fixed_base` needs beside its operands: one XYZZ point a scalar, and its table."""
        point = shapes.POINT_BYTES[group]
        return 2 * point * max(count, FIXED_TABLE_POINTS) + point * (FIXED_TABLE_POINTS + FIXED_WINDOWS)

    def fixed_base(
        self, stream: int, group: str, base: bytes, scalars: int, count: int, out: int, scratch: int, scratch_bytes: int
    ) -> None:
        """out[i] = scalars[i] * base as affine Montgomery points; `base` is one such point in host memory.

        For key generation: unlike the rest it first waits for a copy of 32 points, so the stream must be idle.
        """
        need, point = self.fixed_base_scratch_bytes(group, count), shapes.POINT_BYTES[group]
        if scratch_bytes < need:
            raise ValueError(f"fixed_base of {count} in {group}: {need} bytes of scratch memory, {scratch_bytes} given")
        module = f"fixed_base_{group}"
        points = scratch
        table = points + 2 * point * max(count, FIXED_TABLE_POINTS)
        base_at = table + point * FIXED_TABLE_POINTS
        self.launcher.write(base_at, finish.window_bases(base, group, FIXED_BITS, FIXED_WINDOWS))
        self._launch(module, "fixed_table", FIXED_TABLE_POINTS, 64, u64(base_at), u64(points), stream=stream)
        self._normalise(stream, module, points, FIXED_TABLE_POINTS, table)
        args = (u64(table), u64(scalars), u32(count), u64(points))
        self._launch(module, "fixed_multiply", count, 128, *args, stream=stream)
        self._normalise(stream, module, points, count, out)

    def _normalise(self, stream: int, module: str, points: int, count: int, out: int) -> None:
        threads = -(-count // NORMALISE_BATCH)
        args = (u64(points), u32(count), u32(threads), u64(out))
        self._launch(module, "normalise", threads, 64, *args, stream=stream)

    def make_copies(self, stream: int, group: str, bases: int, count: int, copies: int, scratch: int) -> None:
        """Fill blocks 1.. of `bases`, which starts with count points and has room for `copies` blocks.

        scratch: 2 * POINT_BYTES * count bytes. Costs as many doublings a base as a scalar has bits, once a key.
        """
        plan, module, block = msm_plan(group, count, copies), f"fixed_base_{group}", count * shapes.POINT_BYTES[group]
        for copy in range(1, copies):
            args = (u64(bases + (copy - 1) * block), u32(count), u32(plan.doublings), u64(scratch))
            self._launch(module, "double_bases", count, 64, *args, stream=stream)
            self._normalise(stream, module, scratch, count, bases + copy * block)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // shapes.ALIGN) * shapes.ALIGN
