"""Levers: the settings that decide how fast mini-batches come, as a recommendation names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from lightning_gnnload.pipeline.alternate import AlternatingLoader
from lightning_gnnload.pipeline.loader import EpochLoader, SampledLoader
from lightning_gnnload.plugin.compat import pl


@dataclass(frozen=True)
class Levers:
    """How a job's mini-batches are made.

    Attributes:
        samplers: sampler ranks of this machine; 0 where each trainer samples for itself.
        threads: sampling threads, of each sampler or of this trainer.
        trainers: of this machine, that share the samplers.
        queue_depth: of FactoredStrategy.
        staleness: of FactoredStrategy.
        alternates: sampling and training take turns, on a lone device.
    """

    samplers: int = 0
    threads: int = 1
    trainers: int = 1
    queue_depth: int = 0
    staleness: int = 0
    alternates: bool = False

    @classmethod
    def of(cls, trainer: pl.Trainer, loader: EpochLoader, makers: Collection[tuple[int, str]] = ()) -> Levers:
        """Those of a Trainer that reads ``loader``.

        Args:
            makers: rank and name of the threads that have made mini-batches so far.
        """
        if isinstance(loader, SampledLoader):
            return cls(threads=loader.num_threads, alternates=isinstance(loader, AlternatingLoader))
        # A FactoredStrategy, asked by name: it imports much that a callback does without.
        strategy: object = trainer.strategy
        roles = getattr(strategy, "roles", None)
        # A sampler that is kept to cores of its own has as many threads, which its trainers do not know.
        told = None if getattr(strategy, "cores", ()) else getattr(strategy, "num_sampler_threads", None)
        seen = max(Counter(rank for rank, _ in makers).values(), default=1)
        return cls(
            samplers=getattr(roles, "num_samplers", 1),
            threads=getattr(strategy, "sampler_threads", None) or max(told or 0, seen),
            trainers=getattr(roles, "num_trainers", 1),
            queue_depth=getattr(strategy, "queue_depth", 0),
            staleness=getattr(strategy, "staleness", 0),
        )

    @property
    def workers(self) -> int:
        """Threads that make the mini-batches of this machine's trainers."""
        return max(self.threads, 1) * max(self.samplers, 1)

    @property
    def more_workers(self) -> str:
        if self.samplers:
            return f"FactoredStrategy(samplers=..., now {self.samplers}, or sampler_threads=..., now {self.threads})"
        return f"GraphDataModule(num_threads=...), now {self.threads}"

    @property
    def deeper_queue(self) -> str:
        if self.samplers:
            return f"FactoredStrategy(queue_depth=...), now {self.queue_depth}"
        return f"GraphDataModule(num_threads=...), now {self.threads}: as many mini-batches and one more are made ahead"

    @property
    def later_gradients(self) -> str:
        if self.samplers:
            return f"FactoredStrategy(staleness=...), now {self.staleness}"
        return "FactoredStrategy(staleness=...), which plain DDP has not"
