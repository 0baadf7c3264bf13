"""FeatureCache: the settings of a cache of hot feature rows, and how it comes about."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from lightning_gnnload.cache.budget import Allowance, Table
from lightning_gnnload.cache.opening import HostPlace, Place, print_line
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.cache.policy import CachePolicy, Chosen, SubsetPolicy
from lightning_gnnload.cache.rules import RULES, Rule, policy_named, rule_of
from lightning_gnnload.cache.static import SharerOf
from lightning_gnnload.cache.store import CacheLevels
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.data.tables import NodeTable
from lightning_gnnload.errors import CacheConfigError, CudaUnavailableError
from lightning_gnnload.sample.workload import Workload

T = TypeVar("T")


@dataclass(frozen=True)
class FeatureCache:
    """Keeps the hot rows of a feature table in faster memory. It consists of settings alone, which a configuration
    file can hold.

    Args:
        policy: which rows: a name in :data:`.RULES`, or a policy of one's own. ``"presample"``, ``"degree"``,
            ``"expected"`` and so on choose before training; ``"clairvoyant"`` chooses anew for every window of epochs;
            ``"fifo"``, ``"belady"`` and so on admit and evict while training.
        ratio: rows cached, as a share of all, each counted once.
        capacity_bytes: upper bound for rows and index, on the whole machine. Where both are given, the lower limit
            holds; where neither is, what the first steps of a fit leave of the memory, as far as rows are worth it, and
            none where the table is in memory already; before that is known, a quarter of the free memory.
        share: by the ranks of a machine that gather: ``"partitioned"``: each row once; ``"replicated"``: each rank
            has its own; ``"auto"``: partitioned, as all ranks read this machine's memory alike. But with ``"belady"``,
            with what evicts on devices, and by a ranking where each rank trains on a part of the graph (PaGraph), each
            has its own.
        window: epochs that ``"clairvoyant"`` looks ahead.
        device: where the rows lie: ``"cpu"``: in the machine's memory; ``"cuda"``: in that of the device that trains,
            where limits are for all devices of the machine together, and without any the cache takes what training
            leaves; ``"auto"``: on the device, where batches are gathered there and it can hold the policy: those that
            rank rows once before training, and ``"fifo"``.

    Raises:
        CacheConfigError: settings that cannot work.

    Source: GNNLab (EuroSys'22), section 6; PaGraph (SoCC'20), 3.1; BGL (NSDI'23), 3.2; DSP (PPoPP'23), 3.1.

    Example:
        >>> import numpy as np, torch
        >>> from lightning_gnnload import Graph, MemoryFeatureStore, NeighborSampler
        >>> from lightning_gnnload.data.orders.seeds import Sequential
        >>> star = Graph.from_coo(src=[3, 3, 3], dst=[0, 1, 2])
        >>> workload = Workload(star, NeighborSampler([1]), np.arange(3), batch_size=1, order=Sequential())
        >>> table = MemoryFeatureStore(torch.arange(4.0).view(4, 1))
        >>> cache = FeatureCache("degree", ratio=0.25).open(table, workload, progress=False)
        >>> out = torch.empty(2, 1)
        >>> [(read.tier, read.rows) for read in cache.gather(torch.tensor([3, 1]), out)], out.tolist()
        ([('cache', 1), ('memory', 1)], [[3.0], [1.0]])
    """

    policy: str | CachePolicy = "presample"
    ratio: float | None = None
    capacity_bytes: int | None = None
    share: Literal["auto", "replicated", "partitioned"] = "auto"
    window: int = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"

    def __post_init__(self) -> None:
        if not self.evicts:
            policy_named(self.policy, window=self.window)
        if self.window != 1 and self.policy != "clairvoyant":
            raise CacheConfigError(
                f"window={self.window!r} is for policy='clairvoyant', but policy={self.policy!r}. Leave it out; a "
                f"policy of your own has its window itself."
            )
        if self.ratio is not None and not (_is_number(self.ratio) and 0 <= self.ratio <= 1):
            raise CacheConfigError(f"ratio={self.ratio!r}: a share of all rows is needed, from 0 to 1.")
        if self.capacity_bytes is not None and not (
            isinstance(self.capacity_bytes, int) and _is_number(self.capacity_bytes) and self.capacity_bytes >= 0
        ):
            raise CacheConfigError(
                f"capacity_bytes={self.capacity_bytes!r}: a whole number of bytes is needed, 0 or more, as an int."
            )
        if self.share not in ("auto", "replicated", "partitioned"):
            raise CacheConfigError(f"share={self.share!r}: give 'auto', 'replicated' or 'partitioned'.")
        if self.device not in ("auto", "cpu", "cuda"):
            raise CacheConfigError(f"device={self.device!r}: give 'auto', 'cpu' or 'cuda'.")
        if self.device == "cuda" and (reason := self.no_device_reason) is not None:
            raise CacheConfigError(f"device='cuda', but {reason}. Give 'auto' or 'cpu', or another policy.")
        rule = rule_of(self.policy)
        if self.share == "partitioned" and rule is not None and rule.admit is not None and not rule.is_shareable:
            raise CacheConfigError(
                f"share='partitioned', but with policy={self.policy!r} each rank looks ahead for itself. Give 'auto' "
                f"or 'replicated', or another policy."
            )

    def open(
        self,
        store: FeatureStore,
        workload: Workload,
        *,
        membership: Membership | None = None,
        sharer_of: SharerOf | None = None,
        epoch: int = 0,
        progress: bool = True,
        tier: str = "cache",
        left: Allowance | None = None,
    ) -> FeatureStore:
        """Opens the cache, a store in front of ``store`` with the same rows. This takes as long as the policy and
        reading the rows take; it says on stderr how large the cache is, and why. Closing it leaves ``store`` open.

        Args:
            store: has all rows.
            workload: the mini-batches to come.
            membership: of the ranks of this machine that open it together; None for a rank alone.
            sharer_of: which of them is to hold a row that is there once; None: any.
            epoch: that training begins with.
            progress: say what is done, with bars; for one rank of a machine.
            tier: what reads from it are counted as.
            left: what training leaves of the memory, if that was measured: it sets the size of a cache without limits.

        Raises:
            CacheConfigError, CacheTooSmallError: limits that cannot be kept, a ranking that is none.
            CacheShareError: peers that are late, fail, or have another table.
            CudaUnavailableError: ``device="cuda"``, while this is the cache in the machine's memory.
        """
        table = _cached_bytes(store)
        [opened] = _opened({tier: self}, table, workload, [membership], sharer_of, epoch, progress, left)
        return store.over(opened) if isinstance(store, QuantizedFeatureStore) else opened

    def choose(self, place: Place[T], workload: Workload, *, epoch: int, progress: bool) -> Chosen:
        """Chooses the rows that the cache is to hold in a place's memory, without filling it."""
        if place.peers is not None:
            place.peers.agree(self.facts(place.store, epoch))
        policy = None if self.evicts else policy_named(self.policy, window=self.window, progress=progress)
        chosen, allowed = self._agreed_room(place, rule_of(self.policy), policy)
        said = ""
        if chosen.num_rows and policy is not None:
            if policy.is_own:
                # Only now: the number of rows was still for all ranks to agree on.
                place.part()
            chosen, said = place.hot_rows(chosen, workload, epoch, spare=self.is_unlimited and place.is_thrifty)
        if progress and allowed:
            print_line(f"Feature cache{place.where} by {self.policy!r}: {allowed}{said}")
        return chosen

    @property
    def is_unlimited(self) -> bool:
        """Whether it is for the package to say how large the cache is."""
        return self.ratio is None and self.capacity_bytes is None

    @property
    def evicts(self) -> bool:
        """Whether rows come and go with every batch."""
        rule = rule_of(self.policy)
        return rule is not None and rule.admit is not None

    def _agreed_room(self, place: Place[T], rule: Rule | None, policy: CachePolicy | None) -> tuple[Chosen, str]:
        """Returns how many rows to cache, none of them chosen yet; and, for peer 0, why so many, in words. Peer 0
        decides, as ranks that look at different moments see different amounts of free memory."""
        # Every rank asks for the room, as ranks on devices tell each other theirs; only peer 0 goes on to decide.
        store, peers, room = place.store, place.peers, place.room()
        found, num_bytes, said = None, 0, ""
        if place.leads:
            count = 1 if peers is None else peers.membership.count
            table = Table(store.shape[0], store.row_bytes, place.slot_bytes(rule, policy), copies=count)
            if policy is None:
                is_shareable = place.evicts_together and rule is not None and rule.is_shareable
            else:
                is_shareable = not policy.is_own
            share = self.share if peers is not None and is_shareable else "replicated"
            allowed, together = place.budget(table, self.ratio, self.capacity_bytes, share, room)
            how = "partitioned over" if together else "replicated in"
            said = f"{allowed}; {how} {count} ranks" if count > 1 else str(allowed)
            found, num_bytes = np.array([allowed.num_rows, together]), allowed.num_bytes
        if peers is not None:
            found = peers.broadcast(found)
        assert found is not None
        return Chosen(policy, int(found[0]), num_bytes, bool(found[1]), nearer=place.nearer), said

    @property
    def no_device_reason(self) -> str | None:
        """Why a device cannot hold it; None where it can."""
        rule = rule_of(self.policy)
        if rule is not None and rule.admit is not None:
            if self.share == "partitioned":
                return "ranks share what evicts in the machine's memory alone"
            if rule.device_slot_bytes is not None:
                return None
            others = ", ".join(repr(other.name) for other in RULES.values() if other.device_slot_bytes)
            return f"policy={self.policy!r} runs on the CPU; on devices, {others} does"
        if policy_named(self.policy, window=self.window).window is not None:
            return f"policy={self.policy!r} renews its rows, which caches on devices do not"
        return None

    def facts(self, store: FeatureStore, epoch: int) -> dict[str, object]:
        """Returns the facts in which all peers must agree."""
        # A policy of one's own is another object in each rank, and only its class can be told.
        policy = self.policy if isinstance(self.policy, str) else type(self.policy).__name__
        settings = [policy, self.ratio, self.capacity_bytes, self.share, self.window, self.device]
        return {"shape": list(store.shape), "dtype": str(store.dtype), "settings": settings, "epoch": epoch}


