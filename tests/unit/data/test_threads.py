"""Threads of one process: what a fork of it may not do, and who may end them."""

from __future__ import annotations

import threading

import pytest

from lightning_gnnload.data.threads import Threads
from lightning_gnnload.errors import ForkError
from tests.forked import in_child


def test_a_fork_neither_submits_nor_takes_nor_waits() -> None:
    with Threads(1, "t") as threads:
        done = threads.submit(sum, [1, 2])
        assert threads.result(done) == 3

        def go_on() -> None:
            for call in (threads.check, lambda: threads.submit(sum, [1]), lambda: threads.result(done)):
                with pytest.raises(ForkError, match=r"What threads make \(t\) works in process"):
                    call()
            threads.shutdown()  # as what is dropped does

        with threads._shutdown_lock:  # as a thread of the parent may, which the fork does not have
            assert in_child(go_on) == (0, "")
        assert threads.result(threads.submit(sum, [3])) == 3


def test_one_of_the_threads_may_end_them() -> None:
    """As where garbage is collected in it, and an iterator that ends its threads is in it."""
    threads = Threads(2, "t")
    threads.result(threads.submit(threads.shutdown))
    threads.shutdown()
    assert not any(each.name.startswith("t_") for each in threading.enumerate())
