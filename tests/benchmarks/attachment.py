"""A graph that grows by preferential attachment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload import Graph, GraphData
from lightning_gnnload.datasets.base import default_root
from lightning_gnnload.datasets.stored import StoredDataset


@dataclass(frozen=True)
class Attachment(StoredDataset):
    """Each node attaches to others with chances in proportion to their degrees, and so old nodes have most edges.

    Args:
        num_nodes: that come one after another.
        num_links: that each comes with.
        train_fraction: of the nodes, at random.
        symmetric: edges go both ways; else a node gathers from those that attached to it, of which new ones have none.
        root: the folder to keep it in; a per-user cache folder by default.

    Source: Barabasi and Albert, Science 286, 1999; built as in Batagelj and Brandes, Physical Review E 71, 2005.
    """

    num_nodes: int = 300_000
    num_links: int = 8
    train_fraction: float = 0.01
    symmetric: bool = True
    seed: int = 1
    root: str | Path | None = None

    @property
    def settings(self) -> dict[str, Any]:
        names = ("num_nodes", "num_links", "train_fraction", "symmetric", "seed")
        return {"dataset": "attachment", **{name: getattr(self, name) for name in names}}

    @property
    def folder(self) -> Path:
        return Path(self.root or default_root()) / "-".join(map(str, self.settings.values()))

    def build(self, scratch: Path) -> GraphData:
        random = np.random.default_rng(self.seed)
        # Ends 2e and 2e + 1 are of edge e. Its second end is a copy of an earlier one, or of its own first.
        edges = np.arange(self.num_nodes * self.num_links)
        ends = random.integers(0, 2 * edges + 1)
        while (copies := ends & 1 == 1).any():
            ends[copies] = ends[ends[copies] >> 1]
        new, old = edges // self.num_links, (ends >> 1) // self.num_links
        src, dst = (np.concatenate([new, old]), np.concatenate([old, new])) if self.symmetric else (new, old)
        count = round(self.train_fraction * self.num_nodes)
        train = np.sort(random.choice(self.num_nodes, count, replace=False))
        return GraphData(Graph.from_coo(src, dst, num_nodes=self.num_nodes), train=train)
