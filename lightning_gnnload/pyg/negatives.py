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
    """The nodes of a type, int64 ``[N]``, in the order of their times."""

    nodes: np.ndarray
    times: np.ndarray

    @classmethod
    def of(cls, times: torch.Tensor) -> NodesByTime:
        nodes = np.argsort(times.numpy(), kind="stable")
        return cls(nodes, times.numpy()[nodes])

    def num_until(self, times: torch.Tensor) -> np.ndarray:
        """Returns how many nodes are not later than each time, int64 ``[n]``."""
        return np.searchsorted(self.times, times.numpy(), side="right")


class NamedNegatives(NegativeSampling):
    """Draws a mini-batch's negatives by PyG's ``settings``, with random numbers that only its key and its links decide.

    PyG gives up after five tries, and takes the earliest node, though that may be later than the link. Here a negative
    is drawn of all nodes that are not later; where there is none, there is no negative. ``by_time`` has the nodes of
    the sources' and destinations' types, where nodes have times; then links without times raise SeedError.
    """

    def __init__(
        self,
        settings: NegativeSampling,
        key: DrawKey,
        inputs: EdgeSamplerInput,
        by_time: tuple[NodesByTime | None, NodesByTime | None],
    ) -> None:
        # A copy of the user's settings: PyG reads mode, amount and weights of whatever NegativeSampling it gets.
        self.__dict__.update(settings.__dict__)
        endpoints = np.concatenate([inputs.row.numpy(), inputs.col.numpy()])
        self._generator = np.random.Generator(np.random.Philox([key.seed, key.epoch, key.step, *digest(endpoints)]))
        self._inputs, self._by_time = inputs, dict(zip(("src", "dst"), by_time, strict=True))
        if inputs.time is None and by_time != (None, None):
            raise SeedError("negatives are drawn by the nodes' times, but the links have none: give edge_label_time=.")
        # Filled by sample(), which PyG calls for each endpoint.
        self._missing = torch.zeros(math.ceil(len(inputs.row) * settings.amount), dtype=torch.bool)

    def sample(self, num_samples: int, endpoint: Any, num_nodes: int | None = None) -> torch.Tensor:
        by_time = self._by_time[endpoint]
        weight = self.src_weight if endpoint == "src" else self.dst_weight
        counts: Any = num_nodes
        if by_time is not None:
            assert self._inputs.time is not None
            counts = self._for_negatives(by_time.num_until(self._inputs.time), num_samples)
        if weight is None:
            # integers() refuses empty ranges: a link without candidates draws node 0, and is_missing marks it.
            choices, is_missing = self._generator.integers(0, np.maximum(counts, 1), num_samples), counts == 0
        else:
            weights = weight.cpu().numpy()
            total = np.cumsum(weights if by_time is None else weights[by_time.nodes], dtype=np.float64)
            most = np.where(counts, total[np.maximum(counts, 1) - 1], 0)
            choices = np.searchsorted(total, self._generator.random(num_samples) * most, side="right")
            choices, is_missing = np.minimum(choices, np.maximum(counts, 1) - 1), most == 0
        if by_time is None:
            return torch.from_numpy(choices)
        self._missing |= torch.from_numpy(is_missing)
        positives = self._inputs.row if endpoint == "src" else self._inputs.col
        instead = self._for_negatives(positives.numpy(), num_samples)
        return torch.from_numpy(np.where(is_missing, instead, by_time.nodes[choices]))

    def without_missing(self, metadata: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns PyG's metadata of the links without the negatives that do not exist.

        Entries of binary ones are left out. Triplets need one in each position: it is the positive one again, of which
        a loss that compares both learns nothing.
        """
        if not bool(self._missing.any()):
            return metadata
        if self.is_binary():
            input_id, *columns = metadata
            exists = torch.cat([torch.ones(len(self._inputs.row), dtype=torch.bool), ~self._missing])
            return input_id, *(column[..., exists] if at == 0 else column[exists] for at, column in enumerate(columns))
        input_id, src, positive, negative, time = metadata
        missing = self._missing.view(-1, len(positive)).t()
        filled = torch.where(missing, positive[:, None], negative.view(missing.shape))
        return input_id, src, positive, filled.view(negative.shape), time

    @staticmethod
    def _for_negatives(per_link: np.ndarray, num_samples: int) -> np.ndarray:
        """Repeats what each link has for its negatives: these are the first of all links, then the second, and
        so on."""
        return np.resize(per_link, num_samples)


def digest(ids: np.ndarray) -> tuple[int, int]:
    """Returns two numbers of 32 bits that these ids and their order decide."""
    # The odd constant (2**32 over the golden ratio) sets equal ids in other positions apart, so that order counts.
    mixed = hash32(ids.astype(np.uint32) + np.arange(len(ids), dtype=np.uint32) * np.uint32(0x9E3779B1))
    return int(mixed.sum(dtype=np.uint64) & np.uint64(0xFFFFFFFF)), int(np.bitwise_xor.reduce(mixed, initial=0))
