"""The names of the package, each with the module that holds it; see lazy.py."""

from .cluster import ClusterData as ClusterData
from .cluster import ClusterLoader as ClusterLoader
from .hgt import GnnloadHGTSampler as GnnloadHGTSampler
from .hgt import HGTLoader as HGTLoader
from .lightning import LightningLinkData as LightningLinkData
from .lightning import LightningNodeData as LightningNodeData
from .loaders import LinkNeighborLoader as LinkNeighborLoader
from .loaders import NeighborLoader as NeighborLoader
from .random_nodes import RandomNodeLoader as RandomNodeLoader
from .saint import GraphSAINTEdgeSampler as GraphSAINTEdgeSampler
from .saint import GraphSAINTNodeSampler as GraphSAINTNodeSampler
from .saint import GraphSAINTRandomWalkSampler as GraphSAINTRandomWalkSampler
from .saint import GraphSAINTSampler as GraphSAINTSampler
from .sampler import GnnloadSampler as GnnloadSampler
from .shadow import ShaDowKHopSampler as ShaDowKHopSampler
from .zipped import ZipLoader as ZipLoader
