"""Edges of a layer drawn uniformly, as DSP does; no list is read as a whole."""

from __future__ import annotations

from typing import Any

import torch

from .batch import THREADS, DeviceBatch
from .hop import HopInMaking
from .layer import Layer


def draw_edges(batch: DeviceBatch, hop: HopInMaking, layer: Layer, budget: int, replace: bool) -> None:
    """Makes ``budget`` edges the layer's items, or all of them where that is enough.

    Source: ``kernels/draw_layer/draw_layer_cuda.cu``.
    """
    device, error, blocks = batch.device, batch.state.error, batch.blocks(budget)
    num_drawn = device.empty(1, torch.int64)
    numbers = device.empty(budget, torch.int64)
    device.launch(
        "draw_layer",
        "draw_numbers",
        blocks=blocks,
        threads=THREADS,
        num_edges=layer.num_edges,
        budget=budget,
        replace=int(replace),
        nodes=batch.nodes,
        names=batch.topology.names,
        seed=batch.key.seed,
        epoch=batch.key.epoch,
        step=batch.key.step,
        hop=hop.number,
        numbers=numbers,
        num_drawn=num_drawn,
        error=error,
    )
    ordered = torch.sort(numbers, stable=True)
    if not replace:
        numbers = _settled(batch, layer, numbers, ordered, num_drawn)
        ordered = torch.sort(numbers)
    layer.numbers, layer.num_items, layer.most_items = ordered.values, num_drawn, budget
    layer.factors = device.empty(budget, torch.float64)
    device.launch(
        "draw_layer",
        "weigh_numbers",
        blocks=blocks,
        threads=THREADS,
        numbers=layer.numbers,
        num_edges=layer.num_edges,
        num_drawn=num_drawn,
        budget=budget,
        replace=int(replace),
        factors=layer.factors,
        error=error,
    )


def _settled(
    batch: DeviceBatch, layer: Layer, numbers: torch.Tensor, ordered: Any, num_drawn: torch.Tensor
) -> torch.Tensor:
    """Draws that drew what is taken, replaced."""
    budget = len(numbers)
    repeats = batch.device.empty(budget, torch.int32)
    batch.device.launch(
        "draw_layer",
        "mark_repeats",
        blocks=batch.blocks(budget),
        threads=THREADS,
        sorted=ordered.values,
        draws=ordered.indices,
        num_drawn=num_drawn,
        repeats=repeats,
        error=batch.state.error,
    )
    settled = batch.device.empty(budget, torch.int64)
    batch.device.launch(
        "draw_layer",
        "settle_numbers",
        blocks=batch.blocks(budget),
        threads=THREADS,
        numbers=numbers,
        repeats=repeats,
        num_edges=layer.num_edges,
        num_drawn=num_drawn,
        budget=budget,
        settled=settled,
        error=batch.state.error,
    )
    return settled
