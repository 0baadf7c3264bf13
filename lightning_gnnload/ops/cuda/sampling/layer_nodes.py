"""Draws nodes of a layer by importance, as LADIES and FastGCN do; each edge gets the factor of its source.

Candidates are the nodes that may be taken. Their numbers are in the batch's table meanwhile: known nodes keep their
local ids, others follow in order of first occurrence.
"""

from __future__ import annotations

from dataclasses import replace as replaced
from typing import Any

import numpy as np
import torch

from .batch import DeviceBatch
from .importance import DeviceTree, DrawnItems
from .layer import Layer
from .sample import HopBuilder


def draw_from_layer(
    batch: DeviceBatch, hop: HopBuilder, layer: Layer, budget: int, replace: bool, keep_known: bool
) -> None:
    """Draws nodes among the layer's sources, by importance to its destinations.

    Source: LADIES (NeurIPS'19), algorithm 1.
    """
    candidates = _Candidates(batch, hop, layer.most_items)
    sources = batch.device.empty(layer.most_items, batch.topology.index_dtype)
    blocks = batch.blocks(layer.most_items)
    batch.launch(
        "sample_layers",
        "list_sources",
        (batch.topology.index_type,),
        blocks=blocks,
        graph=batch.topology,
        hop=hop,
        layer=layer,
        sources=sources,
    )
    numbers = candidates.number(sources, layer.num_edges)
    tree = DeviceTree(batch.device, candidates.most)
    batch.launch(
        "sample_layers",
        "add_importances",
        blocks=blocks,
        hop=hop,
        layer=layer,
        candidates=numbers,
        keep_known=int(keep_known),
        importances=tree.importances,
    )
    tree.sum_up()
    items = tree.draw(batch, hop.key, budget, replace)
    factors = candidates.weigh(items, None, tree, replace, keep_known)
    candidates.weigh_edges(layer, numbers, factors)


def draw_from_graph(
    batch: DeviceBatch,
    hop: HopBuilder,
    layer: Layer,
    budget: int,
    replace: bool,
    keep_known: bool,
    tree: DeviceTree,
) -> None:
    """Draws nodes of the whole graph, by importance to all of it.

    Source: FastGCN (ICLR'18), section 3.
    """
    candidates = _Candidates(batch, hop, budget)
    items = tree.draw(batch, hop.key, budget, replace)
    # This tree is the workspace's and serves the next batch, unlike that of draw_from_layer().
    if not replace:
        tree.put_back(batch, items)
    batch.launch("sample_layers", "note_drawn", blocks=batch.blocks(budget), hop=hop, drawn=items)
    numbers = candidates.number(items.items, batch.device.put(np.array([budget])))
    factors = candidates.weigh(items, numbers, tree, replace, keep_known)
    candidates.weigh_edges(layer, None, factors)


class _Candidates:
    """Numbers for the nodes that a layer may take, until :meth:`weigh_edges` is done; at most ``most_new`` are not
    known before."""

    def __init__(self, batch: DeviceBatch, hop: HopBuilder, most_new: int) -> None:
        self._batch, self._hop, self._most_new = batch, hop, most_new
        self.most = min(batch.most_nodes + most_new, batch.topology.num_nodes)
        self._count = batch.device.empty(1, torch.int64)
        self._restart()

    def number(self, picked: torch.Tensor, num_picked: torch.Tensor) -> torch.Tensor:
        """Returns the candidate of each node that has occurred, int32."""
        batch = self._batch
        indices = batch.device.empty(len(picked), torch.int32)
        occurred = replaced(
            self._hop,
            first_edge=batch.state.zero,
            last_edge=num_picked,
            most_edges=len(picked),
            picked=picked,
            indices=indices,
        )
        batch.number_nodes(occurred, batch.device.empty(self.most, torch.int64), self._count)
        return indices

    def weigh(
        self, items: DrawnItems, numbers: torch.Tensor | None, tree: DeviceTree, replace: bool, keep_known: bool
    ) -> torch.Tensor:
        """Computes each candidate's factor, float64; ``numbers`` are those of the drawn items, None where items are
        candidates."""
        batch = self._batch
        num_times = batch.device.zeros(self.most, torch.int32)
        each_time, factors = (batch.device.empty(self.most, torch.float64) for _ in range(2))
        times: dict[str, Any] = {"num_times": num_times, "each_time": each_time}
        blocks = batch.blocks(items.budget)
        batch.launch("sample_layers", "count_draws", blocks=blocks, drawn=items, candidates=numbers, **times)
        batch.launch(
            "sample_layers",
            "weigh_candidates",
            blocks=batch.blocks(self.most),
            hop=self._hop,
            num_candidates=self._count,
            num_positive=tree.num_positive,
            budget=items.budget,
            replace=int(replace),
            keep_known=int(keep_known),
            **times,
            factors=factors,
        )
        return factors

    def weigh_edges(self, layer: Layer, numbers: torch.Tensor | None, factors: torch.Tensor) -> None:
        """Gives each edge the factor of its source, and drops the candidates; ``numbers`` are those of the sources, if
        known."""
        batch = self._batch
        layer.factors = batch.device.empty(layer.most_items, torch.float64)
        batch.launch(
            "sample_layers",
            "weigh_edges",
            (batch.topology.index_type,),
            blocks=batch.blocks(layer.most_items),
            graph=batch.topology,
            hop=self._hop,
            layer=layer,
            candidates=numbers,
            factors=factors,
        )
        self._restart()

    def _restart(self) -> None:
        """Clears the table down to the known nodes."""
        self._batch.known.begin(self.most, self._batch.most_nodes + self._most_new)
        self._batch.note_known(self._hop)
