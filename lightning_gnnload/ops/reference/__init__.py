"""Slow oracle of every op: plain Python and NumPy, written to be read. The kernels must equal it exactly.

Shapes: N graph nodes, E edges, S seeds, B requested ids, F feature width.
"""

from .draws import NodeDraws, philox, stream_keys
from .labor import sample_labor, source_draw
from .neighbors import Hop, sample_neighbors, sample_positions
from .shadow import sample_shadow
from .tables import coo_to_csc, gather_rows, is_csc, random_keys

__all__ = [
    "Hop",
    "NodeDraws",
    "coo_to_csc",
    "gather_rows",
    "is_csc",
    "philox",
    "random_keys",
    "sample_labor",
    "sample_neighbors",
    "sample_positions",
    "sample_shadow",
    "source_draw",
    "stream_keys",
]
