"""Costs: what each stage of a partition takes at production scale, drawn for every partition of a plan -> simulator.

The figures are of the production circuit (130,278,869 constraints, domain 2^27) on one data-centre card; bytes,
synthesis and kernels of another size scale with its constraints, PREP and FINISH do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cuzkbench.events import Memory
from cuzkbench.plan import RunPlan
from cuzkbench.stages import MEMORIES

PRODUCTION_LOG2 = 27
CONSTRAINTS, VARIABLES = 130_278_869, 130_170_221  # 328 inputs, 130,169,893 auxiliary
NS = 1_000_000_000

# Milliseconds that set each kernel's share. NTTs: one H200 at 2^27. The quotient's h MSM fills what NTTs leave of the
# engine's 690 of 1824 ms, the other MSMs share the rest: B is a quarter dense, G2 costs 2.87 times G1.
KERNEL_SHARES: dict[str, float] = (
    {f"ntt.{vector}": 47.0 for vector in "abc"}
    | {f"coset.{vector}": 49.0 for vector in "abc"}
    | {
        "quotient": 12.0,
        "ntt.h": 49.0,
        "msm.h": 341.0,
        "msm.l": 295.0,
        "msm.a": 294.0,
        "msm.b1": 141.0,
        "msm.b2": 404.0,
    }
)


@dataclass(frozen=True)
class Spread:
    """A cost drawn for each partition between low and high with that mean: a beta shape of concentration 10."""

    low: float
    mean: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.mean <= self.high:
            raise ValueError(f"spread {self.low}, {self.mean}, {self.high}: low <= mean <= high, none below 0")

    def draw(self, seed: tuple[int, ...], count: int) -> np.ndarray:
        """`count` values, float64; a value of the same seed and place is the same whatever the count."""
        if not self.low < self.mean < self.high:
            return np.full(count, self.mean)
        share = (self.mean - self.low) / (self.high - self.low)
        rng = np.random.default_rng(seed)
        return self.low + (self.high - self.low) * rng.beta(10 * share, 10 * (1 - share), count)


@dataclass(frozen=True)
class Work:
    """Durations of every partition's stages in the order of synthesis, integer ns: the simulator's whole input.

    `stages` is keyed by "synthesis" and by the stage names of `stages.stages`, but for the upload, whose copies are
    apart; `lead_ns`, `extent_ns`, `busy_ns` and `tail_ns` change no schedule.
    """

    stages: Mapping[str, list[int]]
    copies: list[tuple[int, ...]]  # the upload: on the bus, without the wait for it
    lead_ns: list[int]  # from the start of the kernels stage to the first kernel
    extent_ns: list[int]  # from the first kernel to the end of the last
    busy_ns: list[int]  # the kernels in it
    tail_ns: list[int]  # completion after the worker's last stage; negative where the worker stays busy longer

    def __len__(self) -> int:
        return len(self.copies)

    def take(self, chosen: Sequence[int]) -> Work:
        """The work of those partitions, in that order, repetitions allowed."""
        stages = {name: [values[k] for k in chosen] for name, values in self.stages.items()}
        rows = ([values[k] for k in chosen] for values in (self.lead_ns, self.extent_ns, self.busy_ns, self.tail_ns))
        return Work(stages, [self.copies[k] for k in chosen], *rows)


@dataclass(frozen=True)
class Upload:
    """The copies of every partition's upload: a, b, c and the witness."""

    ns: np.ndarray  # int64, (partitions, 4)
    bytes: tuple[int, int, int, int]
    staging_ns: np.ndarray  # threads fill the ring meanwhile; 0 unless staged
    slot_ns: int  # the first ring slot is filled before the bus has anything to do

    NAMES = ("a", "b", "c", "witness")


