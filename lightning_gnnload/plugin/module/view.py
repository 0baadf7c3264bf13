"""DataModuleView: what the parts of a data module may ask of it."""

from __future__ import annotations

from typing import Any, Protocol

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.plugin.module.partition import ModulePartition
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.workload import Workload


class DataModuleView(Protocol):
    """The interface by which caches and devices see a data module, between ``setup`` and ``teardown``.

    Attributes:
        sampler: of training.
        eval_sampler: of the other phases.
        module_partition: its partition, if any.
    """

    sampler: Sampler
    eval_sampler: Sampler
    module_partition: ModulePartition

    @property
    def graph_data(self) -> GraphData:
        """The graph, its features and labels."""

    def has_seeds(self, phase: str) -> bool:
        """Whether ``"train"``, ``"val"`` or ``"test"`` has any."""

    @property
    def trainer(self) -> Any:
        """Lightning's Trainer; None where mini-batches are read by hand."""

    @property
    def batch_format(self) -> str:
        """What the model is given."""

    @property
    def sampling_device(self) -> str:
        """The setting ``sampling_device``, as GraphDataModule takes it."""

    def workload(self, phase: str) -> Workload:
        """The mini-batches of a phase: ``"train"``, ``"val"``, ``"test"`` or ``"predict"``."""
