"""transforms.json: what was fitted on one build's tables, so that another build can apply it to new ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning_gnnload.data.storage.manifest import CHECKSUM, check_checksum, with_checksum
from lightning_gnnload.data.storage.targets import TRANSFORMS
from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.ingest.features import Feature
from lightning_gnnload.ingest.spec import ColumnSpec

_VERSION = 1


@dataclass(frozen=True)
class Transforms:
    """What turns columns into features and labels into classes.

    Attributes:
        nodes: features of each node type.
        edges: those of each table of edges.
        classes: the names of each task's classes, in their order.
        origin: the file that they were read from; None: they are fitted here.
    """

    nodes: dict[str, list[Feature]] = field(default_factory=dict)
    edges: dict[str, list[Feature]] = field(default_factory=dict)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    origin: Path | None = None

    @classmethod
    def read(cls, path: Path) -> Transforms:
        """Reads those of a folder that was built, or the file itself.

        Raises:
            TableError: it is missing, or no such file.
            StoreFormatError: it is not as it was written.
        """
        file = path / TRANSFORMS if path.is_dir() else path
        try:
            given = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise TableError(f"{file} cannot be read: {error}. Give a folder of gnnload build.") from error
        keys = {"version", "nodes", "edges", "classes"}
        sound = isinstance(given, dict) and given.keys() - {CHECKSUM} == keys and given["version"] == _VERSION
        sound = sound and all(isinstance(given[key], dict) for key in keys - {"version"})
        if not sound:
            raise TableError(f"{file} is no file of transforms, version {_VERSION}. Give a folder of gnnload build.")
        check_checksum(file, given)
        tables = [
            {
                name: [Feature.from_json(each) for each in _listed(features, file)]
                for name, features in given[key].items()
            }
            for key in ("nodes", "edges")
        ]
        classes = {name: tuple(map(str, _listed(names, file))) for name, names in given["classes"].items()}
        return cls(tables[0], tables[1], classes, file)

    def write(self, folder: Path) -> None:
        """Writes the file into a folder that is being made."""
        values: dict[str, Any] = {"version": _VERSION}
        for key, tables in (("nodes", self.nodes), ("edges", self.edges)):
            values[key] = {name: [each.to_json() for each in features] for name, features in tables.items()}
        values["classes"] = {name: list(names) for name, names in self.classes.items()}
        (folder / TRANSFORMS).write_text(
            json.dumps(with_checksum(values), indent=1, ensure_ascii=False), encoding="utf-8"
        )

    def of(self, section: str, name: str, columns: Sequence[ColumnSpec]) -> list[Feature]:
        """Returns the features of a table, whose columns have to be those that they were fitted on.

        Raises:
            GraphSpecError: graph.yaml lists other columns.
        """
        known: Mapping[str, list[Feature]] = self.nodes if section == "nodes" else self.edges
        fitted, listed = [each.column for each in known.get(name, [])], [each.column for each in columns]
        if fitted != listed:
            raise GraphSpecError(
                f"{section}.{name}.x lists {', '.join(listed) or 'no column'}, but the transforms of {self.origin} are "
                f"of {', '.join(fitted) or 'none'}. A model needs the same columns in the same order."
            )
        return known.get(name, [])


def _listed(given: Any, file: Path) -> list[Any]:
    if not isinstance(given, list):
        raise TableError(f"{file}: {given!r:.100} is no list. Give a folder of gnnload build.")
    return given