@dataclass(frozen=True)
class Costs:
    """Seconds, bytes and GB/s of one partition. "loaded": beside any number of threads that copy memory."""

    synthesis_s: Spread = Spread(13.0, 15.0, 17.0)  # on each synthesis worker
    prep_s: Spread = Spread(0.4, 0.4, 0.4)
    finish_s: Spread = Spread(0.3, 0.3, 0.3)
    kernel_s: Spread = Spread(1.5, 1.75, 2.0)
    download_s: Spread = Spread(20e-6, 20e-6, 20e-6)
    download_bytes: int = 2 * 1024
    abc_bytes: int = 3 * 32 * CONSTRAINTS
    witness_bytes: int = 32 * VARIABLES
    line_rate: float = 50.0
    line_rate_loaded: float = 34.6  # the share that pinned copies kept beside 14 threads: 38.3 of 55.3 GB/s
    pageable_rate: float = 7.6
    pageable_rate_loaded: Spread = Spread(1.6, 3.2, 4.2)  # drawn for each of a, b, c
    staging_rate: float = 38.0  # four threads
    staging_rate_loaded: float = 20.0  # assumed: slowed as pageable copies are, 4.1 of 7.8 GB/s
    ring_slot_bytes: int = 64 << 20
    register_s_per_gib: float = 0.11 / 4
    unregister_s_per_gib: float = 0.07 / 4
    load_begins: int = 0  # measured partitions before the load of a loaded plan begins
    kernel_shares: Mapping[str, float] = field(default_factory=lambda: KERNEL_SHARES)

    def upload(self, plan: RunPlan, seed: int) -> Upload:
        """What a resolved plan's uploads take. With pageable vectors the witness is pinned all the same."""
        count, scale = _count_and_scale(plan)
        loaded = np.arange(count) >= plan.warmup + self.load_begins if plan.cpu_load else np.zeros(count, bool)
        abc_bytes, witness_bytes = round(self.abc_bytes * scale), round(self.witness_bytes * scale)
        line = np.where(loaded, self.line_rate_loaded, self.line_rate)
        staging_ns, slot_ns = np.zeros(count, np.int64), 0
        if MEMORIES[plan.memory] is Memory.STAGED:
            staging = np.where(loaded, self.staging_rate_loaded, self.staging_rate)
            line = np.minimum(staging, line)
            staging_ns = _ns((abc_bytes + witness_bytes) / staging / 1e9)
            slot_ns = round(min(self.ring_slot_bytes, abc_bytes) / self.staging_rate)
        rates = np.repeat(line[:, None], 4, axis=1)
        if MEMORIES[plan.memory] is Memory.PAGEABLE:
            slow = self.pageable_rate_loaded.draw((seed, 3), count * 3).reshape(count, 3)
            rates[:, :3] = np.where(loaded[:, None], slow, self.pageable_rate)
        sizes = (abc_bytes // 3, abc_bytes // 3, abc_bytes - abc_bytes // 3 * 2, witness_bytes)
        taken = _ns(np.array(sizes) / rates / 1e9)
        taken[:, 0] += slot_ns
        return Upload(taken, sizes, staging_ns, slot_ns)

    def work(self, plan: RunPlan, seed: int, upload: Upload | None = None) -> Work:
        """Stage durations of a resolved plan, warm-up first. Draws of the same seed do not depend on the policies."""
        count, scale = _count_and_scale(plan)
        upload = upload or self.upload(plan, seed)
        synthesis = self.synthesis_s.draw((seed, 0), count) * scale
        first = slice(plan.synthesis_workers)
        synthesis[first] = np.sort(synthesis[first])  # those that begin together end in order: the warm-up is first
        timed = plan.timed_seconds
        kernels = self.kernel_s.draw((seed, 1), count) * scale if timed is None else np.full(count, timed)
        gib = sum(upload.bytes) / 2**30
        seconds = {
            "synthesis": synthesis,
            "prep": self.prep_s.draw((seed, 2), count),
            "register": np.full(count, gib * self.register_s_per_gib),
            "kernels": kernels,
            "download": self.download_s.draw((seed, 4), count),
            "unregister": np.full(count, gib * self.unregister_s_per_gib),
            "finish": self.finish_s.draw((seed, 5), count),
        }
        stages = {name: _ns(values).tolist() for name, values in seconds.items()}
        copies = [tuple(row) for row in upload.ns.tolist()]
        nothing = [0] * count
        return Work(stages, copies, nothing, stages["kernels"], stages["kernels"], nothing)


def _count_and_scale(plan: RunPlan) -> tuple[int, float]:
    """Partitions with the warm-up, and their size in terms of production's."""
    assert plan.partitions and plan.log2_size, "a resolved plan"
    return plan.warmup + plan.partitions, 2.0 ** (plan.log2_size - PRODUCTION_LOG2)


def _ns(seconds: np.ndarray) -> np.ndarray:
    return np.rint(np.asarray(seconds) * NS).astype(np.int64)


def production(plan: RunPlan) -> Costs:
    """The costs of `--device model`. The load of the puzzle and of its mend begins at the fourth partition."""
    return Costs(load_begins=3 if plan.preset in ("seed-case", "fixed") else 0)
