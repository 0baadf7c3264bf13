"""lightning_gnnload: a PyTorch Lightning plugin that samples graphs while the model trains."""

from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.counted import Clairvoyant, PreSample
from lightning_gnnload.cache.dynamic import DynamicCache
from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.datasets import OGB, Dataset, Debian, Synthetic
from lightning_gnnload.data.disk import DiskFeatureStore
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.partition import Part, Partition
from lightning_gnnload.data.partition_store import load_partition
from lightning_gnnload.data.prepare import save_features
from lightning_gnnload.data.proximity import ProximityOrder
from lightning_gnnload.data.quantize import quantization_error, quantize
from lightning_gnnload.data.quantized import QuantizedFeatureStore
from lightning_gnnload.data.store import load_graph_data, save_graph_data
from lightning_gnnload.data.tables import NodeTable
from lightning_gnnload.partition.build import partition_graph
from lightning_gnnload.pipeline.contributed import ContributedStep
from lightning_gnnload.plugin.module.datamodule import GraphDataModule
from lightning_gnnload.plugin.module.predictions import PredictionWriter
from lightning_gnnload.plugin.monitor.baseline import NoGraphBaseline
from lightning_gnnload.plugin.monitor.cachemonitor import CacheMonitor
from lightning_gnnload.plugin.monitor.monitor import LoaderMonitor, PipelineMonitor
from lightning_gnnload.plugin.strategy.factored import FactoredStrategy
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.collective import CollectiveSampler, open_colleagues
from lightning_gnnload.sample.collective_walks import collective_random_walk
from lightning_gnnload.sample.labor import LaborSampler
from lightning_gnnload.sample.layerwise import LayerSampler
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.shadow import ShadowSampler
from lightning_gnnload.sample.walk import RandomWalkSampler, random_walk
from lightning_gnnload.sample.weighted import WeightedNeighborSampler

__version__ = "0.1.0"

__all__ = [
    "OGB",
    "Block",
    "CacheMonitor",
    "CachePolicy",
    "Clairvoyant",
    "CollectiveSampler",
    "ContributedStep",
    "Dataset",
    "Debian",
    "DiskFeatureStore",
    "DynamicCache",
    "FactoredStrategy",
    "FeatureCache",
    "FeatureStore",
    "Graph",
    "GraphData",
    "GraphDataModule",
    "LaborSampler",
    "LayerSampler",
    "LoaderMonitor",
    "MemoryFeatureStore",
    "MiniBatch",
    "NeighborSampler",
    "NoGraphBaseline",
    "NodeTable",
    "Part",
    "Partition",
    "PipelineMonitor",
    "PreSample",
    "PredictionWriter",
    "ProximityOrder",
    "QuantizedFeatureStore",
    "RandomWalkSampler",
    "Sampler",
    "ShadowSampler",
    "Synthetic",
    "WeightedNeighborSampler",
    "collective_random_walk",
    "load_graph_data",
    "load_partition",
    "open_colleagues",
    "partition_graph",
    "quantization_error",
    "quantize",
    "random_walk",
    "save_features",
    "save_graph_data",
]
