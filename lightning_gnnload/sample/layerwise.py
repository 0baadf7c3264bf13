"""LayerSampler: layer-wise sampling, a budget for each hop instead of a fanout for each node.

Over lists that lie with several ranks, edges are drawn without moving them (:mod:`.layer_apart`), and so are nodes by
their importance to the whole graph (:mod:`.layer_nodes`). Where nodes are drawn by their importance to a layer, all its
lists count, and are pulled. (Owners could send sums of importances
instead. But nodes stand in line by where they first occur in the lists, so each would send a node, its sum and its
first place, in 16 bytes: more than the lists, of 4 bytes an edge, unless a node is in four of a layer's lists. In
power-law graphs it is in one to three.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import CudaUnavailableError, SamplerConfigError
from lightning_gnnload.ops import Draw, DrawKey, SampleLayout
from lightning_gnnload.sample.base import LayBatch, Paradigm, Sampler, columns_that, sampler_input
from lightning_gnnload.sample.fanouts import check_expand
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.parts.hops import lay_hops, list_columns, pull_lists
from lightning_gnnload.sample.parts.layer_apart import LayerApart
from lightning_gnnload.sample.parts.layer_nodes import LayerNodes
from lightning_gnnload.sample.parts.lists import HopEdges, draw_hop

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.sampling.sample import DeviceSample
    from lightning_gnnload.ops.cuda.sampling.topology import Topology
    from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace

_BY_WEIGHT = (
    "layers by edge weight need the sums of all weights of a layer, and devices hold no weights but alias tables, from "
    "which these cannot be read"
)


class LayerSampler(Sampler):
    """Draws for all destinations of a hop together, so that a mini-batch grows by a budget a hop, not by a factor.

    Blocks carry ``edge_weight``, with which a weighted sum stands for the mean over all in-neighbours: a layer
    computes ``sum(edge_weight[e] * h[source of e])`` over a destination's edges ``e``. Its expectation over the draws
    is exactly ``mean(h[u])`` over all in-neighbours ``u`` in the graph, for each layer given its input, with
    replacement and without; normalised weights give that up for a smaller variance. In a graph with
    ``Graph.edge_weight`` the mean is the weighted one, ``sum(w[u] * h[u]) / sum(w[u])``, draws are by weight, and an
    edge of weight zero is as good as none. A destination none of whose in-neighbours is drawn gets 0, and relies on
    what a layer takes of the destination itself. Repeated edges count by themselves. The papers' ``A + I`` is a graph
    with self-loops. DGL's ``GraphConv(norm="none")`` and PyG's ``GCNConv(normalize=False, add_self_loops=False)`` sum
    by these weights.

    Draws belong to a layer, not to its nodes, and are named by the first seed. So what a node is given depends on
    its company in the batch, unlike with :class:`NeighborSampler`, and the trainers of a step draw independently.

    Args:
        budgets: what is drawn at each hop, nearest first; -1 takes all. Nodes drawn may be in the batch already.
        method: what is drawn, and how likely.

            - ``"ladies"``: nodes among the destinations' in-neighbours, by importance to the destinations: the squared
              norm of a node's column in their row-normalised adjacency, where each edge into a node of in-degree ``d``
              adds ``1 / d**2``, by weight ``(w / W)**2``, ``W`` being what the node's edges weigh together. All edges
              from drawn nodes to destinations are kept. Reads all adjacency lists of a layer.
            - ``"fastgcn"``: likewise, but nodes of the whole graph by importance to the whole graph, which is
              computed once. A drawn node without an edge to a destination is dropped, so layers may well be thin:
              this is for small graphs and large budgets.
            - ``"dsp"``: edges into the destinations, by weight or else uniformly; these alone are kept. A hub takes
              its share of the budget. Reads no more than it draws, so it costs little; by weight, all weights of a
              layer. With ``edge_weight = w[indices]``, a node ``u`` is drawn by its own weight ``w[u]``.
        replace: draw with replacement; what is drawn repeatedly is there once, and weighs more.
        normalize: scale each destination's weights to add up to 1, as LADIES does. None: with ``"ladies"`` only.
        keep_known: also keep all edges from nodes that are in the batch anyway, at their exact weight, and draw for
            the others: more edges and less variance for the same features. Not with ``"dsp"``.
        expand: ``"all"``: every node seen so far is a destination again in the next hop (DGL); ``"new"``: only the
            nodes that the last hop found (PyG). None: ``"new"`` where a GraphDataModule's ``batch_format`` needs it,
            else ``"all"``.
        edge_ids: blocks carry ``edge_ids``, positions in ``Graph.indices``.
        weighted: draw by ``Graph.edge_weight`` where the graph has it, the default, since who gives weights means
            them; False: as if it had none.

    Raises:
        SamplerConfigError: a budget that is neither positive nor -1, an unknown ``method`` or ``expand``, or settings
            that exclude each other; on sampling, a layer of more than 2**31 edges.

    Source: LADIES (NeurIPS'19), algorithm 1; FastGCN (ICLR'18), section 3, as in PaGraph (TPDS'21), section 5.8; DSP
        (PPoPP'23), section 4.2, whose two-stage draw is the same in law, biased and not. Without replacement the
        weights are Raj's (JASA 51, 1956), where the papers keep those of draws with replacement, which are then biased.

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 3, 2, 3], dst=[0, 0, 0, 1, 1])
        >>> batch = LayerSampler([2]).sample(graph, [0, 1])  # two of the nodes 1, 2 and 3
        >>> batch.nodes.tolist(), batch.blocks[0].in_degrees.tolist()
        ([0, 1, 2], [2, 1])
        >>> [round(weight, 2) for weight in batch.blocks[0].edge_weight.tolist()]
        [0.56, 0.44, 1.0]
    """

    _num_drawn = 0  # of the first nodes, which have drawn before

    def __init__(
        self,
        budgets: Sequence[int],
        method: Literal["ladies", "fastgcn", "dsp"] = "ladies",
        replace: bool = False,
        normalize: bool | None = None,
        keep_known: bool = False,
        expand: Literal["all", "new"] | None = None,
        edge_ids: bool = False,
        weighted: bool = True,
    ) -> None:
        self.budgets = _as_budgets(budgets)
        if method not in ops.LAYER_METHODS:
            raise SamplerConfigError(f"method={method!r} is not known; give one of {ops.LAYER_METHODS}.")
        if keep_known and method == "dsp":
            raise SamplerConfigError(
                "keep_known=True keeps the edges of known nodes and draws others, but method='dsp' draws edges. "
                "Give keep_known=False, or method='ladies'."
            )
        self.method = method
        self.replace = replace
        self.normalize = method == "ladies" if normalize is None else normalize
        self.keep_known = keep_known
        self.expand, self.is_expand_open = check_expand(expand), expand is None
        self.edge_ids = edge_ids
        self.weighted = weighted

    @property
    def num_layers(self) -> int:
        return len(self.budgets)

    @property
    def reach(self) -> int | None:
        return None if self.method == "fastgcn" else len(self.budgets)

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_that(edge_ids=self.edge_ids, edge_weight=True)

    @property
    def weighting(self) -> Literal["never", "optional"]:
        return "optional" if self.weighted else "never"

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        return ops.sample_layers(
            sampler_input(graph, draw, memory),
            self.budgets,
            self.method,
            importance_tree=graph.importance_tree(self.weighted) if self.method == "fastgcn" else None,
            replace=self.replace,
            normalize=self.normalize,
            keep_known=self.keep_known,
            expand=self.expand,
            edge_ids=self.edge_ids,
            num_drawn=self._num_drawn,
            weights=graph.weight_drawn_by if self.weighted else None,
        )

    def needs_host(self, graph: Graph) -> str | None:
        return _BY_WEIGHT if self.weighted and graph.has("edge_weight") else None

    def draw_on(self, workspace: DeviceWorkspace, topology: Topology, draw: Draw) -> DeviceSample:
        from lightning_gnnload.ops.cuda.sampling.layers import sample_layers

        if self.weighted and topology.has_weights:
            raise CudaUnavailableError(
                f"{_BY_WEIGHT}. Give sampling_device='cpu', or weighted=False to ignore the weights."
            )
        names = ("replace", "normalize", "keep_known", "expand", "edge_ids")
        options = {name: getattr(self, name) for name in names}
        return sample_layers(workspace, topology, draw.seeds, self.budgets, self.method, draw.key, **options)

    def collective(self, group: SamplingGroup, paradigm: Paradigm) -> LayBatch:
        """Does what :meth:`.Sampler.collective` does.

        Source: DSP (PPoPP'23), section 4.2.
        """
        columns = list_columns(self, group)
        names = np.asarray(group.partition.node_ids)
        settings = {name: getattr(self, name) for name in ("replace", "normalize", "edge_ids")}
        settings["weighted"] = "edge_weight" in columns
        layer_nodes = LayerNodes(group, keep_known=self.keep_known, **settings)

        def draw_apart(nodes: np.ndarray, first: int, budget: int, key: DrawKey) -> HopEdges | None:
            """Draws a layer of which not all is taken, without moving its lists; None where these are to be pulled."""
            if self.method == "fastgcn":
                return layer_nodes.draw(nodes, first, budget, key, paradigm)
            if self.method == "ladies" or paradigm == "pull":
                return None
            # Draws are named by the first seed's id in the whole graph, as they are without parts.
            return LayerApart(group, nodes[first:], budget, key, int(names[nodes[0]]), **settings).draw()

        def draw(hop: int, nodes: np.ndarray, first: int, key: DrawKey) -> HopEdges:
            budget = self.budgets[hop]
            if budget > 0 and len(nodes) > first and (layer_edges := draw_apart(nodes, first, budget, key)) is not None:
                return layer_edges
            graph, new_ids = pull_lists(group, nodes, columns, num_drawn=first)
            # A copy, as several threads may lay batches by this sampler at once.
            one = copy(self)
            one.budgets, one.expand, one._num_drawn = [budget], "all", first
            if self.method == "fastgcn":  # of which all is taken, as LADIES does
                one.budgets, one.method = [ops.WHOLE_LAYER], "ladies"
            edges = draw_hop(one, graph, np.arange(len(nodes)), key)
            return HopEdges(**{**edges.arrays(), "counts": edges.counts[first:], "neighbors": new_ids[edges.neighbors]})

        return lay_hops(self, group, draw)

    def __repr__(self) -> str:
        settings = "".join(
            f", {name}=True" for name in ("replace", "normalize", "keep_known", "edge_ids") if getattr(self, name)
        )
        settings += "" if self.weighted else ", weighted=False"
        return f"LayerSampler({self.budgets}, method={self.method!r}, expand={self.expand!r}{settings})"


def _as_budgets(budgets: Any) -> list[int]:
    budgets = list(budgets) if isinstance(budgets, Iterable) and not isinstance(budgets, str) else budgets
    if not isinstance(budgets, list) or not all(
        isinstance(budget, int | np.integer) and not isinstance(budget, bool) for budget in budgets
    ):
        raise SamplerConfigError(
            f"budgets={budgets!r}: a list of whole numbers is needed, one a hop, for example [512, 512]."
        )
    if any(budget == 0 or budget < -1 for budget in budgets):
        raise SamplerConfigError(f"budgets={budgets}: each must be positive, or -1 to take all.")
    return [int(budget) for budget in budgets]
