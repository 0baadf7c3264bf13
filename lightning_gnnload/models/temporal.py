"""TemporalSAGE: a seed is a node at a time, and what an edge tells it depends on how long ago that was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from lightning_gnnload.models.conv_stack import ConvLearner
from lightning_gnnload.models.edge_rows import check_edge_columns
from lightning_gnnload.models.first_rows import module_names
from lightning_gnnload.models.sage import MessageConv


class TemporalSAGE(ConvLearner):
    """Reads the age of edges at the seed's time: ``W x_dst + V [sum(m), max(m)]`` over each edge type's messages
    ``m = relu(Q x_src + e)``, where ``e`` tells the age.

    Unlike a mean, the sum tells how many there were; the maximum lets the newest edge speak for itself. Seeds need
    times, and so do edges, which mini-batches have to carry: ``GraphDataModule(edge_time=True)``.

    Args:
        edges: what it reads of edges, as of :class:`.SAGE`; their age by default. True: all that there is.
        settings: those of :class:`.ConvLearner`.

    Raises:
        GraphDataError: at the beginning of a run: edges or seeds without times.

    Example:
        >>> TemporalSAGE(hidden=64).hparams["edges"]
        ['age']
    """

    def __init__(self, edges: bool | list[str] = ["age"], **settings: Any) -> None:  # noqa: B006  never changed
        check_edge_columns(edges)
        super().__init__(**settings)

    def conv_of(self, sizes: Mapping[str, Any], widths: Mapping[str, int]) -> nn.Module:
        return MessageConv(sizes, module_names(sizes), widths, self.hparams["hidden"], ["sum", "max"])
