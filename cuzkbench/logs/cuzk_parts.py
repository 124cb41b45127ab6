"""The cuzk daemon's stamped lines sorted into the partitions they speak of. For `logs/cuzk.py`.

A job's id is the client's and comes again on a retry, lines outside the `gpu_worker` span name no job, and a stream
may be missing: each line is given to the latest partition that still lacks what it says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cuzkbench.logs.cuzk_calls import Proved
from cuzkbench.logs.cuzk_lines import MS, QUEUED, Record, Timeline, Trace
from cuzkbench.logs.foreign import MOST_GPUS, Foreign

LATE_NS = 5 * MS  # between two streams' stamps of one moment
EVENTS = {  # what each sets
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
    """One partition in one attempt of a job; times in ns, None where no line says. A monolithic job is partition 0."""

    job: str
    partition: int
    attempt: int
    whole: bool  # a monolithic job
    kind: str = ""
    worker: int = -1
    synth_start: int | None = None
    synth_end: int | None = None
    synth_ms: int | None = None
    queued: int | None = None
    pickup: int | None = None
    started: int | None = None
    ended: int | None = None
    gpu_ms: int | None = None
    prove_start_ms: int | None = None
    returned: int | None = None  # when prove_start was stated
    finalised: int | None = None

    @property
    def name(self) -> str:
        """The job's id, with the attempt from the second on."""
        return self.job if self.attempt == 1 else f"{self.job}#{self.attempt}"


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
            self.read["tracing lines"] += 1

    def _event(self, ns: int, event: str, job: str, fields: dict[str, Any]) -> None:
        attribute = EVENTS.get(event)
        if attribute is None:
            self.dropped["TIMELINE events of an unknown name"] += 1
            return
        partition, worker = _number(fields.get("partition"), 0), _number(fields.get("worker"), -1)
        whole = isinstance(fields.get("partition", 0), int) and isinstance(fields.get("worker", 0), int)
        if not (whole and 0 <= partition < 2**31 and -1 <= worker < 2**15):
            self.dropped["records that cannot be read"] += 1
            return
        attempts = self._named[job, partition]
        on_worker = attribute in ("pickup", "started", "ended")
        recent = [] if event == "SYNTH_START" else attempts[-_LOOK_BACK:]
        fits = [part for part in recent if getattr(part, attribute) is None]
        if on_worker:
            fits = [part for part in fits if part.worker in (worker, -1)]
        part = fits[-1] if fits else Part(job, partition, len(attempts) + 1, "partition" not in fields)
        if not fits:
            attempts.append(part)
            self.all.append(part)
        setattr(part, attribute, ns)
        part.kind = part.kind or str(fields.get("kind", ""))
        part.synth_ms = _number(fields.get("synth_ms"), part.synth_ms)
        part.gpu_ms = _number(fields.get("gpu_ms"), part.gpu_ms)
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
            overhead = _number(fields.get("total_overhead_ms"), 0) * MS
            self._event(ns - overhead, "GPU_PICKUP", job, {"worker": span.get("worker_id"), **span})

    def _mention(self, trace: Trace) -> None:
        """What a line says of a worker's GPU, a job's kind, the constraints and the memory of the vectors."""
        span, fields = trace.span, trace.fields
        if isinstance(span.get("worker_id"), int) and 0 <= _number(span.get("gpu"), -1) < MOST_GPUS:
            self.gpu_of[span["worker_id"]] = span["gpu"]
        for part in self._named.get((str(span.get("job_id")), _number(span.get("partition"), 0)), []):
            part.kind = part.kind or str(span.get("proof_kind", ""))
        if "is_pinned" in fields:
            self.pinned[fields.get("partition"), fields.get("synth_ms")] = fields["is_pinned"] == "true"
        self.constraints = _number(fields.get("num_constraints"), self.constraints)

    def _worker_says(self, ns: int, trace: Trace) -> None:
        """Lines that name a worker and a partition, but no job."""
        worker, partition = _number(trace.fields.get("worker_id"), -1), _number(trace.fields.get("partition"), 0)
        parts = self._worked.get((worker, partition), [])
        if trace.message.startswith("GPU_TIMING spawn_blocking prove_start"):
            length = _number(trace.fields.get("prove_start_ms"), 0)
            begun = ns - length * MS + LATE_NS
            found = next((part for part in _before(parts, begun) if part.prove_start_ms is None), None)
            if found is not None:
                found.prove_start_ms, found.returned = length, ns
            self.dropped["prove_start lines whose pick-up is missing"] += found is None
        elif trace.message.startswith("FIN_TIMING finalizer"):
            for part in _before(parts, ns):
                done = part.returned if part.ended is None else part.ended
                if part.finalised is not None or done is None or done > ns + LATE_NS:
                    continue
                part.finalised = ns
                if part.ended is None:  # no GPU_END line: the end is when the finalizer had finished, not yet processed
                    rest = _number(trace.fields.get("total_ms"), 0) - _number(trace.fields.get("finish_ms"), 0)
                    part.ended = max(part.returned or 0, ns - rest * MS)
                break
        elif trace.message.startswith(_PROVED):
            named = self._named.get((str(trace.fields.get("job_id")), partition), [])
            if named and named[-1].ended is None and named[-1].pickup is not None:
                named[-1].ended, named[-1].gpu_ms = ns, _number(trace.fields.get("gpu_ms"), None)

    def in_flight(self, last: int) -> int:
        """Partitions that may still have been at work when the log ended at `last`; earlier ones had failed."""
        known = {name for name in ("finalised", "ended", "returned") for p in self.all if getattr(p, name) is not None}
        sign = next((name for name in ("finalised", "ended", "returned") if name in known), "")
        done = [part for part in self.all if sign and getattr(part, sign) is not None]
        open_ = [part for part in self.all if not sign or getattr(part, sign) is None]
        longest = max((p.synth_end - p.synth_start for p in self.all if p.synth_end and p.synth_start), default=0)
        latest: dict[int, int] = {}  # of each worker: when it picked up the last partition that was finished
        for part in done:
            latest[part.worker] = max(latest.get(part.worker, 0), part.pickup or 0)
        flying = 0
        for part in open_:
            if part.pickup is not None:
                flying += part.pickup > latest.get(part.worker, -1)
            elif part.synth_end is not None or part.queued is not None:
                flying += 1
            else:
                flying += part.synth_start is not None and part.synth_start + longest >= last
        self.dropped["partitions begun and never finished"] += len(open_) - flying
        return flying

    def proved(self) -> list[Proved]:
        """The periods that lines state for GPU calls: prove_start, or the whole GPU time where only that is there."""
        stated = []
        for part in self.all:
            if part.returned is not None and part.prove_start_ms is not None:
                stated.append(Proved(part.returned, part.prove_start_ms, part))
            elif part.ended is not None and part.gpu_ms is not None:
                stated.append(Proved(part.ended, part.gpu_ms, part))
        return stated


def _before(parts: list[Part], ns: int) -> list[Part]:
    """The latest parts of one worker picked up until then (they stand in that order), the last one first."""
    end = bisect_right(parts, ns, key=lambda part: part.pickup or 0)
    return parts[max(0, end - _LOOK_BACK) : end][::-1]


def _number(value: Any, otherwise: Any) -> Any:
    return value if isinstance(value, int) else otherwise
