"""What can go wrong in a benchmark."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A figure cannot be measured, or would not be a fair one."""
