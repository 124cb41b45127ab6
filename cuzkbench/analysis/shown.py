"""Frames as a notebook shows them: the same DataFrame, with times, sizes and shares in words and columns explained."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, wraps
from html import escape
from pathlib import Path
from typing import Any, ParamSpec

import pandas as pd

from cuzkbench.words import NONE, duration, percent, rate, size

P = ParamSpec("P")
SHARES = (
    "kernel_utilisation", "lock_utilisation", "worker_utilisation", "hidden_transfer", "interleaving", "efficiency",
)  # fmt: skip
_LONGEST = 200  # characters of a cell
_WIDE, _FEW = 8, 3  # a frame of more columns and at most so many rows is shown on its side


class Shown(pd.DataFrame):
    """A DataFrame whose HTML says `1.75 s` where it holds 1750000000 in a column `…_ns`; its values are unchanged."""

    @property
    def _constructor(self) -> Callable[..., Shown]:
        return Shown

    def _repr_html_(self) -> str:
        plain = pd.DataFrame(self)
        if not isinstance(plain.index, pd.RangeIndex) and None not in plain.index.names:
            plain = plain.reset_index()
        most = pd.get_option("display.max_rows") or len(plain)
        part = plain if len(plain) <= most else plain.head(most // 2)
        names = [str(name) for name in part.columns]
        heads = [f'<th title="{escape(_meanings().get(name, ""))}">{escape(name)}</th>' for name in names]
        cells = [[_cell(name, value) for value in part.iloc[:, at]] for at, name in enumerate(names)]
        rows = list(zip(*cells, strict=True))
        if len(part) <= _FEW and len(names) > _WIDE:
            body = "".join(f"<tr>{head}{''.join(row)}</tr>" for head, row in zip(heads, cells, strict=True))
        else:
            body = f"<thead><tr>{''.join(heads)}</tr></thead>" + "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
        left = len(plain) - len(part)
        return f'<table class="dataframe">{body}</table>' + (f"<p>and {left:,} more rows</p>" if left else "")


def _cell(name: str, value: Any) -> str:
    side = ' style="text-align:left"' if isinstance(value, (str, list)) else ""
    return f'<td{side} title="{escape(str(value)[:_LONGEST])}">{escape(said(name, value))}</td>'


def said(name: str, value: Any) -> str:
    """A cell in words, by the unit at the end of its column's name; a dash for what the log does not hold."""
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return NONE
    if isinstance(value, bool) or pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if isinstance(value, list):  # a theory's evidence
        return "; ".join(f"{piece['what']} {_amount(piece['value'], piece['unit'])}" for piece in value) or NONE
    number = pd.api.types.is_number(value)
    if not number:
        return str(value) if len(str(value)) <= _LONGEST else str(value)[:_LONGEST] + "…"
    if name in SHARES:
        return percent(value)
    for ending, words in ((r"_ns$", duration), (r"(^|_)bytes$", size), (r"^(.*_)?gb_s$", rate)):
        if re.search(ending, name):
            return words(value)
    if name in ("partition", "gpu", "worker") and value == -1:
        return NONE
    return f"{value:,}" if pd.api.types.is_integer(value) else f"{value:.4g}"


def _amount(value: float, unit: str) -> str:
    words = {"ns": duration, "GB/s": rate, "share": percent, "1": "{:.4g}".format}.get(unit)
    return words(value) if words else f"{value:.4g} {unit}"


def shown(answer: Callable[P, pd.DataFrame]) -> Callable[P, Shown]:
    """The same function, its frame as a Shown."""

    @wraps(answer)
    def table(*args: P.args, **kwargs: P.kwargs) -> Shown:
        return Shown(answer(*args, **kwargs))

    return table


@cache
def _meanings() -> dict[str, str]:
    """What COLUMNS.md says of each column; of two tables' columns of one name the first counts."""
    text = Path(__file__).with_name("COLUMNS.md").read_text(encoding="utf-8")
    return dict(reversed(re.findall(r"^\| (\w+) \| (.+?) \|$", text, re.MULTILINE)))
