"""Ray Train's functions that wait for all workers: trainers call them, and samplers answer each call.

Ray counts samplers among its workers, and ``ray.train.report`` returns in a trainer only when each worker has called
it. So the first trainer of each machine tells the machine's samplers of a call before it makes it, and the first of all
those on machines of their own, over the queue's connection, in whose order the end of training comes last: samplers
call as often as trainers do, and never once more.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from lightning_gnnload.host.threads import start_thread
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.ray.compat import replaced_functions, train_functions

_ANSWERS: dict[str, Callable[[Any], Any]] = {
    "report": lambda functions: functions.report({}),
    "barrier": lambda functions: functions.barrier(),
    "broadcast_from_rank_zero": lambda functions: functions.broadcast_from_rank_zero(None),
    "get_preemption_info": lambda functions: functions.get_preemption_info(),
}
"""What a sampler calls, by the name of what trainers call."""


class _AnnouncedFunctions:
    """Ray Train's functions in a trainer that tells samplers of each call which waits for all workers."""

    def __init__(self, batches: BatchQueue, num_samplers: int, functions: Any) -> None:
        self._batches, self._num_samplers = batches, num_samplers
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._functions, name)
        return self._announced(name, function) if name in _ANSWERS else function

    def _announced(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            for sampler in range(self._num_samplers):
                self._batches.send(sampler, "collective", name=name)
            return function(*args, **kwargs)

        return call


@contextmanager
def announced_to(batches: BatchQueue, num_samplers: int) -> Iterator[None]:
    """Tells the first samplers of a queue what this trainer calls meanwhile."""
    with replaced_functions(partial(_AnnouncedFunctions, batches, num_samplers)):
        yield


@contextmanager
def answered_beside(service: SamplerService) -> Iterator[None]:
    """Calls in a sampler, in a thread beside the service, what its trainers call; the last call has returned at the
    end. Raises what a call of Ray's raised here."""
    names: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    errors: list[BaseException] = []

    def answer() -> None:
        try:
            while (name := names.get()) is not None:
                _ANSWERS[name](train_functions())
        except BaseException as error:
            errors.append(error)

    service.handlers["collective"] = lambda trainer, message: names.put(message["name"])
    thread = start_thread("gnnload-ray", answer)
    try:
        yield
    finally:
        names.put(None)
    # After a failure, it may wait for trainers that never come, until Ray ends this process.
    thread.join()
    if errors:
        raise errors[0]
