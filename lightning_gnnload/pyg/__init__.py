"""PyG's loaders and data modules by one changed import, with neither pyg-lib nor torch-sparse.

Names are those of ``__init__.pyi``. The module of a name is imported when the name is first used, so that loaders load
no Lightning.
"""

import sys
from dis import opname
from importlib import import_module
from typing import Any

from lightning_gnnload.errors import MissingExtraError, NoAttributeError, NotHereError
from lightning_gnnload.lazy import homes, listing

_HOMES = homes(__file__)

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        if name.startswith("_") or (message := _not_here(name)) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # To an import, Python tells nothing of an AttributeError's words; hasattr() and getattr() go by its class.
        caller = sys._getframe(1)
        is_import = opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM"
        raise (NotHereError if is_import else NoAttributeError)(message)
    try:
        home = import_module(f".{_HOMES[name]}", __name__)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch_geometric":
            raise
        raise MissingExtraError("torch_geometric", "pyg", f"lightning_gnnload.pyg.{name}", error) from error
    globals()[name] = value = getattr(home, name)
    return value


_INSTEAD = {
    "NeighborSampler": "GnnloadSampler (of torch_geometric.sampler), or NeighborLoader (of torch_geometric.loader)",
    "BidirectionalNeighborSampler": "NeighborLoader(..., subgraph_type='bidirectional')",
    "HGTSampler": "GnnloadHGTSampler, or HGTLoader",
    "NodeLoader": "NeighborLoader, or PyG's own with a GnnloadSampler",
    "LinkLoader": "LinkNeighborLoader, or PyG's own with a GnnloadSampler",
    **dict.fromkeys(
        ("ClusterData", "ClusterLoader"),
        "GraphDataModule.from_pyg(data, ..., partition=...), which gives each trainer a part of the graph",
    ),
    **dict.fromkeys(
        ("GraphSAINTSampler", "GraphSAINTNodeSampler", "GraphSAINTEdgeSampler", "GraphSAINTRandomWalkSampler"),
        "ShaDowKHopSampler, or NeighborLoader(..., subgraph_type='induced'), with subgraphs around seeds",
    ),
}
"""What to use instead of PyG's other classes."""


def _not_here(name: str) -> str | None:
    """Returns where a name of PyG's is, and what to use instead here; None for names that are not PyG's."""
    for package in ("loader", "sampler", "data.lightning"):
        try:
            module = import_module(f"torch_geometric.{package}")
        except ImportError:
            return None
        if name in getattr(module, "__all__", ()):
            here = f" There is {_INSTEAD[name]}." if name in _INSTEAD else ""
            return f"{__name__} has no {name}.{here} PyG's own stays where it is: from {module.__name__} import {name}."
    return None


def __dir__() -> list[str]:
    return listing(globals(), _HOMES)
