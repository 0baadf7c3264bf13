"""ModuleSources: data modules over graphs of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lightning_gnnload.adapters.formats import FORMATS

Made = TypeVar("Made")


class ModuleSources:
    """The class methods of :class:`.GraphDataModule` that take graphs of other libraries."""

    @classmethod
    def from_ogb(cls: Callable[..., Made], name: str, root: str | None = None, **settings: Any) -> Made:
        """Makes a module over an OGB node-property data set, read from ``root`` or downloaded to it."""
        from lightning_gnnload.data.datasets.ogb import OGB

        return cls(OGB(name, root), **settings)

    @classmethod
    def from_dgl(cls: Callable[..., Made], graph: Any, **settings: Any) -> Made:
        """Makes a module over a DGL graph, with or without types, and all columns of its ``ndata`` and ``edata``, in
        DGL's format by default. Splits are its masks ``ndata["train_mask"]`` and so on, unless ids are given.
        ``settings`` are this class's, and those of :meth:`.GraphData.from_dgl`."""
        return _over(cls, "dgl", graph, settings)

    @classmethod
    def from_pyg(cls: Callable[..., Made], data: Any, **settings: Any) -> Made:
        """Makes a module over a PyG ``Data`` or ``HeteroData``, with all its attributes, in PyG's format by default.
        Splits are its masks ``train_mask`` and so on, unless ids are given. ``settings`` are this class's, and those of
        :meth:`.GraphData.from_pyg`."""
        return _over(cls, "pyg", data, settings)


def _over(make: Callable[..., Made], batch_format: str, graph: Any, settings: dict[str, Any]) -> Made:
    settings = {"batch_format": batch_format, **settings}
    data, template = FORMATS[batch_format].read(graph, settings)  # takes the reader's settings out
    module: Any = make(data, **settings)
    module.template = template
    return module
