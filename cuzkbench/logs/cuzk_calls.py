"""Unlabelled C records of the cuzk daemon, put together: one `Call` for each GPU call. For `logs/cuzk.py`.

A call's record opens at `pre_lock_cpu_ms` (printed just after the lock was acquired) and closes at `mutex_held_ms`
(just before its release), so that on one GPU what stands between belongs to it. With several GPUs records mix; their
sums part them again: pre_lock + wait + held = total, and ntt_msm_h + barrier + batch_add + tail = gpu_total. What
several calls could own alike is counted as ambiguous.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from cuzkbench.logs.cuzk_lines import MS, NEVER

SLACK_MS = 5  # each value drops its fraction of a millisecond; a few of them make a sum
ALIKE_MS = 2  # choices no further apart than this make no difference that counts
NEAR_MS = 20  # what the caller's own measure may exceed the call's total by without being suspect
MOST_AT_ONCE = 16  # calls whose lines may mix; choices grow with its third power
_FLOATING = ("prep_msm_ms", "b_g2_msm_ms", "async_dealloc_ms")  # from other threads, at any time
_OTHERS = "C lines of other threads (prep_msm, b_g2_msm, async_dealloc), which name no partition"
_PARTS = ("ntt_msm_h_ms", "barrier_wait_ms", "batch_add_ms")
_AFTERWARDS_NS = 1_000_000_000  # the caller's line may come this much after the next stamped line


@dataclass(eq=False)
class Call:
    """The values of one call's lines by their names, and when its last line was printed."""

    values: dict[str, int]
    after_ns: int  # its last line was printed between these stamped lines of its file
    before_ns: int = NEVER


class Proved(NamedTuple):
    """A line that states how long a call took, with its caller: the period ends at `at_ns`."""

    at_ns: int
    ms: int
    owner: Any


class Assembler:
    """Takes C lines in order, with the stamps around them; `calls` are the closed ones."""

    def __init__(self, gpus: int, ambiguous: Counter[str], dropped: Counter[str]) -> None:
        self.gpus, self.ambiguous, self.dropped = min(gpus, MOST_AT_ONCE), ambiguous, dropped
        self.calls: list[Call] = []
        self._stamp, self._stamped = -NEVER, 0
        self._lines: dict[str, list[dict[str, int]]] = defaultdict(
            list
        )  # no call's yet, by the value they add to a sum

    def begin(self) -> None:
        """Another file: its lines are stamped by its own."""
        self._stamp, self._stamped = -NEVER, len(self.calls)

    def stamp(self, ns: int) -> None:
        """A line with a time: the calls closed since the last one were closed before it."""
        for call in self.calls[self._stamped :]:
            call.before_ns = ns
        self._stamp, self._stamped = ns, len(self.calls)

    def take(self, ntt: bool, values: dict[str, Any]) -> None:
        """One line without a time."""
        line = {name: value for name, value in values.items() if isinstance(value, int)}
        if ntt:
            self._lines["total"].append(line)
        elif "mutex_wait_ms" in line and "pre_lock_cpu_ms" in line:
            line["until_locked"] = line["pre_lock_cpu_ms"] + line["mutex_wait_ms"]
            self._lines["until_locked"].append(line)
            self.dropped["records opened and never closed"] += max(0, len(self._lines["until_locked"]) - self.gpus)
            del self._lines["until_locked"][: -self.gpus]
        elif "ntt_msm_h_ms" in line:
            self._lines["ntt_msm_h_ms"].append((self._choose(line["ntt_msm_h_ms"], "total") or {}) | line)
        elif "gpu_total_ms" in line:
            parts = self._choose(line["gpu_total_ms"] - line.get("tail_msm_ms", 0), *_PARTS)
            if parts is None:
                self.ambiguous["calls whose parts inside the lock do not add up"] += 1
                for name in _PARTS if self.gpus == 1 else ():
                    self._lines[name].clear()
            self._lines["gpu_total_ms"].append((parts or {}) | line)
        elif "mutex_held_ms" in line and "total_start_fn_ms" in line:
            opening = self._choose(line["total_start_fn_ms"] - line["mutex_held_ms"], "until_locked")
            self.ambiguous["calls without the line that opens them: lock wait unknown"] += opening is None
            inside = self._choose(line["mutex_held_ms"], "gpu_total_ms")
            self.calls.append(Call((inside or {}) | (opening or {}) | line, self._stamp))
            if self.gpus == 1:  # nothing else can be open
                self._lines.clear()
        else:
            for name in _PARTS[1:]:
                if name in line:
                    self._lines[name].append(line)
            self.dropped[_OTHERS] += any(name in line for name in _FLOATING)
        for waiting in self._lines.values():
            del waiting[: -self.gpus - 2]

    def _choose(self, whole: int, *names: str) -> dict[str, int] | None:
        """Take out one line of each name so that their sum falls short of `whole` least: their values in one.

        None where no choice fits; counted where another one fits as well and differs.
        """
        most = SLACK_MS if self.gpus > 1 else 10**9
        choices = [
            (whole - sum(line.get(name, 0) for line, name in zip(lines, names, strict=True)), lines)
            for lines in product(*(self._lines[name] for name in names))
        ]
        fits = sorted((choice for choice in choices if 0 <= choice[0] <= most), key=lambda choice: choice[0])
        if not fits:
            return None
        least, best = fits[0]
        alike = (lines for short, lines in fits if short - least <= ALIKE_MS)
        chosen, *others = ({name: value for line in lines for name, value in line.items()} for lines in alike)
        self.ambiguous["C lines that another call could own as well"] += any(
            abs(value - other.get(name, value)) > ALIKE_MS for other in others for name, value in chosen.items()
        )
        for name, line in zip(names, best, strict=True):
            self._lines[name] = [other for other in self._lines[name] if other is not line]
        return chosen


def match(calls: Sequence[Call], proved: Iterable[Proved], ambiguous: Counter[str]) -> list[tuple[Proved, Call | None]]:
    """Each stated period with the call it measured: in order, total <= stated, and printed between the same stamps."""
    waiting, found = deque(calls), []
    for stated in sorted(proved, key=lambda p: p.at_ns):
        while waiting and waiting[0].before_ns + _AFTERWARDS_NS < stated.at_ns:
            waiting.popleft()
            ambiguous["calls that no partition claims"] += 1
        fits = []
        for call in waiting:
            if call.after_ns > stated.at_ns + NEAR_MS * MS:
                break
            if call.values["total_start_fn_ms"] <= stated.ms + 1:
                fits.append(call)
        near = [call for call in fits if stated.ms - call.values["total_start_fn_ms"] <= NEAR_MS]
        chosen = next(iter(near or fits), None)
        ambiguous["calls that several partitions could own"] += max(0, len(near) - 1)
        found.append((stated, chosen))
        if chosen is not None:
            waiting.remove(chosen)
    ambiguous["calls that no partition claims"] += len(waiting)
    return found
