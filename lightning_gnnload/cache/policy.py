"""CachePolicy: ranks the rows that a cache should hold; and policies for some of the nodes alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lightning_gnnload.data.partition import Part, Partition
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.parts.sampler import PartWorkload
from lightning_gnnload.sample.workload import Workload


class CachePolicy(ABC):
    """Ranks nodes by how often their feature rows will be gathered. It is made of settings alone and holds no state.

    Attributes:
        window: epochs for which a ranking holds; None: for the whole run.
        is_own: it ranks by what this rank gathers alone, so that ranks do not share the rows.
        counts_visits: its hotness is in proportion to visits, so that it tells what a larger cache is worth.

    Source: GNNLab (EuroSys'22), section 6.1: a caching policy is a hotness metric.

    Example:
        >>> class InDegree(CachePolicy):
        ...     def hotness(self, workload, epoch):
        ...         return np.diff(workload.graph.indptr)
    """

    window: int | None = None
    is_own: bool = False
    counts_visits: bool = False

    @abstractmethod
    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        """Returns a number per node, int or float ``[N]``, not negative: the larger, the sooner its row is cached.

        Args:
            workload: the mini-batches to come.
            epoch: the first of the window that the ranking is for; the run's first where ``window`` is None.
        """

    def quietly(self) -> CachePolicy:
        """Returns the same policy for a background thread: on one core, without a bar."""
        return self


def hottest(hotness: np.ndarray, num_nodes: int, count: int, left_out: Sequence[np.ndarray] = ()) -> np.ndarray:
    """Returns the ``count`` hottest nodes, hottest first, int64; ties go to the lower id, so that all ranks agree.

    ``left_out`` are lists of nodes to pass over; there are fewer than ``count`` where the others do not suffice. Raises
    CacheConfigError where ``hotness`` is not one finite number a node, 0 or more.
    """
    hotness = checked_hotness(hotness, num_nodes)
    if left_out:
        # Ranked among themselves, so that the ids that break ties stay those of the table.
        eligible = np.delete(np.arange(num_nodes), np.concatenate(left_out))
        return eligible[hottest(hotness[eligible], len(eligible), count)]
    count = min(max(count, 0), num_nodes)
    if count == 0:
        return np.empty(0, np.int64)
    # A partition instead of a sort of all: the coldest row that fits decides; all above it, then its equals by id.
    coldest = np.partition(hotness, num_nodes - count)[num_nodes - count]
    above = np.flatnonzero(hotness > coldest)
    equal = np.flatnonzero(hotness == coldest)[: count - len(above)]
    # A stable sort of the reversed list, reversed: falling hotness, and rising ids where it is equal.
    order = np.argsort(hotness[above][::-1], kind="stable")[::-1]
    return np.concatenate([above[::-1][order], equal])


def checked_hotness(hotness: np.ndarray, num_nodes: int) -> np.ndarray:
    """Returns ``hotness`` as an array ``[N]``. Raises CacheConfigError where it is not one finite number a node, 0 or
    more."""
    hotness = np.asarray(hotness)
    if hotness.shape != (num_nodes,) or hotness.dtype.kind not in "iuf":
        raise CacheConfigError(
            f"hotness has shape {list(hotness.shape)} and dtype {hotness.dtype}, but one number for each of "
            f"the {num_nodes} nodes is needed."
        )
    bad = np.flatnonzero(~(np.isfinite(hotness) & (hotness >= 0)))
    if len(bad):
        raise CacheConfigError(
            f"the hotness of node {bad[0]} is {hotness[bad[0]]}, and {len(bad) - 1} more are such; a number of "
            f"at least 0 is needed for every node."
        )
    return hotness


@dataclass(frozen=True)
class CachePlan:
    """The rows that a cache is to hold. Caches behind it leave them out, since nobody asks there for them."""

    policy: CachePolicy | None  # that ranks the rows; None: the cache admits and evicts
    num_rows: int  # that it has room for
    num_bytes: int = 0  # that they take; 0 but in the rank that decides
    together: bool = False  # each row is there once on the machine, not once a rank
    hot: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # to begin with, hottest first, int64
    num_copied: int = 0  # of them, the first, which each rank has where the others are there once
    nearer: tuple[CachePlan, ...] = ()  # of the caches in front

    def hottest(self, hotness: np.ndarray, num_nodes: int) -> np.ndarray:
        """Returns the rows to hold in a window of this hotness, as :func:`hottest` does."""
        return hottest(hotness, num_nodes, self.num_rows, self.left_out(hotness, num_nodes))

    def left_out(self, hotness: np.ndarray, num_nodes: int) -> list[np.ndarray]:
        """Returns the rows that nearer caches are sure to hold: those chosen for the whole run, and those that the same
        policy renews for the same window."""
        rows = []
        for plan in self.nearer:
            if plan.policy is None:  # nobody knows what it will have evicted
                continue
            if plan.policy.window is None:
                rows.append(plan.hot)
            elif plan.policy == self.policy:
                rows.append(plan.hottest(hotness, num_nodes))
        return rows


@dataclass(unsafe_hash=True, repr=False)
class SubsetPolicy(CachePolicy):
    """Applies another policy to a range of nodes: row ``i`` of the table is node ``nodes[i]``.

    Two are equal where their settings are, by which levels tell that they are renewed alike.

    Example:
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> from lightning_gnnload.cache.rules import Degree
        >>> from lightning_gnnload.data.orders.seeds import Sequential
        >>> star = Graph.from_coo(src=[3, 3, 2], dst=[0, 1, 0])
        >>> workload = Workload(star, NeighborSampler([1]), np.arange(2), batch_size=1, order=Sequential())
        >>> SubsetPolicy(Degree(), range(2, 4)).hotness(workload, epoch=0).tolist()
        [1, 2]
    """

    policy: CachePolicy
    nodes: range

    def __post_init__(self) -> None:
        self.window = self.policy.window
        self.is_own = self.policy.is_own
        self.counts_visits = self.policy.counts_visits

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        ranked = checked_hotness(self.policy.hotness(workload, epoch), workload.graph.num_nodes)
        return ranked[self.nodes.start : self.nodes.stop]

    def quietly(self) -> SubsetPolicy:
        return SubsetPolicy(self.policy.quietly(), self.nodes)

    def __repr__(self) -> str:
        return f"{self.policy!r} of nodes {self.nodes.start} to {self.nodes.stop - 1}"


@dataclass(unsafe_hash=True, repr=False)
class PartPolicy(CachePolicy):
    """Applies another policy to one part of a graph, by its edges and its rank's mini-batches; nodes outside rank 0,
    since the rank gathers none of them. ``phase`` is the one that the cache is filled for. Equal as
    :class:`SubsetPolicy` is.

    Source: PaGraph (TPDS'21), section 3.2: each GPU caches features for its own partition.
    """

    is_own = True
    policy: CachePolicy
    sampler: Sampler
    partition: Partition
    part: Part
    phase: str

    def __post_init__(self) -> None:
        self.window = self.policy.window
        self.counts_visits = self.policy.counts_visits

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        local = PartWorkload(workload, self.sampler, self.part, self.phase)
        ranked = checked_hotness(self.policy.hotness(local, epoch), self.part.graph.num_nodes)
        hotness = np.zeros(self.partition.num_nodes, ranked.dtype)
        hotness[self.part.graph.names_of(np.arange(len(ranked)))] = ranked
        return hotness

    def quietly(self) -> PartPolicy:
        return PartPolicy(self.policy.quietly(), self.sampler, self.partition, self.part, self.phase)

    def __repr__(self) -> str:
        return f"{self.policy!r} of part {self.part.index}"
