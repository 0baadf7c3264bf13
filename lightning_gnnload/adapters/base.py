"""BatchFormat: what a model is given of a mini-batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import torch

from lightning_gnnload.adapters.columns import UNTYPED
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.data.typed_parts import ColumnOf, columns_of
from lightning_gnnload.errors import LoaderConfigError


class BatchFormat:
    """The interface of a batch format; this one gives the MiniBatch itself, cut by type where there are types.

    ``library`` is the module that batches of a format are made with, if any; ``words`` are attributes by which models
    know batches of this format, which other formats lack.
    """

    library: str | None = None
    words: frozenset[str] = frozenset()

    def fitted(self, sampler: Any) -> Any:
        """Returns the sampler, or a copy with those settings that its user left open and this format needs."""
        return sampler

    def check_sampler(self, sampler: Any) -> None:
        """Raises LoaderConfigError: this sampler's mini-batches cannot be made in this format."""
        if self.library is not None and getattr(sampler, "metapath", None) is not None:
            raise LoaderConfigError(
                f"{sampler} joins nodes of one type that are several steps apart, by edges of no type of the graph, "
                f"which {self.library}'s mini-batches with types cannot hold. Give batch_format='blocks'."
            )

    def check_device(self, device: torch.device) -> None:
        """Raises CudaUnavailableError: no batches of this format can be made on ``device``."""

    def adapter(self, data: GraphData, template: Any = None, **names: str) -> Callable[[MiniBatch], Any] | None:
        """Returns the function that converts a MiniBatch to a batch; None where models get the MiniBatch itself.

        ``data`` says which types the graph has, the order of the user's edges, and which tables have rows of one type.
        ``template`` is what every batch repeats, where the format's reader gives such a thing; ``names`` are
        ``feature_name``, ``label_name`` and ``edge_feature_name``, for formats that
        name columns. A library that cannot be imported raises MissingExtraError.
        """
        if data.graph.types is None:
            return None
        return partial(TypedMiniBatch.of, graph=data.graph, columns=columns_of(data))

    def read(self, graph: Any, settings: dict[str, Any]) -> tuple[GraphData, Any]:
        """Reads a graph of the library; returns it and the template of :meth:`adapter`.

        ``settings`` are of a data module and of the reader, which takes its own out of them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no reader")

    def is_one_graph(self, arguments: Collection[str]) -> bool:
        """Returns whether a model that needs these arguments takes one graph for all layers."""
        return False

    def argument(self, batch: Any, name: str, feature_name: str) -> Any:
        """Returns the value in a batch for a model's argument of this name, None without one; ``feature_name`` is that
        of features, where a format names columns."""
        return getattr(batch, name, None)

    def converted(self, batch: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
        """Returns the batch with ``convert`` applied to its tensors, where Lightning does not find them by itself."""
        return batch


def cut_by_type(
    batch: MiniBatch,
    graph: Graph | None,
    columns: ColumnOf | None = None,
    node_type: Any = UNTYPED,
    edge_type: Any = UNTYPED,
) -> TypedMiniBatch:
    """Returns a mini-batch by type; of a graph without types, one of the single types ``node_type`` and ``edge_type``.

    ``columns`` says which tables have rows of one type, as :meth:`.TypedMiniBatch.of` has it.
    """
    if graph is not None and graph.types is not None:
        return TypedMiniBatch.of(batch, graph, columns)
    y, seed_columns = {} if batch.y is None else {node_type: batch.y}, batch.seed_columns
    # Labels of links are one a row, not one a node.
    if not batch.seed_form.rows_are_seeds:
        y, seed_columns = {}, seed_columns if batch.y is None else {**seed_columns, "y": batch.y}
    typed = TypedMiniBatch(
        nodes={node_type: batch.nodes},
        num_seeds={node_type: batch.num_seeds},
        blocks=[],
        num_src=[],
        num_dst=[],
        x={} if batch.x is None else {node_type: batch.x},
        y=y,
        epoch=batch.epoch,
        step=batch.step,
        tables={node_type: batch.tables},
        rows={} if batch.rows is None else {node_type: batch.rows},
        seed_columns=seed_columns,
        seed_form=batch.seed_form,
    )
    for block in batch.blocks:
        typed.blocks.append({edge_type: block})
        typed.num_src.append({node_type: block.num_src})
        typed.num_dst.append({node_type: block.num_dst})
    return typed


def pop_arguments(settings: dict[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    """Removes the arguments of ``function`` from ``settings``, and returns them."""
    return {name: settings.pop(name) for name in settings.keys() & inspect.signature(function).parameters.keys()}