def open_all(
    levels: Sequence[FeatureCache],
    store: FeatureStore,
    workload: Workload,
    *,
    membership: Membership | None = None,
    sharer_of: SharerOf | None = None,
    epoch: int = 0,
    progress: bool = True,
    left: Allowance | None = None,
) -> FeatureStore:
    """Opens several caches in front of each other, as one store; closing it closes them and leaves ``store`` open.

    A row that a cache holds for the whole run lies in none behind it; so does one that the same policy renews for the
    same window. Together they hold as many rows as each has room for.

    Args:
        levels: nearest first. Reads from them are counted as ``"cache"``, ``"cache 2"`` and so on.
        store: see :meth:`FeatureCache.open`, which raises what this does; likewise all others.

    Source: DSP (PPoPP'23), section 3.2, which replicates hot features and partitions the others.
    """
    numbers = range(1, len(levels) + 1)
    by_tier = {"cache" if number == 1 else f"cache {number}": levels[number - 1] for number in numbers}
    memberships = [membership and replace(membership, name=f"{membership.name}-{number}") for number in numbers]
    table = _cached_bytes(store)
    opened = CacheLevels(table, _opened(by_tier, table, workload, memberships, sharer_of, epoch, progress, left))
    return store.over(opened) if isinstance(store, QuantizedFeatureStore) else opened


