"""The names of the package, each with the module that holds it; see lazy.py."""

from .dataloader import DataLoader as DataLoader
from .edges import EdgePredictionSampler as EdgePredictionSampler
from .edges import as_edge_prediction_sampler as as_edge_prediction_sampler
from .samplers import LaborSampler as LaborSampler
from .samplers import MultiLayerFullNeighborSampler as MultiLayerFullNeighborSampler
from .samplers import MultiLayerNeighborSampler as MultiLayerNeighborSampler
from .samplers import NeighborSampler as NeighborSampler
from .samplers import ShaDowKHopSampler as ShaDowKHopSampler
