"""transforms.json: what was fitted on one build's tables, so that another build can apply it to new ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning_gnnload.errors import GraphSpecError, TableError
from lightning_gnnload.ingest.features import Feature
from lightning_gnnload.ingest.spec import ColumnSpec
from lightning_gnnload.storage.manifest import CHECKSUM, check_checksum, with_checksum
from lightning_gnnload.storage.targets import TRANSFORMS

_VERSION = 1
_SECTIONS = ("nodes", "edges", "classes")
_LATER = "labels"  # which files of the first releases lack


@dataclass(frozen=True)
class Transforms:
    """What turns columns into features and labels into classes."""

    nodes: dict[str, list[Feature]] = field(default_factory=dict)  # features of each node type
    edges: dict[str, list[Feature]] = field(default_factory=dict)  # those of each table of edges
    # the names of each task's classes, in their order.
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)  # those of each task's labels
    origin: Path | None = None  # the file that they were read from; None: they are fitted here

    @classmethod
    def read(cls, path: Path) -> Transforms:
        """Reads those of a folder that was built, or the file itself; raises TableError where it is none."""
        file = path / TRANSFORMS if path.is_dir() else path
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise TableError(f"{file} cannot be read: {error}. Give a folder of gnnload build.") from error
        if not _is_sound(values):
            raise TableError(f"{file} is no file of transforms, version {_VERSION}. Give a folder of gnnload build.")
        check_checksum(file, values)
        nodes, edges, classes, labels = (
            {name: _as_list(entries, file) for name, entries in values.get(section, {}).items()}
            for section in (*_SECTIONS, _LATER)
        )
        return cls(
            {name: list(map(Feature.from_json, features)) for name, features in nodes.items()},
            {name: list(map(Feature.from_json, features)) for name, features in edges.items()},
            {name: tuple(map(str, names)) for name, names in classes.items()},
            {name: tuple(map(str, names)) for name, names in labels.items()},
            file,
        )

    def write(self, folder: Path) -> None:
        """Writes the file into a folder that is being made."""
        values: dict[str, Any] = {"version": _VERSION}
        for key, tables in (("nodes", self.nodes), ("edges", self.edges)):
            values[key] = {name: [feature.to_json() for feature in features] for name, features in tables.items()}
        for key, by_task in (("classes", self.classes), ("labels", self.labels)):
            values[key] = {name: list(names) for name, names in by_task.items()}
        (folder / TRANSFORMS).write_text(
            json.dumps(with_checksum(values), indent=1, ensure_ascii=False), encoding="utf-8"
        )

    def of(self, section: str, name: str, columns: Sequence[ColumnSpec]) -> list[Feature]:
        """Returns the features of a table; raises GraphSpecError where graph.yaml lists other columns than they were
        fitted on."""
        features = (self.nodes if section == "nodes" else self.edges).get(name, [])
        fitted, listed = [feature.column for feature in features], [column.column for column in columns]
        if fitted != listed:
            raise GraphSpecError(
                f"{section}.{name}.x lists {', '.join(listed) or 'no column'}, but the transforms of {self.origin} are "
                f"of {', '.join(fitted) or 'none'}. A model needs the same columns in the same order."
            )
        return features


def _is_sound(values: Any) -> bool:
    has_keys = isinstance(values, dict) and values.keys() - {CHECKSUM, _LATER} == {"version", *_SECTIONS}
    sections = (*_SECTIONS, _LATER)
    return has_keys and values["version"] == _VERSION and all(isinstance(values.get(s, {}), dict) for s in sections)


def _as_list(value: Any, file: Path) -> list[Any]:
    if not isinstance(value, list):
        raise TableError(f"{file}: {value!r:.100} is no list. Give a folder of gnnload build.")
    return value
