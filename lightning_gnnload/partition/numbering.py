"""Renumbering nodes so that those of a part are consecutive."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Numbering(NamedTuple):
    """Holds the arrays that number a :class:`.Partition`'s nodes: ``starts`` ``[K + 1]``, ``node_ids`` and ``new_ids``
    ``[N]``."""

    starts: np.ndarray
    node_ids: np.ndarray
    new_ids: np.ndarray


def number_nodes(owner: np.ndarray, num_parts: int) -> Numbering:
    """Numbers nodes by part, integers ``[N]`` in ``[0, num_parts)``, and within a part by id.

    Source: DSP (PPoPP'23), section 3.1.
    """
    node_ids = np.argsort(owner, kind="stable").astype(np.int64, copy=False)
    new_ids = np.empty_like(node_ids)
    new_ids[node_ids] = np.arange(len(owner))
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=num_parts))])
    return Numbering(starts.astype(np.int64, copy=False), node_ids, new_ids)
