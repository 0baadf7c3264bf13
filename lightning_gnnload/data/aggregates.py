"""Aggregate: what a table of sums over in-neighbours was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal
from weakref import ref

from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.errors import StoreFormatError

Aggr = Literal["mean", "sum", "gcn", "both"]
AGGRS: tuple[Aggr, ...] = ("mean", "sum", "gcn", "both")
"""The means and sums of :func:`.preaggregate`."""


@dataclass(frozen=True)
class Aggregate:
    """Says of a table what its rows are: for each node, a sum over its in-neighbours' rows of another table.

    Attributes:
        table: the other table, by its name in :attr:`.GraphData.stores`.
        aggr: how neighbours are summed: ``"mean"``, ``"sum"``, ``"gcn"`` or ``"both"``.
        hop: how often: 2 sums the sums of the in-neighbours.
        self_loops: each node counts among its own in-neighbours.
        weighted: neighbours count by the graph's edge weights.
        as_of: edges later than this do not count; None where the graph has no times.
        metapath: whose edges count, hop by hop from the other table's nodes on, as ``"src__relation__dst"``, or
            ``"src__*__dst"`` for all relations between two types; empty in a graph without types.
        sources: checksums (CRC-32) of the arrays that the rows were made of, by the names that they have in a folder.
    """

    table: str
    aggr: Aggr
    hop: int = 1
    self_loops: bool = False
    weighted: bool = False
    as_of: int | float | None = None
    metapath: tuple[str, ...] = ()
    sources: Mapping[str, int] = field(default_factory=dict)
    # The very objects, which say at no cost that nothing has changed: graph, store, and how often that was written to.
    # Weakly, as rows that another copy has replaced are to give their memory back.
    made_from: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    def bound(self, graph: Any, store: FeatureStore) -> Aggregate:
        """Returns this of a graph and a table that it is known to be made of: :meth:`is_of` then needs no checksums."""
        return replace(self, made_from=(ref(graph), ref(store), _version(store)))

    def is_of(self, graph: Any, store: FeatureStore) -> bool:
        """Whether these are the very ones that it was made of; False where only checksums can tell."""
        if not self.made_from:
            return False
        made_graph, made_store, version = self.made_from
        return made_graph() is graph and made_store() is store and version == _version(store)

    @property
    def settings(self) -> dict[str, Any]:
        """All that says how rows were made, without what they were made of."""
        return {name: value for name, value in self.to_json().items() if name != "sources"}

    def to_json(self) -> dict[str, Any]:
        values = asdict(replace(self, made_from=()))
        del values["made_from"]
        return values | {"metapath": list(self.metapath)}

    @classmethod
    def from_json(cls, values: Any) -> Aggregate:
        """Reads what :meth:`to_json` wrote. Raises StoreFormatError: it is something else."""
        try:
            if values.keys() != {entry.name for entry in fields(cls)} - {"made_from"}:
                raise KeyError(f"its keys are {', '.join(map(repr, values))}")
            aggregate = cls(**values | {"metapath": tuple(values["metapath"])})
            sources, path = values["sources"], values["metapath"]
            sound = type(aggregate.table) is str and aggregate.aggr in AGGRS and type(aggregate.hop) is int
            sound = sound and aggregate.hop > 0 and type(aggregate.self_loops) is type(aggregate.weighted) is bool
            sound = sound and isinstance(aggregate.as_of, int | float | None)
            sound = sound and isinstance(path, list) and all(type(step) is str for step in path)
            sound = sound and len(path) in (0, aggregate.hop) and isinstance(sources, dict)
            if not sound or not all(type(checksum) is int for checksum in sources.values()):
                raise ValueError("a value is of the wrong type")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreFormatError(f"{values!r:.200} describes no aggregate of a table: {error}.") from error
        return aggregate

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has other objects.
        return Aggregate.from_json, (self.to_json(),)

    def __str__(self) -> str:
        extras = [f"hop {self.hop}"] * (self.hop > 1) + ["self-loops"] * self.self_loops + ["weighted"] * self.weighted
        extras += [" and ".join(self.metapath)] if self.metapath else []
        extras += [] if self.as_of is None else [f"as of {self.as_of}"]
        return ", ".join([f"{self.aggr} of {self.table}", *extras])


def _version(store: FeatureStore) -> int:
    # Of an array, nothing says that it was written to; torch counts what is done to a tensor.
    return store.rows._version if isinstance(store, MemoryFeatureStore) else 0
