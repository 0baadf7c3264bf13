"""Description: what a YAML file says of the folder that it lies in."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_gnnload.datasets.foreign import reading
from lightning_gnnload.errors import DatasetError

_WORDS = {str: "a text", int: "a whole number", bool: "true or false", list: "a list", dict: "fields by name"}

_REPR = reprlib.Repr()
_REPR.maxstring = 200
_MOST_FIELDS = 10_000  # of one mapping


class Description:
    """Gives the fields of a YAML file one by one, each checked, and knows which were never read. ``where`` says where
    in the file these fields are, as ``"graph.nodes[1]"``; its folder holds all files that it names."""

    def __init__(self, fields: Any, file: Path, where: str = "") -> None:
        self.file, self.where = file, where
        if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
            problem = f"{where} is" if where else "it holds"
            raise DatasetError(f"{file}: {problem} {_text_of(fields)}, but fields by name are needed.")
        self._fields = fields
        self._read_names: set[str] = set()
        self._parts: dict[str, list[Description]] = {}

    @classmethod
    def read(cls, file: Path) -> Description:
        """Reads a file; YAML's tags that would make Python objects are refused, and fields that are there twice."""
        with reading(file, "Give the folder that holds it, YAML of fields by name."):
            return cls(load_yaml(file.read_text(encoding="utf-8")), file)

    def has(self, name: str) -> bool:
        """Returns whether there is such a field; one that is null counts as missing."""
        return self._fields.get(name) is not None

    def take(self, name: str, type_: type, *, optional: bool = False) -> Any:
        """Returns a field of this type; None where it is optional and missing; raises DatasetError otherwise."""
        self._read_names.add(name)
        value = self._fields.get(name)
        if value is None and optional:
            return None
        if value is None:
            raise DatasetError(f"{self.file}: {self._at(name)} is missing; {_WORDS[type_]} is needed.")
        if not isinstance(value, type_) or (type_ is int and isinstance(value, bool)):
            raise self.error(name, f"{_WORDS[type_]} is needed")
        return value

    def choose(self, name: str, choices: Sequence[str]) -> str:
        """Returns a text that is one of these."""
        value = self.take(name, str)
        if value not in choices:
            raise self.error(name, f"it must be one of {', '.join(choices)}")
        return str(value)

    def part(self, name: str) -> Description:
        """Returns the description that a field holds."""
        self._parts.setdefault(name, [Description(self.take(name, dict), self.file, self._at(name))])
        return self._parts[name][0]

    def parts(self, name: str, *, optional: bool = False) -> list[Description]:
        """Returns the descriptions that a field holds a list of; none where it is optional and missing."""
        if name not in self._parts:
            self._parts[name] = [
                Description(value, self.file, f"{self._at(name)}[{number}]")
                for number, value in enumerate(self.take(name, list, optional=optional) or [])
            ]
        return list(self._parts[name])

    def path(self, name: str) -> Path:
        """Returns a file that lies in the folder of the YAML file; raises DatasetError where it is missing, or lies
        elsewhere: a description is not trusted to read the rest of a disk."""
        relative, folder = self.take(name, str), self.file.parent.resolve()
        try:
            path = (folder / relative).resolve()
            inside, there = path.is_relative_to(folder), path.is_file()
        except (OSError, ValueError, RuntimeError) as error:
            raise self.error(name, f"it is no path of a file ({error})") from error
        if not inside:
            raise self.error(
                name,
                f"it leads out of {folder}, by '..', from the root of the disk or by a link, but a file in the folder "
                "is needed. Move or copy it there",
            )
        if not there:
            raise self.error(name, f"there is no such file in {folder}. Is it complete?")
        return path

    def error(self, name: str, problem: str) -> DatasetError:
        """Makes the error about a field, with its value."""
        return DatasetError(f"{self.file}: {self._at(name)} is {_text_of(self._fields.get(name))}; {problem}.")

    @property
    def left_out(self) -> list[str]:
        """The fields that nobody read, by their paths, those of parts that were taken among them."""
        unread = [self._at(name) for name in self._fields if name not in self._read_names]
        return unread + [name for parts in self._parts.values() for part in parts for name in part.left_out]

    def leave(self) -> None:
        """Counts all fields as read: what they say is left out on purpose, and nobody needs to hear of it."""
        self._read_names |= self._fields.keys()
        self._parts = {}

    def _at(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name


def load_yaml(text: str) -> Any:
    """Returns what YAML says; raises ``yaml.YAMLError`` where it is none, would make Python objects, says a field
    twice, or stands for more than memory may hold."""
    import yaml  # comes with jsonargparse; here, as most processes read no folder of others

    class Loader(yaml.SafeLoader):
        """Refuses what YAML forbids and its readers pass over: the same field twice, of which one would be lost."""

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            keys = set()
            for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
                if key.value in keys:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
                keys.add(key.value)
            return node

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            if len(node.value) > _MOST_FIELDS:  # merged of others, which may double each time
                raise yaml.MarkedYAMLError(problem="merges too many fields", problem_mark=node.start_mark)

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError:
        raise
    except Exception as error:  # of a value that is none, its constructors raise whatever Python does
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else f"a value is none: {error}"
        raise yaml.YAMLError(reason.rstrip(".")) from error


class YamlLines:
    """Says which line of a YAML text a place as ``edges.buys.x[0]`` is on; of what is not there, what is around it."""

    def __init__(self, text: str) -> None:
        import yaml

        self._root = yaml.compose(text, yaml.SafeLoader)

    def of(self, where: str) -> int:
        """Returns the line's number, from 1 on."""
        import yaml

        node, line, rest = self._root, 0, where
        while node is not None and rest:
            entries: list[tuple[str, Any, Any]] = []
            if isinstance(node, yaml.MappingNode):
                entries = [(str(key.value), key, value) for key, value in node.value]
            elif isinstance(node, yaml.SequenceNode):
                entries = [(f"[{number}]", entry, entry) for number, entry in enumerate(node.value)]
            # Names may contain dots themselves: the longest that fits.
            fitting = [entry for entry in entries if re.match(rf"{re.escape(entry[0])}(?=[.\[]|$)", rest)]
            name, at, node = max(fitting, key=lambda entry: len(entry[0]), default=("", None, None))
            if at is not None:
                line, rest = at.start_mark.line, rest[len(name) :].removeprefix(".")
        return int(line) + 1


def short(value: Any) -> str:
    """Returns what a value is, cut: a few lines of YAML can stand for more than memory holds."""
    return _REPR.repr(value)


def _text_of(value: Any) -> str:
    text = short(value)
    return text if isinstance(value, str) else f"{text} ({type(value).__name__})"
