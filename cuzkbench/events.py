"""The record: one row an interval. The prover half writes it, the analysis half reads it, nothing else joins them.

Times are integer nanoseconds since the run's epoch, intervals are half-open. `COLUMNS` is the schema of the
frame, `Event` one row of it, `HEADER` and `TRAILER` name what a log says before and after its rows.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

FORMAT_VERSION = 1


class _Described(StrEnum):
    """A string enum whose members carry the sentence that explains them to a reader."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> _Described:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class Phase(_Described):
    """What an interval of a partition's life was spent on."""

    SYNTHESIS = "SYNTHESIS", "The CPU makes the witness and the a, b and c vectors of one partition."
    QUEUE = "QUEUE", "A synthesised partition waits for a GPU worker to pick it up."
    PREP = "PREP", "The worker prepares the partition on the CPU before its data crosses the bus."
    LOCK_WAIT = "LOCK_WAIT", "The worker waits for the GPU lock that another worker holds."
    LOCK_HOLD = "LOCK_HOLD", "The worker holds the GPU lock, whatever it does meanwhile."
    ALLOC = "ALLOC", "Somebody waits for, makes, registers or returns a host buffer."
    STAGE = "STAGE", "Threads copy heap memory into a pinned ring, from where the bus can read it."
    H2D = "H2D", "Data crosses the bus from host to device."
    KERNEL = "KERNEL", "The GPU computes: an NTT, a pointwise step or an MSM."
    D2H = "D2H", "Results cross the bus from device to host."
    FINISH = "FINISH", "The worker assembles and serialises the proof on the CPU."
    VERIFY = "VERIFY", "The proof is checked against the verifying key; the name says accepted or rejected."
    COUNTER = "COUNTER", "One sample of a counter; the value column holds it."
    MEMSET = "MEMSET", "The device fills memory (foreign traces)."
    D2D = "D2D", "The device copies within or between devices (foreign traces)."
    HOST_SYNC = "HOST_SYNC", "A host thread blocks on the device or on a lock (foreign traces)."
    OTHER = "OTHER", "Something else that a foreign trace recorded."


class Lane(_Described):
    """The resource that an interval occupies."""

    CPU = "CPU", "A host thread."
    LOCK = "LOCK", "The GPU lock."
    COPY_H2D = "COPY_H2D", "The copy engine towards the device."
    COPY_D2H = "COPY_D2H", "The copy engine towards the host."
    COMPUTE = "COMPUTE", "The device's compute units."


class Memory(_Described):
    """Where the host side of a copy lives."""

    NONE = "NONE", "Not a copy."
    PAGEABLE = "PAGEABLE", "Ordinary heap memory: the driver stages it through a small bounce buffer."
    PINNED = "PINNED", "Page-locked memory that the bus reads directly."
    REGISTERED = "REGISTERED", "Heap memory that was page-locked in place for this copy."
    STAGED = "STAGED", "Heap memory that threads copied into a pinned ring first."
    UNKNOWN = "UNKNOWN", "A foreign trace that does not say."


class Clock(_Described):
    """Which clock stamped an interval."""

    HOST = "HOST", "The host's monotonic clock."
    DEVICE = "DEVICE", "The device's clock, mapped to the host's by offset and drift."


class GapCause(_Described):
    """What the GPU waited for in a nanosecond without a kernel: exactly one cause each."""

    ALLOCATION = "ALLOCATION", "The next partition waited for a host buffer."
    SYNTHESIS_STARVED = "SYNTHESIS_STARVED", "The next partition was not yet synthesised."
    CPU_FINISH = "CPU_FINISH", "The next partition was ready, but its worker was finishing another proof."
    WORKERS_BUSY = "WORKERS_BUSY", "The next partition was ready, but no worker had picked it up."
    LOCKED_CPU = "LOCKED_CPU", "The GPU lock was held over CPU work."
    LOCKED_TRANSFER = "LOCKED_TRANSFER", "The GPU lock was held over a copy, as far as line rate explains it."
    LOCKED_SLOW_TRANSFER = "LOCKED_SLOW_TRANSFER", "The GPU lock was held over a copy beyond its line-rate time."
    LOCKED_OTHER = "LOCKED_OTHER", "The GPU lock was held, and the log does not show over what."
    CPU_PREP = "CPU_PREP", "The next partition was being prepared on the CPU."
    STAGING = "STAGING", "The next partition was being copied into pinned memory."
    TRANSFER = "TRANSFER", "The next partition was crossing the bus, as far as line rate explains it."
    LINK_CONTENTION = "LINK_CONTENTION", "The next partition shared the bus with other copies in its direction."
    SLOW_TRANSFER = "SLOW_TRANSFER", "The next partition crossed the bus slower than line rate explains."
    LAUNCH_OR_SYNC = "LAUNCH_OR_SYNC", "Launch and synchronisation latency around the kernels of a partition."
    HOST_WAIT = "HOST_WAIT", "A host thread blocked on a lock or on the device (foreign traces)."
    UNATTRIBUTED = "UNATTRIBUTED", "The log cannot tell."


