"""What must not stand in a file that an owner sends to others: names of people and machines, and paths."""

from __future__ import annotations

import getpass
import os
import platform
import re
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

_PATH = re.compile(r"(?<![\w.:/])(?:\[path\]|~)?/(?:[^\s/'\"<>|:;,()\[\]]+/)+([^\s/'\"<>|:;,()\[\]]*)")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
_UUID = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_LEAST_NAME = 3  # shorter ones are in too many words, and tell nobody who it was


def own_names() -> tuple[str, ...]:
    """Returns the names of this user and this machine, and the folders that this process works with, which may have
    blanks in them; the longest first."""
    names = {platform.node(), platform.node().partition(".")[0], Path.home().name}
    with suppress(KeyError, OSError):  # a user without a name, as in containers
        names.add(getpass.getuser())
    names.update((str(Path.home()), os.getcwd(), sys.prefix, tempfile.gettempdir()))
    return tuple(sorted((name for name in names if len(name) >= _LEAST_NAME), key=len, reverse=True))


def without_names(value: Any, names: tuple[str, ...] | None = None) -> Any:
    """Returns JSON values in which texts have no paths, but the last part of each, no addresses, no UUIDs, and none of
    ``names``, None for :func:`own_names`.

    Example:
        >>> without_names({"why": "no room for /home/ann/run/x.so on tower7 (10.0.0.5)"}, ("tower7", "ann"))
        {'why': 'no room for [path]/x.so on [name] ([address])'}
    """
    names = own_names() if names is None else names
    if isinstance(value, dict):
        return {key: without_names(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_names(item, names) for item in value]
    if not isinstance(value, str):
        return value
    folders = [name for name in names if "/" in name]
    text = _replaced(value, folders, "[path]")
    text = _UUID.sub("[id]", _ADDRESS.sub("[address]", _PATH.sub(r"[path]/\1", text)))
    return _replaced(text, [name for name in names if name not in folders], "[name]")


def _replaced(text: str, names: list[str], by: str) -> str:
    for name in names:
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", by, text)
    return text
