from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from lightning_gnnload import NeighborSampler
from lightning_gnnload.errors import ForkError
from lightning_gnnload.pipeline.alternate import AlternatingLoader
from lightning_gnnload.pipeline.loader import SampledLoader
from tests import guards
from tests.forked import in_child
from tests.unit.toy import content, toy_source

NUM_STEPS = 13  # 100 seeds, 8 a batch


class Counting(NeighborSampler):
    """Knows how many batches were begun."""

    def __init__(self) -> None:
        super().__init__([3, 2])
        self.begun = 0
        self._lock = threading.Lock()

    def draw(self, *arguments: Any) -> Any:
        with self._lock:
            self.begun += 1
        return super().draw(*arguments)


def plain(**settings: Any) -> SampledLoader:
    return SampledLoader(toy_source(batch_size=8, **settings))


def alternating(depth: int | None = 4, memory_bytes: int = 1, num_threads: int = 2, **settings: Any) -> Any:
    return AlternatingLoader(plain(**settings), num_threads=num_threads, depth=depth, memory_bytes=memory_bytes)


@pytest.mark.parametrize("depth", [1, 4, 13, 50])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_the_batches_are_those_of_a_plain_loader_in_order(depth: int, num_threads: int) -> None:
    loader = alternating(depth, num_threads=num_threads)
    for epoch in (0, 1):
        expected = plain()
        expected.set_epoch(epoch)
        loader.set_epoch(epoch)
        assert [content(batch) for batch in loader] == [content(batch) for batch in expected]
    assert loader.stats.num_batches == 2 * NUM_STEPS


def test_sampling_rests_while_the_queue_is_emptied() -> None:
    sampler = Counting()
    begun = []
    for _ in alternating(4, sampler=sampler):
        begun.append(sampler.begun)
    assert begun == [4] * 4 + [8] * 4 + [12] * 4 + [13]


def test_memory_decides_how_much_is_made_at_once() -> None:
    batch_bytes = max(
        made.payload.header.num_bytes for made in map(plain()._make, [_request(step) for step in range(13)])
    )
    sampler = Counting()
    next(iter(alternating(None, memory_bytes=3 * batch_bytes, sampler=sampler)))
    assert 3 <= sampler.begun < 6  # by the first batch, which is no larger than the largest
    sampler = Counting()
    next(iter(alternating(None, memory_bytes=1, sampler=sampler)))
    assert sampler.begun == 1


def test_it_resumes_in_mid_epoch() -> None:
    expected = [content(batch) for batch in plain()]
    interrupted, resumed = alternating(4), alternating(5)
    assert [content(batch) for batch in itertools.islice(interrupted, 6)] == expected[:6]
    resumed.load_state_dict(interrupted.state_dict())
    assert [content(batch) for batch in resumed] == expected[6:]


def test_a_reader_that_stops_leaves_no_thread() -> None:
    batches = iter(alternating(4))
    next(batches)
    batches.close()
    assert not guards.our_threads()


def test_a_fork_has_what_was_made_and_no_more() -> None:
    batches = iter(alternating(4))
    next(batches)

    def go_on() -> None:
        assert [next(batches) is not None for _ in range(3)] == [True] * 3
        with pytest.raises(ForkError):
            next(batches)

    assert in_child(go_on) == (0, "")
    assert len(list(batches)) == NUM_STEPS - 1


def _request(step: int) -> Any:
    from lightning_gnnload.data.plan import BatchRequest

    return BatchRequest(0, step, 0, 1)
