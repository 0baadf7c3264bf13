"""Mini-batches as PyG's loaders yield them: every attribute of the data, under its name, in its place."""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from torch_geometric.sampler import HeteroSamplerOutput, NegativeSampling, SamplerOutput

from lightning_gnnload.pyg.attributes import Attributes
from lightning_gnnload.pyg.outputs import joined

_NONE = torch.empty(0, dtype=torch.long)
"""What a user's own output leaves out of a type."""


def as_data(
    output: SamplerOutput | HeteroSamplerOutput,
    rows: dict[str, torch.Tensor],
    attributes: Attributes,
    input_type: Any = None,
    neg_sampling: NegativeSampling | None = None,
) -> Any:
    """Returns the ``Data`` or ``HeteroData`` that PyG's NodeLoader or LinkLoader makes of a sampler's output.

    Args:
        output: who was sampled.
        rows: what kernels have gathered for it, by the tables' names.
        attributes: of the data.
        input_type: of the seeds, a node type or, of links, an edge type; None in a graph without types.
        neg_sampling: of links, how their negatives are made.
    """
    data = copy(attributes.data)
    is_hetero = isinstance(output, HeteroSamplerOutput)
    for kind, held in attributes.by_type.items():
        store = data[kind] if is_hetero else data._store
        has_nodes, has_edges = not isinstance(kind, tuple), not isinstance(kind, str)
        node = edge = None
        if has_nodes:
            node = output.node.get(kind, _NONE) if is_hetero else output.node
            if "num_nodes" in store:
                store.num_nodes = len(node)
        if has_edges:
            row, col, edge = (
                of.get(kind, _NONE) if is_hetero and of is not None else of
                for of in (output.row, output.col, output.edge)
            )
            if "edge_index" in store:
                store.edge_index = joined(row, col).to(store.edge_index.device)
        for attribute in held:
            parts = [rows[name] for name in attribute.tables]
            ids = edge if attribute.of_edges else node
            if ids is None:  # a user's own output
                store[attribute.name] = None
            else:
                store[attribute.name] = parts[0] if attribute.rebuild is None else attribute.rebuild(parts, ids)
        for name, value in (("n_id", node), ("e_id", edge)):
            if value is not None and name not in store:
                store[name] = value
        if has_edges and output.orig_row is not None:
            ends = output.orig_row, output.orig_col
            store._orig_edge_index = torch.stack([of[kind] for of in ends] if is_hetero else ends)
    of_output = {
        "batch": output.batch,
        "num_sampled_nodes": output.num_sampled_nodes,
        "num_sampled_edges": output.num_sampled_edges,
    }
    for name, value in of_output.items():
        if not is_hetero:
            setattr(data, name, value)
        else:
            data.set_value_dict(name, value)
    of_seeds = data[input_type] if is_hetero else data
    if isinstance(input_type, tuple) or len(output.metadata) > 2:
        _set_links(data, of_seeds, output.metadata, input_type, neg_sampling)
    else:
        of_seeds.input_id, of_seeds.seed_time = output.metadata
        of_seeds.batch_size = len(output.metadata[0])
    return data


def _set_links(
    data: Any, of_links: Any, metadata: tuple[Any, ...], input_type: Any, neg_sampling: NegativeSampling | None
) -> None:
    of_links.input_id = metadata[0]
    if neg_sampling is None or neg_sampling.is_binary():
        _, of_links.edge_label_index, of_links.edge_label, of_links.edge_label_time = metadata
        return
    src, dst = (data, data) if input_type is None else (data[input_type[0]], data[input_type[2]])
    _, src.src_index, dst.dst_pos_index, dst.dst_neg_index, src.seed_time = metadata
    dst.seed_time = src.seed_time if "seed_time" in src else None
    for name in ("edge_label_index", "edge_label_time"):  # those of the whole graph
        if name in of_links:
            del of_links[name]
