"""Layer-wise sampling on a device.

Shapes: S seeds, L hops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from ....errors import SamplerConfigError
from ...checks import as_flag, check_choice
from ...dispatch import DrawKey
from ...layers import LAYER_METHODS, WHOLE_LAYER, LayerMethod, check_budgets
from ..launch.state import TOO_MANY_EDGES
from .batch import MAX_LOCAL, DeviceBatch
from .importance import DeviceTree
from .layer import Layer, draw_edges
from .layer_nodes import draw_from_graph, draw_from_layer
from .sample import DeviceSample, HopBuilder
from .topology import Topology
from .workspace import DeviceWorkspace

_MAX_BOUND_DRAWS = 1 << 20  # beyond, the host waits for the number of edges, which may be smaller


def sample_layers(
    workspace: DeviceWorkspace,
    topology: Topology,
    seeds: np.ndarray | torch.Tensor,
    budgets: Sequence[int],
    method: LayerMethod,
    key: DrawKey,
    *,
    replace: bool = False,
    normalize: bool = False,
    keep_known: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
) -> DeviceSample:
    """Samples a budget of nodes or edges at each hop, as :func:`lightning_gnnload.ops.sample_layers` does on the CPU,
    where every argument is explained; ``seeds`` are int64 ``[S]`` on the host or on the device.

    The host waits once, at the end, and once more for each hop: for the number of edges into its destinations, except
    with ``"dsp"`` and a budget. Nodes without replacement are drawn by one warp, one after the other. For ``"fastgcn"``
    the workspace keeps a tree of the graph's nodes, 8.3 bytes a node, which the first batch makes.

    Raises SeedError for a seed out of range or repeated; SamplerConfigError for settings that do not work, or more than
    2**31 - 1 edges; DeviceMemoryError where the device has no room.

    Source: ``kernels/sample_layers/sample_layers.h``.
    """
    budgets = check_budgets(budgets)
    check_choice("method", method, LAYER_METHODS)
    keep_known = as_flag("keep_known", keep_known)
    if keep_known and method == "dsp":
        raise SamplerConfigError('keep_known does not go with method="dsp", which draws edges and not nodes.')
    replace, normalize, edge_ids = (
        as_flag(name, flag) for name, flag in (("replace", replace), ("normalize", normalize), ("edge_ids", edge_ids))
    )
    tree = _tree_of(workspace, topology) if method == "fastgcn" else None
    picker = _LayerPicker(budgets, method, tree, replace, normalize, keep_known, edge_ids)
    return DeviceBatch(workspace, topology, seeds, key, len(budgets)).run(picker, expand)


def _tree_of(workspace: DeviceWorkspace, topology: Topology) -> DeviceTree:
    tree_topology, tree = workspace.cached.get("importance", (None, None))
    # By identity: comparing contents would read the graph.
    if tree_topology is not topology:
        tree = DeviceTree.of(workspace.device, topology)
        workspace.cached["importance"] = (topology, tree)
    return tree


@dataclass
class _LayerPicker:
    budgets: list[int]
    method: LayerMethod
    tree: DeviceTree | None
    replace: bool
    normalize: bool
    keep_known: bool
    edge_ids: bool
    edge_weights: bool = True
    edge_types: bool = False
    replaces_neighbors: bool = False  # a node's neighbours are no more than it has
    layer: Layer | None = None

    def most_edges(self, hop: HopBuilder) -> int | None:
        return self._layer.most_items

    def count(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        self.layer = None  # frees the last hop's memory before this one takes its own
        budget = self.budgets[hop.index]
        layer = self.layer = Layer.measure(batch, hop)
        if self.method == "dsp" and budget != WHOLE_LAYER and budget <= _MAX_BOUND_DRAWS:
            draw_edges(batch, hop, layer, budget, self.replace)
        else:
            self._wait(batch, hop, layer)
            if not self._takes_all(batch, layer, budget):
                self._draw(batch, hop, layer, budget)
            elif layer.most_items > MAX_LOCAL:
                batch.fail(TOO_MANY_EDGES)
        layer.place(batch, hop, self.normalize)

    def _wait(self, batch: DeviceBatch, hop: HopBuilder, layer: Layer) -> None:
        """Waits for the number of the layer's edges."""
        nodes, edges = batch.read()
        batch.most_nodes = nodes[hop.index]
        shares = hop.first_edge is not batch.state.zero
        num_edges = edges[hop.index] - (edges[hop.index - 1] if shares else 0)
        # While they are candidates, known nodes and sources are numbered together, in int32.
        bound = MAX_LOCAL - batch.most_nodes
        if self.method != "dsp" and num_edges > bound:
            num_dst = batch.most_nodes - (nodes[hop.index - 1] if shares else 0)
            raise SamplerConfigError(
                f"budgets[{hop.index}]: the hop's {num_dst} destinations have {num_edges} edges, but at most {bound} "
                f"can be weighed at once. Use a smaller batch, smaller budgets at the hops before, or "
                f'method="dsp", which does not read all of them.'
            )
        layer.most_items = num_edges

    def _takes_all(self, batch: DeviceBatch, layer: Layer, budget: int) -> bool:
        """Tells whether nothing is drawn, as far as the host can tell."""
        if budget == WHOLE_LAYER or layer.most_items == 0:
            return True
        most = layer.most_items
        if self.method == "ladies":
            most = min(most, batch.topology.num_nodes)
        elif self.tree is not None:
            most = self.tree.most_positive
        # Only a bound: the device alone knows how many candidates there are, and its kernels decide again.
        return not self.replace and budget >= most

    def _draw(self, batch: DeviceBatch, hop: HopBuilder, layer: Layer, budget: int) -> None:
        if self.method == "ladies":
            draw_from_layer(batch, hop, layer, budget, self.replace, self.keep_known)
        elif self.tree is not None:
            draw_from_graph(batch, hop, layer, budget, self.replace, self.keep_known, self.tree)
        else:
            draw_edges(batch, hop, layer, budget, self.replace)

    def pick(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        batch.launch(
            "sample_layers",
            "keep_edges",
            (batch.topology.index_type,),
            blocks=batch.blocks(self._layer.most_items),
            graph=batch.topology,
            hop=hop,
            edges=hop,
            layer=self._layer,
        )

    @property
    def _layer(self) -> Layer:
        assert self.layer is not None
        return self.layer
