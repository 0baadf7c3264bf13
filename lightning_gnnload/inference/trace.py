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
from lightning_gnnload.inference.calls import Call, Rows, edges_in, find_convolutions, in_place_of, rows_of
from lightning_gnnload.inference.neighborhoods import Batches, InLists
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
    """Runs a model once, and says of which stages a forward pass is made.

    Args:
        model: in evaluation mode.
        run: a forward pass.
        batches: makes its mini-batches, of any number of layers.
        lists: of few neighbours.
        layers: names of the convolutions; None to find them.
        num_layers: how many hops a mini-batch has; None to try.

    Raises:
        InferenceError: there are no convolutions, or none of such a name, or what they return are not rows.
    """
    seeds = _some_seeds(lists)
    if num_layers is not None:
        return _traced(model, run, replace(batches, num_layers=num_layers), lists, seeds, layers)
    best: Stages | None = None
    failure: Exception | None = None
    for count in range(1, _MOST_LAYERS + 1):
        try:
            found = _traced(model, run, replace(batches, num_layers=count), lists, seeds, layers)
        except InferenceError:
            raise
        except Exception as error:  # whatever a model raises where it wants another number of blocks
            failure = failure if best is not None else error
            continue
        if best is not None and len(found.calls) <= len(best.calls):
            return best
        best = found
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
    if not modules:
        raise InferenceError(
            f"{type(model).__name__} has no module that is given edges (edge_index, a block or a graph), where a layer "
            "could begin. Give its convolutions' names: layers=[...]; or write a method layer(i, block, h) and "
            "num_layers, by which forward goes; or predict batch by batch: gnnload predict."
        )
    calls, degrees_of = list[Call](), dict[int, int]()

    def record(number: int, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = called[-1]
        module, given = modules[name], real(*args, **kwargs)
        edges = [*edges_in([*args, *kwargs.values()])]
        node_type = "" if lists.data.graph.types is None else _type_of(edges, batch, lists.data.graph.types)
        rows = {kind: Rows(tuple(each.shape[1:]), each.dtype) for kind, each in rows_of(given, name, node_type).items()}
        source = convolution.edge_source((args, kwargs))
        calls.append(Call(number, name, module, rows, isinstance(given, dict), _layer_of(edges, batch, number), source))
        if lists.data.graph.types is None and convolution.normalizes(module):
            alike = [each.number for each in calls if each.edges == source and each.number in degrees_of]
            degrees_of[number] = degrees_of[alike[0]] if alike else number
        return given

    with torch.no_grad(), in_place_of(modules, record) as called:
        run(batch)
    if batches.nested:  # a model that trims its rows to those of inner hops is to trim none
        batches = replace(batches, num_layers=max(batches.num_layers, len(calls)))
    return Stages(run, modules, calls, batches, lists.data.graph.types, degrees_of)


def _named(model: nn.Module, layers: Sequence[str]) -> list[str]:
    known = {name for name, _ in model.named_modules() if name}
    if missing := [name for name in layers if name not in known]:
        raise InferenceError(
            f"{type(model).__name__} has no module {missing[0]!r} for layers=; it has {', '.join(sorted(known)[:20])}."
        )
    return list(layers)


def _some_seeds(lists: InLists) -> np.ndarray:
    """Returns few nodes of each type, those with edges first."""
    graph, found = lists.data.graph, []
    ranges = [range(graph.num_nodes)] if graph.types is None else map(graph.types.range_of, graph.types.node_types)
    for nodes in ranges:
        sampled = np.unique(np.linspace(nodes.start, max(nodes.stop - 1, nodes.start), 1000).astype(np.int64))[
            : len(nodes)
        ]
        degrees = graph.indptr[sampled + 1] - graph.indptr[sampled] if len(sampled) else sampled
        found.append(sampled[np.argsort(degrees == 0, kind="stable")][:_SEEDS_OF_TYPE])
    return np.concatenate(found)


def _blocks_of(batch: Any) -> list[Any]:
    blocks = batch[-1] if isinstance(batch, tuple) else getattr(batch, "blocks", [])
    return list(blocks) if isinstance(blocks, list | tuple) else []


def _layer_of(edges: list[Any], batch: Any, number: int) -> int:
    """Returns whose block a convolution was given; where there is none, that of its number."""
    for layer, block in enumerate(_blocks_of(batch)):
        parts = list(block.values()) if isinstance(block, dict) else [block]
        if any(part is each for part in parts for each in edges):
            return layer
    return number


def _type_of(edges: list[Any], batch: Any, types: GraphTypes) -> str:
    """Returns the type of the nodes that a convolution of one edge type gives rows for."""
    found = {
        kind[2]
        for kind in types.edge_types
        for each in edges
        if isinstance(each, torch.Tensor) and hasattr(batch, "edge_index_dict")
        if each.data_ptr() == batch.edge_index_dict[kind].data_ptr() and each.numel()
    }
    return found.pop() if len(found) == 1 else ""
