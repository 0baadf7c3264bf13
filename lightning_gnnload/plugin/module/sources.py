"""ModuleSources: data modules over what other libraries hold."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from lightning_gnnload.data.graphdata import GraphData

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
        """Makes a module over a DGL graph, with types or without, and all columns of its ``ndata`` and ``edata``, in
        DGL's format unless told otherwise.

        Args:
            graph: splits are its masks ``ndata["train_mask"]`` and so on, unless ids are given.
            **settings: this class's, and those of :meth:`.GraphData.from_dgl`: ``tables``, ``edge_tables``,
                ``edge_weight_name``, ``time_name``, ``train``, ``val``, ``test``, ``user_ids``, ``without``.
        """
        names = ("feature_name", "label_name", "edge_feature_name")  # which both need
        both = {name: settings[name] for name in names if name in settings}
        graph_data = GraphData.from_dgl(graph, **_taken(settings, GraphData.from_dgl))
        return cls(graph_data, **({"batch_format": "dgl"} | settings | both))

    @classmethod
    def from_pyg(cls: Callable[..., Made], data: Any, **settings: Any) -> Made:
        """Makes a module over a PyG ``Data`` or ``HeteroData``, with all its attributes, in PyG's format unless told
        otherwise.

        Args:
            data: splits are its masks ``train_mask`` and so on, unless ids are given.
            **settings: this class's, and those of :meth:`.GraphData.from_pyg`: ``tables``, ``edge_tables``,
                ``edge_feature_name``, ``time_attr``, ``train``, ``val``, ``test``, ``user_ids``, ``without``.
        """
        from lightning_gnnload.adapters.pyg import read_pyg
        from lightning_gnnload.adapters.pyg_stores import set_apart, template_of

        given = _taken(settings, GraphData.from_pyg)
        settings = {"batch_format": "pyg", **settings}
        module: Any = cls(read_pyg(data, **given, repeats=settings["batch_format"] == "pyg"), **settings)
        module.template = template_of(set_apart(data, given.get("user_ids"), given.get("without", ()))[0])
        return module


def _taken(settings: dict[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    """Takes the arguments of ``function`` out of ``settings``."""
    return {name: settings.pop(name) for name in settings.keys() & inspect.signature(function).parameters.keys()}
