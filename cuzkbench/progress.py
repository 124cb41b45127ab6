"""Progress on stderr while a run goes on: bars for compiling, keys, synthesis and partitions; silent off a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]  # what is being done, how much is done, of how much

REDRAWS_A_SECOND = 4  # a thread that draws holds the interpreter lock, which other threads' intervals would show


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


@contextmanager
def bars(title: str = "") -> Iterator[Progress]:
    """A callable `(what, done, total)` that draws one bar for each `what`; silent where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield silent
        return
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}
    lock = threading.Lock()
    with Progress(*columns, console=console, refresh_per_second=REDRAWS_A_SECOND) as display:

        def update(what: str, done: int, total: int) -> None:
            with lock:
                if what not in tasks:
                    tasks[what] = display.add_task(f"{title} {what}".strip(), total=total)
            display.update(tasks[what], completed=done, total=total)

        yield update
