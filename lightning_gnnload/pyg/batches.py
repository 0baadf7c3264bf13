"""Mini-batches as PyG's loaders yield them: every attribute of the data, under its name, in its place."""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from torch_geometric.sampler import HeteroSamplerOutput, NegativeSampling, SamplerOutput

from lightning_gnnload.adapters.columns import UNTYPED
from lightning_gnnload.adapters.pyg_stores import fill_store, links_by_store
from lightning_gnnload.pyg.attributes import Attributes
from lightning_gnnload.pyg.outputs import joined

_NONE = torch.empty(0, dtype=torch.long)  # of a type that a user's own sampler output leaves out


def as_data(
    output: SamplerOutput | HeteroSamplerOutput,
    rows: dict[str, torch.Tensor],
    attributes: Attributes,
    input_type: Any = None,
    neg_sampling: NegativeSampling | None = None,
) -> Any:
    """Returns the ``Data`` or ``HeteroData`` that PyG's NodeLoader or LinkLoader makes of a sampler's output.

    ``rows`` are what kernels have gathered, by the tables' names. ``input_type`` is the node type of the seeds or the
    edge type of the links, None without types; ``neg_sampling`` is None for seeds that are nodes.
    """
    data = copy(attributes.data)
    is_hetero = isinstance(output, HeteroSamplerOutput)
    # A SamplerOutput is one of a single type, so that both come by type; what is left out is None for all types.
    parts = vars(output) if is_hetero else {name: {UNTYPED: part} for name, part in vars(output).items()}
    seed_fields = _seed_fields(output.metadata, input_type, neg_sampling)
    for key, columns in attributes.by_type.items():
        store, fields = data[key] if is_hetero else data._store, {}
        node: Any = None
        edge: Any = None
        if not isinstance(key, tuple):
            fields["n_id"] = node = parts["node"].get(key, _NONE)
            if "num_nodes" in store:
                fields["num_nodes"] = len(node)
        if not isinstance(key, str):
            names = ("row", "col", "edge")
            lists: list[Any] = [None if parts[name] is None else parts[name].get(key, _NONE) for name in names]
            row, col, edge = lists

            fields["e_id"] = edge
            if "edge_index" in store:
                fields["edge_index"] = joined(row, col).to(store.edge_index.device)
            if output.orig_row is not None:
                fields["_orig_edge_index"] = torch.stack([parts["orig_row"][key], parts["orig_col"][key]])
        for name in ("batch", "num_sampled_nodes", "num_sampled_edges"):
            if parts[name] is not None and key in parts[name]:
                fields[name] = parts[name][key]
        values = {column.name: column.of(rows, edge if column.by_edge else node) for column in columns}
        fill_store(store, values, fields | seed_fields.pop(key, {}))
    for key, fields in seed_fields.items():  # of links of a type that the data have no edges of
        fill_store(data[key], {}, fields)
    return data


def _seed_fields(
    metadata: tuple[Any, ...], input_type: Any, neg_sampling: NegativeSampling | None
) -> dict[Any, dict[str, Any]]:
    """Returns what belongs to the seeds, by store; None takes away what is of the whole graph."""
    if not isinstance(input_type, tuple) and len(metadata) <= 2:
        return {input_type: {"input_id": metadata[0], "seed_time": metadata[1], "batch_size": len(metadata[0])}}
    labels = ("edge_label_index", "edge_label", "edge_label_time")
    if neg_sampling is None or neg_sampling.is_binary():
        return links_by_store(dict(zip(("input_id", *labels), metadata, strict=True)), input_type)
    names = ("input_id", "src_index", "dst_pos_index", "dst_neg_index", "seed_time")
    triplets = dict(zip(names, metadata, strict=True))
    return links_by_store({**triplets, "edge_label_index": None, "edge_label_time": None}, input_type)
