"""Interval algebra on int64 arrays: the only place where intervals are merged, cut and measured.

An interval is [start, end) in nanoseconds. An `Intervals` is a set of them in normal form: sorted, disjoint, not
touching, none empty. `union` makes one from any bag of rows; everything else takes and gives normal form.
Cost: O(n log n) sorts and binary searches, no Python loop over intervals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Intervals(NamedTuple):
    """A set of instants as sorted, disjoint, non-touching, non-empty intervals."""

    start: np.ndarray  # int64
    end: np.ndarray  # int64

    @property
    def measure(self) -> int:
        """Nanoseconds in the set."""
        return int((self.end - self.start).sum())


class Merged(NamedTuple):
    """Rows joined within their groups; `member[i]` is the output interval that holds input row i, -1 for empty rows."""

    group: np.ndarray
    start: np.ndarray
    end: np.ndarray
    member: np.ndarray

    def total(self, values: np.ndarray) -> np.ndarray:
        """Sum of an int64 value of the input rows by output interval."""
        kept = self.member >= 0
        sums = np.zeros(len(self.start), np.int64)
        np.add.at(sums, self.member[kept], np.asarray(values, np.int64)[kept])
        return sums


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def _int64(values: object) -> np.ndarray:
    return np.asarray(values, dtype=np.int64)


def union(start: object, end: object) -> Intervals:
    """The instants that any of the rows covers; rows with end <= start cover none."""
    starts, ends = _int64(start), _int64(end)
    full = ends > starts
    if not full.all():
        starts, ends = starts[full], ends[full]
    if len(starts) == 0:
        return EMPTY
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    first = np.concatenate(([True], starts[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Intervals(starts[first], reach[last])


def merge(group: object, start: object, end: object, within_ns: int = 0) -> Merged:
    """Join the rows of each group that overlap, touch or lie at most within_ns apart; groups are non-negative ints.

    The output is sorted by (group, start). Neither the order of the rows nor splitting one into pieces changes it.
    """
    member = np.full(len(_int64(start)), -1, np.int64)
    rows, groups, starts, ends = _in_order(group, start, end)
    fresh = _changes(groups)
    reach = ends[_furthest(fresh, ends)]
    first = fresh.copy()
    first[1:] |= starts[1:] - reach[:-1] > within_ns
    last = np.append(first[1:], True)[: len(first)]
    member[rows] = np.cumsum(first) - 1
    return Merged(groups[first], starts[first], reach[last], member)


def intersection(a: Intervals, b: Intervals) -> Intervals:
    """The instants in both sets: from each start but the first to the end before it, since at most two are open."""
    starts, ends = np.sort(np.concatenate((a.start, b.start)))[1:], np.sort(np.concatenate((a.end, b.end)))[:-1]
    both = starts < ends
    return Intervals(starts[both], ends[both])


def gaps(a: Intervals, start: int, end: int) -> Intervals:
    """The instants of [start, end) that the set does not hold."""
    inside = clip(a, start, end)
    starts = np.concatenate((_int64([start]), inside.end))
    ends = np.concatenate((inside.start, _int64([end])))
    full = ends > starts
    return Intervals(starts[full], ends[full])


def clip(a: Intervals, start: int, end: int) -> Intervals:
    """The instants of the set in [start, end)."""
    starts, ends = np.maximum(a.start, start), np.minimum(a.end, end)
    inside = ends > starts
    return Intervals(starts[inside], ends[inside])


def overlap(
    start: object, end: object, other: Intervals | Merged | Owned, group: np.ndarray | None = None
) -> np.ndarray:
    """Nanoseconds of each row that lie in the set, or in what its own group has of it, int64."""
    starts, ends = _int64(start), _int64(end)
    return np.maximum(measure_before(ends, other, group) - measure_before(starts, other, group), 0)


def measure_before(instants: object, other: Intervals | Merged | Owned, group: np.ndarray | None = None) -> np.ndarray:
    """Nanoseconds of the set that lie before each instant, int64; with groups up to a constant of each."""
    at = _int64(instants)
    total = np.concatenate((_int64([0]), np.cumsum(other.end - other.start)))
    if isinstance(other, Intervals):
        index, first = np.searchsorted(other.start, at, side="right") - 1, np.zeros(len(at), np.int64)
    else:
        index, first = last_begun(group, at, other), np.searchsorted(other.group, _int64(group))
    beyond = np.maximum(np.append(other.end, 0)[index] - at, 0)
    return np.where(index >= 0, total[index + 1] - beyond, total[first])


def _in_order(group: object, start: object, end: object) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The rows that are not empty by group, then start: their places, groups, starts and ends."""
    groups, starts, ends = _int64(group), _int64(start), _int64(end)
    rows = np.flatnonzero(ends > starts)
    rows = rows[np.lexsort((starts[rows], groups[rows]))]
    return rows, groups[rows], starts[rows], ends[rows]


