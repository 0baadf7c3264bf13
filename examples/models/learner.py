"""needed: what a model reads of a batch, or an error that says how to give it."""

from __future__ import annotations

from typing import Any


def needed(value: Any, name: str, what: str) -> Any:
    """Returns what a batch has of ``what``. Raises ValueError: it has none."""
    if value is None:
        raise ValueError(f"batch.{name} is None: this model needs {what} of nodes. Give GraphData(..., {name}=...).")
    return value
