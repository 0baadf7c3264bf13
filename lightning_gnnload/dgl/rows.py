"""The rows of a DGL loader, nodes or edges, as kinds of seed of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dgl
import numpy as np
import torch

from lightning_gnnload.data.checksums import checksum_of
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.data.visibility import VisibleEdges
from lightning_gnnload.dgl.blocks import blocks_of, fetch_columns, pair_graph_of, subgraph_of
from lightning_gnnload.dgl.edges import EdgePredictionSampler
from lightning_gnnload.dgl.graphs import canonical_type, checked_ids
from lightning_gnnload.dgl.samplers import as_excluded, first_node
from lightning_gnnload.errors import SeedError
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.sample.seeds.links import distinct_ends
from lightning_gnnload.sample.seeds.rows import SeedBatch, SeedKind, Sharing


class NodeSeedRows(SeedKind):
    """Rows of a loader that are nodes: what they ask for, and what a mini-batch of them becomes.

    Shapes: R rows of a mini-batch, S seeds.
    """

    sharing: Sharing = "plain"
    is_timed = False

    def __init__(self, g: Any, indices: Any, sampler: Any) -> None:
        self.g, self.indices, self.sampler = g, indices, sampler
        self.graph = self.drawing.graph_of(g)
        self.is_by_type = isinstance(indices, Mapping)
        if not self.is_by_type and len(self._types) > 1:
            raise SeedError(
                f"indices must name types, {{type: ids}}, as the graph has several: {', '.join(map(str, self._types))}."
            )
        if self.is_by_type and not indices:
            raise SeedError(f"indices name no type. Give {{type: ids}}, of {', '.join(map(str, self._types))}.")
        by_type = indices if self.is_by_type else {self._types[0]: indices}
        self.by_type = {self._type_of(name): self._checked(name, ids) for name, ids in by_type.items()}
        self._ids = torch.cat(list(self.by_type.values()) or [torch.empty(0, dtype=torch.int64)]).numpy()
        counts = [len(ids) for ids in self.by_type.values()]
        # The user's names, in the user's order; each row has the number of its own.
        self._names = list(self.by_type)
        self._type = np.repeat(np.arange(len(counts)), counts)
        self.rows = np.arange(len(self._ids))

    @property
    def drawing(self) -> Any:
        """The sampler of nodes."""
        return self.sampler

    @property
    def _types(self) -> list[Any]:
        return self.g.ntypes

    def _type_of(self, name: Any) -> Any:
        first_node(self.g, name)
        return name

    def _checked(self, name: Any, ids: Any) -> torch.Tensor:
        return checked_ids(ids, self.g.num_nodes(name), f"indices of nodes of type {name!r}")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    @property
    def settings_by_name(self) -> dict[str, Any]:
        return {"subgraph": not self.drawing.yields_blocks}

    @property
    def checksum(self) -> str:
        """Of the rows, with their types."""
        return f"{checksum_of([self._ids, self._type]):08x} {' '.join(map(str, self._names))}"

    def nodes_of(self, rows: np.ndarray) -> np.ndarray:
        first = np.array([first_node(self.g, name) for name in self._names] or [0])
        return (self._ids[rows] + first[self._type[rows]])[:, None]

    def ask(self, rows: np.ndarray, key: DrawKey) -> SeedBatch:
        return SeedBatch(Draw(self.nodes_of(rows)[:, 0], key), None, {"rows": torch.from_numpy(rows)})

    def seen(self, rows: np.ndarray) -> VisibleEdges | None:
        return None

    def bound(self, order: SeedOrder, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        return order

    def by_name(self, rows: np.ndarray) -> dict[Any, np.ndarray]:
        """Returns which of these rows are of each type that they have, by an index of ``rows``."""
        numbers = self._type[rows]
        return {self._names[number]: np.flatnonzero(numbers == number) for number in np.unique(numbers).tolist()}

    def users(self, rows: np.ndarray) -> Any:
        """Returns the ids of these rows as the user's indices have them: a tensor, or by type."""
        parts = {
            name: torch.from_numpy(self._ids[rows[at]]).to(self.g.idtype) for name, at in self.by_name(rows).items()
        }
        return parts if self.is_by_type else parts.get(self._types[0], torch.empty(0, dtype=self.g.idtype))

    def convert(self, batch: Any) -> tuple[Any, ...]:
        """Makes of a mini-batch what DGL's loader yields, with the columns that are to be gathered ahead."""
        rows = batch.seed_columns.pop("rows").numpy()
        return self._drawn(batch, {}, self.users(rows))

    def _drawn(self, batch: Any, excluded: dict[Any, torch.Tensor], *output: Any) -> tuple[Any, ...]:
        g, sampler = self.g, self.drawing
        if not sampler.yields_blocks:
            input_nodes, part = subgraph_of(batch, g, self.graph, excluded)
            fetch_columns(sampler.prefetch_node_feats, part.nodes.__getitem__, g.nodes.__getitem__, g.ntypes, dgl.NID)
            _fetch_edges(sampler.prefetch_edge_feats, part, g)
            return input_nodes, *output, part
        input_nodes, blocks = blocks_of(batch, g, self.graph, excluded)
        source, target = blocks[0].srcnodes.__getitem__, blocks[-1].dstnodes.__getitem__
        fetch_columns(sampler.prefetch_node_feats, source, g.nodes.__getitem__, g.ntypes, dgl.NID)
        fetch_columns(sampler.prefetch_labels, target, g.nodes.__getitem__, g.ntypes, dgl.NID)
        for block in blocks:
            _fetch_edges(sampler.prefetch_edge_feats, block, g)
        return input_nodes, *output, blocks


