"""One run from plan to log: the prover on a device, or the simulator in its place."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuzkbench import outputs
from cuzkbench.plan import RunPlan

if TYPE_CHECKING:
    from cuzkbench.logs.log import Log
    from cuzkbench.progress import Progress


def plan_of(knobs: Mapping[str, Any]) -> RunPlan:
    """The plan of a preset, if one is named, with every knob that is not None on top; raises ValueError."""
    chosen = {name: value for name, value in knobs.items() if value is not None}
    unknown = sorted(set(chosen) - {field.name for field in dataclasses.fields(RunPlan)})
    if unknown:
        accepted = ", ".join(field.name for field in dataclasses.fields(RunPlan))
        raise ValueError(f"knob {unknown[0]!r}: one of {accepted}")
    return RunPlan.named(**chosen) if "preset" in chosen else RunPlan(**chosen)


def run(
    plan: RunPlan, path: str | Path | None = None, progress: Progress | None = None, *, live: bool | None = None
) -> Log:
    """Run a plan and return its log, which is also written to `path` (.jsonl or .parquet) where one is given.

    In a notebook a Gantt chart grows meanwhile, unless `live` is False or `progress` is given. Stopping the kernel (or
    Ctrl-C) lets the workers finish their partitions, writes the log of what was finished and raises
    `prover.scheduler.RunInterrupted`, a KeyboardInterrupt, so that no later cell runs; its message and `.path` say
    which file to `cuzkbench.read`. A failing run likewise raises `RunFailed`. Raises ValueError, MemoryError and
    OSError before anything is written. `progress` may be called from any thread.
    """
    if plan.device == "model":
        return _simulated(plan, path)
    from cuzkbench import numba_cache
    from cuzkbench.logs import read
    from cuzkbench.progress import silent
    from cuzkbench.prover.scheduler import RunFailed, RunInterrupted, run_plan

    view = None
    if progress is None if live is None else live:
        from cuzkbench.live import Live, in_notebook

        view = Live(plan) if in_notebook() else None
    hooks: dict[str, Any] = {"convert": lambda native, final: read(native).save(final)}
    if view:
        hooks |= {"on_header": view.header, "on_event": view.events}
    progress = progress or (view.progress if view else silent)
    with ExitStack() as passing:
        file = Path(tempfile.mkdtemp(prefix="cuzkbench-")) / "run.jsonl" if path is None else Path(path)
        if path is None:
            passing.callback(shutil.rmtree, file.parent)
        try:
            with numba_cache.announced(progress):
                written = run_plan(plan, file, progress, **hooks)
            log = read(written)
        except (RunFailed, RunInterrupted) as early:
            passing.pop_all()  # their message names the file, so it stays
            if view:
                view.end(f"ended early, what was finished: cuzkbench.read({str(early.path)!r})")
            raise
    if view:
        view.end(f"done, {len(log.frame):,} rows")
    return dataclasses.replace(log, path=None) if path is None else log


def _simulated(plan: RunPlan, path: str | Path | None) -> Log:
    from cuzkbench.simulate import simulate

    if path is None:
        return simulate(plan)
    outputs.check(Path(path), outputs.LOGS)
    log = simulate(plan)
    log.save(path)
    return dataclasses.replace(log, path=str(path))
