"""Stages of a model, found in one forward pass over a small mini-batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import InferenceError
from lightning_gnnload.inference import convolution
from lightning_gnnload.inference.calls import Call, Rows, edges_in, find_convolutions, intercept, rows_by_type
from lightning_gnnload.inference.neighborhoods import Batches, InLists, spread_nodes
from lightning_gnnload.inference.stages import Stages

_MOST_LAYERS = 8
_SEEDS_OF_TYPE = 5


def trace(
    model: nn.Module,
    run: Callable[[Any], Any],
    batches: Batches,
    lists: InLists,
    *,
    layers: Sequence[str] | None,
    num_layers: int | None,
) -> Stages:
    """Runs a model once, ``run`` in evaluation mode, and returns of which stages a forward pass is made.

    ``lists`` have few neighbours; ``layers`` are names of the convolutions, None to find them; ``num_layers`` says how
    many hops a mini-batch has, None to try. A model without convolutions, or whose convolutions return no rows, raises
    InferenceError.
    """
    seeds = _some_seeds(lists)
    if num_layers is not None:
        return _traced(model, run, replace(batches, num_layers=num_layers), lists, seeds, layers)
    # With too few hops, a model that takes a block for each layer fails, or runs fewer layers: more hops are tried
    # until they bring no further call.
    best: Stages | None = None
    failure: Exception | None = None
    # A model without a graph fails on all, and is tried last: others would run on no edges, but as another model.
    for count in (*range(1, _MOST_LAYERS + 1), 0):
        if count == 0 and best is not None:
            break
        try:
            stages = _traced(model, run, replace(batches, num_layers=count), lists, seeds, layers)
        except InferenceError:
            raise
        except Exception as error:  # whatever a model raises where it wants another number of blocks
            failure = error if best is None and count else failure
            continue
        if best is not None and len(stages.calls) <= len(best.calls):
            return best
        best = stages
    if best is None:
        raise InferenceError(
            f"{type(model).__name__} fails on mini-batches of 1 to {_MOST_LAYERS} hops; on the last: "
            f"{type(failure).__name__}: {failure}. Is it trained on batches of another format? Give batch_format= and "
            "num_layers= of its training."
        ) from failure
    return best


def _traced(
    model: nn.Module,
    run: Callable[[Any], Any],
    batches: Batches,
    lists: InLists,
    seeds: np.ndarray,
    layers: Sequence[str] | None,
) -> Stages:
    hops = lists.hops(seeds, batches.num_layers)
    assert hops is not None
    batch = batches.whole(hops)
    with torch.no_grad():
        names = _named(model, layers) if layers else find_convolutions(model, lambda: run(batch))
    modules = {name: module for name, module in model.named_modules() if name in names}
    if not modules and batches.num_layers:
        raise InferenceError(
            f"{type(model).__name__} has no module that is given edges (edge_index, a block or a graph), where a layer "
            "could begin. Give its convolutions' names: layers=[...]; or write a method layer(i, block, h) and "
            "num_layers, by which forward goes; or predict batch by batch: gnnload predict."
        )
    calls, degrees_of = list[Call](), dict[int, int]()

    def record(number: int, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = called[-1]
        module, output, types = modules[name], real(*args, **kwargs), lists.data.graph.types
        edges = edges_in([*args, *kwargs.values()])
        node_type = "" if types is None else _type_of(edges, batch, types)
        by_type = rows_by_type(output, name, node_type)
        shapes = {key: Rows(tuple(rows.shape[1:]), rows.dtype) for key, rows in by_type.items()}
        source, layer = convolution.edge_source((args, kwargs)), _layer_of(edges, batch, number)
        calls.append(Call(number, name, module, shapes, isinstance(output, dict), layer, source))
        if types is None and convolution.normalizes(module):
            # Degrees of equal edges and weights are computed once.
            equal = [call.number for call in calls if call.edges == source and call.number in degrees_of]
            degrees_of[number] = degrees_of[equal[0]] if equal else number
        return output

    with torch.no_grad(), intercept(modules, record) as called:
        run(batch)
    if batches.nested:  # a model that trims its rows to those of inner hops is to trim none
        batches = replace(batches, num_layers=max(batches.num_layers, len(calls)))
    return Stages(run, modules, calls, batches, lists.data.graph.types, degrees_of)


def _named(model: nn.Module, layers: Sequence[str]) -> list[str]:
    names = {name for name, _ in model.named_modules() if name}
    if missing := [name for name in layers if name not in names]:
        raise InferenceError(
            f"{type(model).__name__} has no module {missing[0]!r} for layers=; it has {', '.join(sorted(names)[:20])}."
        )
    return list(layers)


def _some_seeds(lists: InLists) -> np.ndarray:
    """Returns few nodes of each type, those with edges first."""
    graph, seeds = lists.data.graph, []
    ranges = [range(graph.num_nodes)] if graph.types is None else map(graph.types.range_of, graph.types.node_types)
    for span in ranges:
        nodes, degrees = spread_nodes(graph, span)
        seeds.append(nodes[np.argsort(degrees == 0, kind="stable")][:_SEEDS_OF_TYPE])
    return np.concatenate(seeds)


def _blocks_of(batch: Any) -> list[Any]:
    blocks = batch[-1] if isinstance(batch, tuple) else getattr(batch, "blocks", [])
    return list(blocks) if isinstance(blocks, list | tuple) else []


def _layer_of(edges: list[Any], batch: Any, number: int) -> int:
    """Returns whose block a convolution has among its arguments; without a block, its number."""
    for layer, block in enumerate(_blocks_of(batch)):
        parts = list(block.values()) if isinstance(block, dict) else [block]
        if any(part is edge_argument for part in parts for edge_argument in edges):
            return layer
    return number


def _type_of(edges: list[Any], batch: Any, types: GraphTypes) -> str:
    """Returns the type of the nodes that a convolution of one edge type gives rows for."""
    node_types = {
        edge_type[2]
        for edge_type in types.edge_types
        for tensor in edges
        if isinstance(tensor, torch.Tensor) and hasattr(batch, "edge_index_dict")
        if tensor.data_ptr() == batch.edge_index_dict[edge_type].data_ptr() and tensor.numel()
    }
    return node_types.pop() if len(node_types) == 1 else ""