def _opened(
    levels: Mapping[str, FeatureCache],
    table: FeatureStore,
    workload: Workload,
    memberships: Sequence[Membership | None],
    sharer_of: SharerOf | None,
    epoch: int,
    progress: bool,
    left: Allowance | None,
) -> list[FeatureStore]:
    """Opens caches, nearest first, each in front of the next one and the last in front of ``table``."""
    if any(level.device == "cuda" for level in levels.values()):
        raise CudaUnavailableError(
            "FeatureCache(device='cuda') has to lie on a device, but these features are gathered on the CPU. Train on "
            "a CUDA device with GraphDataModule(sampling_device='cuda'), which says what is missing; or give "
            "device='auto', which takes the machine's memory where there is no device."
        )
    caches: list[FeatureStore] = []
    chosen: tuple[Chosen, ...] = ()
    places: list[HostPlace] = []
    # Groups end with the opening; a renewed cache has detached its channels by then.
    with ExitStack() as connected:
        # The nearest first, as those behind it leave its rows out.
        for level, ours in zip(levels.values(), memberships, strict=True):
            peers = connected.enter_context(ours.connect()) if ours is not None and ours.count > 1 else None
            places.append(HostPlace(table, peers, sharer_of, left, chosen))
            chosen += (level.choose(places[-1], workload, epoch=epoch, progress=progress),)
        try:
            # The farthest first, as a cache is opened in front of another one.
            for (tier, level), place, rows in reversed(list(zip(levels.items(), places, chosen, strict=True))):
                place.store = caches[0] if caches else table
                rule = rule_of(level.policy)
                caches.insert(0, place.hold(rows, rule, workload, epoch=epoch, progress=progress, tier=tier))
        except BaseException:
            CacheLevels(table, caches).close()
            raise
    return caches


def _cached_bytes(store: FeatureStore) -> FeatureStore:
    """Returns the store whose rows are cached: of quantised features their bytes, several times the rows in the same
    room."""
    return store.codes if isinstance(store, QuantizedFeatureStore) else store


def fitting(
    levels: Sequence[FeatureCache], data: GraphData, name: str, *, progress: bool = True
) -> tuple[FeatureCache, ...]:
    """Returns the same caches, with policies that judge the rows of one table.

    Args:
        levels: as for a table of all nodes.
        data: whose table it is.
        name: of the table, in :attr:`.GraphData.stores`.
        progress: whether policies that sample ahead show a bar on stderr.

    Raises:
        CacheConfigError: a policy that judges all nodes, for rows of some of them or of edges.
    """
    return tuple(_fitting(level, data, name, progress) for level in levels)


def _fitting(level: FeatureCache, data: GraphData, name: str, progress: bool) -> FeatureCache:
    table, rule = data.tables.get(name), rule_of(level.policy)
    of_some = isinstance(table, NodeTable)
    if not (of_some or name in data.edge_stores) or (rule is not None and not rule.judges_nodes):
        return level
    if not isinstance(table, NodeTable) or level.evicts:
        others = ", ".join(repr(other.name) for other in RULES.values() if not other.judges_nodes)
        raise CacheConfigError(
            f"policy={level.policy!r} ranks the rows of all nodes, but table {name!r} has rows of "
            f"{'some nodes' if of_some else 'edges'}. Give its cache a policy that ranks no nodes: {others}."
        )
    policy = policy_named(level.policy, window=level.window, progress=progress)
    return replace(level, policy=SubsetPolicy(policy, table.nodes))


def _is_number(value: object) -> bool:
    # True is an int, but no share and no number of bytes.
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
