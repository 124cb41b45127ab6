"""Log: what every reader returns and every analysis takes. A header, a validated frame of intervals, a trailer."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from cuzkbench.words import workers


@dataclass(frozen=True, eq=False)
class Log:
    """One run's record. `frame` holds the columns of `events.COLUMNS` and is never changed in place."""

    frame: pd.DataFrame
    header: dict[str, Any]
    trailer: dict[str, Any] | None = None
    cut_at: str | None = None  # where the file broke off, None for a whole one
    warnings: tuple[str, ...] = ()
    path: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the log is whole: not cut and, unless a foreign program wrote it, with its trailer."""
        return self.cut_at is None and (self.trailer is not None or self.kind == "foreign")

    @property
    def kind(self) -> str:
        """cuda, emulated, simulated or foreign."""
        return str(self.header["device_kind"])

    @property
    def format(self) -> str:
        """native, cuzk, nsight or chrome: what the rows were read from."""
        return str((self.header["source"] or {}).get("format", "native"))

    @property
    def labels(self) -> tuple[str, ...]:
        """Sentences that every chart and table of this log must show."""
        return tuple(self.header["labels"])

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs of the header and the rows, in order."""
        named = {int(gpu["gpu"]) for gpu in self.header["gpus"]}
        return tuple(sorted(named | {int(gpu) for gpu in self.frame["gpu"].unique() if gpu >= 0}))

    @property
    def device_name(self) -> str:
        """The devices as their makers call them, without repetition."""
        names = dict.fromkeys(str(gpu.get("device", "unknown device")) for gpu in self.header["gpus"])
        return ", ".join(names) or "unknown device"

    @property
    def title(self) -> str:
        """The preset or the policies of the run, else the file's name: what a chart calls this log."""
        plan = self.header["plan"] or {}
        if plan.get("preset"):
            return str(plan["preset"])
        if plan:
            count = plan.get("workers")
            return f"{plan.get('lock')} lock, {plan.get('memory')}, {workers(count) if count else 'workers unknown'}"
        return Path(self.path).name if self.path else str(self.header["run"])

    def save(self, path: str | Path) -> None:
        """Write the log as .jsonl or .parquet, whole or not at all; raises ValueError for another suffix."""
        from cuzkbench.logs import native

        native.write(self, Path(path))

    def _repr_html_(self) -> str:
        from cuzkbench.analysis.metrics import metrics, partitions

        facts = [("device", f"{self.device_name} ({self.kind})"), ("rows", f"{len(self.frame):,}")]
        facts += [("note", label) for label in self.labels]
        measured = partitions(self)
        facts.append(("partitions", f"{int((~measured['warmup']).sum())} and {int(measured['warmup'].sum())} warm-up"))
        for row in metrics(self).itertuples():
            utilisation = f"{row.kernel_utilisation:.1%}" if row.window_ns else "no kernels"
            facts.append((f"GPU {row.gpu} kernel utilisation", utilisation))
        facts += [("cut", self.cut_at)] if self.cut_at else []
        facts += [("warning", text) for text in self.warnings]
        rows = "".join(f"<tr><th>{escape(str(name))}</th><td>{escape(str(text))}</td></tr>" for name, text in facts)
        return f"<table><caption>{escape(self.title)}</caption>{rows}</table>"
