"""The cuzk daemon's log, stdout and stderr in one file or several -> Log.

TIMELINE lines give each partition's life in milliseconds, tracing lines its worker, GPU and `prove_start`
(`cuzk_parts`), and the unlabelled C lines (`cuzk_calls`) what a call did before, for and inside the GPU lock. Here
they become rows. See FORMATS.md for the versions and for what this format cannot tell.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd

from cuzkbench.events import Event, Lane, Memory, Phase
from cuzkbench.logs.cuzk_calls import Assembler, Call, match
from cuzkbench.logs.cuzk_lines import MS, Clock, Record, Stamped, Timing, records
from cuzkbench.logs.cuzk_parts import Part, Parts
from cuzkbench.logs.foreign import Foreign, utc
from cuzkbench.logs.limits import Limits, Source, head
from cuzkbench.logs.log import Log
from cuzkbench.logs.validate import LANES, MOST_BYTES

POREP_BYTES = 3 * 32 * 130_278_869  # a, b and c of a porep-c2 partition: 32 bytes a constraint
VECTOR_BYTES = 3 * 32  # of each constraint
ASSUMED_GB_S = 50.0  # PCIe Gen5 x16: how fast an upload from pinned memory is at most
UPPER = (
    f"Kernel times are upper bounds: the log does not tell pinned uploads, taken at {ASSUMED_GB_S:.0f} GB/s, from NTTs."
)
LOWER = "Kernel times are lower bounds: the log does not tell some uploads from the NTTs beside them."
NO_CALLS = "No lock, upload or kernel lines (CUZK_TIMING): only the times of whole calls are known."
_Piece = tuple[Phase, str, int, dict[str, Any]]  # phase, name, ns, columns
_SIGNS = re.compile(rb"TIMELINE,\d+,|CUZK_TIMING:|CUZK_NTT_H:|cuzk_(?:core|daemon)\b")


def sniff(first: bytes, path: Path) -> bool:
    """Whether unpacked first bytes hold a line of the engine, whatever stands around it."""
    return _SIGNS.search(head(first)) is not None


def read(
    path: Path,
    *more: Path,
    partition_bytes: int | None = None,
    max_bytes: int | None = None,
    max_rows: int | None = None,
) -> Log:
    """The log in one file or several (stdout and stderr apart, or rotated); raises LogFormatError without an event.

    `partition_bytes` is what a partition uploads; without it, what the log says or what its kind of proof is known to.
    """
    if partition_bytes is not None and not 0 < partition_bytes <= MOST_BYTES:
        raise ValueError(f"partition_bytes {partition_bytes}: bytes above 0, at most {MOST_BYTES}")
    limits = Limits.of(max_bytes, max_rows)
    out = Foreign("cuzk", [path, *more])
    streams: list[list[Record]] = []
    cuts: list[str] = []
    for file in out.paths:
        source, stream = Source(file, limits), []
        for record in records(source, out.dropped):
            stream.append(record)
            limits.rows(file, len(stream))
        streams.append(stream)
        if source.cut:
            cuts.append(f"{file.name}, byte {source.taken}: {source.cut}")
    clock = Clock(streams, out.bounded)
    in_order = sorted(
        ((ns, r) for stream in clock.stamped for ns, r in stream if ns is not None), key=lambda pair: pair[0]
    )
    parts = Parts(in_order, out)
    workers = {part.worker for part in parts.all if part.worker >= 0}
    calls = _calls(clock.stamped, max(1, len({*parts.gpu_of.values()} or workers)), out)
    rows = _Rows(out, parts, partition_bytes)
    proved = [stated for part in parts.all if (stated := part.proved()) is not None]
    for stated, call in match(calls, proved, out.bounded):
        rows.call(stated.owner, stated.at_ns - stated.ms * MS, stated.at_ns, call)
    for part in parts.all:
        rows.life(part)
    rows.add_all()
    in_flight = parts.in_flight(in_order[-1][0] if in_order else 0)
    if in_flight and not cuts:
        cuts.append(f"end of log: {in_flight} partitions in flight")
    gpus = [{"gpu": gpu, "device": "unknown device"} for gpu in sorted({*parts.gpu_of.values()} | rows.gpus)]
    utc_ns = clock.utc_ns
    return out.log(gpus, {"engines": len(clock.anchors)}, "; ".join(cuts) or None, utc(utc_ns) if utc_ns else None, MS)


def _calls(stamped: list[Stamped], gpus: int, out: Foreign) -> list[Call]:
    """The C lines of all files put together, earliest file first: a rotated file goes on where the last one ended."""
    spoken = [stream for stream in stamped if any(isinstance(record, Timing) for _, record in stream)]
    assembler = Assembler(gpus, out.bounded, out.dropped)
    for stream in sorted(spoken, key=lambda stream: next((ns for ns, _ in stream if ns is not None), 0)):
        assembler.begin()
        for ns, record in stream:
            if isinstance(record, Timing):
                assembler.take(record.ntt, record.fields)
            elif ns is not None:
                assembler.stamp(ns)
    out.read["C lines"] += sum(isinstance(record, Timing) for stream in stamped for _, record in stream)
    return assembler.calls


class _Rows:
    """Rows of the record, as the lines of a partition and of its call give them."""

    def __init__(self, out: Foreign, parts: Parts, partition_bytes: int | None) -> None:
        self.out, self.parts, self.partition_bytes = out, parts, partition_bytes
        self.rows: list[Event] = []
        self.gpus: set[int] = set()
        self.guessed: set[int] = set()  # workers
        self.bounds: set[str] = set()  # sentences

    def add(self, part: Part, phase: Phase, name: str, start: int, end: int, **more: Any) -> None:
        if end > start or phase is Phase.COUNTER:
            gpu = self.parts.gpu_of.get(part.worker, 0)
            self.gpus.add(gpu)
            if part.worker not in self.parts.gpu_of:
                self.guessed.add(part.worker)
            early = phase in (Phase.SYNTHESIS, Phase.QUEUE)
            who = (part.name, part.partition, *((-1, -1) if early else (gpu, part.worker)))
            self.rows.append(Event("", *who, phase, LANES.get(phase, Lane.CPU), name, start, end, **more))

    def size(self, part: Part) -> int:
        """Bytes of a, b and c of this partition, 0 where nobody knows."""
        if self.partition_bytes is not None:
            return self.partition_bytes
        if self.parts.constraints is not None and not part.whole:
            return VECTOR_BYTES * self.parts.constraints
        porep = part.kind == "porep-c2" or (not part.kind and re.match(r"(ps-)?porep-", part.job) is not None)
        return POREP_BYTES if porep and not part.whole else 0

    def life(self, part: Part) -> None:
        """What happened before and after the call."""
        at = part.at
        start, end = at.get("synth_start"), at.get("synth_end")
        if start is None and end is not None and part.synth_ms is not None:
            start = end - part.synth_ms * MS
            self.out.bounded["syntheses whose start line is missing, dated back from their end"] += 1
        if start is not None and end is not None:
            self.add(part, Phase.SYNTHESIS, "synthesis", start, end)
        ready = at.get("queued", end)
        if ready is not None and "pickup" in at:
            self.add(part, Phase.QUEUE, "queue", min(ready, at["pickup"] - 1), at["pickup"])
        if "returned" in at:
            ms = float(part.prove_start_ms or 0)
            self.add(part, Phase.COUNTER, "prove_start_ms", at["returned"], at["returned"], value=ms)
        if "ended" in at and "finalised" in at:
            self.add(part, Phase.OTHER, "process result", at["ended"], at["finalised"])

    def call(self, part: Part, entry: int, end: int, call: Call | None) -> None:
        """A stated period [entry, end) and the C lines of its call, whose own measure begins with it."""
        if "pickup" in part.at:
            self.add(part, Phase.PREP, "before the call", part.at["pickup"], entry)
        if call is None:
            self.out.bounded["calls without C lines: neither lock nor kernels are known"] += 1
            self.add(part, Phase.OTHER, "call without its parts", entry, end)
            release = end
        else:
            release = entry + call.values["total_start_fn_ms"] * MS
            acquired = release - call.values["mutex_held_ms"] * MS
            if "mutex_wait_ms" in call.values:
                waiting = acquired - call.values["mutex_wait_ms"] * MS
                self.add(part, Phase.PREP, "pre_lock_cpu", entry, waiting)
                self.add(part, Phase.LOCK_WAIT, "lock", waiting, acquired)
            else:
                self.add(part, Phase.OTHER, "preparation and lock wait, not separable", entry, acquired)
            self.add(part, Phase.LOCK_HOLD, "lock", acquired, release)
            self.inside(part, call.values, acquired, release)
        if "ended" in part.at:
            self.add(part, Phase.FINISH, "finish", release, part.at["ended"])

    def inside(self, part: Part, values: dict[str, int], at: int, release: int) -> None:
        """Upload and kernels inside the hold, in the order in which the call runs them."""
        ntt = values.get("ntt_msm_h_ms", 0) * MS
        pieces: list[_Piece] = []
        if "ntt_kernels" in values and "coset_intt_sync" in values:
            pieces.append((Phase.OTHER, "d_b_alloc", values.get("d_b_alloc", 0) * MS, {}))
            pieces += self.upload(part, values["ntt_kernels"] * MS, values["coset_intt_sync"] * MS)
            pieces.append((Phase.OTHER, "msm_init", values.get("msm_init", 0) * MS, {}))
            pieces.append((Phase.KERNEL, "msm.h", values.get("msm_invoke", 0) * MS, {}))
        elif ntt:
            self.out.bounded["uploads not told apart from NTT and H MSM"] += 1
            self.bounds.add(LOWER)
            pieces.append((Phase.OTHER, "upload, NTT and H MSM, not separable", ntt, {}))
        pieces.append((Phase.OTHER, "", ntt - sum(ns for _, _, ns, _ in pieces), {}))  # fractions that were dropped
        for phase, name, key in (
            (Phase.PREP, "barrier_wait", "barrier_wait_ms"),
            (Phase.KERNEL, "batch_add", "batch_add_ms"),
            (Phase.KERNEL, "msm.tail", "tail_msm_ms"),
        ):
            pieces.append((phase, name, values.get(key, 0) * MS, {}))
        for phase, name, length, more in pieces:
            if name:
                self.add(part, phase, name, at, min(at + length, release), **more)
            at += max(0, length)

    def upload(self, part: Part, enqueued: int, synchronised: int) -> list[_Piece]:
        """The first half up to the H MSM: from pageable memory the copies block the enqueuing, from pinned the rest."""
        size = self.size(part)
        shortest = round(size / ASSUMED_GB_S)
        pinned = self.parts.pinned.get((part.partition, part.synth_ms))
        if pinned is None and size:
            pinned = 2 * enqueued < shortest
            self.out.bounded["uploads whose memory is inferred from where they block"] += 1
        if pinned is None:
            self.out.bounded["uploads of unknown size and memory, not told apart from NTTs"] += 1
            self.bounds.add(LOWER)
            return [(Phase.OTHER, "upload and NTT, not separable", enqueued + synchronised, {})]
        copied, what = enqueued, {"bytes": size, "memory": Memory.PAGEABLE}
        if pinned:
            self.out.bounded["uploads from pinned memory, taken at line rate"] += 1
            self.bounds.add(UPPER)
            copied, what = min(shortest, enqueued + synchronised), {"bytes": size, "memory": Memory.PINNED}
        elif not size:
            return [(Phase.OTHER, "upload of unknown size", enqueued, {}), (Phase.KERNEL, "ntt", synchronised, {})]
        return [(Phase.H2D, "upload", copied, what), (Phase.KERNEL, "ntt", enqueued + synchronised - copied, {})]

    def add_all(self) -> None:
        rows = pd.DataFrame(self.rows, columns=Event._fields)
        self.out.add(len(rows), **rows.drop(columns="run"))
        self.out.bounded["workers whose GPU no line names, taken as GPU 0"] += len(self.guessed)
        if not (rows["phase"] == Phase.KERNEL).any():
            self.out.labels.append(NO_CALLS)
        holds = rows[rows["phase"] == Phase.LOCK_HOLD].sort_values("start_ns")
        if self.guessed and (holds["start_ns"].shift(-1) < holds["end_ns"] - 2 * MS).any():
            self.out.warnings.append("locks of GPU 0 overlap: several GPUs are taken together, stdout tells them apart")
        self.out.labels += sorted(self.bounds)
