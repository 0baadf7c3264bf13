"""BatchFormat: what a model is given of a mini-batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.block import MiniBatch


class BatchFormat:
    """Defines the interface of a batch format; this one gives the MiniBatch itself.

    Attributes:
        library: the module that batches of this format are made with; None where none is needed.
    """

    library: str | None = None

    def check_sampler(self, sampler: Any) -> None:
        """Raises LoaderConfigError: mini-batches of this sampler cannot be had in this format."""

    def check_device(self, device: torch.device) -> None:
        """Raises CudaUnavailableError: no batches of this format can be made on ``device``."""

    def adapter(
        self, edge_order: np.ndarray | None, template: Any = None, **names: str
    ) -> Callable[[MiniBatch], Any] | None:
        """Returns the function that converts a MiniBatch to a batch; None where models get the MiniBatch itself.

        Args:
            edge_order: ``Graph.edge_order``, which turns edge ids into those of the user's graph.
            template: what every batch repeats, where the format's own reader of graphs gives such a thing.
            **names: ``feature_name``, ``label_name`` and ``edge_feature_name``, for formats that name columns.

        Raises:
            MissingExtraError: the library cannot be imported.
        """
        return None

    def converted(self, batch: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
        """Returns the batch with ``convert`` applied to its tensors, where Lightning does not find them by itself."""
        return batch
