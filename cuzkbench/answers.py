"""What the commands that read logs do: load, ask the analysis, print or write the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cuzkbench import outputs

EXPORTS = ("chrome", "jsonl", "parquet")
MOST_S = 9e9  # int64 nanoseconds hold that many seconds


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(document, indent=2, allow_nan=False))


def explain(
    path: Path,
    as_json: bool,
    line_rate: float | None = None,
    begin_s: float | None = None,
    end_s: float | None = None,
    fail_under: float | None = None,
) -> int:
    """`cuzkbench explain`; returns 1 where a GPU was used less than `fail_under`, or none was used at all."""
    from cuzkbench import analysis
    from cuzkbench.logs import read
    from cuzkbench.tables import explanation, show

    if fail_under is not None and not 0 <= fail_under <= 1:
        raise ValueError(f"--fail-under {fail_under:g}: a share, from 0 to 1")
    begin, end = _nanoseconds("--from", begin_s), _nanoseconds("--to", end_s)
    answer = analysis.explain(read(path), line_rate=line_rate, start_ns=begin, end_ns=end)
    if as_json:
        print_json(answer)
    else:
        show(*explanation(answer))
    if fail_under is None:
        return 0
    judged = [gpu["kernel_utilisation"] for gpu in answer["gpus"] if gpu["window_ns"]]
    return int(not judged or min(judged) < fail_under)


def _nanoseconds(option: str, seconds: float | None) -> int | None:
    if seconds is not None and not abs(seconds) <= MOST_S:
        raise ValueError(f"{option} {seconds:g}: seconds since the run's start, at most {MOST_S:g}")
    return None if seconds is None else round(seconds * 1e9)


def compare(paths: Sequence[Path], as_json: bool) -> None:
    """`cuzkbench compare`."""
    from cuzkbench import analysis
    from cuzkbench.logs import read
    from cuzkbench.tables import comparison, show

    logs = [read(path) for path in paths]
    if as_json:
        return print_json({"logs": [analysis.explain(log) for log in logs]})
    return show(*comparison(logs))


def whatif(path: Path, changes: Mapping[str, Any], as_json: bool) -> None:
    """`cuzkbench whatif`. Raises ValueError where nothing is changed."""
    from cuzkbench import analysis
    from cuzkbench.logs import read
    from cuzkbench.tables import prediction, show

    chosen = {name: value for name, value in changes.items() if value is not None}
    if not chosen:
        raise ValueError(f"whatif: change something: {', '.join('--' + name.replace('_', '-') for name in changes)}")
    answer = analysis.whatif(read(path), **chosen)
    return print_json(answer) if as_json else show(*prediction(answer))


def report(paths: Sequence[Path], output: Path) -> None:
    """`cuzkbench report`."""
    from cuzkbench import report
    from cuzkbench.logs import read
    from cuzkbench.tables import show

    outputs.check(output, inputs=paths)
    report.write([read(path) for path in paths], output)
    show(f"wrote {output}")


def import_files(paths: Sequence[Path], output: Path, format: str | None, partition_bytes: int | None) -> None:
    """`cuzkbench import`: says what was read, bounded and left out."""
    from cuzkbench.logs import read
    from cuzkbench.tables import show

    outputs.check(output, outputs.LOGS, paths)
    options: dict[str, Any] = {} if partition_bytes is None else {"partition_bytes": partition_bytes}
    log = read(*paths, format=format, **options)
    log.save(output)
    phases = ", ".join(f"{count:,} {phase}" for phase, count in log.frame["phase"].value_counts().items() if count)
    show(f"{log.format}: {len(log.frame):,} rows on {log.device_name}: {phases}")
    show(*(f"note: {warning}" for warning in log.warnings), f"wrote {output}")


def export(path: Path, to: str, output: Path) -> None:
    """`cuzkbench export`. Raises ValueError for an unknown format, or a name that belongs to another."""
    from cuzkbench.logs import read
    from cuzkbench.tables import show

    if to not in EXPORTS:
        raise ValueError(f"--to {to!r}: one of {', '.join(EXPORTS)}")
    if to == "chrome" and output.suffix in outputs.LOGS:
        raise ValueError(f"output {str(output)!r}: a Chrome trace; add --to {output.suffix[1:]}, or take another name")
    outputs.check(output, () if to == "chrome" else (f".{to}",), [path])
    log = read(path)
    if to == "chrome":
        from cuzkbench.logs import chrome_export

        chrome_export.write(log, output)
    else:
        log.save(output)
    show(f"wrote {output}")
