"""A citation-like graph with a table of features larger than memory, in one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload import FeatureStore, Graph, GraphData, Synthetic
from lightning_gnnload.datasets.base import default_root
from lightning_gnnload.datasets.stored import StoredDataset

_EDGES_A_NODE = 14  # as ogbn-papers100M
MARKS = 251  # a row holds its number modulo this, so that what was gathered can be told from anything else


class Numbered(FeatureStore):
    """Rows that are made when they are asked for: a table of any size that takes no room until it is written."""

    def __init__(self, num_rows: int, width: int) -> None:
        self._shape = num_rows, width

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        out[:] = (ids % MARKS).unsqueeze(1)


@dataclass(frozen=True)
class CitationsOnDisk(StoredDataset):
    """Papers that gather from those they cite, which few are often; a hundredth of them to train on.

    Args:
        num_nodes: papers; each cites 14 on average, by a power law of exponent 3.
        num_features: float32 a paper.
        root: the folder to keep it in; a per-user cache folder by default.
    """

    num_nodes: int = 6_000_000
    num_features: int = 512
    root: str | Path | None = None

    @property
    def settings(self) -> dict[str, Any]:
        return {"dataset": "citations-on-disk", "num_nodes": self.num_nodes, "num_features": self.num_features}

    @property
    def folder(self) -> Path:
        return Path(self.root or default_root()) / f"citations-on-disk-{self.num_nodes}-{self.num_features}"

    def build(self, scratch: Path) -> GraphData:
        num_edges = self.num_nodes * _EDGES_A_NODE
        plain = Synthetic("citation", self.num_nodes, num_edges, num_features=0, symmetric=False, root=scratch)
        plain.prepare()
        citing = plain.load().graph  # in-neighbours of a paper are those that cite it
        cited = np.repeat(np.arange(self.num_nodes, dtype=citing.indices.dtype), citing.in_degrees)
        graph = Graph.from_coo(cited, citing.indices, num_nodes=self.num_nodes)
        able = np.flatnonzero(graph.in_degrees > 0)
        train = np.random.default_rng(0).choice(able, self.num_nodes // 100, replace=False)
        return GraphData(graph, Numbered(self.num_nodes, self.num_features), train=np.sort(train))
