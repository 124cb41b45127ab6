"""The main job: the puzzle and its mend on one device, both logs compared in a table and in one HTML file."""

from __future__ import annotations

from pathlib import Path

from cuzkbench import outputs
from cuzkbench.plan import RunPlan

PRESETS = ("seed-case", "fixed")
REPORT = "report.html"


def demo(out: Path, device: str = "auto") -> None:
    """Run both plans, verify every proof, print their comparison, and write two logs and a report into `out`.

    The plans differ in the memory policy only. Raises what `runs.run` raises; a rejected proof is an error that
    keeps the log.
    """
    from cuzkbench import report
    from cuzkbench.progress import bars
    from cuzkbench.runs import run
    from cuzkbench.tables import comparison, show

    out.mkdir(parents=True, exist_ok=True)
    paths = {preset: out / f"{preset}.parquet" for preset in PRESETS}
    for path in (*paths.values(), out / REPORT):
        outputs.check(path)
    logs = []
    for preset, path in paths.items():
        with bars(preset) as progress:
            logs.append(run(RunPlan.named(preset, device=device), path, progress))
    show(*comparison(logs))
    report.write(logs, out / REPORT)
    for path in (*paths.values(), out / REPORT):
        show(f"wrote {path}")
