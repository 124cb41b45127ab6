"""The shape of each launch as plain data: NTT passes by size, MSM windows, spans and scratch memory by count.

Decided on the host from sizes alone, so that nothing has to come back from the device; the kernels' own files say what
the numbers mean to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

NTT_MIN_LOG2, NTT_MAX_LOG2 = 3, 27
TILE_LOG2 = 10  # elements of a tile: 36 KiB of shared memory, 128 threads of 8 elements
SLOT_BYTES = 36  # of shared memory an element, padding included
SMALL_NTT_LOG2 = 17  # up to here radix 4: twice the threads
SCALE_SPLIT_LOG2 = 12  # a power of the coset's shift is the product of entries of two tables, split here

SCALAR_BITS = 255
POINT_BYTES = {"g1": 96, "g2": 192}
WINDOW_BITS = range(4, 23)
FULL_ADDITION = 1.44  # in mixed additions
SPAN_MIN, SPAN_MAX = 16, 128
FILL_THREADS = 132 * 128 * 2 * 4  # accumulating threads that keep a large card busy for a few rounds
FAN = 16
SEGMENT_FIRST_MIN, SEGMENT_FIRST_MAX, SEGMENT_NEXT = 4, 32, 8
REDUCE_THREADS = 40_000
SCAN_BLOCK = 4096
ALIGN = 256


@dataclass(frozen=True)
class NttPass:
    """One launch: index bits [low, low + bits) in steps of radix 2**radix; all are log2 but blocks and threads."""

    low: int
    bits: int
    group: int
    tile: int
    radix: int
    blocks: int
    threads: int


@lru_cache
def ntt_passes(log2_size: int) -> tuple[NttPass, ...]:
    """The passes from the lowest index bits up (DIT runs them in this order, DIF backwards); raises ValueError."""
    if not NTT_MIN_LOG2 <= log2_size <= NTT_MAX_LOG2:
        raise ValueError(f"log2_size {log2_size}: an NTT here takes {NTT_MIN_LOG2} to {NTT_MAX_LOG2}")
    radix = 2 if log2_size <= SMALL_NTT_LOG2 else 3
    steps = -(-log2_size // radix)
    most = 9 // radix
    count = -(-steps // most)
    widths = [radix * (steps // count + (index < steps % count)) for index in range(count)]
    widths[0] -= sum(widths) - log2_size  # a step of fewer bits is the lowest of all
    passes, low = [], 0
    for bits in sorted(widths) if widths[0] < radix else widths:
        tile = min(max(bits, TILE_LOG2 if log2_size > SMALL_NTT_LOG2 else 8), log2_size)
        group = min(tile - bits, low) if low else 0
        if low:
            tile = bits + group
        passes.append(NttPass(low, bits, group, tile, radix, 1 << (log2_size - tile), 1 << (tile - radix)))
        low += bits
    return tuple(passes)


@dataclass(frozen=True)
class MsmPlan:
    """How one MSM is cut up. `copies` multiples of the bases share groups of windows (see msm.cu)."""

    group: str
    count: int
    copies: int
    bits: int  # of a window's signed digit
    span: int  # entries an accumulating thread adds
    lengths: tuple[int, ...]  # buckets, then sums, that a reducing thread takes, level by level

    @property
    def windows(self) -> int:
        """Digits of a scalar; the signed top one needs the 255th bit."""
        return -(-SCALAR_BITS // self.bits)

    @property
    def shared(self) -> int:
        """Windows that have buckets of their own."""
        return -(-self.windows // self.copies)

    @property
    def buckets(self) -> int:
        """Buckets of all windows."""
        return self.shared << (self.bits - 1)

    @property
    def point(self) -> int:
        """Bytes of an XYZZ point."""
        return 2 * POINT_BYTES[self.group]

    @property
    def doublings(self) -> int:
        """Copy k of the bases is 2**(k * doublings) times the bases."""
        return self.bits * self.shared

    @property
    def result_bytes(self) -> int:
        """Bytes of what comes back: for each reduction level and once more, one point a window."""
        return (len(self.lengths) + 1) * self.shared * self.point

    def spans(self) -> Iterator[tuple[int, int]]:
        """(threads, entries a thread) of the accumulation and of each merge after it, until one thread covers all."""
        span, total = self.span, self.count * self.windows
        while True:
            threads = -(-total // span)
            yield threads, span
            if threads == 1:
                return
            span *= FAN

    def segments(self) -> Iterator[int]:
        """Segments of all windows after each reduction level."""
        left = self.buckets
        for length in self.lengths:
            left //= length
            yield left

    def layout(self) -> dict[str, int]:
        """Offsets of the scratch memory's parts, and under "bytes" its size.

        `work` holds the digits, then the pieces of every level, then the sums of every level: one after the other.
        """
        pieces = sum(_aligned(2 * threads * self.point) + _aligned(8 * threads) for threads, _ in self.spans())
        sums = sum(_aligned((level + 2) * left * self.point) for level, left in enumerate(self.segments()))
        entries = 4 * self.count * self.windows
        sizes = {
            "ends": 4 * self.buckets,
            "block_sums": 4 * -(-self.buckets // SCAN_BLOCK),
            "entries": entries,
            "buckets": self.buckets * self.point,
            "work": max(entries, pieces, sums),
        }
        offsets, offset = {}, 0
        for name, size in sizes.items():
            offsets[name] = offset
            offset += _aligned(size)
        return {**offsets, "bytes": offset}


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


@lru_cache
def msm_plan(group: str, count: int, copies: int = 1, bits: int | None = None) -> MsmPlan:
    """The plan for count terms; bits forces the window. Raises ValueError for what the kernels cannot index."""
    if group not in POINT_BYTES or count < 1 or copies < 1 or count * copies >= 1 << 31:
        raise ValueError(f"msm of {count} terms in {group} with {copies} copies: g1 or g2, 1 to 2^31 - 1 bases")

    def cost(width: int) -> float:  # in mixed additions
        windows = -(-SCALAR_BITS // width)
        return count * windows + 2 * FULL_ADDITION * (-(-windows // copies) << (width - 1))

    bits = bits or min(WINDOW_BITS, key=cost)
    windows = -(-SCALAR_BITS // bits)
    if count * windows >= 1 << 32:
        raise ValueError(f"msm of {count} terms with {windows} digits each: at most 2^32 - 1 digits")
    span = min(max(count * windows // FILL_THREADS, SPAN_MIN), SPAN_MAX)
    total = -(-windows // copies) << (bits - 1)
    first = SEGMENT_FIRST_MIN
    while first < SEGMENT_FIRST_MAX and total // (2 * first) >= REDUCE_THREADS:
        first *= 2
    lengths: list[int] = []
    left = 1 << (bits - 1)
    while left > 1:
        lengths.append(min(left, SEGMENT_NEXT if lengths else first))
        left //= lengths[-1]
    return MsmPlan(group, count, copies, bits, span, tuple(lengths))
