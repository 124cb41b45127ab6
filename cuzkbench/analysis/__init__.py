"""Frames about a log: how well the GPU was used, what it waited for, which theory holds, what a change would gain.

The functions are bound here, once and eagerly: several have the name of their module, and a module that is loaded
later would take the function's place.
"""

from cuzkbench.analysis.compare import compare
from cuzkbench.analysis.explain import explain
from cuzkbench.analysis.gaps import gaps
from cuzkbench.analysis.metrics import all_operations, bandwidth, jobs, metrics, partitions
from cuzkbench.analysis.stretches import stretches
from cuzkbench.analysis.theories import theories
from cuzkbench.analysis.whatif import best_change, whatif

__all__ = [
    "all_operations", "bandwidth", "best_change", "compare", "explain", "gaps", "jobs", "metrics", "partitions",
    "stretches", "theories", "whatif",
]  # fmt: skip
