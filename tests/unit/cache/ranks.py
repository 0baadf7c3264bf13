"""Ranks of a machine, played by threads of this process."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

from lightning_gnnload.cache.peers import Membership

TIMEOUT_S = 10.0


def together(
    count: int, work: Callable[[Membership], Any], timeout_s: float = TIMEOUT_S, silence_s: float = TIMEOUT_S
) -> list[Any]:
    """What each peer's work returned or raised."""
    name, ends = uuid.uuid4().hex, [None] * count

    def run(index: int) -> None:
        try:
            ends[index] = work(Membership(name, index, count, timeout_s, silence_s))
        except Exception as error:
            ends[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT_S)
    assert not any(thread.is_alive() for thread in threads)
    return ends
