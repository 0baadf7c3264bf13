"""What PyG's loaders and ours are told to do: one user's code, of which only the import changes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from typing import Any

import torch
from torch_geometric.data import HeteroData

from tests.benchmarks.memory import MIB, held_bytes
from tests.benchmarks.pyg_data import PlainData, TypedData
from tests.benchmarks.seeds import BATCH_SIZE, NUM_LINKS
from tests.benchmarks.timing import WARM_UP_BATCHES, steady_ms

warnings.filterwarnings("ignore")


class PyGLoaders:
    """Loaders of one library over one graph. They live from turn to turn, as in a user's training run.

    Args:
        of_nodes: the class ``NeighborLoader``.
        of_links: the class ``LinkNeighborLoader``.
        sampler: the class of the sampler that both take.
        typed: whether the graph has types.
        graph: arguments of :class:`.PlainData` or :class:`.TypedData`.
    """

    def __init__(self, of_nodes: Any, of_links: Any, sampler: Any, *, typed: bool, **graph: Any) -> None:
        self._of_nodes, self._of_links, self._sampler = of_nodes, of_links, sampler
        self.graph: Any = TypedData(**graph) if typed else PlainData(**graph)
        self._held: dict[str, Any] = {}

    def load(
        self,
        turn: int,
        num_batches: int,
        fanouts: list[int],
        num_workers: int,
        pick: str | None = None,
        num_negatives: int = 0,
    ) -> dict[str, Any]:
        """The begin of an epoch, features and edge ids included.

        Args:
            turn: which.
            num_batches: of the turn.
            fanouts: nearest hop first.
            num_workers: as the loader has it.
            pick: by time, ``"uniform"`` or ``"last"``; None without times.
            num_negatives: of each link; 0 begins at nodes.
        """
        kind = repr((fanouts, num_workers, pick, num_negatives))
        loader = self._once(kind, lambda: self._loader(fanouts, num_workers, pick, num_negatives))
        torch.manual_seed(turn)
        sizes, memory = _Sizes(), list[float]()
        reply = steady_ms(
            map(sizes.see, loader), num_batches, lambda: memory.append(held_bytes() / MIB), num_workers=num_workers
        )
        return reply | sizes.report() | {"MiB": max(memory)}

    def _loader(self, fanouts: list[int], num_workers: int, pick: str | None, num_negatives: int) -> Any:
        is_timed = pick is not None
        data = self._once(f"data {is_timed}", lambda: self.graph.data(is_timed))
        of_all = self._once(
            f"sampler {is_timed}", lambda: self._sampler(data, [1], time_attr="time" if is_timed else None)
        )
        sampler = copy(of_all)
        sampler.num_neighbors = fanouts
        asked: dict[str, Any] = {
            "neighbor_sampler": sampler,
            "batch_size": BATCH_SIZE,
            "shuffle": True,
            "drop_last": True,
            "num_workers": num_workers,
        }
        if num_negatives:
            links = self.graph.links(NUM_LINKS)
            negatives = {"mode": "triplet", "amount": num_negatives}
            return self._of_links(data, fanouts, edge_label_index=links, neg_sampling=negatives, **asked)
        if is_timed:
            sampler.temporal_strategy = pick
            asked |= {"time_attr": "time", "input_time": self.graph.seed_times}
        return self._of_nodes(data, fanouts, input_nodes=self.graph.seeds, **asked)

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._held:
            self._held[name] = make()
        return self._held[name]


class _Sizes:
    """The sizes of the batches that are not timed."""

    def __init__(self) -> None:
        self._num_seen = self._num_nodes = self._num_edges = 0

    def see(self, batch: Any) -> Any:
        if self._num_seen < WARM_UP_BATCHES:
            self._num_seen += 1
            kinds = batch.edge_types if isinstance(batch, HeteroData) else [None]
            stores = [batch[kind] for kind in kinds] if isinstance(batch, HeteroData) else [batch]
            assert all(store.e_id.numel() == store.edge_index.shape[1] for store in stores)
            self._num_edges += sum(store.edge_index.shape[1] for store in stores)
            self._num_nodes += batch.num_nodes
        return batch

    def report(self) -> dict[str, float]:
        return {"nodes": self._num_nodes / self._num_seen, "edges": self._num_edges / self._num_seen}
