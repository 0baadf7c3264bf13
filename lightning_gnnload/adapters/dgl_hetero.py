"""DGL's graphs with types: as GraphData, and mini-batches as its own DataLoader yields them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from lightning_gnnload.adapters.columns import (
    seed_fields,
)
from lightning_gnnload.adapters.dgl_frames import (
    EDGE_FEATURE_NAME,
    FEATURE_NAME,
    LABEL_NAME,
    add_columns,
    check_blocks,
    edge_frame,
    import_dgl,
    node_columns,
)
from lightning_gnnload.adapters.dgl_relations import block_of
from lightning_gnnload.adapters.links import ANY_LINKS, LinkForm, dgl_link_graphs
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.data.typed_parts import ColumnOf


class ToTypedDGL:
    """Converts a MiniBatch of a graph with types to the triple ``(input_nodes, output_nodes, blocks)`` of DGL's
    DataLoader: dicts of ids by node type, and DGLBlocks with all types of the graph, outermost hop first.

    Of each node type, ``srcnodes[type].data`` and ``dstnodes[type].data`` have what :class:`.ToDGL` gives, with ids
    within the type as ``dgl.NID``; labels and columns of rows are in ``blocks[-1].dstnodes[type].data``. Likewise
    ``edges[type].data``, with edge ids of the type's own list as ``dgl.EID``. As with DGL, ``input_nodes`` is a tensor
    where there is one node type.

    Args:
        graph: has types; its ``edge_order`` turns edge ids into those of the user's DGL graph.
        columns: of tables that have rows of one type, see :meth:`.TypedMiniBatch.of`.
        feature_name: the name of features of nodes.
        label_name: the name of labels.
        edge_feature_name: the name of features of edges.
        links: the form of seeds that are links.

    Raises:
        MissingExtraError: DGL cannot be imported.

    Example:
        >>> from lightning_gnnload import NeighborSampler
        >>> graph = Graph.from_hetero({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 1, 1], [2, 2, 0])})
        >>> import dgl
        >>> batch = NeighborSampler([-1], edge_ids=True).sample(graph, [4])
        >>> input_nodes, output_nodes, blocks = ToTypedDGL(graph)(batch)
        >>> input_nodes["user"].tolist(), output_nodes, blocks[0].num_edges("buys")
        ([0, 1], {'item': tensor([2])}, 2)
    """

    def __init__(
        self,
        graph: Graph,
        columns: ColumnOf | None = None,
        feature_name: str = FEATURE_NAME,
        label_name: str = LABEL_NAME,
        edge_feature_name: str = EDGE_FEATURE_NAME,
        links: LinkForm = ANY_LINKS,
    ) -> None:
        import_dgl("batch_format='dgl'")  # now, not in a sampling thread
        self.graph = graph
        self.columns = columns
        self.feature_name = feature_name
        self.label_name = label_name
        self.edge_feature_name = edge_feature_name
        self.links = links

    def __call__(self, batch: MiniBatch) -> tuple[Any, ...]:
        """Converts one mini-batch; of links, pair graphs come instead of ``output_nodes``, as with :class:`.ToDGL`.

        Raises:
            SamplerConfigError: the batch has features or labels, but no block to carry them.
            GraphDataError: two columns of one name.
        """
        check_blocks(batch)
        typed, dgl = TypedMiniBatch.of(batch, self.graph, self.columns), import_dgl("batch_format='dgl'")
        blocks = [self._block(dgl, typed, hop) for hop in range(len(typed.blocks))]
        if "src" in batch.seed_columns:
            return typed.nodes, *self._pairs(typed), blocks
        for kind, y in typed.y.items():
            add_columns(blocks[-1].dstnodes[kind].data, {self.label_name: y})
        of_seeds = seed_fields(batch, self.graph.types) if blocks else {}
        for kind, fields in of_seeds.items():
            add_columns(blocks[-1].dstnodes[kind].data, fields)
        if len(typed.nodes) == 1:
            return batch.nodes, batch.seeds, blocks
        return typed.nodes, typed.seeds, blocks

    def _pairs(self, typed: TypedMiniBatch) -> tuple[Any, ...]:
        seeds = {kind: nodes[: typed.num_seeds[kind]] for kind, nodes in typed.nodes.items()}
        kinds, columns = self.graph.types.edge_types, typed.seed_columns  # type: ignore[union-attr]
        return dgl_link_graphs(columns, columns.get("y"), seeds, self.label_name, self.links, kinds)

    def _block(self, dgl: ModuleType, typed: TypedMiniBatch, hop: int) -> Any:
        num_src, num_dst = typed.num_src[hop], typed.num_dst[hop]
        made = block_of(typed.blocks[hop], num_src, num_dst)
        for kind, nodes in typed.nodes.items():
            columns = node_columns(typed.tables[kind], self.feature_name, typed.x.get(kind), typed.rows.get(kind))
            columns |= {dgl.NID: nodes}
            made.srcnodes[kind].data.update({name: rows[: num_src[kind]] for name, rows in columns.items()})
            made.dstnodes[kind].data.update({name: rows[: num_dst[kind]] for name, rows in columns.items()})
        for triple, block in typed.blocks[hop].items():
            if frame := edge_frame(dgl, block, self.graph.edge_order, self.edge_feature_name):
                made.edges[triple].data.update(frame)
        return made
