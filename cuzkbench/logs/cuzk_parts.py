"""The cuzk daemon's stamped lines sorted into the partitions they speak of. For `logs/cuzk.py`.

A job's id is the client's and comes again on a retry, lines outside the `gpu_worker` span name no job, and a stream
may be missing: each line is given to the latest partition that still lacks what it says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cuzkbench.logs.cuzk_calls import Proved
from cuzkbench.logs.cuzk_lines import MS, QUEUED, Record, Timeline, Trace
from cuzkbench.logs.foreign import MOST_GPUS, Foreign

LATE_NS = 5 * MS  # between two streams' stamps of one moment
EVENTS = {  # the moment that each tells
    "SYNTH_START": "synth_start",
    "SYNTH_END": "synth_end",
    "GPU_QUEUE": "queued",
    "CHAN_SEND": "queued",
    "GPU_PICKUP": "pickup",
    "GPU_START": "started",
    "GPU_END": "ended",
}
_LOOK_BACK = 8  # attempts of one partition that may be under way at once, of which all but one have failed
_PROVED = "partition GPU prove complete"


@dataclass(eq=False)
class Part:
    """One partition in one attempt of a job. A monolithic job is partition 0."""

    job: str
    partition: int
    attempt: int
    whole: bool  # a monolithic job
    kind: str = ""
    worker: int = -1
    synth_ms: int | None = None
    gpu_ms: int | None = None
    prove_start_ms: int | None = None
    at: dict[str, int] = field(default_factory=dict)  # ns of EVENTS' moments, `returned` from prove_start, `finalised`

    @property
    def name(self) -> str:
        """The job's id, with the attempt from the second on."""
        return self.job if self.attempt == 1 else f"{self.job}#{self.attempt}"

    def proved(self) -> Proved | None:
        """The period that lines state for its GPU call: prove_start, or the whole GPU time where only that is there."""
        if "returned" in self.at and self.prove_start_ms is not None:
            return Proved(self.at["returned"], self.prove_start_ms, self)
        return Proved(self.at["ended"], self.gpu_ms, self) if "ended" in self.at and self.gpu_ms is not None else None


