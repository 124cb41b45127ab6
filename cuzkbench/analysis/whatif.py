"""What a change of the plan would do, predicted from one log alone: its own stages, re-simulated with the change.

The middle is the replay in the log's own order; low and high are the 5th and 95th percentile of replays in which the
measured partitions are drawn with replacement. Agreement of the model with itself is no evidence: what counts is the
measured cadence of the changed plan.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from cuzkbench.analysis.replay import CannotReplay, Replay, beginning, replay, steps_of, ways
from cuzkbench.costs import Work
from cuzkbench.events import Memory
from cuzkbench.logs.log import Log
from cuzkbench.simulate import Shape, simulate_core
from cuzkbench.stages import LOCKS, MEMORIES
from cuzkbench.words import rate, spaced

RESAMPLES = 30
LEAST_GAIN = 0.01  # a change that gains less is none
GRID_WORKERS = (1, 2, 3, 4)
GRID_PARTITIONS = 40  # of a log behind a grid, which is hundreds of runs
CHANGES = ("memory", "lock", "workers", "synthesis_workers", "link_gb_s")


class Unsupported(ValueError):
    """What the log has never seen, and so cannot predict."""


def whatif(
    log: Log,
    line_rate: float | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    most: int | None = None,
    start_ns: int | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """The mapping of `whatif --json` for changes of memory, lock, workers, synthesis_workers or link_gb_s.

    `link_gb_s` gives every copy that rate, `line_rate` says what a pinned one would reach. `most`: from so many
    partitions at the log's beginning, where somebody waits for the answer; `start_ns`: from the partitions that were
    proved from then on. Raises ValueError for other names and values.
    """
    _check(changes)
    out: dict[str, Any] = {"changes": changes, "measured_cadence_ns": None, "predicted": None, "supported": False}
    try:
        run = replay(log, line_rate, start_ns) if most is None else beginning(log, most, line_rate)
        out["measured_cadence_ns"] = round(run.measured.cadence_ns)
        run.own()
        shape, work, words = apply(run, **changes)
    except (CannotReplay, Unsupported) as lack:
        return out | {"why": str(lack)}
    predicted = _predict(run, _possible(run, shape, changes), work, resamples, seed)
    return out | {"predicted": predicted, "supported": True, "why": words}


def _predict(run: Replay, shapes: list[Shape], work: Work, resamples: int, seed: int) -> dict[str, list[Any]]:
    """Low, middle and high of each figure under changed work and a shape, or by turns each that is possible."""
    rng = np.random.default_rng(seed)
    measured = [k for k, warm in enumerate(run.warmup) if not warm]
    drawn = [run.run(shapes[0], work)]
    for number in range(resamples):
        chosen = list(range(len(run.warmup)))
        for k, other in zip(measured, rng.choice(measured, len(measured)).tolist(), strict=True):
            chosen[k] = other
        drawn.append(run.run(shapes[number % len(shapes)], work, chosen))
    return {
        "cadence_ns": _interval([o.cadence_ns for o in drawn], round),
        "kernel_utilisation": _interval([o.utilisation for o in drawn], float),
        "prove_start_ms": _interval([o.prove_start_ns / 1e6 for o in drawn], float),
    }


def grid(log: Log, resamples: int = RESAMPLES, seed: int = 0) -> list[dict[str, Any]]:
    """`whatif` of every lock, memory policy and number of workers, of the log's first partitions.

    Each is the mapping of `whatif` with `own`, whether the log's run was so, and `lanes`: when kernels and uploads
    would run, (start, end) in ns since the first measured kernel. Raises CannotReplay with what the log lacks.
    """
    run = beginning(log, GRID_PARTITIONS)
    out: list[dict[str, Any]] = []
    for values in itertools.product(LOCKS, MEMORIES, sorted({*GRID_WORKERS, run.shape.workers})):
        changes = dict(zip(("lock", "memory", "workers"), values, strict=True))
        own = values == (run.lock, run.memory, run.shape.workers)
        out.append({"changes": changes, "own": own, "measured_cadence_ns": round(run.measured.cadence_ns)})
        try:
            shape, work, words = apply(run, **changes)
        except Unsupported as lack:
            out[-1] |= {"predicted": None, "supported": False, "why": str(lack)}
            continue
        predicted = _predict(run, _possible(run, shape, changes), work, resamples, seed)
        out[-1] |= {"predicted": predicted, "supported": True, "why": words, "lanes": _lanes(run, shape, work)}
    return out


def _lanes(run: Replay, shape: Shape, work: Work) -> dict[str, list[tuple[int, int]]]:
    spans = [span for span in simulate_core(shape, work) if span.gpu == 0 and span.name in ("kernels", "upload")]
    kernels = [(s.granted + work.lead_ns[s.partition], s.partition) for s in spans if s.name == "kernels"]
    origin = sorted(kernels)[min(sum(run.warmup), len(kernels) - 1)][0]
    made = [(start - origin, start + work.extent_ns[k] - origin) for start, k in kernels]
    copies = [(span.granted - origin, span.end - origin) for span in spans if span.name == "upload"]
    return {"KERNEL": made, "H2D": copies}


def _interval(values: list[float], kind: Any) -> list[Any]:
    """Low, middle (the first value) and high."""
    low, high = np.percentile(values, (5, 95))
    return [kind(min(low, values[0])), kind(values[0]), kind(max(high, values[0]))]


def _check(changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        if name not in CHANGES:
            raise ValueError(f"what-if {name!r}: one of {', '.join(CHANGES)}")
        accepted = {"memory": tuple(MEMORIES), "lock": tuple(LOCKS)}.get(name)
        if accepted and value not in accepted:
            raise ValueError(f"{name} {value!r}: one of {', '.join(accepted)}")
        most = {"workers": 8, "synthesis_workers": 256}.get(name)
        if most and not (isinstance(value, int) and 1 <= value <= most):
            raise ValueError(f"{name} {value!r}: from 1 to {most}")
        if name == "link_gb_s" and not value > 0:
            raise ValueError(f"link_gb_s {value!r}: above 0")


def apply(run: Replay, **changes: Any) -> tuple[Shape, Work, str]:
    """The changed shape and work, and the words for what they rest on; raises Unsupported."""
    lock, memory = changes.get("lock", run.lock), changes.get("memory", run.memory)
    work, words = run.work, "every stage time as in the log"
    if memory != run.memory:
        if MEMORIES[memory] is not Memory.PINNED:
            raise Unsupported(f"the log has no {memory} copy, and only the pinned rate is known without one")
        if run.memory == "registered":
            words = "registered copies as in the log, nothing to register"
        elif not any(copy.memory is MEMORIES[run.memory] for upload in run.copies for copy in upload):
            raise Unsupported("the log does not say from which memory its copies came")
        else:
            work = run.mended(run.at_line_rate(MEMORIES[run.memory]))
            line = f"{rate(run.rate.gb_s)} ({run.rate.source})"
            words = spaced(f"{run.memory} copies at the line rate of {line}, the rest as in the log")
    if "link_gb_s" in changes:
        link = float(changes["link_gb_s"])
        copies = [tuple(round(copy.bytes / link) for copy in upload) for upload in run.copies]
        work, words = run.mended(copies), spaced(f"every copy at {rate(link)}, the rest as in the log")
    shape = run.shape.with_workers(changes.get("workers", run.shape.workers), changes.get("synthesis_workers"))
    settles = run.shape.settles and memory == run.memory and "link_gb_s" not in changes
    shape = dataclasses.replace(shape, stages=steps_of(lock, memory, run.kind), settles=settles)
    if len(_possible(run, shape, changes)) > 1:
        words += "; no two uploads met in it, so the interval spans the ways in which they may share the bus"
    return shape, work, words


def _possible(run: Replay, shape: Shape, changes: dict[str, Any]) -> list[Shape]:
    """The changed shape, and where two uploads never met in the log also the other ways in which they may share."""
    alone = not run.sharing_known and changes.get("memory", run.memory) == run.memory and "link_gb_s" not in changes
    return ways(shape) if alone else [shape]


def candidates(run: Replay) -> list[dict[str, Any]]:
    """The single changes that `best_change` tries, in the order that breaks ties."""
    out: list[dict[str, Any]] = [{"memory": memory} for memory in ("pinned", "registered", "staged", "pageable")]
    out += [{"lock": lock} for lock in ("narrow", "device", "coarse")]
    out = [change for change in out if change not in ({"memory": run.memory}, {"lock": run.lock})]
    return out + ([{"workers": run.shape.workers + 1}] if run.shape.workers < 8 else [])


def best_change(
    log: Log, line_rate: float | None = None, start_ns: int | None = None, end_ns: int | None = None
) -> dict[str, Any] | None:
    """The one change of memory, lock or workers that gains most; None where none gains 1 % or the log cannot tell."""
    try:
        run = replay(log, line_rate, start_ns, end_ns)
        own = run.own()
    except CannotReplay:
        return None
    best, cadence_ns = None, np.inf
    for changes in candidates(run):
        try:
            shape, work, _ = apply(run, **changes)
        except Unsupported:
            continue
        found = run.run(shape, work).cadence_ns
        if found < cadence_ns * (1 - 1e-3):
            best, cadence_ns = changes, found
    gain = 1 - cadence_ns / own.cadence_ns
    if best is None or gain < LEAST_GAIN:
        return None
    words = ", ".join(f"{name} {value}" for name, value in best.items())
    predicted = round(run.measured.cadence_ns * (1 - gain))
    return {"change": words, "changes": best, "predicted_cadence_ns": predicted, "gain": gain}
