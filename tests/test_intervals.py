"""The interval algebra against a brute-force count of nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzkbench.analysis import intervals
from cuzkbench.analysis.intervals import Intervals

LOW, HIGH = -12, 40
instant = st.integers(LOW, HIGH)
bag = st.lists(st.tuples(instant, instant), max_size=12)
grouped = st.lists(st.tuples(st.integers(0, 3), instant, instant, st.integers(0, 99)), max_size=14)


def count(rows) -> set[int]:
    return {n for start, end in rows for n in range(start, end)}


def held(a: Intervals) -> set[int]:
    return count(zip(a.start.tolist(), a.end.tolist(), strict=True))


def columns(rows, index: int) -> list[int]:
    return [row[index] for row in rows]


def make(rows) -> Intervals:
    return intervals.union(columns(rows, 0), columns(rows, 1))


def is_normal(a: Intervals) -> bool:
    return bool(
        (a.end > a.start).all() and (a.start[1:] > a.end[:-1]).all() and a.start.dtype == a.end.dtype == np.int64
    )


@given(bag)
def test_union_and_measure_vs_set_of_nanoseconds(rows):
    a = make(rows)
    assert is_normal(a)
    assert held(a) == count(rows)
    assert a.measure == len(count(rows))


@given(bag, bag)
def test_intersection_vs_set_of_nanoseconds(left, right):
    both = intervals.intersection(make(left), make(right))
    assert is_normal(both)
    assert held(both) == count(left) & count(right)


@given(bag, instant, instant)
def test_gaps_and_clip_vs_set_of_nanoseconds(rows, start, end):
    a, window = make(rows), set(range(start, end))
    outside, inside = intervals.gaps(a, start, end), intervals.clip(a, start, end)
    assert is_normal(outside) and is_normal(inside)
    assert held(outside) == window - count(rows)
    assert held(inside) == window & count(rows)
    assert outside.measure + inside.measure == len(window)


@given(bag, bag)
def test_overlap_vs_set_of_nanoseconds(rows, other):
    b = make(other)
    starts, ends = columns(rows, 0), columns(rows, 1)
    expected = [len(set(range(start, end)) & count(other)) for start, end in rows]
    assert intervals.overlap(starts, ends, b).tolist() == expected


@given(bag, st.lists(instant, max_size=8))
def test_measure_before_vs_set_of_nanoseconds(rows, at):
    a, inside = make(rows), count(rows)
    assert intervals.measure_before(at, a).tolist() == [sum(m < n for m in inside) for n in at]


@given(grouped, st.integers(0, 5))
def test_merge_vs_joining_one_row_at_a_time(rows, within):
    merged = intervals.merge(columns(rows, 0), columns(rows, 1), columns(rows, 2), within)
    expected = []
    for group, start, end, _ in sorted(row for row in rows if row[2] > row[1]):
        if expected and expected[-1][0] == group and start - expected[-1][2] <= within:
            expected[-1][2] = max(expected[-1][2], end)
        else:
            expected.append([group, start, end])
    assert [list(row) for row in zip(*(a.tolist() for a in merged[:3]), strict=True)] == expected
    totals = [0] * len(expected)
    for (group, start, end, value), member in zip(rows, merged.member.tolist(), strict=True):
        if end <= start:
            assert member == -1
            continue
        assert expected[member][0] == group and expected[member][1] <= start and end <= expected[member][2]
        totals[member] += value
    assert merged.total(columns(rows, 3)).tolist() == totals


@given(grouped, st.randoms(use_true_random=False), st.integers(0, 5))
def test_merge_ignores_row_order_and_splitting(rows, random, within):
    pieces = []
    for group, start, end, value in rows:
        cut = random.randint(start, end) if end > start else start
        pieces += [(group, start, cut, value // 2), (group, cut, end, value - value // 2)]
    random.shuffle(pieces)
    whole = intervals.merge(columns(rows, 0), columns(rows, 1), columns(rows, 2), within)
    split = intervals.merge(columns(pieces, 0), columns(pieces, 1), columns(pieces, 2), within)
    for a, b in zip(whole[:3], split[:3], strict=True):
        assert a.tolist() == b.tolist()


@pytest.mark.parametrize("base", [0, 1_700_000_000_000_000_000, -(2**61)])
def test_merge_holds_at_epoch_sized_times(base):
    merged = intervals.merge([1, 0, 1, 0], [base, base + 5, base + 2, base], [base + 3, base + 9, base + 4, base + 1])
    assert merged.group.tolist() == [0, 0, 1]
    assert (merged.start - base).tolist() == [0, 5, 0]
    assert (merged.end - base).tolist() == [1, 9, 4]


@given(grouped, grouped)
def test_overlap_within_groups_vs_set_of_nanoseconds(rows, other):
    merged = intervals.merge(columns(other, 0), columns(other, 1), columns(other, 2))
    expected = [
        len(set(range(start, end)) & count((s, e) for g, s, e, _ in other if g == group))
        for group, start, end, _ in rows
    ]
    found = intervals.overlap(columns(rows, 1), columns(rows, 2), merged, columns(rows, 0))
    assert found.tolist() == expected


@given(bag)
def test_deepest_vs_count_at_every_nanosecond(rows):
    full = [(start, end) for start, end in rows if end > start]
    expected = max((sum(start <= n < end for start, end in full) for n in range(LOW, HIGH)), default=0)
    assert intervals.deepest(columns(full, 0), columns(full, 1)) == expected


@given(grouped)
def test_latest_vs_the_row_that_ends_last_at_every_nanosecond(rows):
    owned = intervals.latest(columns(rows, 0), columns(rows, 1), columns(rows, 2))
    found = {}
    for group, start, end, row in zip(*(a.tolist() for a in owned), strict=True):
        assert start < end
        for n in range(start, end):
            assert (group, n) not in found
            found[group, n] = row
    expected = {}
    for index, (group, start, end, _) in enumerate(rows):
        for n in range(start, end):
            best = expected.get((group, n))
            if best is None or end >= rows[best][2]:
                expected[group, n] = index
    assert found == expected
    assert list(zip(owned.group, owned.start, strict=True)) == sorted(zip(owned.group, owned.start, strict=True))


@given(grouped, st.lists(instant, max_size=6))
def test_amount_before_vs_sum_over_rows(rows, at):
    full = [(start, end, amount) for _, start, end, amount in rows if end > start]
    expected = [
        sum(amount * min(max(n - start, 0), end - start) / (end - start) for start, end, amount in full) for n in at
    ]
    found = intervals.amount_before(at, columns(full, 0), columns(full, 1), columns(full, 2))
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-9)


@given(grouped, st.lists(st.tuples(st.integers(0, 3), instant), max_size=6))
def test_last_begun_vs_a_search_through_all(rows, asked):
    owned = intervals.latest(columns(rows, 0), columns(rows, 1), columns(rows, 2))
    found = intervals.last_begun(columns(asked, 0), columns(asked, 1), owned)
    for (group, at), index in zip(asked, found.tolist(), strict=True):
        earlier = [i for i in range(len(owned.start)) if owned.group[i] == group and owned.start[i] <= at]
        assert index == max(earlier, default=-1)


@pytest.mark.parametrize("base", [0, 1_700_000_000_000_000_000, -(2**61)])
def test_last_begun_holds_at_epoch_sized_times_and_group_numbers(base):
    owned = intervals.latest([2**21, 2**21, 3], [base, base + 5, base + 1], [base + 2, base + 9, base + 4])
    asked = [base + 5, base + 1, base, base + 4]
    assert intervals.last_begun([2**21, 3, 3, 2**21], asked, owned).tolist() == [2, 0, -1, 1]
