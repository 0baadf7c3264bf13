"""Progress bars on stderr for work that takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from lightning_gnnload.host.heartbeat import HEARTBEAT
from lightning_gnnload.host.threads import explain_thread_limit


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


@contextmanager
def progress(title: str, total: int | None, *, show: bool = True) -> Iterator[Callable[[int], None]]:
    """Shows a bar on stderr; call the function that it yields with the amount finished since the last call.

    Each call is a beat of this process's heartbeat, whether or not there is a bar to ``show``.
    """
    if not show:
        yield lambda amount: HEARTBEAT.beat()
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
