"""A matrix of runs: every combination of the given knobs, one log each, here or on the machines of a Dask cluster."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuzkbench import outputs
from cuzkbench.plan import RunPlan
from cuzkbench.runs import plan_of, run

if TYPE_CHECKING:
    from cuzkbench.logs.log import Log


def plans(over: Sequence[str], preset: str | None = None) -> dict[str, RunPlan]:
    """Every combination by a name made of its values, in the order given. Raises ValueError, before any run."""
    values: dict[str, list[str]] = {}
    for text in over:
        name, _, listed = text.partition("=")
        knob = name.replace("-", "_")
        if not listed:
            raise ValueError(f"--over {text!r}: NAME=VALUE or NAME=VALUE,VALUE")
        if knob in values:
            raise ValueError(f"--over {' '.join(over)}: a knob is named twice")
        values[knob] = listed.split(",")
    found = {}
    for chosen in itertools.product(*values.values()):
        knobs = {name: _value(text) for name, text in zip(values, chosen, strict=True)}
        found["-".join(chosen).replace(":", "_").replace("/", "_")] = plan_of({"preset": preset} | knobs)
    return found


def _value(text: str) -> Any:
    """A number or a truth value where the text is one, else the text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


@contextmanager
def starter(cluster: str | None) -> Iterator[Callable[[RunPlan], Callable[[], Log]]]:
    """A callable that starts a plan's run and returns what waits for its log: here, one run at a time, or as told.

    Runs beside each other on one machine disturb each other's times: `local:N` is for the simulator. Raises ValueError.
    """
    if cluster is None:
        yield lambda plan: partial(run, plan)  # begins when it is waited for
    elif cluster.startswith("local:"):
        count = cluster.removeprefix("local:")
        if not count.isdecimal() or int(count) < 1:
            raise ValueError(f"cluster {cluster!r}: local:N with N of 1 or more, or a scheduler's address")
        with ProcessPoolExecutor(int(count), mp_context=get_context("spawn")) as pool:
            yield lambda plan: pool.submit(run, plan).result
    else:
        try:
            from distributed import Client
        except ImportError:
            raise ValueError(f"cluster {cluster!r}: needs Dask: pip install 'cuzkbench[cluster]'") from None
        with Client(cluster, set_as_default=False) as client:
            yield lambda plan: client.submit(run, plan, pure=False).result


def sweep(over: Sequence[str], out: Path, preset: str | None = None, cluster: str | None = None) -> int:
    """Run the matrix, write `NAME.parquet` for each run into `out`, print the comparison.

    Returns 1 where a run failed; its message is on stderr, and the others go on.
    """
    from cuzkbench.tables import comparison, show

    matrix = plans(over, preset)
    out.mkdir(parents=True, exist_ok=True)
    for name in matrix:
        outputs.check(out / f"{name}.parquet")
    logs: dict[str, Log] = {}
    failed = 0
    with starter(cluster) as start:
        for name, result in {name: start(plan) for name, plan in matrix.items()}.items():
            try:
                log = result()
            except (ValueError, RuntimeError, MemoryError, OSError) as error:
                print(f"cuzkbench: {name}: {error}", file=sys.stderr)
                failed = 1
                continue
            log.save(out / f"{name}.parquet")
            print(f"{name}: written", file=sys.stderr)
            logs[name] = log
    if logs:
        show(*comparison(list(logs.values()), list(logs)))
    return failed
