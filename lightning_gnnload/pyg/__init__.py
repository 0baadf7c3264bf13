"""PyG's loaders and data modules by one changed import, with neither pyg-lib nor torch-sparse.

Each name is imported when it is first used, so that loaders load no Lightning.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightning_gnnload.errors import MissingExtraError

if TYPE_CHECKING:
    from lightning_gnnload.pyg.hgt import GnnloadHGTSampler as GnnloadHGTSampler
    from lightning_gnnload.pyg.hgt import HGTLoader as HGTLoader
    from lightning_gnnload.pyg.lightning import LightningLinkData as LightningLinkData
    from lightning_gnnload.pyg.lightning import LightningNodeData as LightningNodeData
    from lightning_gnnload.pyg.loaders import LinkNeighborLoader as LinkNeighborLoader
    from lightning_gnnload.pyg.loaders import NeighborLoader as NeighborLoader
    from lightning_gnnload.pyg.sampler import GnnloadSampler as GnnloadSampler
    from lightning_gnnload.pyg.shadow import ShaDowKHopSampler as ShaDowKHopSampler

_HOMES = {
    "GnnloadHGTSampler": "hgt",
    "GnnloadSampler": "sampler",
    "HGTLoader": "hgt",
    "LightningLinkData": "lightning",
    "LightningNodeData": "lightning",
    "LinkNeighborLoader": "loaders",
    "NeighborLoader": "loaders",
    "ShaDowKHopSampler": "shadow",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f".{_HOMES[name]}", __name__)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch_geometric":
            raise
        raise MissingExtraError("torch_geometric", "pyg", f"lightning_gnnload.pyg.{name}", error) from error
    globals()[name] = value = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
