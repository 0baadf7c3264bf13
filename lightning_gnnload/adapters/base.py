"""BatchFormat: what a model is given of a mini-batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.data.typed_parts import columns_of


class BatchFormat:
    """Defines the interface of a batch format; this one gives the MiniBatch itself, cut by type where there are types.

    Attributes:
        library: the module that batches of this format are made with; None where none is needed.
    """

    library: str | None = None

    def check_sampler(self, sampler: Any) -> None:
        """Raises LoaderConfigError: mini-batches of this sampler cannot be had in this format."""

    def check_device(self, device: torch.device) -> None:
        """Raises CudaUnavailableError: no batches of this format can be made on ``device``."""

    def adapter(
        self, data: GraphData, template: Any = None, num_dst: Callable[[int], int] | None = None, **names: str
    ) -> Callable[[MiniBatch], Any] | None:
        """Returns the function that converts a MiniBatch to a batch; None where models get the MiniBatch itself.

        Args:
            data: what mini-batches are of: the types of its graph and the order of the user's edges, and which tables
                have rows of one type.
            template: what every batch repeats, where the format's own reader of graphs gives such a thing.
            num_dst: how many of so many negatives of a link replace its destination; None: all.
            **names: ``feature_name``, ``label_name`` and ``edge_feature_name``, for formats that name columns.

        Raises:
            MissingExtraError: the library cannot be imported.
        """
        if data.graph.types is None:
            return None
        return partial(TypedMiniBatch.of, graph=data.graph, columns=columns_of(data))

    def converted(self, batch: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
        """Returns the batch with ``convert`` applied to its tensors, where Lightning does not find them by itself."""
        return batch
