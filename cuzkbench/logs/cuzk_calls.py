"""Unlabelled C records of the cuzk daemon, put together: one `Call` for each GPU call. For `logs/cuzk.py`.

A call's record opens at `pre_lock_cpu_ms` (printed just after the lock was acquired) and closes at `mutex_held_ms`
(just before its release), so that on one GPU what stands between belongs to it. With several GPUs records mix; their
sums part them again: pre_lock + wait + held = total, and ntt_msm_h + barrier + batch_add + tail = gpu_total. What
several calls could own alike is counted as ambiguous.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

SLACK_MS = 5  # each value drops its fraction of a millisecond; a few of them make a sum
ALIKE_MS = 2  # choices no further apart than this make no difference that counts
NEAR_MS = 20  # what the caller's own measure may exceed the call's total by without being suspect
_FLOATING = ("prep_msm_ms", "b_g2_msm_ms", "async_dealloc_ms")  # from other threads, at any time
_OTHERS = "C lines of other threads (prep_msm, b_g2_msm, async_dealloc), which name no partition"
_PARTS = ("ntt_msm_h_ms", "barrier_wait_ms", "batch_add_ms")
NEVER = 2**62
MOST_AT_ONCE = 16  # calls whose lines may mix; choices grow with its third power
_AFTERWARDS_NS = 1_000_000_000  # the caller's line may come this much after the next stamped line


@dataclass(eq=False)
class Call:
    """One call's values in milliseconds, None where its line is missing, and when its last line was printed."""

    total: int = 0
    held: int = 0
    pre_lock: int | None = None
    wait: int | None = None
    inside: dict[str, int] = field(default_factory=dict)  # ntt_msm_h_ms, barrier_wait_ms, batch_add_ms, tail_msm_ms
    half: dict[str, int] = field(default_factory=dict)  # the parts of ntt_msm_h: CUZK_NTT_H
    after_ns: int = -NEVER  # its last line was printed between these stamped lines of its file
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
        self._open: list[tuple[int, int]] = []  # pre_lock, wait
        self._halves: list[dict[str, int]] = []
        self._parts: dict[str, list[tuple[int, dict[str, int]]]] = {name: [] for name in _PARTS}
        self._chains: list[tuple[int, dict[str, int], dict[str, int]]] = []  # gpu_total, inside, half

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
        known = {name: value for name, value in values.items() if isinstance(value, int)}
        if ntt:
            self._halves.append(known)
        elif "mutex_wait_ms" in known and "pre_lock_cpu_ms" in known:
            self._open.append((known["pre_lock_cpu_ms"], known["mutex_wait_ms"]))
            self.dropped["records opened and never closed"] += max(0, len(self._open) - self.gpus)
            self._open = self._open[-self.gpus :]
        elif "ntt_msm_h_ms" in known:
            total = known["ntt_msm_h_ms"]
            excess = [total - half.get("total", total) for half in self._halves]
            half = self._one(self._halves, excess, dict.values)
            self._parts["ntt_msm_h_ms"].append((total, half or {}))
        elif "gpu_total_ms" in known:
            self._chain(known["gpu_total_ms"], known.get("tail_msm_ms", 0))
        elif "mutex_held_ms" in known and "total_start_fn_ms" in known:
            self._close(known["total_start_fn_ms"], known["mutex_held_ms"])
        else:
            for name in _PARTS[1:]:
                if name in known:
                    self._parts[name].append((known[name], {}))
            self.dropped[_OTHERS] += any(name in known for name in _FLOATING)
        for kept in self._kept():
            del kept[: -self.gpus - 2]

    def _kept(self) -> list[list[Any]]:
        return [self._open, self._halves, self._chains, *self._parts.values()]

    def _one(self, candidates: list[Any], excess: Sequence[int], values: Callable[[Any], Iterable[int]]) -> Any:
        """Take out the candidate that exceeds its sum least, None without any; count if another fits and differs."""
        fits = [i for i, over in enumerate(excess) if 0 <= over <= (SLACK_MS if self.gpus > 1 else 10**9)]
        if not fits:
            return None
        best = min(fits, key=lambda i: (excess[i], i))
        chosen = tuple(values(candidates[best]))
        others = (candidates[i] for i in fits if i != best and abs(excess[i] - excess[best]) <= ALIKE_MS)
        self.ambiguous["C lines that another call could own as well"] += any(
            max(map(abs, map(int.__sub__, chosen, values(other))), default=0) > ALIKE_MS for other in others
        )
        return candidates.pop(best)

    def _chain(self, gpu_total: int, tail: int) -> None:
        """The parts of one call inside the lock: the choice of one of each kind whose sum is gpu_total."""
        pools = [self._parts[name] for name in _PARTS]
        choices = list(product(*(range(len(pool)) for pool in pools))) if all(pools) else []
        excess = [
            gpu_total - tail - sum(pool[i][0] for pool, i in zip(pools, choice, strict=True)) for choice in choices
        ]
        choice = self._one(choices, excess, lambda choice: [pool[i][0] for pool, i in zip(pools, choice, strict=True)])
        inside = {"tail_msm_ms": tail}
        half: dict[str, int] = {}
        if choice is None:
            self.ambiguous["calls whose parts inside the lock do not add up"] += 1
            if self.gpus == 1:
                for pool in pools:
                    pool.clear()
        else:
            for name, pool, index in zip(_PARTS, pools, choice, strict=True):
                inside[name], own = pool.pop(index)
                half = own or half
        self._chains.append((gpu_total, inside, half))

    def _close(self, total: int, held: int) -> None:
        call = Call(total, held, after_ns=self._stamp)
        opening = self._one(self._open, [total - held - sum(waits) for waits in self._open], iter)
        if opening is None:
            self.ambiguous["calls without the line that opens them: lock wait unknown"] += 1
        else:
            call.pre_lock, call.wait = opening
        chain = self._one(self._chains, [held - chain[0] for chain in self._chains], lambda chain: chain[1].values())
        if chain is not None:
            _, call.inside, call.half = chain
        if self.gpus == 1:  # nothing else can be open
            for kept in self._kept():
                kept.clear()
        self.calls.append(call)


def match(calls: Sequence[Call], proved: Iterable[Proved], ambiguous: Counter[str]) -> list[tuple[Proved, Call | None]]:
    """Each stated period with the call it measured: in order, total <= stated, and printed between the same stamps."""
    waiting, found = deque(calls), []
    for stated in sorted(proved, key=lambda p: p.at_ns):
        while waiting and waiting[0].before_ns + _AFTERWARDS_NS < stated.at_ns:
            waiting.popleft()
            ambiguous["calls that no partition claims"] += 1
        fits = []
        for call in waiting:
            if call.after_ns > stated.at_ns + NEAR_MS * 1_000_000:
                break
            if call.total <= stated.ms + 1:
                fits.append(call)
        near = [call for call in fits if stated.ms - call.total <= NEAR_MS]
        chosen = next(iter(near or fits), None)
        ambiguous["calls that several partitions could own"] += max(0, len(near) - 1)
        found.append((stated, chosen))
        if chosen is not None:
            waiting.remove(chosen)
    ambiguous["calls that no partition claims"] += len(waiting)
    return found
