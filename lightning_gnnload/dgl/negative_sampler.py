"""DGL's negative samplers, whose draws in our loader are a pure function of (seed, epoch, row)."""

from __future__ import annotations

from typing import Any

import dgl  # noqa: F401  for the examples
import numpy as np
import torch
from dgl.dataloading import negative_sampler as own

from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.checks import as_integer
from lightning_gnnload.ops.philox import philox, stream_keys

_TAG = 0x6E656764  # ASCII of "negd": a stream of its own
_MOST_ROUNDS = 64  # of which each draws again what was refused


class PerSourceUniform(own.PerSourceUniform):
    """DGL's ``PerSourceUniform``, also named ``Uniform``: ``k`` destinations for the source of each edge, uniformly
    from all nodes of the type. They may be true edges, as DGL's may.

    Example:
        >>> g = dgl.graph(([0, 1], [1, 2]))
        >>> src, dst = Uniform(2)(g, torch.tensor([0]))
        >>> src.tolist(), len(dst)
        ([0, 0], 2)
    """

    def __init__(self, k: int) -> None:
        super().__init__(_checked(k))

    def pairs(self, g: Any, src: np.ndarray, rows: np.ndarray, edge_type: Any, key: DrawKey) -> tuple[Any, Any]:
        """Returns the sources and destinations for edges of one type, int64 ``[R * k]`` each.

        Args:
            g: the user's graph.
            src: sources of the edges, int64 ``[R]``.
            rows: the numbers by which these draw, int64 ``[R]``.
            edge_type: canonical.
            key: its seed and epoch count; rows have numbers of their own.
        """
        [dst] = _drawn(rows, self.k, 0, key, g.num_nodes(edge_type[2]))
        return np.repeat(src, self.k), dst.ravel()


Uniform = PerSourceUniform


class GlobalUniform(own.GlobalUniform):
    """DGL's ``GlobalUniform``: ``k`` pairs for each edge, uniformly from all pairs of nodes that no edge joins.

    Args:
        k: how many; in small or dense graphs there may be fewer, as in DGL.
        exclude_self_loops: no pair joins a node with itself.
        replace: a mini-batch may have a pair twice.

    Example:
        >>> g = dgl.graph(([0, 1], [1, 2]))
        >>> src, dst = GlobalUniform(1)(g, torch.tensor([0]))
        >>> bool(g.has_edges_between(src, dst).any())
        False
    """

    def __init__(self, k: int, exclude_self_loops: bool = True, replace: bool = False) -> None:
        super().__init__(_checked(k), exclude_self_loops, replace)

    def pairs(self, g: Any, src: np.ndarray, rows: np.ndarray, edge_type: Any, key: DrawKey) -> tuple[Any, Any]:
        """As :meth:`PerSourceUniform.pairs`, but for pairs that are not found: ``[P]``, where P is at most R * k."""
        num_src, num_dst = g.num_nodes(edge_type[0]), g.num_nodes(edge_type[2])
        chosen, earlier_pairs = np.full(len(rows) * self.k, -1), np.empty(0, np.int64)
        for number in range(_MOST_ROUNDS):
            missing = np.flatnonzero(chosen < 0)
            if not len(missing):
                break
            heads, tails = (nodes.ravel()[missing] for nodes in _drawn(rows, self.k, number, key, num_src, num_dst))
            pair = heads * num_dst + tails
            ids = (torch.from_numpy(nodes).to(g.idtype) for nodes in (heads, tails))
            is_fine = ~g.has_edges_between(*ids, etype=edge_type).numpy().astype(bool)
            if self.exclude_self_loops and edge_type[0] == edge_type[2]:
                is_fine &= heads != tails
            if not self.replace:  # the first row of a mini-batch keeps a pair, and others draw another
                is_first = np.zeros(len(pair), bool)
                fine = np.flatnonzero(is_fine)
                is_first[fine[np.unique(pair[fine], return_index=True)[1]]] = True
                is_fine &= is_first & ~np.isin(pair, earlier_pairs)
                earlier_pairs = np.concatenate([earlier_pairs, pair[is_fine]])
            chosen[missing[is_fine]] = pair[is_fine]
        heads, tails = np.divmod(chosen[chosen >= 0], max(num_dst, 1))
        return heads, tails


def _checked(k: Any) -> int:
    k = as_integer("k", k)
    if k < 1:
        raise SamplerConfigError(f"k={k}: a whole number of at least 1 is needed: negatives for each edge.")
    return k


def _drawn(rows: np.ndarray, k: int, number: int, key: DrawKey, *limits: int) -> list[np.ndarray]:
    """Returns a number below each of ``limits``, int64 ``[R, k]``, of the round ``number`` of draws."""
    counter = np.zeros((len(rows), k, 4), np.uint32)
    counter[..., 0], counter[..., 1] = (rows & 0xFFFFFFFF)[:, None], (rows >> 32)[:, None]
    counter[..., 2], counter[..., 3] = np.arange(k), number
    words = philox(counter, stream_keys(key.seed, key.epoch, _TAG)[0]).astype(np.uint64)
    # Of 64 bits: at most 2**-32 of the numbers come more often than others, by one in 2**32.
    numbers = [words[..., 2 * at] << np.uint64(32) | words[..., 2 * at + 1] for at in range(len(limits))]
    return [(number % np.uint64(max(limit, 1))).astype(np.int64) for number, limit in zip(numbers, limits, strict=True)]
