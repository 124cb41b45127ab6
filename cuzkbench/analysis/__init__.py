"""Frames about a log: how well the GPU was used, what it waited for, which theory holds, what a change would gain.

The functions are bound here, once and eagerly: several have the name of their module, and a module that is loaded
later would take the function's place. Their frames show themselves in words in a notebook (`shown`).
"""

from cuzkbench.analysis.explain import compare as _compare
from cuzkbench.analysis.explain import explain
from cuzkbench.analysis.gaps import gaps as _gaps
from cuzkbench.analysis.metrics import all_operations as _all_operations
from cuzkbench.analysis.metrics import bandwidth as _bandwidth
from cuzkbench.analysis.metrics import jobs as _jobs
from cuzkbench.analysis.metrics import metrics as _metrics
from cuzkbench.analysis.metrics import partitions as _partitions
from cuzkbench.analysis.shown import shown
from cuzkbench.analysis.stretches import stretches as _stretches
from cuzkbench.analysis.theories import theories as _theories
from cuzkbench.analysis.whatif import best_change, whatif

all_operations, bandwidth, compare = shown(_all_operations), shown(_bandwidth), shown(_compare)
gaps, jobs, metrics, partitions = shown(_gaps), shown(_jobs), shown(_metrics), shown(_partitions)
stretches, theories = shown(_stretches), shown(_theories)
__all__ = [
    "all_operations", "bandwidth", "best_change", "compare", "explain", "gaps", "jobs", "metrics", "partitions",
    "stretches", "theories", "whatif",
]  # fmt: skip
