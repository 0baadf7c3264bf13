from __future__ import annotations

import gc
import os
import signal
import threading
import time

import torch

from lightning_gnnload.pipeline.slots import LentBuffers, Slot


def lend(loans: LentBuffers[str], token: str) -> torch.Tensor:
    return torch.frombuffer(loans.lend(Slot(), token), dtype=torch.int64, count=4)


def test_a_buffer_returns_after_its_last_tensor() -> None:
    loans: LentBuffers[str] = LentBuffers()
    tensor = lend(loans, "first")
    part = tensor[2:].view(1, 2)
    del tensor
    gc.collect()
    assert list(loans.returned()) == []  # a view is a user as well
    del part
    assert list(loans.returned()) == ["first"]
    assert list(loans.returned()) == []


def test_what_ends_in_another_thread_or_in_a_cycle_returns_too() -> None:
    loans: LentBuffers[str] = LentBuffers()
    holder = [lend(loans, "thread")]
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    cycle: list[object] = [lend(loans, "cycle")]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert sorted(loans.returned()) == ["cycle", "thread"]
    assert len(loans) == 0


def test_buffers_outlive_those_who_lent_them() -> None:
    loans: LentBuffers[str] = LentBuffers()
    tensor = lend(loans, "orphan")
    tensor.fill_(7)
    del loans
    gc.collect()
    assert tensor.tolist() == [7] * 4


def test_interrupts_are_not_lost_where_a_buffer_returns() -> None:
    # A handler that raises inside a finalizer's Python code is reported and forgotten: a callback by
    # weakref.finalize loses about half of these interrupts. A few may be lost in others' callbacks, such as those of
    # the garbage collector. Were half lost, at most 5 of 50 would be with probability 2e-9.
    loans, slot = LentBuffers[str](), Slot()

    def is_interrupted() -> bool:
        timer = threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while timer.is_alive():
                tensor = torch.frombuffer(loans.lend(slot, "interrupted"), dtype=torch.int64, count=4)
                del tensor
                list(loans.returned())
            time.sleep(0.01)  # it has been sent by now, and must not come when nobody expects it
        except KeyboardInterrupt:
            return True
        finally:
            timer.join()
        return False

    num_lost = sum(not is_interrupted() for _ in range(50))
    assert num_lost <= 5
