"""Charts: a Log in, a plotly Figure out; nothing here shows, writes or changes anything."""

from cuzkbench.charts.bars import bandwidth, causes, theories
from cuzkbench.charts.lines import cadence, predicted, utilisation, whatif
from cuzkbench.charts.timeline import compare, gantt

__all__ = ["bandwidth", "cadence", "causes", "compare", "gantt", "predicted", "theories", "utilisation", "whatif"]
