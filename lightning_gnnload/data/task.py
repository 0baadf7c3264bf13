"""Task: what is predicted on a graph, as one of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lightning_gnnload.data.by_type import flat_seeds
from lightning_gnnload.data.seedtable import SeedTable


@dataclass(frozen=True)
class Task:
    """One of the predictions to make on a graph: its seed tables by split, and what its labels mean.

    Attributes:
        splits: tables by ``"train"``, ``"val"``, ``"test"`` and ``"predict"``, whose rows need no labels; a split may
            be missing. Of links also a dict of tables by edge type, which are joined.
        num_classes: of integer labels; None where labels are numbers.
        class_names: the user's name of each class, or None.
        label_names: the user's name of the label, or of each column of labels ``[R, C]``; or None.
        as_of: the time for which to predict, as a graph's clock counts: int64 nanoseconds of dates; None: rows say it.

    Example:
        >>> Task({"train": SeedTable([3, 5], y=[0, 1])}, num_classes=2).splits["train"].y.tolist()
        [0, 1]
    """

    splits: Mapping[str, SeedTable] = field(default_factory=dict)
    num_classes: int | None = None
    class_names: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None
    as_of: int | float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "splits", {name: flat_seeds(table) for name, table in self.splits.items()})
