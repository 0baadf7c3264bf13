"""Negatives of PyG's loaders: by its rules, drawn by the mini-batch's key, and none later than its link."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling

from lightning_gnnload.errors import SeedError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.philox import hash32


class NodesByTime(NamedTuple):
    """The nodes of a type in the order of their times.

    Attributes:
        nodes: int64 ``[N]``.
        times: theirs, ascending, ``[N]``.
    """

    nodes: np.ndarray
    times: np.ndarray

    @classmethod
    def of(cls, times: torch.Tensor) -> NodesByTime:
        """Sorts the nodes of these times, ``[N]``."""
        nodes = np.argsort(times.numpy(), kind="stable")
        return cls(nodes, times.numpy()[nodes])

    def num_until(self, times: torch.Tensor) -> np.ndarray:
        """Returns how many nodes are not later than each time, int64 ``[n]``."""
        return np.searchsorted(self.times, times.numpy(), side="right")


class NamedNegatives(NegativeSampling):
    """Draws a mini-batch's negatives by a generator of its own, named by its key and its rows.

    PyG gives up after five tries, and takes the earliest node, though that may be later than the link. Here a negative
    is drawn of all nodes that are not later; where there is none, there is no negative.

    Args:
        settings: how many, and by which weights.
        key: of the mini-batch.
        inputs: its links.
        by_time: the nodes of the sources' type and of the destinations', in a graph whose nodes have times.

    Raises:
        SeedError: nodes have times, but the links have none.
    """

    def __init__(
        self,
        settings: NegativeSampling,
        key: DrawKey,
        inputs: EdgeSamplerInput,
        by_time: tuple[NodesByTime | None, NodesByTime | None],
    ) -> None:
        self.__dict__.update(settings.__dict__)
        ends = np.concatenate([inputs.row.numpy(), inputs.col.numpy()])
        self._generator = np.random.Generator(np.random.Philox([key.seed, key.epoch, key.step, *digest(ends)]))
        self._inputs, self._by_time = inputs, dict(zip(("src", "dst"), by_time, strict=True))
        if inputs.time is None and by_time != (None, None):
            raise SeedError("negatives are drawn by the nodes' times, but the links have none: give edge_label_time=.")
        self._missing = torch.zeros(math.ceil(len(inputs.row) * settings.amount), dtype=torch.bool)

    def sample(self, num_samples: int, endpoint: Any, num_nodes: int | None = None) -> torch.Tensor:
        by_time = self._by_time[endpoint]
        weight = self.src_weight if endpoint == "src" else self.dst_weight
        counts: Any = num_nodes
        if by_time is not None:
            assert self._inputs.time is not None
            counts = self._of_all(by_time.num_until(self._inputs.time), num_samples)
        if weight is None:
            drawn, is_missing = self._generator.integers(0, np.maximum(counts, 1), num_samples), counts == 0
        else:
            weights = weight.cpu().numpy()
            total = np.cumsum(weights if by_time is None else weights[by_time.nodes], dtype=np.float64)
            most = np.where(counts, total[np.maximum(counts, 1) - 1], 0)
            drawn = np.searchsorted(total, self._generator.random(num_samples) * most, side="right")
            drawn, is_missing = np.minimum(drawn, np.maximum(counts, 1) - 1), most == 0
        if by_time is None:
            return torch.from_numpy(drawn)
        self._missing |= torch.from_numpy(is_missing)
        own = self._inputs.row if endpoint == "src" else self._inputs.col
        return torch.from_numpy(np.where(is_missing, self._of_all(own.numpy(), num_samples), by_time.nodes[drawn]))

    def without_missing(self, metadata: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns PyG's metadata of the links without the negatives that there are not: of binary ones these entries
        are left out; of triplets, which have one in each place, it is the positive one again, of which a loss that
        compares both learns nothing."""
        if not bool(self._missing.any()):
            return metadata
        if self.is_binary():
            input_id, *columns = metadata
            kept = torch.cat([torch.ones(len(self._inputs.row), dtype=torch.bool), ~self._missing])
            return input_id, *(column[..., kept] if at == 0 else column[kept] for at, column in enumerate(columns))
        input_id, src, positive, negative, time = metadata
        missing = self._missing.view(-1, len(positive)).t()
        filled = torch.where(missing, positive[:, None], negative.view(missing.shape))
        return input_id, src, positive, filled.view(negative.shape), time

    @staticmethod
    def _of_all(of_links: np.ndarray, num_samples: int) -> np.ndarray:
        """Repeats what each link has for its negatives: these are the first of all links, then the second, and so
        on."""
        return np.resize(of_links, num_samples)


def digest(ends: np.ndarray) -> tuple[int, int]:
    """Returns two numbers of 32 bits that these ids and their places decide."""
    mixed = hash32(ends.astype(np.uint32) + np.arange(len(ends), dtype=np.uint32) * np.uint32(0x9E3779B1))
    return int(mixed.sum(dtype=np.uint64) & np.uint64(0xFFFFFFFF)), int(np.bitwise_xor.reduce(mixed, initial=0))
