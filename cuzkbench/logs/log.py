"""Log: what every reader returns and every analysis takes. A header, a validated frame of intervals, a trailer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from cuzkbench.words import duration, percent, rate, workers


@dataclass(frozen=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        whole = "" if self.complete else f", cut: {self.cut_at}" if self.cut_at else ", without its trailer"
        return f"<Log {self.title!r}: {self.format} log of {self.device_name}, {len(self.frame):,} rows{whole}>"

    def _repr_html_(self) -> str:
        from cuzkbench.analysis.metrics import bandwidth, metrics, partitions

        kind = "" if self.kind in self.device_name else f" ({self.kind})"  # a device may say it by its name
        facts = [("device", f"{self.device_name}{kind}, {self.format} log, {len(self.frame):,} rows")]
        warm = partitions(self).query("warmup")
        row: Any  # whose types only the columns know
        for row in metrics(self).itertuples():
            who = f"GPU {row.gpu}: " if len(self.gpus) > 1 else ""
            if not row.window_ns:
                facts.append((f"{who}kernels", "none"))
                continue
            busy = f"{percent(row.kernel_utilisation)} of {duration(row.window_ns)}"
            before = int((warm["gpu"] == row.gpu).sum())
            count = f"{row.partitions:,}" + (f" and {before} warm-up" if before else "")
            facts += [(f"{who}kernel utilisation", busy), (f"{who}partitions", count)]
            if not pd.isna(row.cadence_ns):
                ideal = "" if pd.isna(row.ideal_cadence_ns) else f", ideal {duration(row.ideal_cadence_ns)}"
                facts.append((f"{who}cadence", duration(row.cadence_ns) + ideal))
        for row in bandwidth(self).query("direction == 'H2D'").itertuples():
            line = "" if pd.isna(row.line_rate_gb_s) else f", line rate {rate(row.line_rate_gb_s)}"
            line += " (assumed)" if row.line_rate_source == "assumed" else ""
            facts.append((f"upload, {str(row.memory).lower()}", rate(row.gb_s) + line))
        trailer = self.trailer or {}
        if proofs := trailer.get("proofs"):
            facts.append(("proofs verified", f"{proofs.get('verified')} of {proofs.get('made')}"))
        if trailer.get("ended", "done") != "done":
            facts.append(("ended", " ".join(str(trailer[key]) for key in ("ended", "error") if trailer.get(key))))
        facts += [("cut", self.cut_at)] if self.cut_at else []
        facts += [("warning", text) for text in self.warnings]
        left = "style='text-align:left'"
        rows = "".join(
            f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(str(text))}</td></tr>" for name, text in facts
        )
        notes = "".join(f"<br><b style='color:#9A3412'>{escape(label)}</b>" for label in self.labels)
        return f"<table><caption {left}><b>{escape(self.title)}</b>{notes}</caption>{rows}</table>"


def told_apart(logs: Sequence[Log]) -> list[str]:
    """A short name for each of several logs: what its title does not share with all others, else its file's name."""
    titles = [log.title for log in logs]
    if len(set(titles)) < len(titles):
        return [Path(log.path).name if log.path else log.title for log in logs]
    parts = [title.split(", ") for title in titles]
    names = [", ".join(part for part in mine if not all(part in other for other in parts)) for mine in parts]
    return names if all(names) and len(set(names)) == len(names) else titles
