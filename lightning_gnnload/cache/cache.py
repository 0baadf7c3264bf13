"""FeatureCache: the settings of a cache of hot feature rows, and how caches are opened from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from lightning_gnnload.cache.budget import Allowance, Table
from lightning_gnnload.cache.builder import CacheBuilder, HostBuilder, print_line
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.cache.policy import CachePlan, CachePolicy, SubsetPolicy
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
        copied: share of the cached rows, the hottest, that each rank has, where ``share="auto"`` shares the others: 0
            to 1. ``"auto"``: none; but on devices, without a ``ratio`` and by a policy that counts visits, as many
            as make reads cheapest in the same memory, by what reads of each memory take there
            (:func:`.rows_to_copy`).
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
    copied: float | Literal["auto"] = "auto"
    window: int = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"

    def __post_init__(self) -> None:
        if not self.evicts:
            policy_named(self.policy, window=self.window)
        # Refused rather than ignored: whoever sets a window for another policy expects it to do something.
        if self.window != 1 and self.policy != "clairvoyant":
            raise CacheConfigError(
                f"window={self.window!r} is for policy='clairvoyant', but policy={self.policy!r}. Leave it out; a "
                f"policy of your own has its window itself."
            )
        self._check_limits()
        if self.share not in ("auto", "replicated", "partitioned"):
            raise CacheConfigError(f"share={self.share!r}: give 'auto', 'replicated' or 'partitioned'.")
        self._check_copied()
        if self.device not in ("auto", "cpu", "cuda"):
            raise CacheConfigError(f"device={self.device!r}: give 'auto', 'cpu' or 'cuda'.")
        if self.device == "cuda" and (reason := self.no_device_reason) is not None:
            raise CacheConfigError(f"device='cuda', but {reason}. Give 'auto' or 'cpu', or another policy.")
        rule = rule_of(self.policy)
        # "auto" gives each rank its own cache here; asking for shards is a misunderstanding.
        if self.share == "partitioned" and rule is not None and rule.admit is not None and not rule.is_shareable:
            raise CacheConfigError(
                f"share='partitioned', but with policy={self.policy!r} each rank looks ahead for itself. Give 'auto' "
                f"or 'replicated', or another policy."
            )

    def _check_copied(self) -> None:
        copied = self.copied
        if copied == "auto":
            return
        if not (_is_number(copied) and 0 <= copied <= 1):
            raise CacheConfigError(f"copied={copied!r}: give 'auto', or a share of the cached rows, from 0 to 1.")
        if self.share != "auto":
            raise CacheConfigError(
                f"copied={copied!r} says how many rows each rank has, but share={self.share!r} says it of all. Leave "
                f"one of them out."
            )
        if self.evicts or policy_named(self.policy, window=self.window).window is not None:
            raise CacheConfigError(
                f"copied={copied!r} is for rows that are chosen once, but policy={self.policy!r} replaces its rows. "
                f"Leave it out, or give two caches: the first with share='replicated'."
            )

    def _check_limits(self) -> None:
        ratio, capacity = self.ratio, self.capacity_bytes
        if ratio is not None and not (_is_number(ratio) and 0 <= ratio <= 1):
            raise CacheConfigError(f"ratio={ratio!r}: a share of all rows is needed, from 0 to 1.")
        if capacity is not None and not (isinstance(capacity, int) and _is_number(capacity) and capacity >= 0):
            raise CacheConfigError(
                f"capacity_bytes={capacity!r}: a whole number of bytes is needed, 0 or more, as an int."
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
        """Opens the cache: a store of the same rows in front of ``store``. This takes as long as the policy and reading
        the rows take, and prints on stderr how large the cache is, and why. Closing the cache leaves ``store`` open.

        Args:
            store: has all rows.
            workload: the mini-batches to come.
            membership: of the ranks of this machine that open it together; None for a rank alone.
            sharer_of: the rank that should hold each row, where ranks share one cache; None: any.
            epoch: that training begins with.
            progress: print and show bars; for one rank of a machine.
            tier: what reads from it are counted as.
            left: the memory that training leaves, if measured: the size of a cache without limits.

        Raises:
            CacheConfigError, CacheTooSmallError: limits that do not work, or a ranking that is none.
            CacheShareError: peers that are late, fail, or have another table.
            CudaUnavailableError: ``device="cuda"``, while this cache lies in the machine's memory.
        """
        table = cached_bytes(store)
        [opened] = _opened({tier: self}, table, workload, [membership], sharer_of, epoch, progress, left)
        return store.over(opened) if isinstance(store, QuantizedFeatureStore) else opened

    def choose(self, builder: CacheBuilder[T], workload: Workload, *, epoch: int, progress: bool) -> CachePlan:
        """Decides which rows the cache will hold in a builder's memory, without reading them; all ranks decide
        alike."""
        if builder.peers is not None:
            builder.peers.agree(self.facts(builder.store, epoch))
        policy = None if self.evicts else policy_named(self.policy, window=self.window, progress=progress)
        plan, allowed = self._agreed_room(builder, rule_of(self.policy), policy)
        note = ""
        if plan.num_rows and policy is not None:
            if policy.is_own:
                if self.copied != "auto" and builder.peers is not None:
                    raise CacheConfigError(
                        f"copied={self.copied!r} is for rows that ranks share, but by {policy!r} each rank ranks its "
                        f"own. Leave it out."
                    )
                # Not earlier: the number of rows was still for all ranks to agree on.
                builder.leave_peers()
            spare = self.is_unlimited and builder.is_thrifty
            plan, note = builder.hot_rows(plan, workload, epoch, spare=spare, copied=self._copied(plan, policy))
        if progress and allowed:
            print_line(f"Feature cache{builder.where} by {self.policy!r}: {allowed}{note}")
        return plan

    @property
    def is_unlimited(self) -> bool:
        """Whether the settings leave the size of the cache to the package."""
        return self.ratio is None and self.capacity_bytes is None

    @property
    def evicts(self) -> bool:
        """Whether rows come and go with every batch."""
        rule = rule_of(self.policy)
        return rule is not None and rule.admit is not None

    def _copied(self, plan: CachePlan, policy: CachePolicy) -> float | None:
        """The share of rows that each rank copies; None: whatever is cheapest, in the memory of the plan."""
        if not plan.together:
            return 0.0
        if self.copied != "auto":
            return self.copied
        # A ratio fixes the rows, so that copies would take more memory.
        return None if self.share == "auto" and self.ratio is None and policy.counts_visits else 0.0

    def _agreed_room(
        self, builder: CacheBuilder[T], rule: Rule | None, policy: CachePolicy | None
    ) -> tuple[CachePlan, str]:
        """Returns a plan of so many rows, none of them chosen yet; and, in peer 0, the reason in words. Peer 0 decides
        for all, since ranks that look at different moments see different amounts of free memory."""
        # Collective on devices, where ranks exchange how much room each has: so every rank calls it, not only peer 0.
        store, peers, room = builder.store, builder.peers, builder.room()
        agreed, num_bytes, reason = None, 0, ""
        if builder.leads:
            count = 1 if peers is None else peers.membership.count
            table = Table(store.shape[0], store.row_bytes, builder.slot_bytes(rule, policy), copies=count)
            if policy is None:
                is_shareable = builder.evicts_together and rule is not None and rule.is_shareable
            else:
                is_shareable = not policy.is_own
            share = self.share if peers is not None and is_shareable else "replicated"
            copied = 0.0 if self.copied == "auto" else self.copied
            if self.copied != "auto" and share == "auto":
                share = "partitioned"  # as far as they are not copied
            allowed, together = builder.budget(table, self.ratio, self.capacity_bytes, share, room, copied)
            how = "partitioned over" if together else "replicated in"
            reason = f"{allowed}; {how} {count} ranks" if count > 1 else str(allowed)
            agreed, num_bytes = np.array([allowed.num_rows, together]), allowed.num_bytes
        if peers is not None:
            agreed = peers.broadcast(agreed)
        assert agreed is not None
        return CachePlan(policy, int(agreed[0]), num_bytes, bool(agreed[1]), nearer=builder.nearer), reason

    @property
    def no_device_reason(self) -> str | None:
        """The reason why a device cannot hold the cache; None where it can."""
        rule = rule_of(self.policy)
        if rule is not None and rule.admit is not None:
            if rule.device_slot_bytes is not None:
                return None
            on_devices = ", ".join(repr(name) for name, row in RULES.items() if row.device_slot_bytes)
            return f"policy={self.policy!r} runs on the CPU; on devices, {on_devices} does"
        if policy_named(self.policy, window=self.window).window is not None:
            return f"policy={self.policy!r} renews its rows, which caches on devices do not"
        return None

    def facts(self, store: FeatureStore, epoch: int) -> dict[str, object]:
        """Returns what all peers must agree on before they open the cache."""
        # A user's policy is another object in each rank, so that only its class can be compared.
        policy = self.policy if isinstance(self.policy, str) else type(self.policy).__name__
        settings = [policy, self.ratio, self.capacity_bytes, self.share, self.copied, self.window, self.device]
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
    allowance: Allowance | None = None,
    num_nearer: int = 0,
) -> FeatureStore:
    """Opens several caches in front of each other as one store; closing it closes them and leaves ``store`` open.

    ``levels`` are nearest first; their reads count as ``"cache"``, ``"cache 2"`` and so on, behind ``num_nearer``
    caches of a device. A row that a cache holds
    for the whole run is in none behind it, nor is a row that the same policy renews for the same window: so together
    they hold as many rows as each has room for. Other arguments and errors as in :meth:`FeatureCache.open`.

    Source: DSP (PPoPP'23), section 3.2, which replicates hot features and partitions the others.
    """
    numbers = range(num_nearer + 1, num_nearer + len(levels) + 1)
    by_tier = {
        "cache" if number == 1 else f"cache {number}": level for number, level in zip(numbers, levels, strict=True)
    }
    memberships = [membership and replace(membership, name=f"{membership.name}-{number}") for number in numbers]
    table = cached_bytes(store)
    opened = CacheLevels(table, _opened(by_tier, table, workload, memberships, sharer_of, epoch, progress, allowance))
    return store.over(opened) if isinstance(store, QuantizedFeatureStore) else opened


def _opened(
    levels: Mapping[str, FeatureCache],
    table: FeatureStore,
    workload: Workload,
    memberships: Sequence[Membership | None],
    sharer_of: SharerOf | None,
    epoch: int,
    progress: bool,
    allowance: Allowance | None,
) -> list[FeatureStore]:
    """Opens caches, nearest first, each in front of the next one and the last in front of ``table``."""
    if any(level.device == "cuda" for level in levels.values()):
        raise CudaUnavailableError(
            "FeatureCache(device='cuda') has to lie on a device, but these features are gathered on the CPU. Train on "
            "a CUDA device with GraphDataModule(sampling_device='cuda'), which says what is missing; or give "
            "device='auto', which takes the machine's memory where there is no device."
        )
    caches: list[FeatureStore] = []
    plans: tuple[CachePlan, ...] = ()
    builders: list[HostBuilder] = []
    # Peer groups end with the opening; a renewed cache has detached its channels by then.
    with ExitStack() as connected:
        # The nearest first, since those behind it leave its rows out.
        for level, ours in zip(levels.values(), memberships, strict=True):
            peers = connected.enter_context(ours.connect()) if ours is not None and ours.count > 1 else None
            builders.append(HostBuilder(table, peers, sharer_of, allowance, plans))
            plans += (level.choose(builders[-1], workload, epoch=epoch, progress=progress),)
        try:
            # The farthest first, since each is opened in front of the next one.
            for (tier, level), builder, plan in reversed(list(zip(levels.items(), builders, plans, strict=True))):
                builder.store = caches[0] if caches else table
                rule = rule_of(level.policy)
                caches.insert(0, builder.open(plan, rule, workload, epoch=epoch, progress=progress, tier=tier))
        except BaseException:
            CacheLevels(table, caches).close()
            raise
    return caches


def cached_bytes(store: FeatureStore) -> FeatureStore:
    """Returns the store whose rows are cached: quantised codes instead of decoded rows, since several times as many
    fit."""
    return store.codes if isinstance(store, QuantizedFeatureStore) else store


def fitting(
    levels: Sequence[FeatureCache], data: GraphData, name: str, *, progress: bool = True
) -> tuple[FeatureCache, ...]:
    """Returns the same caches for the table ``name`` of :attr:`.GraphData.stores`: policies of node tables rank their
    nodes alone. Raises CacheConfigError where a policy that ranks all nodes cannot rank the rows of that table."""
    return tuple(_fitting(level, data, name, progress) for level in levels)


def _fitting(level: FeatureCache, data: GraphData, name: str, progress: bool) -> FeatureCache:
    table, rule = data.tables.get(name), rule_of(level.policy)
    is_subset = isinstance(table, NodeTable)
    if not (is_subset or name in data.edge_stores) or (rule is not None and not rule.judges_nodes):
        return level
    if not isinstance(table, NodeTable) or level.evicts:
        usable = ", ".join(repr(name) for name, row in RULES.items() if not row.judges_nodes)
        raise CacheConfigError(
            f"policy={level.policy!r} ranks the rows of all nodes, but table {name!r} has rows of "
            f"{'some nodes' if is_subset else 'edges'}. Give its cache a policy that ranks no nodes: {usable}."
        )
    policy = policy_named(level.policy, window=level.window, progress=progress)
    return replace(level, policy=SubsetPolicy(policy, table.nodes), window=1)  # the policy has its window itself


def _is_number(value: object) -> bool:
    # True is an int, but no share and no number of bytes.
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
