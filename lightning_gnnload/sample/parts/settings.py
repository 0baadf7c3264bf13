"""Whole samplers as JSON values, by which another process draws the same mini-batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.parts.lists import class_named, name_of
from lightning_gnnload.settings import keywords_of

_PLAIN = (bool, int, float, str, type(None))


def describe_whole(sampler: Sampler) -> dict[str, Any]:
    """Describes a sampler by its class and the arguments of its constructor, which it keeps under their names.

    Raises:
        SamplerConfigError: an argument is no plain value, or these do not make the same sampler.
    """
    names = keywords_of(type(sampler).__init__)
    if not type(sampler).__module__.startswith("lightning_gnnload.sample."):
        raise SamplerConfigError(f"{sampler!r} is none of the package's own, which other processes know.")
    try:
        about = {
            "kind": name_of(type(sampler)),
            "settings": {name: _written(getattr(sampler, name)) for name in names},
        }
        made_again = whole_described(about).description
    except (AttributeError, TypeError) as error:
        raise SamplerConfigError(
            f"{sampler!r} cannot be described to another process ({error}): it must keep its constructor's arguments "
            "under their names, and these be numbers, texts, lists and dicts."
        ) from error
    if made_again != sampler.description:
        raise SamplerConfigError(f"{sampler!r} cannot be described to another process, which would make {made_again}.")
    return about


def whole_described(about: Mapping[str, Any]) -> Sampler:
    """Makes the sampler that :func:`describe_whole` described. SamplerConfigError: it is none."""
    try:
        settings = {name: _read(value) for name, value in about["settings"].items()}
        return class_named(about["kind"])(**settings)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SamplerConfigError(f"{about!r:.200} describes no sampler: {error}") from error


def _written(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, list | tuple):
        return {type(value).__name__: list(map(_written, value))}
    if isinstance(value, dict):
        return {"dict": [[_written(key), _written(entry)] for key, entry in value.items()]}
    if isinstance(value, np.timedelta64):
        return {"span": [int(value.astype(np.int64)), *np.datetime_data(value.dtype)]}
    raise TypeError(f"a {type(value).__name__}")


def _read(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    [(form, entries)] = value.items()
    if form == "dict":
        return {_read(key): _read(entry) for key, entry in entries}
    if form == "span":
        count, unit, multiple = entries
        return np.timedelta64(count, (unit, multiple))
    return {"list": list, "tuple": tuple}[form](map(_read, entries))
