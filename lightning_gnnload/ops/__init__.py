"""Kernels and their oracle. Nothing above this layer imports native code."""

from .dispatch import (
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
