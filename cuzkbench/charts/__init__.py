"""Charts: a Log in, a plotly Figure out; nothing here shows, writes or changes anything."""

from cuzkbench.charts.gantt import compare, gantt

__all__ = ["compare", "gantt"]
