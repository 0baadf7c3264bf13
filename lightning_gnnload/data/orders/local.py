"""LocalOrder: the seeds of each mini-batch are of one part."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Sequence

import numpy as np
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.even import EvenOrder
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.data.plan import StepPlan
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import PartitionError


class LocalOrder(SeedOrder):
    """Orders each part's seeds on their own by ``inner``, and fills each slice of a step from one part.

    With as many ranks as parts, rank ``p`` gets part ``p``. With fewer, a rank gets slices of several parts in turn;
    with more, several ranks share a part. Every seed comes once an epoch, and all ranks have equally many steps: seeds
    that a part's ranks have no room for go to others. Seeds that fill no whole slice are mixed in a rank's last ones.
    Each of ``num_machines`` has equally many ranks, one machine's after the other's, and all parts.

    Shapes: S seeds, K parts (int64 node ids, or numbers of rows of a table, disjoint), T ranks, L steps.

    Raises:
        PartitionError: no parts, or ranks that do not divide by machines; on ordering, seeds that are not those of the
            parts; on binding, a global batch that does not divide by T, or an :class:`.EvenOrder` of rows.

    Source: PaGraph (TPDS'21), section 4, local shuffling; DSP (PPoPP'23), section 3.2, seeds beside their patches.

    Example:
        >>> order = LocalOrder([np.array([0, 1, 2]), np.array([7, 8, 9])])
        >>> bound = order.bind(Graph.from_coo([0], [9]), None, global_batch_size=4)
        >>> ordered = bound.order(np.array([0, 1, 2, 7, 8, 9]), seed=0, epoch=0)
        >>> plan = StepPlan(num_seeds=6, batch_size=2, num_ranks=2)
        >>> [[ordered[slice(*plan.slice(step, rank))].tolist() for rank in range(2)] for step in range(2)]
        [[[1, 2], [8, 7]], [[0], [9]]]
        >>> LocalOrder(order.parts, num_ranks=1).owners(StepPlan(num_seeds=6, batch_size=1, num_ranks=1), 2).tolist()
        [[0], [1], [0], [1], [0], [1]]
    """

    def __init__(
        self,
        parts: Sequence[np.ndarray],
        inner: SeedOrder | None = None,
        *,
        num_ranks: int | None = None,
        num_machines: int = 1,
        drop_last: bool = False,
    ) -> None:
        if not len(parts):
            raise PartitionError("LocalOrder: there are no parts; give the seeds of one or more.")
        self.parts = [np.asarray(seeds, np.int64) for seeds in parts]
        self.inner = Shuffled() if inner is None else inner
        self.num_ranks = len(parts) if num_ranks is None else num_ranks
        self.num_machines = num_machines
        self.drop_last = drop_last
        if self.num_ranks < 1 or self.num_ranks % num_machines:
            raise PartitionError(
                f"LocalOrder: {self.num_ranks} ranks on {num_machines} machines; give one or more, as many on each."
            )
        # An order may cache results for its seeds, so each part gets a copy.
        self._inners = [copy.copy(self.inner) for _ in self.parts]

    @property
    def name(self) -> str:
        """The name with a checksum of the parts, and the number of ranks where it differs from theirs."""
        # An epoch is resumed only under the same name, that is, if each rank gets the seeds that it had.
        checksum = 0
        for seeds in self.parts:
            # With the length, the same seeds divided elsewhere have another checksum.
            checksum = zlib.crc32(np.int64(len(seeds)).tobytes() + np.sort(seeds).tobytes(), checksum)
        ranks = f" for {self.num_ranks} ranks" if self.num_ranks != len(self.parts) else ""
        machines = f" on {self.num_machines} machines" if self.num_machines > 1 else ""
        return f"LocalOrder({self.inner.name}, {len(self.parts)} parts {checksum:08x}{ranks}{machines})"

    @property
    def reads_labels(self) -> bool:
        return self.inner.reads_labels

    @property
    def is_balanced(self) -> bool:
        """Whether each of K ranks gets only seeds of its part."""
        bounds, num_parts = np.cumsum([len(seeds) for seeds in self.parts]), len(self.parts)
        return bool((bounds == bounds[-1] * np.arange(1, num_parts + 1) // num_parts).all())

    def check(self, seeds: np.ndarray) -> None:
        """Raises PartitionError: ``seeds`` are not those of the parts."""
        if not np.array_equal(np.sort(np.concatenate(self.parts)), np.sort(seeds)):
            raise PartitionError(
                f"LocalOrder: the seeds of the {len(self.parts)} parts ({sum(map(len, self.parts))}) are not those to "
                f"train on ({len(seeds)}): the splits have changed. Partition the graph again with the present ones."
            )

    def bind(self, graph: Graph, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        batch_size = self._batch_size(global_batch_size)
        inners = [inner.bind(graph, labels, batch_size) for inner in self._inners]
        return _BoundLocalOrder(self, inners, batch_size)

    def bind_rows(self, table: SeedTable, nodes: np.ndarray, graph: Graph, global_batch_size: int) -> SeedOrder:
        if isinstance(self.inner, EvenOrder):
            raise PartitionError(
                f"LocalOrder: {self.inner!r} gives the types of all rows their turns, but the rows of each part are "
                "ordered on their own. Give another order, or train without partition=."
            )
        batch_size = self._batch_size(global_batch_size)
        inners = [inner.bind_rows(table, nodes, graph, batch_size) for inner in self._inners]
        return _BoundLocalOrder(self, inners, batch_size)

    def _batch_size(self, global_batch_size: int) -> int:
        """Returns how many seeds a rank takes in a step. Raises PartitionError: ranks cannot have as many each."""
        batch_size, rest = divmod(global_batch_size, self.num_ranks)
        if rest:
            raise PartitionError(
                f"LocalOrder: a step has {global_batch_size} seeds, but {self.num_ranks} ranks are to have as many "
                f"each. Train with {self.num_ranks} trainers."
            )
        return batch_size

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        """Raises PartitionError: only what :meth:`bind` returns knows the size of a step."""
        raise PartitionError("LocalOrder needs the size of a step: call bind(graph, labels, global_batch_size) first.")

    def owners(self, plan: StepPlan, num_owners: int) -> np.ndarray:
        whole, rests = self._layout(plan)
        owners = np.pad(whole, ((0, 1), (0, 0)), constant_values=-1)
        # A mixed slice goes to the part of most of its seeds.
        for rank, rest in enumerate(rests.T):
            mixed = np.repeat(np.arange(len(self.parts)), rest)
            *full, last = np.flatnonzero(owners[:, rank] < 0)
            for step in full:
                owners[step, rank], mixed = np.bincount(mixed[: plan.batch_size]).argmax(), mixed[plan.batch_size :]
            owners[last, rank] = np.bincount(mixed).argmax()
        return owners * num_owners // len(self.parts)

    def deal(self, plan: StepPlan, ordered: Sequence[np.ndarray]) -> np.ndarray:
        """Arranges the ordered seeds of all parts by the slices of a plan: int64 ``[S]``."""
        whole, rests = self._layout(plan)
        result = np.empty(plan.num_seeds, np.int64)
        # The steps before the last are full: one rank's slice behind the other's, all of one size.
        slices = result[: whole.size * plan.batch_size].reshape(*whole.shape, plan.batch_size)
        leftovers = []
        for part, part_order in enumerate(ordered):
            mine = whole == part
            count = np.count_nonzero(mine) * plan.batch_size
            slices[mine] = part_order[:count].reshape(-1, plan.batch_size)
            # Ranks take their pieces of it one after the other, below.
            leftovers.append(iter(np.split(part_order[count:], np.cumsum(rests[part]))))
        for rank in range(plan.num_ranks):
            begin, end = plan.slice(len(whole), rank)
            mixed = np.concatenate([next(pieces) for pieces in leftovers])
            num_full = len(mixed) - (end - begin)
            slices[whole[:, rank] < 0, rank] = mixed[:num_full].reshape(-1, plan.batch_size)
            result[begin:end] = mixed[num_full:]
        # Seeds that no slice has room for, which happens with drop_last alone.
        result[end:] = np.concatenate([next(pieces) for pieces in leftovers])
        return result

    def _layout(self, plan: StepPlan) -> tuple[np.ndarray, np.ndarray]:
        """Assigns slices to parts.

        Returns the part of each slice of all steps but the last, int64 ``[L - 1, T]``, -1 for a mixed one; and how many
        seeds of each part each rank has in its mixed slices and the last step, ``[K, T]``.
        """
        full, size = plan.num_steps - 1, plan.batch_size  # the last step's slices may have another size
        last = [plan.slice(full, rank) for rank in range(plan.num_ranks)]
        quotas = self._quotas([full * size + end - begin for begin, end in last], plan.num_seeds)
        whole = np.stack([_spread_turns(rank_quota // size, full) for rank_quota in quotas.T], axis=1)
        return whole, quotas - size * np.stack([(whole == part).sum(0) for part in range(len(self.parts))])

    def _quotas(self, room: list[int], num_seeds: int) -> np.ndarray:
        """Returns how many seeds of each part each rank takes, int64 ``[K, T]``, given the seeds it has room for."""
        remaining, total, num_local = [len(seeds) for seeds in self.parts], sum(room), len(room) // self.num_machines
        quotas = np.zeros((len(remaining), len(room)), np.int64)
        # Lay the parts along one line, a machine's ranks along another of equal length, all equally wide. A rank first
        # takes its share of the parts that it overlaps, then more of these while it has room; the rest goes to any
        # rank with room.
        part, local_rank = np.arange(len(remaining))[:, None], np.arange(len(room)) % num_local
        stops = np.minimum((part + 1) * num_local, (local_rank + 1) * len(remaining))
        width = (stops - np.maximum(part * num_local, local_rank * len(remaining))).clip(0)
        sizes = np.array(remaining, object)[:, None]  # whose products may be beyond int64
        for most in (-(-sizes * total * width // (len(room) * num_seeds)), width * num_seeds, width * 0 + num_seeds):
            for k, rank in np.ndindex(quotas.shape):
                count = min(most[k, rank], remaining[k], room[rank])
                quotas[k, rank] += count
                remaining[k] -= count
                room[rank] -= count
        return quotas

    def __repr__(self) -> str:
        return f"LocalOrder({len(self.parts)} parts, {self.inner!r})"


class _BoundLocalOrder(SeedOrder):
    """A LocalOrder with the number of seeds that each rank takes in a step."""

    def __init__(self, settings: LocalOrder, inners: Sequence[SeedOrder], batch_size: int) -> None:
        self.settings = settings
        self.inners = inners
        self.batch_size = batch_size

    @property
    def name(self) -> str:
        return self.settings.name

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        settings = self.settings
        settings.check(seeds)
        plan = StepPlan(len(seeds), self.batch_size, settings.num_ranks, settings.drop_last)
        pairs = zip(self.inners, settings.parts, strict=True)
        return settings.deal(plan, [inner.order(part_seeds, seed=seed, epoch=epoch) for inner, part_seeds in pairs])


def _spread_turns(counts: np.ndarray, num_turns: int) -> np.ndarray:
    """Spreads ``counts[k]`` turns of each part k evenly: int64 ``[num_turns]``, with -1 behind if there are fewer.

    Example:
        >>> _spread_turns(np.array([4, 2]), 7).tolist()
        [0, 1, 0, 0, 1, 0, -1]
    """
    parts = np.repeat(np.arange(len(counts)), counts)
    # Turn i of n lies at (i + 1/2) / n of the way, whatever the part.
    turn = np.arange(len(parts)) - np.repeat(np.cumsum(counts) - counts, counts)
    spread = parts[np.argsort((2 * turn + 1) / counts[parts], kind="stable")][:num_turns]
    return np.pad(spread, (0, num_turns - len(spread)), constant_values=-1)
