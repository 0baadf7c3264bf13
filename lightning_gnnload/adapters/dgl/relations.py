"""DGL, if it is there, and its graphs of structures that are sure to fit.

``dgl.create_block`` and ``dgl.heterograph`` look through all ids, and make a graph of each edge type by itself before
they make that of all: for the edge types of a mini-batch that takes longer than to sample it.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch

from lightning_gnnload.data.block import Block
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import MissingExtraError

FEATURE_NAME, LABEL_NAME, EDGE_FEATURE_NAME = "feat", "label", "feat"  # as DGL's data sets name them
_FORMATS = ["coo", "csr", "csc"]  # what DGL may make of the one that is given
Pairs = tuple[torch.Tensor, torch.Tensor]


def block_of(blocks: Mapping[EdgeType, Block], num_src: Mapping[str, int], num_dst: Mapping[str, int]) -> Any:
    """Returns the DGLBlock that ``dgl.create_block`` makes of these."""
    dgl = import_dgl("batch_format='dgl'")
    from dgl import heterograph_index
    from dgl.heterograph import DGLBlock

    src_types, dst_types, edge_types = sorted(num_src), sorted(num_dst), sorted(blocks)
    parts = []
    for src, relation, dst in edge_types:
        block = blocks[src, relation, dst]
        # Edges are numbered as they lie, so that edata follows our order. DGL takes an empty array for the same, but
        # its CPU kernels then refuse every message made of edata. Each block owns its numbers: DGL may sort them.
        numbers = torch.arange(block.num_edges, device=block.indices.device)
        arrays = block.indptr.long(), block.indices.long(), numbers
        parts.append(
            heterograph_index.create_unitgraph_from_csr(2, num_src[src], num_dst[dst], *arrays, _FORMATS, True)
        )
    if len(parts) == len(src_types) == len(dst_types) == 1:
        (whole,) = parts  # which is what a graph of one relation comes to
    else:
        metagraph = _metagraph(tuple(src_types), tuple(dst_types), tuple(edge_types))
        counts = dgl.utils.toindex([*map(num_src.get, src_types), *map(num_dst.get, dst_types)], "int64")
        whole = heterograph_index.create_heterograph_from_relations(metagraph, parts, counts)
    return DGLBlock(whole, (src_types, dst_types), [relation for _, relation, _ in edge_types])


@lru_cache
def _metagraph(src_types: tuple[str, ...], dst_types: tuple[str, ...], edge_types: tuple[EdgeType, ...]) -> Any:
    """Returns the graph of types, which all blocks of a graph share: DGL only reads it."""
    from dgl import graph_index

    return graph_index.from_coo(
        len(src_types) + len(dst_types),
        [src_types.index(src) for src, _, _ in edge_types],
        [len(src_types) + dst_types.index(dst) for _, _, dst in edge_types],
        True,  # edges of several types may join the same types of nodes
    )


def dgl_graph_of(pairs: Mapping[EdgeType, Pairs], num_nodes: Mapping[str, int]) -> Any:
    """Returns the DGLGraph that ``dgl.heterograph`` makes of pairs of a source and a destination, int64."""
    dgl = import_dgl("batch_format='dgl'")
    from dgl import heterograph_index

    metagraph, names, relations, edge_types = heterograph_index.create_metagraph_index(num_nodes.keys(), pairs.keys())
    parts = [
        heterograph_index.create_unitgraph_from_coo(
            1 if src == dst else 2, num_nodes[src], num_nodes[dst], *pairs[src, relation, dst], _FORMATS
        )
        for src, relation, dst in edge_types
    ]
    counts = dgl.utils.toindex([num_nodes[name] for name in names], "int64")
    whole = heterograph_index.create_heterograph_from_relations(metagraph, parts, counts)
    return dgl.DGLGraph(whole, names, relations)


def import_dgl(purpose: str) -> ModuleType:
    """Imports DGL; raises MissingExtraError, with the reason, where it cannot be imported."""
    try:
        import dgl
    except (ImportError, OSError) as error:  # OSError: DGL 2.x finds no library built for a newer torch
        if isinstance(error, ModuleNotFoundError) and error.name == "dgl":
            raise MissingExtraError("dgl", "dgl", purpose, error) from error
        try:
            version = f"dgl {importlib.metadata.version('dgl')}"
        except importlib.metadata.PackageNotFoundError:
            version = "dgl"
        broken = ImportError(f"{version} with torch {torch.__version__}: {error}; dgl 2.x needs torch <= 2.2.1")
        broken.__cause__ = error
        raise MissingExtraError("dgl", "dgl", purpose, broken) from error
    return dgl
