"""The commands that read logs: load, ask the analysis, print or write the answer; heavy modules come inside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cuzkbench import outputs

EXPORTS = ("chrome", "jsonl", "parquet")
MOST_S = 9e9  # int64 nanoseconds hold that many seconds

app = typer.Typer()

OneLog = Annotated[Path, typer.Argument(metavar="LOG", show_default=False, help="A log of any known format.")]
Logs = Annotated[list[Path], typer.Argument(metavar="LOG", show_default=False, help="Logs of any known format.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout and nothing else there.")]
Output = Annotated[Path, typer.Option("-o", "--output", show_default=False, help="The file to write.")]
Lock = Annotated[str | None, typer.Option(help="What the GPU lock covers: coarse, device or narrow.")]
Memory = Annotated[str | None, typer.Option(help="Where the vectors live: pageable, pinned, registered or staged.")]
Workers = Annotated[int | None, typer.Option(help="GPU workers of each GPU, 1 to 8.")]
SynthesisWorkers = Annotated[int | None, typer.Option(help="Partitions synthesised at a time.")]


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(document, indent=2, allow_nan=False))


@app.command()
def explain(
    log: OneLog,
    json: Json = False,
    line_rate: Annotated[float | None, typer.Option(help="GB/s that a pinned copy reaches there.")] = None,
    begin: Annotated[float | None, typer.Option("--from", help="Leave out what was before this second.")] = None,
    end: Annotated[float | None, typer.Option("--to", help="Leave out what was after this second.")] = None,
    fail_under: Annotated[float | None, typer.Option(help="Exit 1 below this kernel utilisation, e.g. 0.9.")] = None,
) -> None:
    """Say where every idle nanosecond went, which theories the log supports, and the one change that gains most."""
    from cuzkbench import analysis
    from cuzkbench.logs import read
    from cuzkbench.tables import explanation, show

    if fail_under is not None and not 0 <= fail_under <= 1:
        raise ValueError(f"--fail-under {fail_under:g}: a share, from 0 to 1")
    window = {"start_ns": _nanoseconds("--from", begin), "end_ns": _nanoseconds("--to", end)}
    answer = analysis.explain(read(log), line_rate=line_rate, **window)
    if json:
        print_json(answer)
    else:
        show(*explanation(answer))
    if fail_under is not None:  # where no GPU was used at all, that is less too
        used = [gpu["kernel_utilisation"] for gpu in answer["gpus"] if gpu["window_ns"]]
        raise typer.Exit(int(min(used, default=-1.0) < fail_under))


def _nanoseconds(option: str, seconds: float | None) -> int | None:
    if seconds is not None and not abs(seconds) <= MOST_S:
        raise ValueError(f"{option} {seconds:g}: seconds since the run's start, at most {MOST_S:g}")
    return None if seconds is None else round(seconds * 1e9)


@app.command()
def compare(logs: Logs, json: Json = False) -> None:
    """Show the figures of several logs side by side."""
    from cuzkbench import analysis
    from cuzkbench.logs import read
    from cuzkbench.tables import comparison, show

    read_logs = [read(path) for path in logs]
    if json:
        print_json({"logs": [analysis.explain(log) for log in read_logs]})
    else:
        show(*comparison(read_logs))


@app.command()
def whatif(
    log: OneLog,
    lock: Lock = None,
    memory: Memory = None,
    workers: Workers = None,
    synthesis_workers: SynthesisWorkers = None,
    link_gb_s: Annotated[float | None, typer.Option(help="Rate of every copy, GB/s.")] = None,
    json: Json = False,
) -> None:
    """Predict what another policy, number of workers or link would give, with an interval."""
    changes = {name: value for name, value in locals().items() if name not in ("log", "json")}
    from cuzkbench import analysis
    from cuzkbench.analysis.explain import overtaken
    from cuzkbench.logs import read
    from cuzkbench.tables import prediction, show

    chosen = {name: value for name, value in changes.items() if value is not None}
    if not chosen:
        raise ValueError(f"whatif: change something: {', '.join('--' + name.replace('_', '-') for name in changes)}")
    given = read(log)
    answer = analysis.whatif(given, **chosen)
    if json:
        print_json(answer)
    else:
        show(*prediction(answer, (*given.labels, *given.warnings, *overtaken(given))))


@app.command()
def report(logs: Logs, output: Output) -> None:
    """Write one self-contained HTML file about one or several logs."""
    from cuzkbench import report
    from cuzkbench.logs import read
    from cuzkbench.progress import bars
    from cuzkbench.tables import show

    outputs.check(output, inputs=logs)
    with bars() as progress:
        progress("report", 0, 1)
        report.write([read(path) for path in logs], output)
        progress("report", 1, 1)
    show(f"wrote {output}")


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False, help="The parts of one log.")],
    output: Output,
    format: Annotated[str | None, typer.Option(help="native, cuzk, nsight or chrome; else by content.")] = None,
    partition_bytes: Annotated[int | None, typer.Option(help="cuzk: bytes that one partition uploads.")] = None,
) -> None:
    """Read a foreign trace and write it as a log of ours (.jsonl or .parquet); say what was read, bounded, left out."""
    from cuzkbench.logs import read
    from cuzkbench.tables import show

    outputs.check(output, outputs.LOGS, files)
    options: dict[str, Any] = {} if partition_bytes is None else {"partition_bytes": partition_bytes}
    log = read(*files, format=format, **options)
    log.save(output)
    phases = ", ".join(f"{count:,} {phase}" for phase, count in log.frame["phase"].value_counts().items() if count)
    show(f"{log.format}: {len(log.frame):,} rows on {log.device_name}: {phases}")
    show(*(f"note: {warning}" for warning in log.warnings), f"wrote {output}")


@app.command()
def export(
    log: OneLog,
    output: Output,
    to: Annotated[str, typer.Option(help="chrome (for Perfetto), parquet or jsonl.")] = "chrome",
) -> None:
    """Write a log in a format that other tools read."""
    from cuzkbench.logs import chrome_export, read
    from cuzkbench.tables import show

    if to not in EXPORTS:
        raise ValueError(f"--to {to!r}: one of {', '.join(EXPORTS)}")
    if to == "chrome" and output.suffix in outputs.LOGS:
        raise ValueError(f"output {str(output)!r}: a Chrome trace; add --to {output.suffix[1:]}, or take another name")
    outputs.check(output, () if to == "chrome" else (f".{to}",), [log])
    if to == "chrome":
        chrome_export.write(read(log), output)
    else:
        read(log).save(output)
    show(f"wrote {output}")
