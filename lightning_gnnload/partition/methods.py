"""Partitioners by name."""

from __future__ import annotations

from importlib import import_module

from lightning_gnnload.errors import PartitionError
from lightning_gnnload.partition.partitioner import Partitioner

_CLASSES = {
    "self-reliant": ("selfreliant", "SelfReliant"),
    "metis": ("metis", "Metis"),
    "bgl": ("bgl", "Bgl"),
    "ldg": ("ldg", "Ldg"),
    "random": ("random", "RandomParts"),
}
METHODS = tuple(_CLASSES)


def partitioner(method: str | Partitioner) -> Partitioner:
    """Makes one of :data:`METHODS` with its defaults, or takes a user's own as it is.

    Raises:
        PartitionError: an unknown name.
    """
    if isinstance(method, Partitioner):
        return method
    if not isinstance(method, str) or method not in _CLASSES:
        raise PartitionError(
            f"method={method!r} is not known; give one of {', '.join(map(repr, METHODS))} or a Partitioner."
        )
    module, name = _CLASSES[method]
    made: Partitioner = getattr(import_module(f"lightning_gnnload.partition.{module}"), name)()
    return made