class EdgeSeedRows(NodeSeedRows):
    """Rows that are edges, by an :class:`.EdgePredictionSampler`: the seeds are the ends of these and of negatives."""

    sampler: EdgePredictionSampler

    def __init__(self, g: Any, indices: Any, sampler: EdgePredictionSampler) -> None:
        super().__init__(g, indices, sampler)
        self._ends = {name: tuple(map(_long, g.edges(etype=name, order="eid"))) for name in self._names}
        # What DGL makes of a graph when it is first edge_ids is made here, by one thread.
        for name in self._names if sampler.negative_sampler is not None else ():
            none = torch.empty(0, dtype=g.idtype)
            g.has_edges_between(none, none, etype=name)

    @property
    def drawing(self) -> Any:
        return self.sampler.sampler

    @property
    def _types(self) -> list[Any]:
        return self.g.canonical_etypes

    def _type_of(self, name: Any) -> Any:
        return canonical_type(self.g, name)

    def _checked(self, name: Any, ids: Any) -> torch.Tensor:
        return checked_ids(ids, self.g.num_edges(self._type_of(name)), f"indices of edges of type {name!r}")

    @property
    def settings_by_name(self) -> dict[str, Any]:
        sampler, negatives = self.sampler, self.sampler.negative_sampler
        negative_settings = (
            None if negatives is None else [type(negatives).__name__, *map(repr, vars(negatives).values())]
        )
        reverse = {"reverse_id": sampler.reverse_eids, "reverse_types": sampler.reverse_etypes}
        exclude = sampler.exclude if isinstance(sampler.exclude, str) else None
        return {
            **super().settings_by_name,
            "exclude": exclude,
            "excluded": _described(sampler.exclude if exclude is None else reverse.get(exclude)),
            "negatives": negative_settings,
        }

    def nodes_of(self, rows: np.ndarray) -> np.ndarray:
        nodes = np.empty((len(rows), 2), np.int64)
        for name, at in self.by_name(rows).items():
            for end, (ids, node_type) in enumerate(zip(self._ends[name], name[::2], strict=True)):
                nodes[at, end] = ids[self._ids[rows[at]]] + first_node(self.g, node_type)
        return nodes

    def ask(self, rows: np.ndarray, key: DrawKey) -> SeedBatch:
        parts, endpoints = [], []
        for name, at in self.by_name(rows).items():
            src, dst = (ids[self._ids[rows[at]]] for ids in self._ends[name])
            pairs = [(name, "pairs", src, dst)]
            if (negatives := self.sampler.negative_sampler) is not None:
                pairs.append((name, "negatives", *negatives.pairs(self.g, src, rows[at], name, key)))
            for name, purpose, heads, tails in pairs:
                parts.append((name, purpose, len(heads)))
                first = [first_node(self.g, node_type) for node_type in name[::2]]
                endpoints.append(np.stack([heads + first[0], tails + first[1]], axis=1))
        nodes = np.concatenate([np.empty((0, 2), np.int64), *endpoints])
        seeds, _, positions = distinct_ends(nodes, np.zeros(len(nodes), np.int64), max(self.graph.num_nodes, 1))
        columns, begin, within = {"rows": torch.from_numpy(rows)}, 0, self._within_type(seeds)
        for name, purpose, count in parts:
            columns[f"{purpose}.{self._names.index(name)}"] = torch.from_numpy(within[positions[begin : begin + count]])
            begin += count
        return SeedBatch(Draw(seeds, key), None, columns)

    def _within_type(self, seeds: np.ndarray) -> np.ndarray:
        """Returns where each seed stands among those of its node type, int64 ``[S]``."""
        starts = [first_node(self.g, name) for name in self.g.ntypes]
        number, within = np.searchsorted(starts, seeds, side="right") - 1, np.empty(len(seeds), np.int64)
        for node_type in range(len(starts)):
            at = number == node_type
            within[at] = np.arange(int(at.sum()))
        return within

    def convert(self, batch: Any) -> tuple[Any, ...]:
        columns, g, sampler = dict(batch.seed_columns), self.g, self.sampler
        batch.seed_columns = {}
        rows = columns.pop("rows").numpy()
        edges = {name: torch.from_numpy(self._ids[rows[at]]) for name, at in self.by_name(rows).items()}
        seeds = self._seeds_by_type(batch.seeds.numpy())
        pairs, negatives = (
            {
                self._names[int(name.split(".")[1])]: tuple(rows.T)
                for name, rows in columns.items()
                if name[:4] == purpose
            }
            for purpose in ("pair", "nega")
        )
        graphs = [pair_graph_of(g, pairs, seeds, edges)]
        _fetch_edges(sampler.prefetch_labels, graphs[0], g)
        if sampler.negative_sampler is not None:
            graphs.append(pair_graph_of(g, negatives, seeds, None))
        return self._drawn(batch, self._excluded(edges), *graphs)

    def _excluded(self, edges: dict[Any, torch.Tensor]) -> dict[Any, torch.Tensor]:
        """Returns the edges that a mini-batch of these leaves out, by DGL's own rules."""
        sampler, g = self.sampler, self.g
        edge_ids: Any = {name: ids.to(g.idtype) for name, ids in edges.items()}
        if not self.is_by_type:
            edge_ids = edge_ids.get(self._types[0], torch.empty(0, dtype=g.idtype))
        excluded = dgl.dataloading.find_exclude_eids(
            g, edge_ids, sampler.exclude, sampler.reverse_eids, sampler.reverse_etypes
        )
        return as_excluded(g, excluded)

    def _seeds_by_type(self, seeds: np.ndarray) -> dict[str, torch.Tensor]:
        starts = [first_node(self.g, name) for name in self.g.ntypes]
        number = np.searchsorted(starts, seeds, side="right") - 1
        return {name: torch.from_numpy(seeds[number == at] - starts[at]) for at, name in enumerate(self.g.ntypes)}


def _fetch_edges(names: Any, part: Any, g: Any) -> None:
    fetch_columns(names, part.edges.__getitem__, g.edges.__getitem__, g.canonical_etypes, dgl.EID)


def _described(setting: Any) -> Any:
    """Returns what checkpoints compare of edges that are left out: checksums of ids, and names of types and
    functions."""
    if isinstance(setting, Mapping):
        return sorted([str(name), _described(value)] for name, value in setting.items())
    if isinstance(setting, torch.Tensor):
        return f"{checksum_of([setting.cpu().long()]):08x}"
    return getattr(setting, "__qualname__", None) if callable(setting) else setting and str(setting)


def _long(ids: torch.Tensor) -> np.ndarray:
    return ids.long().numpy()
