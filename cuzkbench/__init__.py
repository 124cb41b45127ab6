"""cuzkbench: why is the GPU of a zero-knowledge prover idle half the time, and what would fix it?

`run(RunPlan(...))` makes a log, `read(path)` loads one, `analysis` explains it, `charts` draws it, `panel` asks it
what a change would give. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuzkbench import analysis, charts, panel
    from cuzkbench.logs import read
    from cuzkbench.logs.log import Log
    from cuzkbench.plan import RunPlan
    from cuzkbench.runs import run

__version__ = "0.1.0"
__all__ = ["Log", "RunPlan", "__version__", "analysis", "charts", "panel", "read", "run"]

_HOMES = {"Log": "logs.log", "RunPlan": "plan", "read": "logs", "run": "runs"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'cuzkbench' has no attribute {name!r}")
    module = import_module(f"cuzkbench.{_HOMES.get(name, name)}")
    return getattr(module, name) if name in _HOMES else module


def __dir__() -> list[str]:
    return sorted(__all__)
