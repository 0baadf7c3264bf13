"""Sums: what a fit, or a part of it, came to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lightning_gnnload.cache import reads as counted
from lightning_gnnload.pipeline.stats import LoaderStats


@dataclass
class Sums:
    """Of one trainer.

    Attributes:
        loader: over its mini-batches.
        train_ms: in training steps.
        wall_ms: of training altogether, validation left out.
    """

    loader: LoaderStats
    train_ms: float = 0.0
    wall_ms: float = 0.0

    @classmethod
    def zero(cls) -> Sums:
        return cls(LoaderStats())

    def copy(self) -> Sums:
        return replace(self, loader=replace(self.loader))

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.loader - other.loader, self.train_ms - other.train_ms, self.wall_ms - other.wall_ms)

    @property
    def wait_share(self) -> float:
        """Of the time, what the trainer waited for mini-batches."""
        return self.loader.wait_ms / max(self.wall_ms, 1e-9)

    def means(self) -> dict[str, float]:
        """A mini-batch's figures, and rates, by name. Bytes by tier where the features' store counts them, and a hit
        rate where there is a cache."""
        loader, seconds = self.loader, max(self.wall_ms / 1e3, 1e-9)
        batches = max(loader.num_batches, 1)
        return {
            "queue_depth": loader.num_ready / batches,
            "wait_ms": loader.wait_ms / batches,
            "sample_ms": loader.sample_ms / batches,
            "gather_ms": loader.gather_ms / batches,
            "convert_ms": loader.convert_ms / batches,
            "train_ms": self.train_ms / batches,
            "input_nodes": loader.num_nodes / batches,
            "edges": loader.num_edges / batches,
            "seeds_per_s": loader.num_seeds / seconds,
            "batches_per_s": loader.num_batches / seconds,
            **{f"bytes_{read.tier.replace(' ', '_')}": read.num_bytes / batches for read in loader.reads},
            **({"hit_rate": counted.hit_rate(loader.reads)} if counted.has_cache(loader.reads) else {}),
        }
