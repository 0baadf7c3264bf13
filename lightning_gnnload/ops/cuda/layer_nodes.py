"""Nodes of a layer drawn by importance, as LADIES and FastGCN do; each edge gets the factor of its source.

Candidates are the nodes that may be taken. Their numbers stand in the batch's own table meanwhile: known nodes keep
their local ids, others follow in the order in which they occur.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .batch import THREADS, DeviceBatch
from .hop import HopInMaking
from .importance import DeviceTree, Drawn
from .layer import Layer, destinations_of

_APPEND_TILE = 4 * THREADS


def draw_from_layer(
    batch: DeviceBatch, hop: HopInMaking, layer: Layer, budget: int, replace: bool, keep_known: bool
) -> None:
    """Nodes among the layer's sources, by importance to its destinations.

    Source: LADIES (NeurIPS'19), algorithm 1.
    """
    device, error = batch.device, batch.state.error
    candidates = _Candidates(batch, hop, layer.most_items)
    sources = device.empty(layer.most_items, batch.topology.index_dtype)
    edges: dict[str, Any] = {"offsets": layer.offsets, "num_edges": layer.num_edges, "error": error}
    blocks = batch.blocks(layer.most_items)
    device.launch(
        "sample_layers",
        "list_sources",
        (batch.topology.index_type,),
        blocks=blocks,
        threads=THREADS,
        **edges,
        **batch.topology.lists,
        **destinations_of(batch, hop),
        **batch.workspace.arguments,
        sources=sources,
    )
    numbers = candidates.number(sources, layer.num_edges)
    tree = DeviceTree(device, candidates.most)
    device.launch(
        "sample_layers",
        "add_importances",
        blocks=blocks,
        threads=THREADS,
        **edges,
        first=hop.first,
        num_dst=hop.num_dst,
        candidates=numbers,
        keep_known=int(keep_known),
        importances=tree.importances,
    )
    tree.sum_up()
    drawn = tree.draw(budget, replace, batch.key, hop.number, batch.nodes, batch.topology.names, error)
    factors = candidates.weigh(drawn, None, tree, budget, replace, keep_known)
    candidates.weigh_edges(layer, numbers, factors)


def draw_from_graph(
    batch: DeviceBatch,
    hop: HopInMaking,
    layer: Layer,
    budget: int,
    replace: bool,
    keep_known: bool,
    tree: DeviceTree,
) -> None:
    """Nodes of the whole graph, by importance to all of it.

    Source: FastGCN (ICLR'18), section 3.
    """
    device, error = batch.device, batch.state.error
    candidates = _Candidates(batch, hop, budget)
    drawn = tree.draw(budget, replace, batch.key, hop.number, batch.nodes, batch.topology.names, error)
    if not replace:
        tree.put_back(drawn, error)
    device.launch(
        "sample_layers",
        "note_drawn",
        blocks=batch.blocks(budget),
        threads=THREADS,
        items=drawn.items,
        num_drawn=budget,
        num_dst=hop.num_dst,
        **batch.workspace.arguments,
        error=error,
    )
    numbers = candidates.number(drawn.items, device.put(np.array([budget])))
    factors = candidates.weigh(drawn, numbers, tree, budget, replace, keep_known)
    candidates.weigh_edges(layer, None, factors)


class _Candidates:
    """Numbers for the nodes that a layer may take, until :meth:`weigh_edges` is done.

    Args:
        most_new: that are not known before, at most.

    Attributes:
        most: candidates, at most.
    """

    def __init__(self, batch: DeviceBatch, hop: HopInMaking, most_new: int) -> None:
        self._batch, self._hop, self._most_new = batch, hop, most_new
        self.most = min(batch.most_nodes + most_new, batch.topology.num_nodes)
        self._count = batch.device.empty(1, torch.int64)
        self._restart()

    def number(self, picked: torch.Tensor, num_picked: torch.Tensor) -> torch.Tensor:
        """The candidate of each node that has occurred, int32."""
        batch, num_all = self._batch, len(picked)
        types = ("int32_t" if picked.dtype == torch.int32 else "int64_t",)
        edges: dict[str, Any] = {"picked": picked, "first_edge": batch.state.zero, "last_edge": num_picked}
        batch.device.launch(
            "number_nodes",
            "append_nodes",
            types,
            blocks=batch.blocks(num_all, _APPEND_TILE),
            threads=THREADS,
            **edges,
            num_known=self._hop.num_dst,
            **batch.workspace.arguments,
            nodes=batch.device.empty(self.most, torch.int64),
            num_nodes=self._count,
            words=batch.state.scan_words(num_all // _APPEND_TILE + 1),
            error=batch.state.error,
        )
        numbers = batch.device.empty(num_all, torch.int32)
        batch.device.launch(
            "number_nodes",
            "relabel",
            types,
            blocks=batch.blocks(num_all),
            threads=THREADS,
            **edges,
            **batch.workspace.arguments,
            indices=numbers,
            error=batch.state.error,
        )
        return numbers

    def weigh(
        self,
        drawn: Drawn,
        numbers: torch.Tensor | None,
        tree: DeviceTree,
        budget: int,
        replace: bool,
        keep_known: bool,
    ) -> torch.Tensor:
        """The factor of each candidate, float64; ``numbers``: those of drawn items, None if they are candidates."""
        batch = self._batch
        num_times = batch.device.zeros(self.most, torch.int32)
        each_time, factors = (batch.device.empty(self.most, torch.float64) for _ in range(2))
        batch.device.launch(
            "sample_layers",
            "count_draws",
            blocks=batch.blocks(budget),
            threads=THREADS,
            items=drawn.items,
            candidates=numbers,
            factors=drawn.factors,
            num_drawn=budget,
            num_times=num_times,
            each_time=each_time,
            error=batch.state.error,
        )
        batch.device.launch(
            "sample_layers",
            "weigh_candidates",
            blocks=batch.blocks(self.most),
            threads=THREADS,
            num_candidates=self._count,
            num_dst=self._hop.num_dst,
            num_positive=tree.num_positive,
            budget=budget,
            replace=int(replace),
            keep_known=int(keep_known),
            num_times=num_times,
            each_time=each_time,
            factors=factors,
            error=batch.state.error,
        )
        return factors

    def weigh_edges(self, layer: Layer, numbers: torch.Tensor | None, factors: torch.Tensor) -> None:
        """The factor of each edge, and an end to the candidates; ``numbers``: of the edges' sources, if known."""
        batch = self._batch
        layer.factors = batch.device.empty(layer.most_items, torch.float64)
        batch.device.launch(
            "sample_layers",
            "weigh_edges",
            (batch.topology.index_type,),
            blocks=batch.blocks(layer.most_items),
            threads=THREADS,
            **batch.topology.lists,
            **destinations_of(batch, self._hop),
            offsets=layer.offsets,
            num_edges=layer.num_edges,
            candidates=numbers,
            **batch.workspace.arguments,
            factors=factors,
            edge_factors=layer.factors,
            error=batch.state.error,
        )
        self._restart()

    def _restart(self) -> None:
        """The table holds the known nodes alone."""
        self._batch.workspace.begin(self.most, self._batch.most_nodes + self._most_new)
        self._batch.note_known(self._hop)
