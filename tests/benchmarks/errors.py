"""What can go wrong in a benchmark."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A figure cannot be measured, or would not be a fair one."""


class Unavailable(Exception):  # noqa: N818  a reason and not a fault: the row is left out and says why
    """What a row needs is not here: a library, a compiler, a name that this version does not have yet."""
