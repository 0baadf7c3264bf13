"""PyG's loaders and data modules by one changed import, with neither pyg-lib nor torch-sparse.

Names are those of ``__init__.pyi``. The module of a name is imported when the name is first used, so that loaders load
no Lightning.
"""

from importlib import import_module
from typing import Any

from lightning_gnnload.errors import MissingExtraError, not_here
from lightning_gnnload.lazy import homes, listing

_HOMES = homes(__file__)

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        if name.startswith("_") or (message := _not_here(name)) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise not_here(message)
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
        ("ImbalancedSampler", "CachedLoader", "PrefetchLoader"),
        "no need of one: PyG's own works with the loaders from here",
    ),
    **dict.fromkeys(
        ("DataLoader", "DataListLoader", "DenseDataLoader", "DynamicBatchSampler"),
        "none for many small graphs",
    ),
    "TemporalDataLoader": "NeighborLoader(..., time_attr=...), of a Data whose edges have times",
    "LightningDataset": "none for many small graphs, which Lightning takes PyG's DataLoader of",
    "AffinityMixin": "enable_cpu_affinity() of each loader",
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
