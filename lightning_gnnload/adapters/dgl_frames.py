"""What DGL's blocks with types and without have in common: their structure, and the frames of nodes and edges."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.columns import original_edge_ids
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.errors import GraphDataError, MissingExtraError, SamplerConfigError

FEATURE_NAME, LABEL_NAME = "feat", "label"
EDGE_FEATURE_NAME = "feat"  # as DGL's data sets name them; in edata, where no node's features lie
ROW_NAME = "row"
EDGE_WEIGHT_NAMES = ("edge_weights", "weights")  # as DGL's LaborSampler and its PinSAGESampler name them


def check_blocks(batch: MiniBatch) -> None:
    """Raises SamplerConfigError: the batch has features or labels, but no block to carry them."""
    if not batch.blocks and (batch.x is not None or batch.y is not None or batch.tables):
        raise SamplerConfigError(
            "batch_format='dgl' carries features and labels on blocks, but the sampler drew no hops. "
            "Give the sampler a fanout for each layer of the model, or take batch_format='blocks'."
        )


def node_columns(
    tables: Mapping[str, torch.Tensor], feature_name: str, x: torch.Tensor | None, rows: torch.Tensor | None
) -> dict[str, torch.Tensor]:
    """Returns the columns of nodes, by name: tables, features, and as ``"row"``, int64, the rows that nodes belong to.

    Raises:
        GraphDataError: a table has the name of another column.
    """
    own = {feature_name: x, ROW_NAME: None if rows is None else rows.long()}
    found = {name: column for name, column in own.items() if column is not None}
    if twice := found.keys() & tables.keys():
        of_rows = "the rows that nodes belong to; name the table anew"
        whose = of_rows if min(twice) == ROW_NAME else "the features; give another feature_name"
        raise GraphDataError(f"table {min(twice)!r} has the name of {whose}.")
    return found | dict(tables)


def add_columns(frame: Any, columns: Mapping[str, torch.Tensor]) -> None:
    """Adds columns of seeds to the frame of the nodes that they are.

    Raises:
        GraphDataError: a table has the name of one.
    """
    if twice := columns.keys() & set(frame):
        raise GraphDataError(
            f"{min(twice)!r} names a column of nodes and one of seeds (labels are of seeds), which a DGLBlock cannot "
            "tell apart. Name one of them anew."
        )
    frame.update(columns)


def csc_of(block: Block) -> tuple[str, tuple[torch.Tensor, ...]]:
    """Returns the structure of a block as ``dgl.create_block`` takes it."""
    # Edges are numbered as they lie, so that edata follows our order. DGL takes an empty array for the same, but its
    # CPU kernels then refuse every message made of edata. Each block owns its numbers: DGL may sort them.
    numbers = torch.arange(block.num_edges, device=block.indices.device)
    return "csc", (block.indptr.long(), block.indices.long(), numbers)


def edge_frame(
    dgl: ModuleType, block: Block, edge_order: np.ndarray | None, edge_feature_name: str
) -> dict[str, torch.Tensor]:
    """Returns the columns of the edges of a block, by name."""
    frame = {}
    if block.edge_ids is not None:
        frame[dgl.EID] = original_edge_ids(block.edge_ids, edge_order)
    if block.edge_type is not None:
        frame[dgl.ETYPE] = block.edge_type.long()
    # Later columns replace earlier ones of the same name: tables yield to weights, and either to features.
    frame |= block.tables
    if block.edge_weight is not None:
        frame |= dict.fromkeys(EDGE_WEIGHT_NAMES, block.edge_weight)
    if block.x is not None:
        frame[edge_feature_name] = block.x
    return frame


def frames_of(block: Any) -> Iterator[Any]:
    """Yields the frames of a DGLBlock, those of each node type and edge type by themselves."""
    for kind in block.srctypes:
        yield block.srcnodes[kind].data
    for kind in block.dsttypes:
        yield block.dstnodes[kind].data
    for triple in block.canonical_etypes:
        yield block.edges[triple].data


def import_dgl(purpose: str) -> ModuleType:
    """Raises MissingExtraError: DGL cannot be imported."""
    try:
        import dgl
    except (ImportError, OSError) as error:  # OSError: DGL 2.x finds no library built for a newer torch
        if isinstance(error, ModuleNotFoundError) and error.name == "dgl":
            raise MissingExtraError("dgl", "dgl", purpose, error) from error
        try:
            found = f"dgl {importlib.metadata.version('dgl')}"
        except importlib.metadata.PackageNotFoundError:
            found = "dgl"
        broken = ImportError(f"{found} with torch {torch.__version__}: {error}; dgl 2.x needs torch <= 2.2.1")
        broken.__cause__ = error
        raise MissingExtraError("dgl", "dgl", purpose, broken) from error
    return dgl
