"""Frames about a log: how well the GPU was used, what it waited for, which theory holds, what a change would gain.

The functions are bound here, once and eagerly: several have the name of their module, and a module that is loaded
later would take the function's place.
"""

from cuzkbench.analysis.metrics import all_operations, bandwidth, jobs, metrics, partitions

__all__ = ["all_operations", "bandwidth", "jobs", "metrics", "partitions"]
