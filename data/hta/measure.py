"""Side by side with HolisticTraceAnalysis on PyTorch traces: time to load and break down, and the figures.

    python -m venv hta && hta/bin/pip install HolisticTraceAnalysis
    python data/hta/measure.py --hta hta/bin/python TRACE… -o data/hta/comparison.json

Each round is a process of its own; times are medians of the rounds and leave the imports out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

OURS = """
import json, sys, time
from cuzkbench.analysis import all_operations
from cuzkbench.logs import chrome, native, nsight, read  # imports are not timed
start = time.perf_counter()
log = read(sys.argv[1])
loaded = time.perf_counter()
found = all_operations(log)
done = time.perf_counter()
figures = [
    {"gpu": int(row["gpu"]), "idle_us": row["idle_ns"] / 1e3, "kernel_us": row["kernel_union_ns"] / 1e3,
     "other_us": (row["busy_ns"] - row["kernel_union_ns"]) / 1e3, "span_us": row["span_ns"] / 1e3}
    for row in found.to_dict("records")
]
print(json.dumps({"load_s": loaded - start, "breakdown_s": done - loaded, "figures": figures,
    "said": list(log.labels)}))
"""
THEIRS = """
import json, logging, os, shutil, sys, tempfile, time
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
folder = tempfile.mkdtemp()
path = shutil.copy(sys.argv[1], folder)
out = {}
try:
    start = time.perf_counter()
    analysis = TraceAnalysis(trace_files={0: path}, trace_dir=folder)
    loaded = time.perf_counter()
    found = analysis.get_temporal_breakdown(visualize=False)
    done = time.perf_counter()
    figures = [
        {"gpu": row["rank"], "idle_us": row["idle_time(us)"], "kernel_us": row["compute_time(us)"],
         "other_us": row["non_compute_time(us)"], "span_us": row["kernel_time(us)"]}
        for row in json.loads(found.to_json(orient="records"))
    ]
    out = {"load_s": loaded - start, "breakdown_s": done - loaded, "figures": figures}
except Exception as error:
    out = {"error": f"{type(error).__name__}: {error}"}
shutil.rmtree(folder)
print(json.dumps(out))
"""


def measure(python: str, program: str, trace: Path, rounds: int) -> dict[str, object]:
    """The medians of the times, and the last round's figures."""
    command = [python, "-c", program, str(trace)]
    results = [
        json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])
        for _ in range(rounds)
    ]
    times = {
        name: round(statistics.median(r[name] for r in results), 4)
        for name in ("load_s", "breakdown_s")
        if name in results[0]
    }
    return results[-1] | times


def main() -> None:
    """Measure all traces and write the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--hta", required=True, help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    asked = "import importlib.metadata as m; print(m.version('HolisticTraceAnalysis'))"
    theirs = subprocess.run([options.hta, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()
    rows = [
        {
            "trace": trace.name,
            "bytes": trace.stat().st_size,
            "sha256": hashlib.sha256(trace.read_bytes()).hexdigest(),
            "cuzkbench": measure(sys.executable, OURS, trace, options.rounds),
            "hta": measure(options.hta, THEIRS, trace, options.rounds),
        }
        for trace in options.traces
    ]
    machine = {"processor": platform.machine(), "python": platform.python_version(), "rounds": options.rounds}
    versions = {"HolisticTraceAnalysis": theirs, "pandas": version("pandas")}
    command = "python data/hta/measure.py --hta hta/bin/python TRACE… -o data/hta/comparison.json"
    document = {"command": command, "machine": machine, "versions": versions, "rows": rows}
    options.output.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
