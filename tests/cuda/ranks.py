"""Ranks of a machine, each a process: memory of a device is not shared within one."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lightning_gnnload.cache.peers import Membership

TIMEOUT_S = 30


@dataclass(frozen=True)
class End:
    """How a rank ended: its status, minus the signal that it died of; what it returned, or its error's text."""

    status: int
    value: Any = None


def as_processes(count: int, work: Callable[[int], Any]) -> list[End]:
    """Runs ``work(index)`` in a fork each, as a new interpreter takes seconds to import torch. Waits for all of them.

    What is returned is to be JSON. A rank that takes too long is killed.
    """
    children: list[tuple[int, int]] = []
    for index in range(count):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _play(index, work, write)
        os.close(write)
        children.append((pid, read))
    ends = []
    for pid, read in children:
        with os.fdopen(read) as pipe:
            text = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        ends.append(End(status, json.loads(text) if text else None))
    return ends


def as_sharers(count: int, work: Callable[[Membership], Any], timeout_s: float = 20.0) -> list[End]:
    """As :func:`as_processes`, for the ranks of a machine that open something together."""
    name = uuid.uuid4().hex
    return as_processes(count, lambda index: work(Membership(name, index, count, timeout_s)))


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _play(index: int, work: Callable[[int], Any], write: int) -> None:
    status, value = 1, None
    try:
        for number in (signal.SIGALRM, signal.SIGBUS, signal.SIGSEGV):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(TIMEOUT_S)
        value = work(index)
        status = 0
    except BaseException as error:
        value = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    with suppress(BaseException), os.fdopen(write, "w") as pipe:
        json.dump(value, pipe)
    os._exit(status)
