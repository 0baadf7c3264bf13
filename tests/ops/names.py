"""Keys and names for tests on any graph: of whole graphs and of parts, from any hop on."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from lightning_gnnload.ops import DrawKey


def any_key(data: Any, most_hop: int = 2**16 - 4) -> DrawKey:
    """A key whose first hop leaves room for a few more."""
    numbers = (data.draw(st.integers(0, 2**bits - 1)) for bits in (64, 32, 32))
    return DrawKey(*numbers, hop=data.draw(st.sampled_from([0, 0, 1, most_hop])))


def any_names(data: Any, num_nodes: int) -> np.ndarray | None:
    """None, or what the nodes of a part may be called: all differ, in no order."""
    most = data.draw(st.sampled_from([None, num_nodes, 3 * num_nodes, 2**48]))
    if most is None:
        return None
    rng = np.random.default_rng(num_nodes)
    if most == 2**48:  # some agree in their low 32 bits
        return rng.permutation(num_nodes) % 3 + 2**32 * rng.permutation(num_nodes)
    return rng.permutation(most)[:num_nodes]
