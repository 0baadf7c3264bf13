"""Stages: their order, their time, and memory that was given back before they ended."""

from __future__ import annotations

import subprocess
import sys
import threading

from lightning_gnnload.partition.stages import StageClock, used_bytes
from tests.forked import in_child

MIB = 1 << 20


_WORK = f"""
import mmap, time
from lightning_gnnload.partition.stages import StageClock, used_bytes
with StageClock() as clock:
    clock.enter("small")
    clock.enter("large")
    before = used_bytes()
    taken = mmap.mmap(-1, {64 * MIB}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, {64 * MIB}, 4096):
        taken[page] = 1
    while clock._peak_bytes < before + {60 * MIB}:  # until the watcher has looked
        time.sleep(0.01)
    taken.close()
    clock.enter("small again")
small, large, again = clock.stages
assert [small.name, large.name, again.name] == ["small", "large", "small again"]
assert large.peak_bytes > max(small.peak_bytes, again.peak_bytes) + {60 * MIB}
"""


def test_a_stage_keeps_the_most_memory_that_was_held() -> None:
    # In a new interpreter: a fork of this one holds what tests before have left, and may give it back meanwhile.
    subprocess.run([sys.executable, "-c", _WORK], check=True, timeout=60)


def test_the_last_stage_ends_with_an_error_and_no_thread_is_left() -> None:
    clock = StageClock()
    try:
        with clock:
            clock.enter("fails")
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert [stage.name for stage in clock.stages] == ["fails"]
    assert not [thread for thread in threading.enumerate() if thread.name == "gnnload-stages"]


def test_children_count() -> None:
    # In a child, for this process may give memory back at any time that tests before have used.
    code = f"import sys; held = bytearray(b'x' * {64 * MIB}); print(1, flush=True); sys.stdin.read()"

    def work() -> None:
        before = used_bytes()
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            assert used_bytes() > before + 60 * MIB
            assert child.stdin is not None
            child.stdin.close()

    assert in_child(work) == (0, "")
