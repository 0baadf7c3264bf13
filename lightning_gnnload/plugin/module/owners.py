"""A data module's owners: who draws its mini-batches, and whom its rows come from, where these lie elsewhere."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Literal, get_args

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.orders.proximity import ProximityOrder
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.data.parted import PartedTable
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.owners.batches import OwnedBatches, OwnedSampler
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.rows import RemoteFeatureStore
from lightning_gnnload.owners.wire import Wire
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.sample.workload import Workload
from lightning_gnnload.settings import check_one_of
from lightning_gnnload.storage.graphs import stores_by_array
from lightning_gnnload.storage.partitions import StoredPartition, load_partition

REMOTE = "remote"
VARIABLE = "GNNLOAD_OWNERS"
"""The environment variable that lists owners' addresses, where the strategy knows none."""
MadeBy = Literal["owners", "ranks"] | None
Addresses = str | Sequence[str] | None
"""``"remote"``: owners of the job; one address, or a list of them; None: what is asked for lies here."""


class ModuleOwners:
    """The owners of a data module's graph and features, each connected when a rank first draws or gathers. Thread-safe.

    Args:
        graph: whose lists mini-batches are drawn from.
        features: whose rows they are filled with.
        partition: whose parts they own, or its folder; None where both lie here.
        made_by: who makes mini-batches: ``"owners"``, ``"ranks"``, or None, that ask them hop by hop.
        cached: names of the tables that have a cache here, whose rows therefore are asked for one by one; None: all.
        wire: how rows of real numbers come from owners, as :class:`.Owners` has it.
    """

    def __init__(
        self,
        graph: Addresses,
        features: Addresses,
        partition: Partition | Path | str | None,
        made_by: MadeBy = None,
        cached: Collection[str] | None = (),
        wire: Wire = "exact",
    ) -> None:
        self.features, self.graph = _checked("features", features), _checked("graph", graph)
        self.setting, self.made_by, self.cached, self.wire = partition, made_by, cached, wire
        check_one_of("wire", wire, get_args(Wire), LoaderConfigError)
        if wire != "exact" and not self.features:
            raise LoaderConfigError(
                f"wire={wire!r} is about rows that come from owners. Give features='remote', or addresses; or leave "
                "wire out."
            )
        if made_by is not None:
            check_one_of("made_by", made_by, ("owners", "ranks"), LoaderConfigError)
        if made_by is not None and not self.graph:
            raise LoaderConfigError(
                f"made_by={made_by!r} is about mini-batches whose lists lie with owners. Give graph='remote', or "
                "addresses; or leave made_by out."
            )
        self._batches = OwnedBatches(self._client_of(self.graph), self._addresses_of(self.graph))
        self._trainer: pl.Trainer | None = None
        self._partition: StoredPartition | None = None
        self._clients: dict[tuple[str, ...], Owners] = {}
        self._connecting = threading.RLock()
        if self.is_asked and partition is None:
            raise LoaderConfigError(
                "graph= or features= names owners, but not whose parts they own. Give the partition as the data, "
                "GraphDataModule(load_partition(folder), ...), or beside the graph's, partition=folder."
            )

    @property
    def is_asked(self) -> bool:
        """Whether anything lies elsewhere."""
        return bool(self.graph or self.features)

    def follow(self, trainer: pl.Trainer | None) -> None:
        """Notes whose strategy knows owners by ``owner_addresses``: a sequence, or a function that returns one; and,
        where it made one, the secret that it shares with them by ``owner_secret``."""
        self._trainer = trainer

    def carried(self, data: GraphData) -> GraphData:
        """Returns data whose rows of features come from owners, if they are to: of nodes all that the parts have, of
        edges those of a graph whose lists are not here. Raises PartitionMismatchError: parts of another graph."""
        if not self.is_asked:
            return data
        partition = self.open_partition()
        partition.check(data.graph)
        if not self.features:
            return data
        owned = partition.graph_data
        data = copy(data)
        data.tables, data.aggregates = {**data.tables, **owned.tables}, dict(data.aggregates)
        data.edge_tables = dict(data.edge_tables)
        for name, (array, store) in zip(owned.stores, stores_by_array(owned).items(), strict=True):
            if name in owned.edge_stores and data.graph.has_lists:
                continue
            rows = self._store(name, array, partition.parted[array])
            data.put(name, store.over(rows) if isinstance(store, QuantizedFeatureStore) else rows)
        return data

    def workload(self, whole: Workload) -> Workload:
        """Returns the same mini-batches, drawn by the owners of the lists, if they are to be; it notes the rounding.

        Raises:
            SamplerConfigError: a sampler that owners cannot draw for.
            OwnerLostError: no owner answers.
        """
        if not self.graph and self.wire == "exact":
            return whole
        sampler = self._sampler(whole.sampler) if self.graph else whole.sampler
        return Workload(**{**whole.settings(), "sampler": sampler, "rounding": self.wire})

    def _sampler(self, sampler: Sampler) -> Sampler:
        if self.made_by == "owners":
            return OwnedSampler(sampler, self._batches)
        return CollectiveSampler(sampler, self._client_of(self.graph)())

    def _store(self, name: str, array: str, table: PartedTable) -> RemoteFeatureStore:
        is_cached = self.cached is None or name in self.cached
        if self.made_by != "owners" or self.graph != self.features or is_cached:
            return RemoteFeatureStore(array, table, self._client_of(self.features))
        return self._batches.store(array, table)

    def close(self) -> None:
        """Leaves the owners. Who draws or gathers later connects anew. Safe to call twice."""
        with self._connecting:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def open_partition(self) -> StoredPartition:
        """Maps the partition whose parts they own, once. Raises LoaderConfigError: it was made in memory."""
        with self._connecting:
            if self._partition is None:
                setting = self.setting
                partition = setting if isinstance(setting, Partition) else load_partition(setting)  # type: ignore[arg-type]
                if not isinstance(partition, StoredPartition):
                    raise LoaderConfigError(
                        f"{partition!r} was made in memory, where owners have no folder of it. Give "
                        "load_partition(folder)."
                    )
                self._partition = partition
            return self._partition

    def _client_of(self, addresses: tuple[str, ...]) -> Callable[[], Owners]:
        """Returns what connects, once, to the owners of these addresses."""

        def connect() -> Owners:
            with self._connecting:
                if addresses not in self._clients:
                    is_jobs = addresses == (REMOTE,)
                    # A strategy may tell others later; those of the environment stay, so that who is refused by all
                    # of them is told at once.
                    is_told = getattr(self._strategy, "owner_addresses", None)
                    named = (self._of_job if is_told else self._of_job()) if is_jobs else addresses
                    secret = getattr(self._strategy, "owner_secret", None) if is_jobs else None
                    self._clients[addresses] = Owners.connect(
                        self.open_partition(), named, secret=secret, wire=self.wire
                    )
                return self._clients[addresses]

        return connect

    def _addresses_of(self, addresses: tuple[str, ...]) -> Callable[[], Sequence[str]]:
        return lambda: self._of_job() if addresses == (REMOTE,) else addresses

    @property
    def _strategy(self) -> Any:
        return getattr(self._trainer, "strategy", None)

    def _of_job(self) -> Sequence[str]:
        """Returns the addresses that the strategy or the environment tells, as of now."""
        addresses = getattr(self._strategy, "owner_addresses", None)
        if callable(addresses):
            addresses = addresses()
        if not addresses:
            addresses = [text.strip() for text in os.environ.get(VARIABLE, "").split(",") if text.strip()]
        if not addresses:
            raise LoaderConfigError(
                f"'remote' means the owners of this job, but its strategy names none, and {VARIABLE} is not set. Set "
                "it to the addresses that `gnnload own` prints, HOST:PORT,HOST:PORT, in all ranks; or give them, "
                "graph=[...], features=[...]."
            )
        return list(addresses)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves connections out, as another process makes its own."""
        return {name: getattr(self, name) for name in ("graph", "features", "setting", "made_by", "cached", "wire")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        graph, features, *settings = state.values()
        self.__init__(graph or None, features or None, *settings)  # type: ignore[misc]


def check_remote(owners: ModuleOwners, *, packing: Any, sampling_device: str, order: SeedOrder) -> None:
    """Raises LoaderConfigError: a setting needs here what lies with owners."""
    if not owners.is_asked:
        return
    if packing is not None:
        raise LoaderConfigError(
            "packing= reads tables on this machine in order, but graph= or features= names owners. Leave packing out: "
            "cache= keeps rows that were asked for."
        )
    if sampling_device == "cuda":
        raise LoaderConfigError(
            "sampling_device='cuda' needs lists and rows on this machine, but graph= or features= names owners. Give "
            "'auto' or 'cpu'."
        )
    if owners.graph and isinstance(order, ProximityOrder):
        raise LoaderConfigError(
            "order='proximity' reads the graph's lists, but graph= says that they lie with owners. Order the seeds "
            "beforehand, where the graph is (`gnnload order`), or give 'shuffle'."
        )


def _checked(name: str, addresses: Addresses) -> tuple[str, ...]:
    texts = () if addresses is None else (addresses,) if isinstance(addresses, str) else tuple(addresses)
    if addresses is not None and not (texts and all(isinstance(text, str) and text for text in texts)):
        raise LoaderConfigError(
            f"{name}={addresses!r}: give 'remote', for the owners of the job, or addresses, such as "
            "['10.0.0.2:7500', '10.0.0.3:7500']; or None where it lies here."
        )
    return texts
