"""Kernels and their oracle. Nothing above this layer imports native code."""

from .dispatch import (
    ARENA_ALIGNMENT,
    ArenaTooSmall,
    DrawKey,
    HopLayout,
    SampleLayout,
    Workspace,
    check_csc,
    coo_to_csc,
    gather_rows,
    random_keys,
    sample_neighbors,
)

__all__ = [
    "ARENA_ALIGNMENT",
    "ArenaTooSmall",
    "DrawKey",
    "HopLayout",
    "SampleLayout",
    "Workspace",
    "check_csc",
    "coo_to_csc",
    "gather_rows",
    "random_keys",
    "sample_neighbors",
]
