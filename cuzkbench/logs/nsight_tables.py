"""An Nsight Systems export as frames of the columns that its version has. For `logs/nsight.py`.

Tables and columns come and go between versions and exports, so each is read where it is there. Every name in a query
is a constant; the file is opened read-only and immutable, its views and virtual tables are not touched.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cuzkbench.logs.foreign import Foreign
from cuzkbench.logs.limits import Limits, printable
from cuzkbench.logs.validate import LATEST_NS

SUFFIXES = ("_V3", "_V2", "")  # newer exports are said to number their tables
MISSING = -(2**63)  # what stands for NULL and for what is no integer


class Export:
    """The tables of one file; `cut` says where reading broke off."""

    def __init__(self, path: Path, connection: sqlite3.Connection, limits: Limits, out: Foreign) -> None:
        self.path, self.connection, self.limits, self.out = path, connection, limits, out
        self.cut: str | None = None
        self._steps = self._taken = 0
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.set_progress_handler(self._step, 1_000_000)
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        self.tables = {str(name) for name, sql in found if re.match(r"\s*CREATE\s+TABLE\b", str(sql), re.I)}
        self._strings = {i: str(v) for i, v in self.rows("StringIds", ("id", "value")) if type(i) is int}

    def _step(self) -> bool:
        """Stop queries that run far longer than reading the rows can take: a damaged tree may turn in circles."""
        self._steps += 1
        return self._steps > 1000 + self.limits.max_rows // 1000

    def rows(self, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Rows of the columns, None in place of one that the table lacks; ends at damage."""
        name = next((table + suffix for suffix in SUFFIXES if table + suffix in self.tables), None)
        if name is None:
            return
        count = 0
        try:
            there = {row[1] for row in self.connection.execute(f'PRAGMA table_info("{name}")')}
            wanted = ", ".join(f'"{column}"' if column in there else "NULL" for column in columns)
            for row in self.connection.execute(f'SELECT {wanted} FROM "{name}"'):
                count += 1
                self._taken += 1
                self.limits.rows(self.path, self._taken)
                yield row
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            self.cut = self.cut or f"table {table}, row {count + 1}: {printable(error)}"

    def frame(self, table: str, *columns: str, text: str | None = None) -> pd.DataFrame:
        """Columns as int64, MISSING where there is none, and a column of text, "" where there is none."""
        rows = list(self.rows(table, (*columns, text) if text else columns))
        index = range(len(rows))
        frame = pd.DataFrame({n: _integers([row[i] for row in rows]) for i, n in enumerate(columns)}, index=index)
        if text:
            frame[text] = pd.Series(["" if row[-1] is None else str(row[-1]) for row in rows], index, dtype=object)
        return frame.rename(columns={"start": "start_ns", "end": "end_ns"})

    def intervals(self, table: str, *columns: str) -> pd.DataFrame:
        """start_ns, end_ns and columns of the rows with possible times."""
        return self.possible(table, self.frame(table, "start", "end", *columns))

    def possible(self, table: str, rows: pd.DataFrame) -> pd.DataFrame:
        """Those rows whose times a run can have, counted; an end before its start becomes the start."""
        times = rows[["start_ns", "end_ns"]]
        good = ((times > -LATEST_NS) & (times < LATEST_NS)).all(axis=1)
        self.out.dropped[f"{table} rows without possible times"] += int((~good).sum())
        rows = rows[good].reset_index(drop=True)
        empty = int((rows["end_ns"] < rows["start_ns"]).sum())
        self.out.bounded[f"{table} rows that end before they start, taken as empty"] += empty
        self.out.read[f"{table} rows"] += len(rows)
        return rows.assign(end_ns=rows[["start_ns", "end_ns"]].max(axis=1))

    def strings(self, ids: pd.Series) -> tuple[np.ndarray, list[str]]:
        """Names by their ids: (codes, the names that they count)."""
        codes, unique = pd.factorize(ids)
        return codes, [self._strings.get(i, f"string {i}") for i in unique]

    def count(self, table: str) -> int:
        """Rows of a table that is not read, 0 without it."""
        try:
            query = f'SELECT COUNT(*) FROM "{table}"'
            return int(self.connection.execute(query).fetchone()[0]) if table in self.tables else 0
        except (sqlite3.Error, UnicodeDecodeError):
            return 0


def _integers(values: list[Any]) -> np.ndarray:
    if set(map(type, values)) <= {int}:
        return np.array(values, np.int64)
    return np.array([value if type(value) is int else MISSING for value in values], np.int64)