class Parts:
    """All partitions, their workers' GPUs, and what the lines say beside."""

    def __init__(self, stamped: Sequence[tuple[int, Record]], out: Foreign) -> None:
        self.read, self.dropped = out.read, out.dropped
        self.all: list[Part] = []
        self.gpu_of: dict[int, int] = {}
        self.pinned: dict[tuple[Any, Any], bool] = {}  # by partition and synth_ms
        self.constraints: int | None = None
        self._named: dict[tuple[str, int], list[Part]] = defaultdict(list)
        self._worked: dict[tuple[int, int], list[Part]] = defaultdict(list)  # by worker and partition, as picked up
        traces = [(ns, record) for ns, record in stamped if isinstance(record, Trace)]
        for ns, record in stamped:
            if isinstance(record, Timeline):
                self._event(ns, record.event, record.job, record.fields)
        for ns, trace in traces if not self.all else ():
            self._stand_in(ns, trace)
        for ns, trace in traces:
            self._mention(trace)
            self._worker_says(ns, trace)
        self.read["tracing lines"] += len(traces)

    def _event(self, ns: int, event: str, job: str, fields: dict[str, Any]) -> None:
        moment = EVENTS.get(event)
        if moment is None:
            self.dropped["TIMELINE events of an unknown name"] += 1
            return
        partition, worker = fields.get("partition", 0), fields.get("worker", -1)
        whole = isinstance(partition, int) and isinstance(worker, int)
        if not (whole and 0 <= partition < 2**31 and -1 <= worker < 2**15):
            self.dropped["records that cannot be read"] += 1
            return
        attempts = self._named[job, partition]
        on_worker = moment in ("pickup", "started", "ended")
        recent = [] if event == "SYNTH_START" else attempts[-_LOOK_BACK:]
        fits = [p for p in recent if moment not in p.at and (not on_worker or p.worker in (worker, -1))]
        part = fits[-1] if fits else Part(job, partition, len(attempts) + 1, "partition" not in fields)
        if not fits:
            attempts.append(part)
            self.all.append(part)
        part.at[moment] = ns
        part.kind = part.kind or str(fields.get("kind", ""))
        part.synth_ms = _number(fields, "synth_ms", part.synth_ms)
        part.gpu_ms = _number(fields, "gpu_ms", part.gpu_ms)
        if on_worker and part.worker < 0:
            part.worker = worker
            self._worked[worker, partition].append(part)
        self.read[f"TIMELINE {event}"] += 1

    def _stand_in(self, ns: int, trace: Trace) -> None:
        """The steps that tracing lines tell where no TIMELINE line was kept."""
        span, fields = trace.span, trace.fields
        job = str(fields.get("job_id", span.get("job_id", "")))
        if trace.message.startswith(QUEUED):
            self._event(ns, "SYNTH_END", job, fields)
        elif trace.message.startswith("GPU_TIMING hot_path") and span:
            overhead = _number(fields, "total_overhead_ms", 0) * MS
            self._event(ns - overhead, "GPU_PICKUP", job, {"worker": span.get("worker_id"), **span})

    def _mention(self, trace: Trace) -> None:
        """What a line says of a worker's GPU, a job's kind, the constraints and the memory of the vectors."""
        span, fields = trace.span, trace.fields
        if isinstance(span.get("worker_id"), int) and 0 <= _number(span, "gpu", -1) < MOST_GPUS:
            self.gpu_of[span["worker_id"]] = span["gpu"]
        for part in self._named.get((str(span.get("job_id")), _number(span, "partition", 0)), []):
            part.kind = part.kind or str(span.get("proof_kind", ""))
        if "is_pinned" in fields:
            self.pinned[fields.get("partition"), fields.get("synth_ms")] = fields["is_pinned"] == "true"
        self.constraints = _number(fields, "num_constraints", self.constraints)

    def _worker_says(self, ns: int, trace: Trace) -> None:
        """Lines that name a worker and a partition, but no job."""
        fields, partition = trace.fields, _number(trace.fields, "partition", 0)
        parts = self._worked.get((_number(fields, "worker_id", -1), partition), [])
        if trace.message.startswith("GPU_TIMING spawn_blocking prove_start"):
            length = _number(fields, "prove_start_ms", 0)
            begun = _before(parts, ns - length * MS + LATE_NS)
            found = next((part for part in begun if part.prove_start_ms is None), None)
            if found is not None:
                found.prove_start_ms, found.at["returned"] = length, ns
            self.dropped["prove_start lines whose pick-up is missing"] += found is None
        elif trace.message.startswith("FIN_TIMING finalizer"):
            for part in _before(parts, ns):
                done = part.at.get("ended", part.at.get("returned"))
                if "finalised" not in part.at and done is not None and done <= ns + LATE_NS:
                    part.at["finalised"] = ns
                    # without a GPU_END line the end is when the finalizer had finished, not yet processed
                    rest = _number(fields, "total_ms", 0) - _number(fields, "finish_ms", 0)
                    part.at.setdefault("ended", max(part.at.get("returned", 0), ns - rest * MS))
                    break
        elif trace.message.startswith(_PROVED):
            for part in self._named.get((str(fields.get("job_id")), partition), [])[-1:]:
                if "ended" not in part.at and "pickup" in part.at:
                    part.at["ended"], part.gpu_ms = ns, _number(fields, "gpu_ms", None)

    def in_flight(self, last: int) -> int:
        """Partitions that may still have been at work when the log ended at `last`; earlier ones had failed."""
        told = {moment for part in self.all for moment in part.at}
        sign = next((moment for moment in ("finalised", "ended", "returned") if moment in told), "")
        latest: dict[int, int] = {}  # of each worker: when it picked up the last partition that was finished
        longest = flying = failed = 0
        for part in self.all:
            at = part.at
            if at.get("synth_end") and at.get("synth_start"):
                longest = max(longest, at["synth_end"] - at["synth_start"])
            if sign in at:
                latest[part.worker] = max(latest.get(part.worker, 0), at.get("pickup", 0))
        for part in self.all:
            at = part.at
            if "pickup" in at:
                works = at["pickup"] > latest.get(part.worker, -1)
            else:
                synthesising = "synth_start" in at and at["synth_start"] + longest >= last
                works = "synth_end" in at or "queued" in at or synthesising
            flying += sign not in at and works
            failed += sign not in at and not works
        self.dropped["partitions begun and never finished"] += failed
        return flying


def _before(parts: list[Part], ns: int) -> list[Part]:
    """The latest parts of one worker picked up until then (they stand in that order), the last one first."""
    end = bisect_right(parts, ns, key=lambda part: part.at.get("pickup", 0))
    return parts[max(0, end - _LOOK_BACK) : end][::-1]


def _number(fields: dict[str, Any], name: str, otherwise: Any) -> Any:
    value = fields.get(name)
    return value if isinstance(value, int) else otherwise
