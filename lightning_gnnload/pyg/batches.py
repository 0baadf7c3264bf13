"""Mini-batches as PyG's loaders yield them: every attribute of the data, under its name, in its place."""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from torch_geometric.sampler import HeteroSamplerOutput, NegativeSampling, SamplerOutput

from lightning_gnnload.adapters.pyg_stores import fill, links_by_store
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
    of_seeds = _seed_fields(output.metadata, input_type, neg_sampling)
    for kind, held in attributes.by_type.items():
        store, columns, fields = data[kind] if is_hetero else data._store, {}, {}
        node = edge = None
        if not isinstance(kind, tuple):
            fields["n_id"] = node = output.node.get(kind, _NONE) if is_hetero else output.node
            if "num_nodes" in store:
                fields["num_nodes"] = len(node)
        if not isinstance(kind, str):
            ends = output.row, output.col, output.edge
            row, col, edge = [of.get(kind, _NONE) if is_hetero and of is not None else of for of in ends]
            fields["e_id"] = edge
            if "edge_index" in store:
                fields["edge_index"] = joined(row, col).to(store.edge_index.device)
            if output.orig_row is not None:
                drawn = output.orig_row, output.orig_col
                fields["_orig_edge_index"] = torch.stack([of[kind] for of in drawn] if is_hetero else drawn)
        for name in ("batch", "num_sampled_nodes", "num_sampled_edges"):
            of_output = getattr(output, name)
            if not is_hetero:
                fields[name] = of_output
            elif of_output is not None and kind in of_output:
                fields[name] = of_output[kind]
        for attribute in held:
            columns[attribute.name] = attribute.of(rows, edge if attribute.of_edges else node)
        fill(store, columns, fields | of_seeds.pop(kind, {}))
    for kind, fields in of_seeds.items():  # of links of a type that the data have no edges of
        fill(data[kind], {}, fields)
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