def _changes(groups: np.ndarray) -> np.ndarray:
    """Which rows are the first of their group."""
    return np.concatenate(([True], groups[1:] != groups[:-1]))[: len(groups)]


def _furthest(fresh: np.ndarray, ends: np.ndarray, tie: np.ndarray | None = None) -> np.ndarray:
    """For each row the index of the one that reaches furthest up to it in its group; `fresh` marks each group's first.

    Ranks of the ends, lifted by group, cannot overflow as times could.
    """
    by_end = np.argsort(ends, kind="stable") if tie is None else np.lexsort((tie, ends))
    rank = np.empty(len(ends), np.int64)
    rank[by_end] = np.arange(len(ends))
    return by_end[np.maximum.accumulate(rank + (np.cumsum(fresh) - 1) * len(ends)) % max(len(ends), 1)]


class Owned(NamedTuple):
    """Labelled intervals of groups, disjoint within each group and sorted by (group, start)."""

    group: np.ndarray
    start: np.ndarray
    end: np.ndarray
    row: np.ndarray  # the input row that an interval stands for


def latest(group: object, start: object, end: object) -> Owned:
    """For every instant of every group the row that ends last among those open then; of equals, the later input row.

    Of the rows begun so far, the one that reaches furthest is open exactly as long as any is.
    """
    rows, groups, starts, ends = _in_order(group, start, end)
    fresh = _changes(groups)
    winner = _furthest(fresh, ends, rows)
    until = ends[winner]
    until[:-1] = np.where(fresh[1:], until[:-1], np.minimum(until[:-1], starts[1:]))
    full = until > starts
    return Owned(groups[full], starts[full], until[full], rows[winner[full]])


def last_begun(group: object, instant: object, other: Owned | Merged) -> np.ndarray:
    """Index into `other` of the group's last interval that starts at or before each instant, -1 without."""
    groups, at = _int64(group), _int64(instant)
    marks = np.sort(at)  # ranks among them order as times do, and can be lifted by group without overflow
    width = len(marks) + 1
    keys = other.group * width + np.searchsorted(marks, other.start)
    index = np.searchsorted(keys, groups * width + np.searchsorted(marks, at), side="right") - 1
    return np.where(np.append(other.group, -1)[index] == groups, index, -1)


def amount_before(instants: object, start: object, end: object, amount: object) -> np.ndarray:
    """What has come before each instant if each row's amount comes evenly over the row, float64."""
    at, starts, ends = _int64(instants), _int64(start), _int64(end)
    if len(starts) == 0:
        return np.zeros(len(at))
    rate = np.asarray(amount, np.float64) / np.maximum(ends - starts, 1)
    edges = np.concatenate((starts, ends))
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    speed = np.cumsum(np.concatenate((rate, -rate))[order])
    total = np.concatenate(([0.0], np.cumsum(speed[:-1] * np.diff(edges))))
    index = np.maximum(np.searchsorted(edges, at, side="right") - 1, 0)
    return np.where(at < edges[0], 0.0, total[index] + speed[index] * np.maximum(at - edges[index], 0))


def deepest(start: object, end: object) -> int:
    """The largest number of rows that are open at one instant."""
    starts, ends = np.sort(_int64(start)), np.sort(_int64(end))
    open_ = np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")
    return int(open_.max(initial=0))
