"""Progress on stderr of work that takes a while: bars in a terminal, and elsewhere a line a minute."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from lightning_gnnload.host.heartbeat import HEARTBEAT
from lightning_gnnload.host.threads import explain_thread_limit

_FIRST_S, _EVERY_S = 5.0, 60.0


class _Display(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...


Display = TypeVar("Display", bound=_Display)


@contextmanager
def shown_display(display: Display) -> Iterator[Display]:
    """Shows rich's bars or spinner until the block ends. Raises ThreadLimitError: rich gets no thread to draw them."""
    try:
        with explain_thread_limit("The bar that shows progress"):
            display.start()
        yield display
    finally:
        display.stop()


class ProgressLines:
    """Says how far work is where no bar can be drawn: a line after some seconds, then one a minute, and one at the end
    of work that took so long. ``total`` is the whole amount; None: unknown.

    Example:
        >>> lines = ProgressLines("Sorting", 4, clock=iter([0.0, 6.0, 7.0, 70.0]).__next__, write=print)
        >>> for _ in range(3):
        ...     lines.advance(1)
        Sorting: 25% (1 of 4), 6 s
        Sorting: 75% (3 of 4), 70 s
    """

    def __init__(
        self,
        title: str,
        total: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] | None = None,
    ) -> None:
        self.title, self.total, self._clock = title, total, clock
        self._write = write or _write_line
        self._began = clock()
        self._next = self._began + _FIRST_S
        self._amount = 0.0
        self._has_written = False

    def advance(self, amount: float, note: Callable[[], str] = str) -> None:
        """Counts what was finished since the last call; ``note`` returns what a line adds at its end."""
        self.set(self._amount + amount, note)

    def set(self, amount: float, note: Callable[[], str] = str) -> None:
        """Counts what was finished in all, likewise."""
        self._amount = amount
        if (now := self._clock()) >= self._next:
            self._next = now + _EVERY_S
            self._say(now, note())

    def end(self, note: str = "") -> None:
        """Says that it is done, if a line has said that it was under way."""
        if self._has_written:
            self._say(self._clock(), note, is_done=True)

    def _say(self, now: float, note: str, *, is_done: bool = False) -> None:
        share = "done"
        if not is_done:
            share = f"{self._amount:,.0f}" if self._amount else "under way"
            if self.total:
                amounts = f" ({self._amount:,.0f} of {self.total:,.0f})" if self.total > 1 else ""
                share = f"{min(self._amount / self.total, 1):.0%}{amounts}"
        self._has_written = True
        self._write(f"{self.title}: {share}, {now - self._began:.0f} s{f', {note}' if note else ''}")


def _write_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def no_bars_elsewhere() -> Iterator[None]:
    """Has the bars of other libraries, as far as they are tqdm's, keep quiet meanwhile where stderr is no terminal."""
    if sys.stderr.isatty() or "TQDM_DISABLE" in os.environ:
        yield
        return
    os.environ["TQDM_DISABLE"] = "1"  # for ranks, too; tqdm looks when it is imported
    try:
        yield
    finally:
        os.environ.pop("TQDM_DISABLE", None)


@contextmanager
def progress(title: str, total: int | None, *, show: bool = True) -> Iterator[Callable[[int], None]]:
    """Shows a bar on stderr, or lines where that is no terminal; call the function that it yields with the amount
    finished since the last call.

    Each call is a beat of this process's heartbeat, whether or not there is a bar to ``show``.
    """
    if not show:
        yield lambda amount: HEARTBEAT.beat()
        return
    if not sys.stderr.isatty():
        lines = ProgressLines(title, total)

        def count(amount: int) -> None:
            lines.advance(amount)
            HEARTBEAT.beat()

        yield count
        lines.end()
        return
    # Imported here, as most processes that read data show no bar.
    from rich.console import Console
    from rich.progress import Progress

    with shown_display(Progress(console=Console(stderr=True), transient=True)) as bar:
        task = bar.add_task(title, total=total)

        def advance(amount: int) -> None:
            bar.advance(task, amount)
            HEARTBEAT.beat()

        yield advance