COLUMNS: dict[str, str] = {
    "run": "category",  # run id, unique in a log
    "job": "category",  # one proof request; its partitions make one proof together
    "partition": "int32",  # -1 where a foreign source cannot know
    "gpu": "int16",  # unique in a log, the header maps it; -1 before pick-up or unknown
    "worker": "int16",  # -1 before pick-up or unknown
    "phase": "category",
    "lane": "category",
    "name": "category",  # ntt.a, msm.h, a kernel's or a counter's name
    "start_ns": "int64",
    "end_ns": "int64",
    "value": "float64",  # counters only, NaN elsewhere
    "bytes": "int64",  # copies only, 0 elsewhere
    "memory": "category",
    "stream": "int64",  # device stream, -1 for none
    "clock": "category",
    "warmup": "bool",
}
ENUMS: dict[str, type[_Described]] = {"phase": Phase, "lane": Lane, "memory": Memory, "clock": Clock}


class Event(NamedTuple):
    """One row. The defaults are what a row that does not concern the column holds."""

    run: str
    job: str
    partition: int
    gpu: int
    worker: int
    phase: str
    lane: str
    name: str
    start_ns: int
    end_ns: int
    value: float | None = None
    bytes: int = 0
    memory: str = "NONE"
    stream: int = -1
    clock: str = "HOST"
    warmup: bool = False


HEADER: dict[str, str] = {
    "format_version": "version of this record",
    "run": "run id",
    "device_kind": "cuda, emulated, simulated or foreign",
    "kernels": "real, timed or unknown",
    "labels": "sentences that every chart and table of this log must show (emulated link, timed kernels…)",
    "host": "name-free facts of the machine: cpu, cores, memory_bytes, os, python",
    "gpus": "list of {gpu, device, …}: what the gpu column's numbers mean",
    "driver": "driver version or null",
    "versions": "versions of the packages that matter",
    "plan": "every knob of the run (RunPlan as a mapping) or null for foreign logs",
    "seed": "witness seed or null",
    "epoch_utc": "wall time of nanosecond 0, ISO 8601",
    "line_rate_gb_s": "what a pinned copy reaches here: {H2D: {idle, loaded}, D2H: {idle, loaded}}, null where unknown",
    "clock": "first fit of the device clock: {offset_ns, drift_ppm, bound_ns} or null",
    "emulation": "how the host device's link and CPU stages were scaled: measured kernel_ns and the ratios, or null",
    "source": "for foreign logs: {format, files, …}, else null",
    "warnings": "what the reader of the log should know",
}
TRAILER: dict[str, str] = {
    "ended": "done, failed or interrupted",
    "error": "the message of the failure or null",
    "clock": "last fit of the device clock and its error bound or null",
    "hooks": "{events, span_ns, cost_ns}: cost of the timing hooks in this run",
    "proofs": "{made, verified} or null where none were made",
    "pool": "{high_water_bytes, high_water_buffers, allocated, reused} of the host buffer pool or null",
}


class LogFormatError(ValueError):
    """A log that cannot be read: says where, what is wrong, and what was read before it."""

    def __init__(self, path: object, where: str, what: str, read: str = "nothing was read before it") -> None:
        super().__init__(str(path), where, what, read)  # all that a copy is made of, as by another process
        self.path, self.where, self.what, self.read = str(path), where, what, read

    def __str__(self) -> str:
        return f"{self.path}: {self.where}: {self.what} ({self.read})"


class DeviceError(RuntimeError):
    """A device call that failed: the kernel or call, its shape and the driver's own words."""

    def __init__(self, call: str, shape: str, words: str) -> None:
        super().__init__(call, shape, words)
        self.call, self.shape, self.words = call, shape, words

    def __str__(self) -> str:
        return f"{self.call} ({self.shape}): {self.words}"
