"""Layer-wise sampling over lists that lie with several ranks.

Where edges are drawn uniformly, their lists' lengths are enough to draw by: the owners are asked for these, and then
for the edges that were drawn. Where edges are drawn by weight, or nodes by their importance to a layer, all its lists
count, and are pulled. (Owners could send sums of importances instead. But nodes stand in line by where they first occur
in the lists, so each would send a node, its sum and its first place, in 16 bytes: more than the lists, of 4 bytes an
edge, unless a node is in four of a layer's lists. In power-law graphs it is in one to three.)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import DrawKey, SampleLayout
from lightning_gnnload.sample.base import Sampler, thread_workspace
from lightning_gnnload.sample.group.group import Holding, SamplingGroup
from lightning_gnnload.sample.group.messages import MOST, Message, narrow
from lightning_gnnload.sample.hops import HopEdges, draw_hop
from lightning_gnnload.sample.layerwise import LayerSampler
from lightning_gnnload.sample.nodewise import HopDrawer, Paradigm, pull_lists, weight_columns


def layer_wise(sampler: LayerSampler, group: SamplingGroup, paradigm: Paradigm) -> HopDrawer:
    """How a hop of LayerSampler is drawn.

    Raises:
        SamplerConfigError: ``method="fastgcn"``.

    Source: DSP (PPoPP'23), section 4.2.
    """
    if sampler.method == "fastgcn":
        raise SamplerConfigError(
            f"{sampler} draws by importance to the whole graph, which no rank holds. Give method='ladies' or 'dsp'; "
            "FastGCN's is for graphs that are small enough to be sampled whole."
        )
    columns = weight_columns(group, sampler.weighted)
    if sampler.method == "dsp" and paradigm == "push" and not columns:
        return _edge_drawer(sampler, group)
    columns += ["edge_starts"] if sampler.edge_ids else []

    def draw(hop: int, nodes: np.ndarray, first: int, key: DrawKey) -> HopEdges:
        graph, new_ids = pull_lists(group, nodes, columns, num_drawn=first)
        drawn = draw_hop(_OneLayer(sampler, hop, first), graph, np.arange(len(nodes)), key)
        return HopEdges(**{**drawn.arrays(), "counts": drawn.counts[first:], "neighbors": new_ids[drawn.neighbors]})

    return draw


def _edge_drawer(sampler: LayerSampler, group: SamplingGroup) -> HopDrawer:
    node_ids = np.asarray(group.partition.node_ids)
    limits = {"neighbors": len(node_ids), "edge_ids": MOST}

    def draw(hop: int, nodes: np.ndarray, first: int, key: DrawKey) -> HopEdges:
        frontier = nodes[first:]
        degrees = np.empty(len(frontier), np.int64)
        for answer in group.ask("degrees", frontier):
            degrees[answer.places] = answer.numbers("degrees", MOST, len(answer.places))
        counts, places, weights = ops.draw_layer(
            degrees,
            sampler.budgets[hop],
            key,
            int(node_ids[nodes[0]]) if len(nodes) else 0,
            replace=sampler.replace,
            normalize=sampler.normalize,
        )
        settings = {"edge_ids": sampler.edge_ids}
        found = {name: np.empty(len(places), np.int64) for name in ("neighbors", *["edge_ids"] * sampler.edge_ids)}
        for answer in group.ask("edges", np.repeat(frontier, counts), settings, {"places": narrow(places)}):
            for name, values in found.items():
                values[answer.places] = answer.numbers(name, limits[name], len(answer.places))
        return HopEdges(counts, found["neighbors"], found.get("edge_ids"), weights)

    return draw


class _OneLayer(Sampler):
    """One hop of a LayerSampler, whose seeds are all nodes known before it; the first ``num_drawn`` have drawn."""

    num_layers = 1

    def __init__(self, sampler: LayerSampler, hop: int, num_drawn: int) -> None:
        self._sampler, self._hop, self._num_drawn = sampler, hop, num_drawn

    def sample_into(self, graph: Graph, seeds: np.ndarray, key: DrawKey, arena: np.ndarray) -> SampleLayout:
        sampler = self._sampler
        return ops.sample_layers(
            thread_workspace(graph.num_nodes),
            graph.indptr,
            graph.indices,
            seeds,
            [sampler.budgets[self._hop]],
            sampler.method,
            key,
            arena,
            replace=sampler.replace,
            normalize=sampler.normalize,
            keep_known=sampler.keep_known,
            edge_ids=sampler.edge_ids,
            num_drawn=self._num_drawn,
            weights=graph.weight_drawn_by,
            names=None if graph.origin is None else graph.origin.node_ids,
        )


# What owners do.


def degrees(holding: Holding, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Operation ``"degrees"``: the lengths of lists."""
    indptr = holding.graph.indptr
    return {"degrees": narrow(indptr[rows + 1] - indptr[rows])}


def edges(holding: Holding, rows: np.ndarray, task: Message) -> Mapping[str, np.ndarray]:
    """Operation ``"edges"``: single edges, by their places in the lists.

    Raises:
        SamplerConfigError: a place beyond its list.
    """
    graph = holding.graph
    places = task.arrays["places"].astype(np.int64)
    begins = graph.indptr[rows]
    if len(bad := np.flatnonzero((places < 0) | (places >= graph.indptr[rows + 1] - begins))):
        raise SamplerConfigError(f"places[{bad[0]}] is {places[bad[0]]}, beyond the list of row {rows[bad[0]]}.")
    found = {"neighbors": narrow(holding.new_ids[graph.indices[begins + places]], holding.num_nodes)}
    if task.about["edge_ids"] and graph.origin is not None:
        found["edge_ids"] = narrow(graph.origin.edge_starts[rows] + places)
    return found


OPERATIONS = {"degrees": degrees, "edges": edges}
