"""LocalOrder: each trainer's seeds are those of its part."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Sequence

import numpy as np
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.data.plan import StepPlan
from lightning_gnnload.errors import PartitionError


class LocalOrder(SeedOrder):
    """Shuffles each part's seeds on their own; part ``p``'s seeds fill rank ``p``'s slices of each step.

    Every seed comes once an epoch, and every rank has as many steps, whatever the parts' sizes. Where parts are of
    the sizes that the slices have, ``floor(S (p + 1) / K) - floor(S p / K)``, each rank has its part's seeds alone.
    Where some part has more, those that its order puts last go to the ranks whose parts have fewer, spread over their
    epoch.

    Args:
        parts: of each of the K parts its seeds, int64 node ids: disjoint, and together those of the phase.
        inner: how a part orders its own.
        drop_last: whether the epoch's last step is left out when it is not full, as :class:`.StepPlan` has it.

    Shapes: S seeds, K parts.

    Raises:
        PartitionError: no parts; on ordering, seeds that are not those of the parts; on binding, a global batch that K
            ranks cannot share alike.

    Source: PaGraph (TPDS'21), section 4, local shuffling.

    Example:
        >>> order = LocalOrder([np.array([0, 1, 2]), np.array([7, 8, 9])])
        >>> bound = order.bind(Graph.from_coo([0], [9]), None, global_batch_size=4)
        >>> ordered = bound.order(np.array([0, 1, 2, 7, 8, 9]), seed=0, epoch=0)
        >>> plan = StepPlan(num_seeds=6, batch_size=2, num_ranks=2)
        >>> [[ordered[slice(*plan.slice(step, rank))].tolist() for rank in range(2)] for step in range(2)]
        [[[1, 2], [8, 7]], [[0], [9]]]
    """

    def __init__(self, parts: Sequence[np.ndarray], inner: SeedOrder | None = None, *, drop_last: bool = False) -> None:
        if not len(parts):
            raise PartitionError("LocalOrder: there are no parts; give the seeds of one or more.")
        self.parts = [np.asarray(seeds, np.int64) for seeds in parts]
        self.inner = Shuffled() if inner is None else inner
        self.drop_last = drop_last
        # An order may keep what it has made for its seeds: one of its own for each part.
        self._inners = [copy.copy(self.inner) for _ in self.parts]

    @property
    def name(self) -> str:
        """The order's name, with a checksum of the parts: an epoch is resumed only if each rank has the seeds that it
        had."""
        checksum = 0
        for seeds in self.parts:
            # With the length, the same seeds divided at other places have another checksum.
            checksum = zlib.crc32(np.int64(len(seeds)).tobytes() + np.sort(seeds).tobytes(), checksum)
        return f"LocalOrder({self.inner.name}, {len(self.parts)} parts {checksum:08x})"

    @property
    def is_balanced(self) -> bool:
        """Whether each rank gets seeds of its own part alone."""
        ends, num_parts = np.cumsum([len(seeds) for seeds in self.parts]), len(self.parts)
        return bool((ends == ends[-1] * np.arange(1, num_parts + 1) // num_parts).all())

    def check(self, seeds: np.ndarray) -> None:
        """Raises PartitionError: the parts' seeds are not these."""
        if not np.array_equal(np.sort(np.concatenate(self.parts)), np.sort(seeds)):
            raise PartitionError(
                f"LocalOrder: the seeds of the {len(self.parts)} parts ({sum(map(len, self.parts))}) are not those to "
                f"train on ({len(seeds)}): the splits have changed. Partition the graph again with the present ones."
            )

    def bind(self, graph: Graph, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        batch_size, rest = divmod(global_batch_size, len(self.parts))
        if rest:
            raise PartitionError(
                f"LocalOrder: a step has {global_batch_size} seeds, but {len(self.parts)} parts are to have as many "
                f"each. Train with {len(self.parts)} trainers, one a part."
            )
        inners = [inner.bind(graph, labels, batch_size) for inner in self._inners]
        return _BoundLocalOrder(self, inners, batch_size)

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        """Raises PartitionError: only what :meth:`bind` returns knows the size of a step."""
        raise PartitionError("LocalOrder needs the size of a step: call bind(graph, labels, global_batch_size) first.")

    def __repr__(self) -> str:
        return f"LocalOrder({len(self.parts)} parts, {self.inner!r})"


class _BoundLocalOrder(SeedOrder):
    """A LocalOrder that knows how many seeds of a step each rank takes."""

    def __init__(self, settings: LocalOrder, inners: Sequence[SeedOrder], batch_size: int) -> None:
        self.settings = settings
        self.inners = inners
        self.batch_size = batch_size

    @property
    def name(self) -> str:
        return self.settings.name

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        self.settings.check(seeds)
        parts = self.settings.parts
        num_parts, size = len(parts), self.batch_size
        plan = StepPlan(len(seeds), size, num_parts, self.settings.drop_last)
        full = plan.num_steps - 1  # steps whose slices all have the same size; the last one's may differ
        last = [plan.slice(full, rank) for rank in range(num_parts)]
        room = [full * size + end - begin for begin, end in last]
        ordered = [inner.order(own, seed=seed, epoch=epoch) for inner, own in zip(self.inners, parts, strict=True)]
        # What its own rank has no room for goes to the ranks that lack seeds, and what these have no room for, which
        # only drop_last leaves, behind the last step.
        left = np.concatenate([own[most:] for own, most in zip(ordered, room, strict=True)])
        taken = np.cumsum([0, *(max(most - len(own), 0) for own, most in zip(ordered, room, strict=True))])
        result = np.empty_like(seeds)
        steps = result[: full * num_parts * size].reshape(full, num_parts, size)
        for rank, (begin, end) in enumerate(last):
            share = _spread(ordered[rank][: room[rank]], left[taken[rank] : taken[rank + 1]])
            steps[:, rank] = share[: full * size].reshape(full, size)
            result[begin:end] = share[full * size :]
        result[sum(room) :] = left[taken[-1] :]
        return result


def _spread(own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Merges both, each in its order, with the second spread evenly over the first.

    Example:
        >>> _spread(np.array([0, 1, 2, 3, 4, 5]), np.array([8, 9])).tolist()
        [0, 1, 8, 2, 3, 4, 9, 5]
    """
    # The centre of each among its kind, on a common scale.
    places = np.concatenate([(2 * np.arange(len(own)) + 1) * len(others), (2 * np.arange(len(others)) + 1) * len(own)])
    return np.concatenate([own, others])[np.argsort(places, kind="stable")]
