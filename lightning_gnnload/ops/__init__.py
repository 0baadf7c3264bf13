"""Kernels and their oracle. Nothing above this layer imports native code."""

from .checks import ARENA_ALIGNMENT
from .dispatch import (
    ArenaTooSmall,
    DrawKey,
    HopLayout,
    SampleLayout,
    Workspace,
    check_csc,
    coo_to_csc,
    gather_rows,
    instruction_sets,
    random_keys,
    use_instruction_set,
)
from .labor import sample_labor
from .neighbors import sample_neighbors
from .shadow import sample_shadow

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
    "instruction_sets",
    "random_keys",
    "sample_labor",
    "sample_neighbors",
    "sample_shadow",
    "use_instruction_set",
]
