"""The command `cuzkbench`, and its sub-commands that make something. Heavy modules are imported inside them.

Exit status: 0 done, 1 the run or the data failed, 2 wrong usage, 130 after Ctrl-C. A caller's fault is one line on
stderr.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cuzkbench import answers, outputs
from cuzkbench.answers import Json, Lock, Memory, Output, SynthesisWorkers, Workers
from cuzkbench.events import DeviceError, LogFormatError
from cuzkbench.plan import RunPlan

# what a small `ulimit -v` makes of loading a library and of starting a thread
NO_ROOM = ("failed to map segment", "annot allocate memory", "can't start new thread")


class Commands(TyperGroup):
    """The commands, of which Ctrl-C ends one with a line that says what is left of it."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        """The arguments taken apart; Ctrl-C as in `invoke`."""
        with _interruptible():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        """One command; status 130 after Ctrl-C, as shells have it."""
        with _interruptible():
            return super().invoke(ctx)


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stop:
        print(f"cuzkbench: {str(stop) or 'interrupted'}", file=sys.stderr)
        raise typer.Exit(130) from None


app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
bench = typer.Typer(no_args_is_help=True, help="Verify, then time.")
app.add_typer(bench, name="bench")
app.add_typer(answers.app)

Preset = Annotated[str | None, typer.Option(help="Start from a named plan, such as seed-case or fixed.")]


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Print versions and exit.")] = False) -> None:
    """Why is the GPU of a zero-knowledge prover idle half the time, and what would fix it?"""
    if version:
        from cuzkbench.doctor import versions

        for name, number in versions().items():
            print(name, number or "not installed")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for two logs and report.html.")] = Path("cuzkbench-demo"),
) -> None:
    """Run the puzzle and its mend on the best device there is, verify every proof, compare both, write a report."""
    from cuzkbench import report
    from cuzkbench.progress import bars
    from cuzkbench.runs import run
    from cuzkbench.tables import comparison, show

    out.mkdir(parents=True, exist_ok=True)
    paths = {preset: out / f"{preset}.parquet" for preset in ("seed-case", "fixed")}  # they differ in memory only
    page = out / "report.html"
    for path in (*paths.values(), page):
        outputs.check(path)
    logs = []
    for preset, path in paths.items():
        with bars(preset) as progress:
            logs.append(run(RunPlan.named(preset), path, progress))
    show(*comparison(logs))
    with bars() as progress:
        progress("report", 0, 1)
        report.write(logs, page)
        progress("report", 1, 1)
    show(*(f"wrote {path}" for path in (*paths.values(), page)))


@app.command()
def run(
    output: Output,
    preset: Preset = None,
    device: Annotated[str | None, typer.Option(help="auto, host, cuda, cuda:N or model (simulated).")] = None,
    lock: Lock = None,
    memory: Memory = None,
    workers: Workers = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs, each with a lock and workers of its own.")] = None,
    partitions: Annotated[int | None, typer.Option(help="Measured partitions.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Partitions before them that metrics leave out.")] = None,
    log2_size: Annotated[int | None, typer.Option(help="A partition has 2^N constraints, 8 to 27.")] = None,
    synthesis_workers: SynthesisWorkers = None,
    queue_depth: Annotated[int | None, typer.Option(help="Synthesised partitions that may wait.")] = None,
    cpu_load: Annotated[int | None, typer.Option(help="Threads copying memory; -1: all cores but two.")] = None,
    kernels: Annotated[str | None, typer.Option(help="real, or timed:SECONDS (cuda: a spin, no proofs).")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of witness and blinding.")] = None,
    key_seed: Annotated[int | None, typer.Option(help="Seed of the insecure key, for measurement.")] = None,
    boolean_share: Annotated[float | None, typer.Option(help="Share of witness values that are 0 or 1.")] = None,
    b_density: Annotated[float | None, typer.Option(help="Share of the variables that occur in B.")] = None,
    public_inputs: Annotated[int | None, typer.Option(help="Public inputs of a partition.")] = None,
    verify: Annotated[bool | None, typer.Option("--verify/--no-verify", help="Verify every proof.")] = None,
    timing: Annotated[bool | None, typer.Option("--timing/--no-timing", help="With or without the hooks.")] = None,
) -> None:
    """Prove partitions by one plan and write the timing log (.jsonl or .parquet).

    A knob that is left out is as the preset says, else as suits the device.
    """
    knobs = {name: value for name, value in locals().items() if name != "output"}
    from cuzkbench.progress import bars
    from cuzkbench.runs import plan_of, run
    from cuzkbench.tables import comparison, show

    with bars() as progress:
        log = run(plan_of(knobs), output, progress)
    show(*comparison([log]), f"wrote {output}")


@app.command()
def gallery(
    out: Annotated[Path, typer.Option(help="Folder for the pages.")] = Path("gallery"),
    source: Annotated[Path, typer.Option(help="A checkout, for its notebooks and sample logs.")] = Path(),
) -> None:
    """Execute every notebook and report on every sample log, as a folder of static pages with an index."""
    from cuzkbench.gallery import build

    build(source, out)


@app.command()
def sweep(
    output: Annotated[Path, typer.Option("-o", "--output", show_default=False, help="Folder for the logs.")],
    over: Annotated[list[str], typer.Option(metavar="NAME=VALUE,VALUE", help="A knob of `run` and its values.")],
    preset: Preset = None,
    cluster: Annotated[str | None, typer.Option(help="local:N processes, or a Dask scheduler's address.")] = None,
) -> None:
    """Run every combination of the given knobs, one log each, and compare them."""
    from cuzkbench.sweep import sweep

    raise typer.Exit(sweep(over, output, preset, cluster))


@app.command()
def doctor(json: Json = False) -> None:
    """Say what this machine can do, what is missing, and how to get it."""
    from cuzkbench.doctor import doctor

    doctor(json)


@bench.command("kernels")
def bench_kernels(json: Json = False) -> None:
    """Verify each kernel of the best device there is, then time it."""
    from cuzkbench.bench import kernels

    kernels(json)


def main() -> None:
    """Run the command line. A caller's fault becomes one line on stderr and an exit status, a bug a traceback."""
    warnings.formatwarning = lambda message, *_, **__: f"cuzkbench: {message}\n"
    try:
        app(prog_name="cuzkbench")
    except (LogFormatError, DeviceError, MemoryError, OSError) as error:
        _fail(error, 1)
    except ValueError as error:
        _fail(error, 2)
    except (RuntimeError, ImportError) as error:
        scheduler = sys.modules.get("cuzkbench.prover.scheduler")
        failed = scheduler is not None and isinstance(error, scheduler.RunFailed)
        if not failed and not any(words in str(error) for words in NO_ROOM):
            raise
        _fail(error, 1)


def _fail(error: Exception, status: int) -> None:
    told = str(error)
    if isinstance(error, OSError) and error.strerror:
        told = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    causes = " ".join(map(str, (error, error.__cause__, error.__context__)))  # a loader's own words may stand behind
    if any(words in causes for words in NO_ROOM) or (isinstance(error, MemoryError) and not told):
        told = told or type(error).__name__
        told = f"out of memory, or of a limit of this process (ulimit -a): {told}"
    words = " ".join(told.split()) or type(error).__name__
    print(f"cuzkbench: {words}", file=sys.stderr)
    sys.exit(status)
