"""A bar on stderr for work that takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from lightning_gnnload.data.pulse import PULSE
from lightning_gnnload.data.threads import starting


class _Display(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...


Display = TypeVar("Display", bound=_Display)


@contextmanager
def drawn(display: Display) -> Iterator[Display]:
    """Shows bars or a spinner of rich's, which a thread draws anew.

    Raises:
        ThreadLimitError: the system gives none. The terminal is as it was before.
    """
    try:
        with starting("The bar that shows progress"):
            display.start()
        yield display
    finally:
        display.stop()


@contextmanager
def progress(title: str, total: int | None, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Shows a bar on stderr; call what it yields with the amount done since the last call, which is a beat of this
    process's pulse, whether the bar is ``shown`` or not."""
    if not shown:
        yield lambda amount: PULSE.beat()
        return
    from rich.console import Console  # here, as most processes that read data show no bar
    from rich.progress import Progress

    with drawn(Progress(console=Console(stderr=True), transient=True)) as bar:
        task = bar.add_task(title, total=total)

        def advance(amount: int) -> None:
            bar.advance(task, amount)
            PULSE.beat()

        yield advance
