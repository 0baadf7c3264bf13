"""QueueLoader: replaces, on a trainer, the loader that would sample there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from lightning_gnnload.pipeline.contributed import ContributedStep, Ledger
from lightning_gnnload.pipeline.loader import EpochLoader, SampledLoader
from lightning_gnnload.pipeline.queue.streams import StreamSpec
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.stats import Delivery


class QueueLoader(EpochLoader):
    """A loader whose mini-batches samplers make; when the last sampler is lost, it makes them itself.

    It stands in for ``local``, the ``loader``-th of a phase (``"train"``, ``"val"``, ``"test"`` or ``"predict"``).
    ``reload`` counts how often Lightning asked for the loaders anew, ``limit`` gives how many steps will be read at
    most, and ``ledger`` which steps samplers have contributed: those are skipped with a ContributedStep.
    """

    def __init__(
        self,
        queue: BatchQueue,
        local: SampledLoader,
        *,
        phase: str,
        loader: int,
        reload: int,
        limit: Callable[[], float],
        ledger: Ledger | None = None,
    ) -> None:
        super().__init__(local.source, local.num_ranks, local.rank)
        self.queue = queue
        self.local = local
        self.phase = phase
        self.loader = loader
        self.convert = local.convert
        self.on_resume_change = local.on_resume_change
        self.reload = reload
        self.limit = limit
        self.ledger = ledger
        self._contributed: dict[str, Any] = {"num_ranks": self.num_ranks, "slices": []}  # before an interruption

    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the epoch, and what samplers have contributed beyond it."""
        state = super().state_dict()
        if self.ledger is not None:
            unread = self.position.loaded is not None
            state["contributed"] = self._contributed if unread else self.ledger.state(state["step"])
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.ledger is not None and "contributed" in state:
            self._contributed = state["contributed"]
            # The ledger passes over them, so place_alone() has nothing to object to.
            state = {**state, "contributed": {"slices": []}}
        super().load_state_dict(state)

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        # Samplers work ahead, and are not to make what Lightning's limits keep from being read.
        stop = int(min(len(self), self.limit()))
        prefetcher = self.local.prefetcher()
        gathers = prefetcher is not None
        spec = StreamSpec(self.phase, self.loader, self.reload, epoch, start, stop, gathers, self.source.fingerprint)
        owners = self.source.workload.owners(self.num_ranks, self.queue.num_owners)
        stream = self.queue.open(spec, None if owners is None else owners[:, self.rank])
        is_open = True
        if self.ledger is not None:
            # An epoch that begins anew contributes anew.
            resumed = self.ledger.resumable(self._contributed) if start else []
            self.ledger.open(stream=stream, epoch=epoch, start=start, stop=stop, contributed=resumed)
            self._contributed = {"num_ranks": self.num_ranks, "slices": []}
        try:
            for step in range(start, stop):
                if self._is_contributed(step):
                    self.queue.skip(stream, step)
                    if step == stop - 1:
                        self.queue.close_stream(stream)
                        is_open = False
                    yield ContributedStep(epoch, step)
                    continue
                # Reads all that has come, so that the prefetcher sees whether the next step is there, too.
                fill = self.queue.fill(stream)
                asked_s = time.monotonic()
                delivered = (
                    self.queue.take(stream, step)
                    if prefetcher is None
                    else prefetcher.take(self.queue, stream, step, stop)
                )
                if delivered is None:
                    self.queue.close_stream(stream)
                    is_open = False
                    yield from self._sampled_here(epoch, step, stop)
                    return
                batch, payload = delivered
                del delivered
                taken_s = time.monotonic()
                converted = [self.convert(batch)]
                del batch  # else it would stay while the consumer works, and its slot with it
                convert_s = (taken_s, time.monotonic())
                self._note(Delivery.of(payload, step, asked_s=asked_s, taken_s=taken_s, convert_s=convert_s, fill=fill))
                if step == stop - 1:
                    # Lightning asks a sized loader for no batch after the last: there is no later moment.
                    self.queue.close_stream(stream)
                    is_open = False
                yield converted.pop()
        finally:
            if prefetcher is not None:
                prefetcher.forget(stream)
            if is_open:
                self.queue.close_stream(stream)

    def _is_contributed(self, step: int) -> bool:
        """Whether to skip a step. Asked when Lightning comes to it, as more is contributed with every step."""
        if self.ledger is None:
            return False
        self.ledger.step = step
        return self.ledger.is_whole(step)

    def _sampled_here(self, epoch: int, start: int, stop: int) -> Iterator[Any]:
        """Samples in this process, as no sampler is left. An error here has the samplers' report as its cause."""
        try:
            batches = map(self._note_local, self.local.batches(epoch, start, stop))
            for step in range(start, stop):
                # A contributed step is made all the same, and dropped: threads are ahead of the step that is asked for.
                batch = [next(batches)]
                yield ContributedStep(epoch, step) if self._is_contributed(step) else batch.pop()
        except Exception as error:
            if self.queue.report is None:
                raise
            raise error from self.queue.report

    def _note_local(self, batch: Any) -> Any:
        assert self.local.last is not None
        self._note(self.local.last)
        return batch
