"""The names of the package, each with the module that holds it; see lazy.py."""

from .hgt import GnnloadHGTSampler as GnnloadHGTSampler
from .hgt import HGTLoader as HGTLoader
from .lightning import LightningLinkData as LightningLinkData
from .lightning import LightningNodeData as LightningNodeData
from .loaders import LinkNeighborLoader as LinkNeighborLoader
from .loaders import NeighborLoader as NeighborLoader
from .sampler import GnnloadSampler as GnnloadSampler
from .shadow import ShaDowKHopSampler as ShaDowKHopSampler
