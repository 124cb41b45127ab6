"""RunPlan: every knob of a run, validated; the only source of parameters for prover and simulator."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cuzkbench.stages import LOCKS, MEMORIES

LOG2_MIN, LOG2_MAX = 8, 27
SEED_MAX = (1 << 64) - 1
DEVICES = ("auto", "host", "cuda", "model")
# what a plan leaves open, by the device that runs it: (log2_size, partitions, synthesis workers)
_DEFAULTS = {"host": (12, 8, 1), "cuda": (22, 8, 2), "model": (27, 10, 10)}

# what a knob's annotation accepts, exactly: a header must hold it as JSON, and True is no number
_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}

PRESETS: dict[str, dict[str, Any]] = {
    "seed-case": {"lock": "narrow", "memory": "pageable", "cpu_load": -1},
    "fixed": {"lock": "narrow", "memory": "pinned", "cpu_load": -1},
    "coarse-theory": {"lock": "coarse", "memory": "pinned"},
    "device-lock": {"lock": "device", "memory": "pinned"},
    "todays-engine": {"lock": "device", "memory": "pageable", "cpu_load": -1},
    "one-worker": {"lock": "narrow", "memory": "pinned", "workers": 1},
    "two-gpus": {"lock": "narrow", "memory": "pinned", "cpu_load": -1, "gpus": 2},
}


@dataclass(frozen=True)
class RunPlan:
    """One run. None means: the default of the device that runs it, filled in by `resolve`.

    preset: the name of the plan it came from
    device: auto, host, cuda, cuda:N or model
    lock: what the GPU lock covers: coarse (everything), device (transfers and kernels), narrow (kernels)
    memory: where a, b, c and the witness live: pageable, pinned, registered or staged
    workers: GPU workers per GPU, 1..8
    gpus: how many
    partitions: measured ones, the warm-up not counted
    warmup: partitions before them that metrics leave out
    log2_size: constraints of one partition = NTT domain = 2**log2_size, 8..27
    synthesis_workers: partitions synthesised at a time
    queue_depth: synthesised partitions that may wait; None: workers * gpus
    cpu_load: threads copying memory beside the run; -1: all cores but two
    kernels: real, or timed:SECONDS (a spin kernel, no proofs)
    seed: of witness and blinding; None: blinding by the operating system, a drawn witness seed
    key_seed: of the insecure setup; one key for all partitions
    boolean_share: share of witness values that are 0 or 1
    b_density: share of the variables that occur in B
    public_inputs: how many, 1..1024
    verify: check every proof
    timing: record every phase; False: completions alone

    Raises ValueError naming the value and the accepted ones.
    """

    preset: str | None = None
    device: str = "auto"
    lock: str = "narrow"
    memory: str = "pinned"
    workers: int = 2
    gpus: int = 1
    partitions: int | None = None
    warmup: int = 1
    log2_size: int | None = None
    synthesis_workers: int | None = None
    queue_depth: int | None = None
    cpu_load: int = 0
    kernels: str = "real"
    seed: int | None = None
    key_seed: int = 0
    boolean_share: float = 0.75
    b_density: float = 0.25
    public_inputs: int = 16
    verify: bool = True
    timing: bool = True

    def __post_init__(self) -> None:
        def among(name: str, value: object, accepted: Any) -> None:
            if value not in accepted:
                raise ValueError(f"{name} {value!r}: one of {', '.join(map(str, accepted))}")

        def between(name: str, low: float, high: float) -> None:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} {value}: from {low} to {high}")

        for field in dataclasses.fields(self):
            kind, _, optional = str(field.type).partition(" | ")
            value = getattr(self, field.name)
            if not (value is None and optional) and type(value) not in _TYPES[kind]:
                raise ValueError(f"{field.name} {value!r}: {kind} is needed")
        if self.preset is not None:
            among("preset", self.preset, PRESETS)
        base, _, index = self.device.partition(":")
        among("device", base, DEVICES)
        if ":" in self.device and not (base == "cuda" and index.isdecimal()):
            raise ValueError(f"device {self.device!r}: auto, host, cuda, cuda:N or model")
        among("lock", self.lock, LOCKS)
        among("memory", self.memory, MEMORIES)
        between("workers", 1, 8)
        between("gpus", 1, 64)
        between("partitions", 1, 1_000_000)
        between("warmup", 0, 1000)
        between("log2_size", LOG2_MIN, LOG2_MAX)
        between("synthesis_workers", 1, 256)
        between("queue_depth", 1, 4096)
        between("cpu_load", -1, 4096)
        between("seed", 0, SEED_MAX)
        between("key_seed", 0, SEED_MAX)
        between("boolean_share", 0.0, 0.95)
        between("b_density", 0.0, 1.0)
        between("public_inputs", 1, 1024)
        if self.timed_seconds is not None and not 0 < self.timed_seconds <= 600:
            raise ValueError(f"kernels {self.kernels!r}: timed:SECONDS with 0 < SECONDS <= 600")

    @property
    def timed_seconds(self) -> float | None:
        """Seconds of the spin kernel a partition, or None for real kernels."""
        if self.kernels == "real":
            return None
        kind, _, seconds = self.kernels.partition(":")
        try:
            if kind != "timed":
                raise ValueError(kind)
            return float(seconds)
        except ValueError:
            raise ValueError(f"kernels {self.kernels!r}: real or timed:SECONDS") from None

    @classmethod
    def named(cls, preset: str, **changes: Any) -> RunPlan:
        """The plan of a preset with changes on top."""
        if preset not in PRESETS:
            raise ValueError(f"preset {preset!r}: one of {', '.join(PRESETS)}")
        return cls(**({"preset": preset} | PRESETS[preset] | changes))

    def replace(self, **changes: Any) -> RunPlan:
        """A copy with changes, validated again."""
        return dataclasses.replace(self, **changes)

    def resolve(self, kind: str, cores: int | None = None) -> RunPlan:
        """The plan with every default filled in for a device kind (host, cuda, model)."""
        log2_size, partitions, synthesis = _DEFAULTS[kind]
        cores = cores or os.cpu_count() or 1
        return self.replace(
            log2_size=self.log2_size or log2_size,
            partitions=self.partitions or partitions,
            synthesis_workers=self.synthesis_workers or synthesis,
            queue_depth=self.queue_depth or self.workers * self.gpus,
            cpu_load=max(1, cores - 2) if self.cpu_load < 0 else self.cpu_load,
        )

    def as_mapping(self) -> dict[str, Any]:
        """Plain values for a log header."""
        return dataclasses.asdict(self)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> RunPlan:
        """The plan that a log header states; fields unknown to this version are an error."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"plan fields {', '.join(unknown)}: unknown to this version")
        return cls(**values)
