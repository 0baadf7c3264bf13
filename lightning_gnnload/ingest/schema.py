"""JSON Schema of graph.yaml, made of the dataclasses that read it, so that editors complete and check its keys."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field, is_dataclass
from typing import Any

from lightning_gnnload.ingest.settings import SCHEMAS, ByName, fields_by_key, is_required
from lightning_gnnload.ingest.spec import GraphSpec, TaskSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAME = r"^(?!\d|-)(?:(?!__)[\w-])+$"
_TOGETHER: dict[type, dict[str, list[str]]] = {TaskSpec: {"y": ["split"]}}
"""Keys that need others beside them."""
_ABOUT = {
    "version": "Of this format: 1.",
    "nodes": "A table for each type of nodes, by the type's name.",
    "edges": "A table for each type of edges, by the type's name.",
    "tasks": "What is to be predicted, by the task's name.",
    "build": "How the graph is built.",
    "from": 'A path, a glob, a list of paths, or a "select ..." that DuckDB runs. Paths count from this folder.',
    "id": "The column of ids: text, UUIDs or integers.",
    "id_type": "As what ids and keys are read; auto: as the column has them, text in CSV.",
    "time": "The column of times: since when a node, an edge or a label is there.",
    "time_unit": "What times count that are integers, since 1970.",
    "timezone": "Of times without one, as UTC or Europe/Berlin.",
    "on_duplicate": "Of ids that come twice: an error, or the first row counts.",
    "x": "Columns that become features.",
    "column": "The column's name; of a split, the column that holds train, val, test or predict.",
    "as": "What a column is read as. Integers have to say it.",
    "scale": "How numbers are scaled; log is that of 1 + value, then standard.",
    "impute": "What stands for a missing number.",
    "flag_missing": "Whether a further column says where a value is missing; auto: if one is, in training rows.",
    "min_count": "Training rows that a category needs for a code of its own.",
    "max_values": "How many categories have codes of their own.",
    "src": "TYPE.COLUMN: the node type at which edges begin, and the column of this table with its ids.",
    "dst": "TYPE.COLUMN: the node type at which edges end, and the column of this table with its ids.",
    "weight": "A column of numbers, by which samplers draw.",
    "reverse": "true: each edge leads back, too, as the type rev_NAME; or a name for that type.",
    "on_missing": "Of keys that are no id, or missing: an error, or the row is dropped.",
    "self_loops": "Edges from a node to itself.",
    "repeats": "Edges with the same ends as one before; of build: count them.",
    "seed": "TYPE.COLUMN: whose label it is; of a split by shares, another draw.",
    "edge": "Rows are links of this type of edges.",
    "y": "The column of labels, or several: truth values of which any may hold, or numbers.",
    "as_of": "The time at which rows without one are predicted.",
    "text": "The encoder that makes numbers of a column's text: hashing, or a sentence model that is installed.",
    "width": "How many numbers hashing makes of a text.",
    "vocabulary": "A name: columns with the same one share their categories, and their rows in a model.",
    "kind": "What labels are; auto: text, truth values and integers are classes.",
    "split": "Rows that train, validate and test: by time, by a column, or by shares.",
    "fit": "Whether the task's training rows fit the features.",
    "val": "The time from which rows validate.",
    "test": "The time from which rows test.",
    "share": "The shares of train, val and test, which sum to 1.",
    "memory": "What the build may take, with its unit, as 4GB.",
    "threads": "That work at once.",
    "scratch": "A folder for what is sorted; default: beside the new one.",
    "transforms": "A folder built before, whose features and classes are applied.",
}


def graph_schema() -> dict[str, Any]:
    """Returns the JSON Schema, draft 2020-12, of what :class:`.GraphSpec` reads.

    Example:
        >>> graph_schema()["$defs"]["NodeSpec"]["required"]
        ['from', 'id']
    """
    classes: dict[str, dict[str, Any]] = {}
    root = _of_class(GraphSpec, classes)
    return {"$schema": DIALECT, "title": "graph.yaml of lightning_gnnload", **root, "$defs": classes}


def section_schemas() -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the schemas of the sections of graph.yaml by their names, and the definitions that they refer to."""
    whole = graph_schema()
    return {name: schema for name, schema in whole["properties"].items() if name != "version"}, whole["$defs"]


def _of_class(cls: type, classes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    by_key = fields_by_key(cls)
    return {
        "type": "object",
        "description": inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("\n", " "),
        "properties": {key: _of_field(key, field, classes) for key, field in by_key.items()},
        "required": [key for key, field in by_key.items() if is_required(field)],
        "dependentRequired": _TOGETHER.get(cls, {}),
        "additionalProperties": False,
    }


def _of_field(key: str, field: Field[Any], classes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    schema = dict(_resolved(SCHEMAS.get(field.metadata["check"], {}), classes))
    if key in _ABOUT:
        schema["description"] = _ABOUT[key]
    if isinstance(field.default, (str, bool, int, float)) and field.default is not MISSING:
        schema["default"] = field.default
    return schema


def _resolved(schema: Any, classes: dict[str, dict[str, Any]]) -> Any:
    """Returns a schema in which classes are references to definitions, which are added to ``classes``."""
    if isinstance(schema, ByName):
        entries = _resolved(schema.cls, classes)
        return {"type": "object", "propertyNames": {"pattern": _NAME}, "additionalProperties": entries}
    if isinstance(schema, type) and is_dataclass(schema):
        if schema.__name__ not in classes:
            classes[schema.__name__] = {}
            classes[schema.__name__].update(_of_class(schema, classes))
        return {"$ref": f"#/$defs/{schema.__name__}"}
    if isinstance(schema, dict):
        return {key: _resolved(value, classes) for key, value in schema.items()}
    return [_resolved(entry, classes) for entry in schema] if isinstance(schema, list) else schema
