"""DGL's loader and samplers by one changed import; threads of this process make its mini-batches.

Either ``from lightning_gnnload.dgl import DataLoader, NeighborSampler`` in the place of ``from dgl.dataloading``, or
``import lightning_gnnload.dgl as dgl`` in the place of ``import dgl``: then ``dgl.dataloading`` has our names, and
whatever else DGL has is DGL's own. The module of a name is imported when the name is first used.
"""

import sys
from importlib import import_module
from typing import Any

from lightning_gnnload.adapters.dgl.relations import import_dgl
from lightning_gnnload.errors import not_here
from lightning_gnnload.lazy import homes, listing

_HOMES = homes(__file__)

__all__ = sorted({*_HOMES, "negative_sampler"})


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("dataloading", "negative_sampler"):
        value: Any = sys.modules[__name__] if name == "dataloading" else import_module(f".{name}", __name__)
    else:
        dgl = import_dgl(f"lightning_gnnload.dgl.{name}")
        if name in _HOMES:
            value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        elif name in _INSTEAD:
            raise not_here(
                f"{__name__} has no {name}. Use {_INSTEAD[name]}. DGL's own stays where it is: from dgl.dataloading "
                f"import {name}."
            )
        else:
            return _of_dgl(dgl, name)
    globals()[name] = value
    return value


def _of_dgl(dgl: Any, name: str) -> Any:
    """Returns what DGL has under a name that is not one of ours: a base class of samplers, a function, a module."""
    for module in (dgl, import_module("dgl.dataloading")):
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}, and neither has dgl or dgl.dataloading")


_AS_IT_IS = "DataLoader with it: of a sampler of DGL's it is DGL's own loader"
_INSTEAD = {
    "ClusterGCNSampler": f"GraphDataModule(..., partition=...), which gives each trainer a part, or {_AS_IT_IS}",
    "SAINTSampler": f"ShaDowKHopSampler, with subgraphs around seeds, or {_AS_IT_IS}",
    "CappedNeighborSampler": f"NeighborSampler, or {_AS_IT_IS}",
    "SpotTarget": "as_edge_prediction_sampler(..., exclude=...), where a function of yours chooses edges by degree",
    **dict.fromkeys(
        ("DistDataLoader", "DistNodeDataLoader", "DistEdgeDataLoader"),
        "GraphDataModule(..., partition=...), whose parts lie on several machines",
    ),
    **dict.fromkeys(("NodeDataLoader", "EdgeDataLoader"), "DataLoader, which came in their place in DGL 0.8"),
}
"""What to use instead of those loaders and samplers of DGL that are not here."""


def __dir__() -> list[str]:
    return listing(globals(), __all__)
