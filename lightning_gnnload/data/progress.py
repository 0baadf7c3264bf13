"""A bar on stderr for work that takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lightning_gnnload.data.pulse import PULSE


@contextmanager
def progress(title: str, total: int | None, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Shows a bar on stderr; call what it yields with the amount done since the last call, which is a beat of this
    process's pulse, whether the bar is ``shown`` or not."""
    if not shown:
        yield lambda amount: PULSE.beat()
        return
    from rich.console import Console  # here, as most processes that read data show no bar
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)

        def advance(amount: int) -> None:
            bar.advance(task, amount)
            PULSE.beat()

        yield advance
