"""JSON Schema of run.yaml, made of what the parser of ``gnnload fit`` takes and of the signatures of its classes."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import torch

import lightning_gnnload
from lightning_gnnload.ingest.dataset import Tables
from lightning_gnnload.ingest.schema import DIALECT, section_schemas
from lightning_gnnload.plugin.commands.classes import NO_SETTINGS, serving
from lightning_gnnload.plugin.compat import lightning_cli, pl

_PLAIN = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
_TOPS: dict[str, Any] = {
    "seed_everything": {"type": ["boolean", "integer"], "description": "The seed of all; true: any."},
    "ckpt_path": {
        "type": ["string", "null"],
        "description": "The checkpoint to go on from, or to use.",
    },
    "test_after_fit": {"type": "boolean", "description": "After fit, test the best checkpoint."},
    "accelerate": {"enum": [True, False, "bf16"], "description": "Shorter steps on CPUs."},
    "out": {"type": ["string", "null"], "description": "Where predict writes."},
    "untrained": {"type": "boolean", "description": "Validate, test or predict with the model's first weights."},
}


def run_schema() -> dict[str, Any]:
    """Returns the JSON Schema, draft 2020-12, of the configuration of ``gnnload fit``. Classes of your own are any
    dotted name, with any settings. Parts may be missing: further files, and arguments, go over one."""
    schemas = _Schemas()
    optimizers: Any = torch.optim.Optimizer
    properties = {
        "trainer": schemas.of_arguments(pl.Trainer) | {"required": []},
        "model": schemas.of_classes((pl.LightningModule,)),
        "data": schemas.of_arguments(lightning_gnnload.GraphDataModule) | {"required": []},
        "optimizer": schemas.of_classes((optimizers,)),
        "lr_scheduler": schemas.of_classes((torch.optim.lr_scheduler.LRScheduler,)),
        **_TOPS,
    }
    return {
        "$schema": DIALECT,
        "title": "run.yaml of lightning_gnnload",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": schemas.definitions,
    }


class _Schemas:
    def __init__(self) -> None:
        self.sections, self.definitions = section_schemas()
        self._done: set[str] = set()

    def of_arguments(self, cls: type) -> dict[str, Any]:
        """Returns the schema of a class's settings, as the parser takes them."""
        parser = lightning_cli.LightningArgumentParser(exit_on_error=False)
        parser.add_class_arguments(cls, "it", fail_untyped=False)
        properties, required = {}, []
        for action in parser._actions:
            prefix, _, name = action.dest.partition(".")
            if prefix != "it" or not name or "." in name:
                continue
            schema = self._of_type(getattr(action, "_typehint", None) or action.type)
            if cls is Tables and name in self.sections:
                schema = self.sections[name]
            about = action.help if isinstance(action.help, str) and action.help != "==SUPPRESS==" else ""
            properties[name] = dict(schema) | ({"description": " ".join(about.split())} if about else {})
            if action.required:
                required.append(name)
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def of_classes(self, kinds: tuple[type, ...]) -> dict[str, Any]:
        """Returns the schema of one of the classes that serve there, with its settings."""
        classes = serving(kinds)
        names = [*classes]
        for name, cls in classes.items():
            self._define(name, cls)
        settings_by_name = [
            {
                "if": {"properties": {"class_path": {"const": name}}, "required": ["class_path"]},
                "then": {"properties": {"init_args": {"$ref": f"#/$defs/{name}"}}},
            }
            for name in names
        ]
        class_path = {"anyOf": [{"enum": names}, {"type": "string", "pattern": r"\."}]}
        any_settings = {"type": "object"}
        mapping: dict[str, Any] = {
            "type": "object",
            "properties": {
                "class_path": class_path,
                "init_args": any_settings,
                "dict_kwargs": any_settings,
            },
            "required": ["class_path"],
            "additionalProperties": False,
        }
        return {"anyOf": [mapping | ({"allOf": settings_by_name} if settings_by_name else {}), class_path]}

    def _define(self, name: str, cls: type) -> None:
        """Defines the settings of a class, once; what cannot be read of its signature may be anything."""
        if name in self._done:
            return
        self._done.add(name)
        self.definitions[name] = {"type": "object"}
        try:
            schema = self.of_arguments(cls)
        except Exception:  # of another library's annotations, which need not be types
            return
        # Arguments that a model takes from the data may be missing, and those of an optimizer are the model's.
        is_filled = issubclass(cls, (pl.LightningModule, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler))
        self.definitions[name] = schema | ({"required": []} if is_filled else {})

    def _of_type(self, hint: Any) -> dict[str, Any]:
        origin = get_origin(hint)
        if hint in _PLAIN:
            return {"type": _PLAIN[hint]}
        if origin in (Union, types.UnionType):
            parts = [self._of_type(part) for part in get_args(hint)]
            return {} if {} in parts else {"anyOf": parts}
        if origin is Literal:
            return {"enum": [*get_args(hint)]}
        if inspect.isclass(origin) and issubclass(origin, Mapping):
            return {"type": "object"}
        if inspect.isclass(origin) and issubclass(origin, (Sequence, Iterable)):
            items = get_args(hint)
            return {"type": "array"} | ({"items": self._of_type(items[0])} if len(items) == 1 else {})
        if hint is dict or hint is list:
            return {"type": "object" if hint is dict else "array"}
        if not inspect.isclass(hint) or hint.__module__ in ("typing", "builtins", "collections.abc"):
            return {}
        if issubclass(hint, Path) or hint in NO_SETTINGS:
            return {"type": "string"}
        return self.of_classes((hint,))
