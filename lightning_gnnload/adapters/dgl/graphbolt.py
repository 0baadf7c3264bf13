"""GraphBolt: mini-batches with the fields of its MiniBatch, made without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch

from lightning_gnnload.adapters.base import cut_by_type
from lightning_gnnload.adapters.columns import foreign_names, original_edge_ids
from lightning_gnnload.adapters.dgl.relations import EDGE_FEATURE_NAME, FEATURE_NAME, LABEL_NAME, block_of, import_dgl
from lightning_gnnload.adapters.dgl.write import BLOCK_NAMES, ROW_NAMES, DGLFormat, link_pairs
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.typed_parts import ColumnOf, columns_of
from lightning_gnnload.data.types import EdgeType

_NODE, _EDGE = "_N", ("_N", "_E", "_N")
EDGE_WEIGHT_NAME = "edge_weight"


class SampledCSC(NamedTuple):
    """The edges of a hop: destination ``d`` receives from ``indices[indptr[d]:indptr[d + 1]]``."""

    indptr: Any
    indices: Any


@dataclass(eq=False)
class SampledSubgraph:
    """A hop of a mini-batch, with the fields of GraphBolt's ``SampledSubgraph``; of a graph with types, dicts by type.

    Attributes:
        sampled_csc: a :class:`SampledCSC`, int64, of positions in the two lists of nodes; by ``"src:relation:dst"``.
        original_column_node_ids: ids of the destinations, int64; a prefix of the sources.
        original_row_node_ids: ids of the sources.
        original_edge_ids: ids of the edges, where the sampler gives them; None otherwise.
    """

    sampled_csc: Any
    original_column_node_ids: Any
    original_row_node_ids: Any
    original_edge_ids: Any = None


@dataclass(eq=False)
class GraphBoltMiniBatch:
    """A mini-batch with the fields of GraphBolt's ``MiniBatch``; of a graph with types, dicts by type.

    Types of edges are named ``"src:relation:dst"``. Columns of hops come outermost hop first.

    Attributes:
        labels: of the seeds, ``[S]`` or ``[S, C]``; of links with negatives 1 and 0, float32 ``[P]``, or those of the
            user's for links without; None where there are none.
        seeds: int64 ``[S]``, node ids; of links ``[P, 2]``, negatives after the positive ones.
        indexes: of links with negatives the row of each, int64 ``[P]``.
        sampled_subgraphs: a :class:`SampledSubgraph` a hop.
        input_nodes: int64 ``[V]``, of which ``node_features`` has rows.
        node_features: by name, or of a graph with types by ``(type, name)``, ``[V, ...]``.
        edge_features: likewise for each hop, ``[E, ...]``; ``"edge_weight"`` where the sampler says what edges count.
        compacted_seeds: of links their ends as positions among the seeds' nodes, int64 ``[P, 2]``.
        seed_columns: further columns of the seeds, ``"input_id"`` and ``"seed_time"`` among them, by name and type.
    """

    labels: Any = None
    seeds: Any = None
    indexes: Any = None
    sampled_subgraphs: list[SampledSubgraph] = field(default_factory=list)
    input_nodes: Any = None
    node_features: dict[Any, torch.Tensor] = field(default_factory=dict)
    edge_features: list[dict[Any, torch.Tensor]] = field(default_factory=list)
    compacted_seeds: Any = None
    seed_columns: dict[Any, torch.Tensor] = field(default_factory=dict)

    def num_layers(self) -> int:
        """Returns the number of hops."""
        return len(self.sampled_subgraphs)

    def node_ids(self) -> Any:
        """Returns :attr:`input_nodes`."""
        return self.input_nodes

    def edge_ids(self, layer_id: int) -> Any:
        """Returns the edge ids of a hop."""
        return self.sampled_subgraphs[layer_id].original_edge_ids

    @property
    def positive_node_pairs(self) -> Any:
        """The links with label 1, as positions, ``[R, 2]``."""
        return self._pairs(True)

    @property
    def negative_node_pairs(self) -> Any:
        """The links with label 0, likewise."""
        return self._pairs(False)

    @property
    def node_pairs_with_labels(self) -> Any:
        """The pair of :attr:`compacted_seeds` and :attr:`labels`; by type where there are types."""
        pairs, labels = self.compacted_seeds, self.labels
        return {name: (pairs[name], labels[name]) for name in pairs} if isinstance(pairs, dict) else (pairs, labels)

    def _pairs(self, is_true: bool) -> Any:
        def of(pairs: torch.Tensor, labels: Any) -> torch.Tensor:
            if self.indexes is None:
                return pairs if is_true else pairs[:0]
            return pairs[labels == float(is_true)]

        if isinstance(self.compacted_seeds, dict):
            return {name: of(pairs, self.labels and self.labels[name]) for name, pairs in self.compacted_seeds.items()}
        return of(self.compacted_seeds, self.labels)

    @property
    def blocks(self) -> list[Any]:
        """DGL's blocks, outermost hop first, with ids as ``dgl.NID`` and ``dgl.EID``. They are made when they are asked
        for. Raises MissingExtraError without DGL."""
        dgl, blocks = import_dgl("batch.blocks"), []
        for part in self.sampled_subgraphs:
            csc, ids = part.sampled_csc, part.original_edge_ids
            src, dst = part.original_row_node_ids, part.original_column_node_ids
            if isinstance(csc, SampledCSC):
                csc, ids, src, dst = {":".join(_EDGE): csc}, {":".join(_EDGE): ids}, {_NODE: src}, {_NODE: dst}
            edges: dict[EdgeType, Block] = {}
            num_src, num_dst = ({name: len(rows) for name, rows in nodes.items()} for nodes in (src, dst))
            for name, (indptr, indices) in csc.items():
                edge_type: Any = tuple(name.split(":"))
                edges[edge_type] = Block(indptr, indices, num_dst[edge_type[2]], num_src[edge_type[0]])
            block = block_of(edges, num_src, num_dst)
            for name in src:
                block.srcnodes[name].data[dgl.NID], block.dstnodes[name].data[dgl.NID] = src[name], dst[name]
            for edge_type in edges:
                if ids and ids[":".join(edge_type)] is not None:
                    block.edges[edge_type].data[dgl.EID] = ids[":".join(edge_type)]
            blocks.append(block)
        return blocks

    def to(self, device: Any, non_blocking: bool = False) -> GraphBoltMiniBatch:
        """Returns the mini-batch with its tensors on a device."""
        return mapped(self, lambda rows: rows.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> GraphBoltMiniBatch:
        """Returns the mini-batch with its tensors in page-locked memory."""
        return mapped(self, torch.Tensor.pin_memory)


def mapped(part: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
    """Returns a mini-batch, or a part of one, with its tensors converted."""
    if isinstance(part, torch.Tensor):
        return convert(part)
    if isinstance(part, SampledSubgraph | GraphBoltMiniBatch):
        return type(part)(**{name: mapped(value, convert) for name, value in vars(part).items()})
    if isinstance(part, SampledCSC):
        return SampledCSC(*(mapped(value, convert) for value in part))
    if isinstance(part, Mapping):
        return {name: mapped(value, convert) for name, value in part.items()}
    return [mapped(value, convert) for value in part] if isinstance(part, list) else part


def to_graphbolt(
    batch: MiniBatch,
    graph: Graph | None = None,
    columns: ColumnOf | None = None,
    feature_name: str = FEATURE_NAME,
    label_name: str = LABEL_NAME,
    edge_feature_name: str = EDGE_FEATURE_NAME,
) -> GraphBoltMiniBatch:
    """Converts a mini-batch to one with the fields of GraphBolt's.

    Args:
        batch: of ``graph``.
        graph: says which types there are, and the order of the user's edges.
        columns: which tables have rows of one type.
        feature_name: features among ``node_features``.
        label_name: nothing: labels are ``labels``.
        edge_feature_name: features of edges among ``edge_features``.

    Example:
        >>> from lightning_gnnload import NeighborSampler
        >>> graph = Graph.from_coo(src=[1, 2, 3], dst=[0, 0, 1])
        >>> batch = to_graphbolt(NeighborSampler([-1, -1]).sample(graph, [0]))
        >>> batch.input_nodes.tolist(), batch.sampled_subgraphs[1].sampled_csc.indices.tolist()
        ([0, 1, 2, 3], [1, 2])
    """
    typed = cut_by_type(batch, graph, columns, _NODE, _EDGE)
    is_typed = graph is not None and graph.types is not None

    def users(by_type: Mapping[Any, Any]) -> Any:
        named = {name if isinstance(name, str) else ":".join(name): value for name, value in by_type.items()}
        return named if is_typed else next(iter(named.values()), None)

    def name_of(type_name: Any, name: str) -> Any:
        return (type_name if isinstance(type_name, str) else ":".join(type_name), name) if is_typed else name

    result = GraphBoltMiniBatch(input_nodes=users(typed.nodes))
    for node_type in typed.nodes:
        rows = dict(typed.tables.get(node_type, {}))
        if node_type in typed.x:
            rows[feature_name] = typed.x[node_type]
        if node_type in typed.rows:
            rows["row"] = typed.rows[node_type].long()
        result.node_features |= {name_of(node_type, name): values for name, values in rows.items()}
    for blocks, num_src, num_dst in zip(typed.blocks, typed.num_src, typed.num_dst, strict=True):
        ids = {
            name: None if block.edge_ids is None else original_edge_ids(block.edge_ids, graph)
            for name, block in blocks.items()
        }
        has_ids = any(rows is not None for rows in ids.values())
        result.sampled_subgraphs.append(
            SampledSubgraph(
                users({name: SampledCSC(block.indptr.long(), block.indices.long()) for name, block in blocks.items()}),
                users({name: rows[: num_dst[name]] for name, rows in typed.nodes.items()}),
                users({name: rows[: num_src[name]] for name, rows in typed.nodes.items()}),
                users(ids) if has_ids else None,
            )
        )
        result.edge_features.append(
            {
                name_of(edge_type, name): rows
                for edge_type, block in blocks.items()
                for name, rows in _edge_columns(block, edge_feature_name).items()
            }
        )
    if batch.seed_form.name == "links":
        _write_links(result, batch, typed, users, name_of)
        return result
    result.seeds, result.labels = users(typed.seeds), users(typed.y) if typed.y else None
    result.seed_columns = foreign_names(batch.seed_columns)
    return result


def _edge_columns(block: Block, feature_name: str) -> dict[str, torch.Tensor]:
    columns = dict(block.tables)
    if block.edge_weight is not None:
        columns[EDGE_WEIGHT_NAME] = block.edge_weight
    if block.x is not None:
        columns[feature_name] = block.x
    return columns


def _write_links(result: GraphBoltMiniBatch, batch: MiniBatch, typed: Any, users: Any, name_of: Any) -> None:
    """Writes links of all types: positive ones first, then negatives, row by row."""
    seeds, pairs, labels, indexes = {}, {}, {}, {}
    for link, columns in batch.seed_form.by_type(typed.seed_columns):
        edge_type = link.edge_type or _EDGE
        (src, dst, carried), false = link_pairs(columns, link, LABEL_NAME)
        number, user_labels = torch.arange(len(src), device=src.device), carried.get(LABEL_NAME)
        if false is not None:
            row = columns["negative_mask"].nonzero()[:, 0] if "negatives" in columns else columns["row"][len(src) :]
            src, dst = torch.cat([src, false[0]]), torch.cat([dst, false[1]])
            indexes[edge_type] = torch.cat([number, row])
            labels[edge_type] = (torch.arange(len(src), device=src.device) < len(number)).float()
        elif user_labels is not None:
            labels[edge_type] = user_labels
        pairs[edge_type] = torch.stack([src, dst], dim=1)
        link_nodes = typed.nodes[edge_type[0]], typed.nodes[edge_type[2]]
        seeds[edge_type] = torch.stack([link_nodes[0][src], link_nodes[1][dst]], dim=1)
        result.seed_columns |= {
            name_of(edge_type, name): rows
            for name, rows in carried.items()
            if name != LABEL_NAME or false is not None  # labels of links that have negatives are those of the pairs
        }
    result.seeds, result.compacted_seeds = users(seeds), users(pairs)
    result.labels = users(labels) if labels else None
    result.indexes = users(indexes) if indexes else None


class GraphBoltFormat(DGLFormat):
    """Implements ``batch_format="graphbolt"``: see :func:`to_graphbolt`."""

    words = frozenset(("node_features", "edge_features", "sampled_subgraphs", "compacted_seeds"))

    def check_device(self, device: torch.device) -> None:
        """Any will do: blocks are made when they are asked for."""

    def adapter(self, data: GraphData, template: Any = None, **names: Any) -> Any:
        return partial(to_graphbolt, graph=data.graph, columns=columns_of(data), **names)

    def is_one_graph(self, arguments: Any) -> bool:
        return False

    def argument(self, batch: Any, name: str, feature_name: str) -> Any:
        if name in BLOCK_NAMES:
            return batch.blocks
        rows = batch.node_features
        return rows.get(feature_name if name in ROW_NAMES and name not in rows else name, getattr(batch, name, None))

    def converted(self, batch: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
        return mapped(batch, convert)
