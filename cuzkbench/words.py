"""Numbers and causes in words, everywhere alike: for the sentences of the analysis, for tables, charts and reports."""

from __future__ import annotations

import re

from cuzkbench.events import GapCause

NBSP = "\u00a0"
NONE = "–"

# what the GPU waits for, after "waiting for"
CAUSES: dict[GapCause, str] = {
    GapCause.SLOW_TRANSFER: "a slow transfer",
    GapCause.TRANSFER: "a transfer at line rate",
    GapCause.LINK_CONTENTION: "a shared link",
    GapCause.LOCKED_CPU: "a lock held over CPU work",
    GapCause.LOCKED_TRANSFER: "a lock held over a transfer",
    GapCause.LOCKED_SLOW_TRANSFER: "a lock held over a slow transfer",
    GapCause.LOCKED_OTHER: "a lock held, why unknown",
    GapCause.CPU_PREP: "CPU preparation",
    GapCause.CPU_FINISH: "CPU finish",
    GapCause.STAGING: "a staging copy",
    GapCause.WORKERS_BUSY: "a free worker",
    GapCause.SYNTHESIS_STARVED: "synthesis",
    GapCause.ALLOCATION: "a host buffer",
    GapCause.LAUNCH_OR_SYNC: "launch or synchronisation",
    GapCause.HOST_WAIT: "a blocked host thread",
    GapCause.UNATTRIBUTED: "something unknown",
}


def duration(ns: float | None) -> str:
    """Nanoseconds in words, three digits: 1.75 s, 12.3 ms, 45 µs; a dash for what is not known."""
    if ns is None or ns != ns:
        return NONE
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= scale * 0.9995:
            return f"{ns / scale:.3g}{NBSP}{unit}" if abs(ns) < 999.5 * scale else f"{ns / scale:,.0f}{NBSP}{unit}"
    return f"{ns:.0f}{NBSP}ns" if ns else f"0{NBSP}s"


def size(count: float) -> str:
    """Bytes in words, decimal units as the link rates: 12.5 GB, 131 kB."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= scale:
            return f"{count / scale:.3g}{NBSP}{unit}"
    return f"{count:.0f}{NBSP}B"


def rate(gb_s: float) -> str:
    """Bytes a nanosecond, which is GB/s, in the unit that reads best: an emulated link moves megabytes."""
    return f"{size(gb_s * 1e9)}/s"


def rate_unit(gb_s: float) -> tuple[float, str]:
    """What to multiply GB/s with, and the unit then, for an axis that reaches this far."""
    return (1.0, "GB/s") if gb_s >= 0.5 else (1e3, "MB/s")


def percent(share: float | None) -> str:
    """Whole percent; near 100 % with one digit, rounded down, so that 100 % is said of the whole only."""
    if share is None or share != share:
        return NONE
    return f"{share:.0%}" if share < 0.985 or share >= 1 else f"{int(share * 1000) / 10}%"


def workers(count: int) -> str:
    """One worker, 2 workers."""
    return "one worker" if count == 1 else f"{count} workers"


def glued(text: str) -> str:
    """The reverse, for sentences that are broken into lines."""
    return re.sub(r"(?<=\d) (?=(?:s|ms|µs|ns|[kMGT]?B(?:/s)?)\b)", NBSP, text)


def spaced(text: str) -> str:
    """A sentence with plain spaces between numbers and units, for documents that programs read and people search."""
    return text.replace(NBSP, " ")
