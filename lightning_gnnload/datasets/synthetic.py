"""Synthetic: random graphs of any size whose labels can be learned."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.datasets import random_edges as edges
from lightning_gnnload.datasets.base import default_root
from lightning_gnnload.datasets.random_edges import Purpose, fractions, hosts, stream, web
from lightning_gnnload.datasets.stored import StoredDataset, scratch_array
from lightning_gnnload.errors import DatasetError
from lightning_gnnload.host.progress import progress

Kind = Literal["chung-lu", "rmat", "citation", "web"]
_EXPONENT = {"chung-lu": 2.4, "citation": 3.0}
_RECIPE = 1  # part of the settings: raise it when equal settings would give other arrays
_STRETCH_ROWS = 1 << 14  # even, so that no stretch but the last ends in the middle of a word


@dataclass(frozen=True)
class Synthetic(StoredDataset):
    """Draws a random graph with communities, labels, features and splits, the same for the same arguments.

    A node's label is its community. Edges prefer the own community and features scatter around a centroid of
    it: both carry the label, and neighbours add to what a node knows of itself. There are no self-loops and
    no repeated edges, and in-neighbours are in ascending order.

    Args:
        kind: ``"chung-lu"`` (power-law degrees) or ``"rmat"`` (recursive quadrants .57, .19, .19, .05), both
            with shuffled ids; ``"citation"`` (nodes arrive in id order and cite earlier ones); or ``"web"`` (pages of
            a host have neighbouring ids, and most links stay within one).
        num_nodes: at least 2, below 2**31.
        num_edges: directed edges drawn. Self-loops and repeats are then dropped: some per cent of a large
            graph, more where hubs are dense.
        num_features: width of the float32 features; 0 for none.
        num_classes: communities.
        seed: 0 to 2**64 - 1.
        root: the folder to keep prepared graphs in; a per-user cache folder by default.
        symmetric: each edge goes both ways (a pair counts as two of ``num_edges``). Otherwise citations point
            from new to old, and the graph has no cycle.
        exponent: of the degrees' power law, above 2; 2.4 for chung-lu and 3 for citation when None.
        max_degree: chung-lu only: expected degree of the greatest hub, before repeats are dropped. None: the
            geometric mean of the mean degree and the most that the exponent allows.
        homophily: share of the edges that are drawn within a community on purpose; 0 is the plain model. Web: within
            a host, and the hosts are dealt to the communities.
        feature_noise: standard deviation of the (uniform) noise on a centroid of unit variance, in units of
            ``sqrt(num_features)``, so that the width matters little: at 0.35 and 16 classes, the nearest
            centroid is the right one for about four nodes in five.
        train_fraction: of the nodes with in-neighbours; likewise ``val_fraction``. The rest is for testing.
        max_test: at most so many nodes, which keeps evaluation short.

    Raises:
        DatasetError: arguments that make no graph.

    Example:
        >>> Synthetic("citation", num_nodes=1000, num_edges=8000).num_classes
        16
    """

    kind: Kind
    num_nodes: int
    num_edges: int
    num_features: int = 64
    num_classes: int = 16
    seed: int = 0
    root: str | Path | None = None
    symmetric: bool = True
    exponent: float | None = None
    max_degree: float | None = None
    homophily: float = 0.5
    feature_noise: float = 0.35
    train_fraction: float = 0.08
    val_fraction: float = 0.02
    max_test: int = 100_000

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise DatasetError(f"Synthetic: there is no kind {self.kind!r}; the kinds are {', '.join(get_args(Kind))}.")
        acyclic = self.kind == "citation" and not self.symmetric
        self._check_whole("num_nodes", 2, 2**31 - 1)
        self._check_whole("num_edges", 2, self.num_nodes * (self.num_nodes - 1) // (2 if acyclic else 1))
        self._check_whole("num_features", 0, 2**20)
        self._check_whole("num_classes", 1, self.num_nodes)
        self._check_whole("seed", 0, 2**64 - 1)
        self._check_whole("max_test", 0, 2**31 - 1)
        self._check("homophily", 0, 1)
        self._check("feature_noise", 0, 1e6)
        self._check("train_fraction", 0, 1)
        self._check("val_fraction", 0, 1 - self.train_fraction)
        for name, kinds in (("exponent", _EXPONENT), ("max_degree", ("chung-lu",))):
            if getattr(self, name) is not None and self.kind not in kinds:
                raise DatasetError(f"Synthetic: {name} is not for kind {self.kind!r}; leave it out.")
        if self.exponent is not None and not 2 < self.exponent < math.inf:
            raise DatasetError(f"Synthetic: exponent is {self.exponent}; it must be above 2.")
        if self.max_degree is not None:
            self._check("max_degree", 0, self.num_nodes - 1)

    def _check_whole(self, name: str, low: int, high: int) -> None:
        if not isinstance(getattr(self, name), Integral):
            raise DatasetError(f"Synthetic: {name} is {getattr(self, name)!r}; it must be a whole number (int).")
        self._check(name, low, high)

    def _check(self, name: str, low: float, high: float) -> None:
        if not low <= getattr(self, name) <= high:  # not-a-number fails, too
            raise DatasetError(f"Synthetic: {name} is {getattr(self, name)}; it must lie in [{low}, {high}].")

    @property
    def settings(self) -> dict[str, Any]:
        chosen = {name: _as_json(value) for name, value in asdict(self).items() if name != "root"}
        return {"dataset": "synthetic", "recipe": _RECIPE, **chosen}

    @property
    def folder(self) -> Path:
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:12]
        return Path(self.root or default_root()) / f"synthetic-{self.kind}-{digest}"

    def build(self, scratch: Path) -> GraphData:
        graph, community = self._graph()
        x = self._features(community, scratch / "x") if self.num_features else None
        return GraphData(graph, x, community, *self._splits(graph), num_classes=self.num_classes)

    def _graph(self) -> tuple[Graph, np.ndarray]:
        """Draws the graph; returns it and each node's community, int64 ``[N]``."""
        num_pairs = self.num_edges // 2 if self.symmetric else self.num_edges
        planted: dict[str, Any] = {"homophily": self.homophily, "seed": self.seed}
        if self.kind == "citation":
            words = stream(self.seed, Purpose.IDS).random_raw(self.num_nodes)
            community = (fractions(words) * self.num_classes).astype(np.int64)
            pairs = edges.citations(community, num_pairs, exponent=self.exponent or _EXPONENT[self.kind], **planted)
        elif self.kind == "web":
            bounds = hosts(self.num_nodes, seed=self.seed)
            community = np.repeat(np.arange(len(bounds) - 1) % self.num_classes, np.diff(bounds))
            pairs = web(bounds, num_pairs, **planted)
        else:
            # The generators' ids tell degree and community; the shuffle hides both.
            words = stream(self.seed, Purpose.IDS).random_raw(self.num_nodes)
            shuffled = np.argsort(words, kind="stable").astype(np.int32)
            community = np.empty(self.num_nodes, np.int64)
            community[shuffled] = np.arange(self.num_nodes) % self.num_classes
            pairs = edges.with_communities(self._plain_pairs(num_pairs), self.num_nodes, self.num_classes, **planted)
            pairs = ((shuffled[first], shuffled[second]) for first, second in pairs)
        with progress("Drawing edges", num_pairs) as advance:
            graph = edges.simple_graph(pairs, self.num_nodes, num_pairs, symmetric=self.symmetric, advance=advance)
        return graph, community

    def _plain_pairs(self, num_pairs: int) -> edges.Pairs:
        if self.kind == "rmat":
            return edges.rmat(self.num_nodes, num_pairs, seed=self.seed)
        exponent = self.exponent or _EXPONENT[self.kind]
        return edges.chung_lu(self.num_nodes, num_pairs, exponent=exponent, max_degree=self.max_degree, seed=self.seed)

    def _features(self, community: np.ndarray, file: Path) -> np.ndarray:
        """Draws features of unit variance, float32 ``[N, F]``, in a mapped file: they need not fit into memory."""
        shape = (self.num_nodes, self.num_features)
        x = scratch_array(file, np.float32, shape)
        noise = self.feature_noise * math.sqrt(self.num_features)
        scale = 1 / math.sqrt(1 + noise**2)
        count = self.num_classes * self.num_features
        centroids = _uniform(stream(self.seed, Purpose.CENTROIDS), count).reshape(self.num_classes, -1) * np.float32(
            scale
        )
        source = stream(self.seed, Purpose.NOISE)
        with progress("Drawing features", self.num_nodes) as advance:
            for start in range(0, self.num_nodes, _STRETCH_ROWS):
                rows = x[start : start + _STRETCH_ROWS]
                np.multiply(_uniform(source, rows.size).reshape(rows.shape), np.float32(noise * scale), out=rows)
                rows += centroids[community[start : start + _STRETCH_ROWS]]
                advance(len(rows))
        return x

    def _splits(self, graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        order = np.argsort(stream(self.seed, Purpose.SPLITS).random_raw(self.num_nodes), kind="stable")
        order = order[graph.in_degrees[order] > 0]  # a sampler finds nothing for the others
        train = round(self.train_fraction * len(order))
        val = train + round(self.val_fraction * len(order))
        return order[:train], order[train:val], order[val : val + self.max_test]


def _as_json(value: Any) -> Any:
    """Converts equal numbers to one form: 1, 1.0 and NumPy's 1 are the same setting and must name one folder."""
    if isinstance(value, (str, bool, type(None))):
        return value
    return int(value) if value == int(value) else float(value)


def _uniform(source: np.random.Philox, count: int) -> np.ndarray:
    """Draws float32 ``[count]``, uniform with mean 0 and variance 1; two numbers a word."""
    # Little-endian by name, so that the halves of a word come in the same order on every machine.
    halves = source.random_raw((count + 1) // 2).astype("<u8", copy=False).view("<u4")[:count]
    numbers = halves.astype(np.float32)
    numbers *= np.float32(math.sqrt(12) / 2**32)
    numbers -= np.float32(math.sqrt(3))
    return numbers
