"""Peers: the samplers of DGL and PyG as they are installed here, held against the same checks as ours.

What fails is reported, never asserted. Their generators have a state and are seeded once, so that a run of the whole
suite is repeatable as far as their threads let it be.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch

from lightning_gnnload.conform.checks import existing_edges
from lightning_gnnload.conform.draw import Draw, DrawnEdges
from lightning_gnnload.conform.suites import LAWS, Check, Law, suite
from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import ConformanceError
from lightning_gnnload.ops import DrawKey
from tests.laws.amid import (
    COUNTED,
    NODE,
    SEED_TIME,
    Amid,
    GivenEdges,
    amid_times,
    amid_types,
    amid_types_and_times,
)
from tests.laws.subjects import Subject


class DGLDraw:
    """Draws by ``dgl.dataloading.NeighborSampler``, which draws for every node seen so far at each hop.

    Args:
        replace: with replacement.
        weighted: by ``Graph.edge_weight``.
        dtype: of the graph's ids; DGL has kernels for int64 and for int32.
        amid: other edges to put graphs among; None for none.
    """

    def __init__(
        self, replace: bool, weighted: bool, dtype: torch.dtype = torch.int64, amid: Amid | None = None
    ) -> None:
        self.dgl = importlib.import_module("dgl")
        self.dgl.seed(0)
        self.replace, self.weighted, self.dtype, self.amid = replace, weighted, dtype, amid
        self._held: tuple[Graph, list[int], Any, Any] | None = None

    def __call__(self, graph: Graph, seeds: np.ndarray, fanouts: Sequence[int], key: DrawKey) -> list[DrawnEdges]:
        peer_graph, sampler = self._of(graph, list(fanouts))
        nodes = torch.from_numpy(seeds).to(self.dtype)
        _, _, blocks = sampler.sample_blocks(peer_graph, nodes)
        return [self._drawn(block) for block in reversed(blocks)]

    def _drawn(self, block: Any) -> DrawnEdges:
        ends = [end.long() for end in block.edges(etype=None if self.amid is None else COUNTED)]
        ids = [block.srcdata[self.dgl.NID], block.dstdata[self.dgl.NID]]
        for end, names in zip(ends, ids, strict=True):
            if len(end) and not 0 <= int(end.min()) <= int(end.max()) < len(names):
                raise ConformanceError(f"a block of {len(names)} nodes has an edge at local id {int(end.max())}")
        src, dst = (names[end].long().numpy() for end, names in zip(ends, ids, strict=True))
        return DrawnEdges(dst, src)

    def _of(self, graph: Graph, fanouts: list[int]) -> tuple[Any, Any]:
        """Keeps DGL's graph and sampler for the next call, as a loader does: some faults need a second batch."""
        if self._held is None or self._held[0] is not graph or self._held[1] != fanouts:
            made = self._made_of(graph) if self.amid is None else self._hetero(self.amid(graph), graph.num_nodes)
            options: dict[str, Any] = {"replace": self.replace}
            if self.weighted and graph.edge_weight is not None:
                options["prob"] = "weight"
            # DGL lists the outermost hop first.
            self._held = graph, fanouts, made, self.dgl.dataloading.NeighborSampler(fanouts[::-1], **options)
        return self._held[2:]

    def _made_of(self, graph: Graph) -> Any:
        csc = [tensor_view(array).to(self.dtype) for array in (graph.indptr, graph.indices)]
        made = self.dgl.graph(("csc", (*csc, csc[0].new_empty(0))), num_nodes=graph.num_nodes).formats("csc")
        if graph.edge_weight is not None:
            made.edata["weight"] = tensor_view(graph.edge_weight)
        return made

    def _hetero(self, lists: Mapping[EdgeType, GivenEdges], num_nodes: int) -> Any:
        ends = {kind: tuple(tensor_view(end).to(self.dtype) for end in held[:2]) for kind, held in lists.items()}
        made = self.dgl.heterograph(ends, num_nodes_dict={NODE: num_nodes})
        for kind, held in lists.items():
            made.edges[kind].data["weight"] = tensor_view(held.weight)
        return made.formats("csc")


class PyGDraw:
    """Draws by ``torch_geometric.sampler.NeighborSampler``, which draws for each node once.

    It runs on pyg-lib where that is installed, else on torch-sparse.

    Args:
        replace: with replacement.
        weighted: by ``Graph.edge_weight``; pyg-lib only.
        amid: other edges to put graphs among, by type or by time or both; pyg-lib only.
    """

    def __init__(self, replace: bool, weighted: bool, amid: Amid | None = None) -> None:
        self.samplers = importlib.import_module("torch_geometric.sampler")
        self.data = importlib.import_module("torch_geometric.data")
        torch.manual_seed(0)
        self.replace, self.weighted, self.amid = replace, weighted, amid
        self._held: tuple[Graph, list[int], Any] | None = None

    def __call__(self, graph: Graph, seeds: np.ndarray, fanouts: Sequence[int], key: DrawKey) -> list[DrawnEdges]:
        sampler = self._of(graph, list(fanouts))
        asked: dict[str, Any] = {}
        if self.amid is not None and sampler.is_temporal:
            asked["time"] = torch.full((len(seeds),), SEED_TIME)
        if self.amid is not None and sampler.is_hetero:
            asked["input_type"] = NODE
        out = sampler.sample_from_nodes(self.samplers.NodeSamplerInput(None, torch.from_numpy(seeds), **asked))
        if self.amid is not None and sampler.is_hetero:
            return _counted_hops(out)
        nodes, rows, columns = (part.numpy() for part in (out.node, out.row, out.col))
        hops, known, begin = [], len(seeds), 0
        for _ in fanouts:
            # Nodes are numbered as they are met: a hop's destinations are those that were known before it.
            stop = int(np.searchsorted(columns, known))
            hops.append(DrawnEdges(nodes[columns[begin:stop]], nodes[rows[begin:stop]]))
            known, begin = max(known, int(rows[begin:stop].max(initial=0)) + 1), stop
        return hops

    def _of(self, graph: Graph, fanouts: list[int]) -> Any:
        if self._held is None or self._held[0] is not graph or self._held[1] != fanouts:
            options: dict[str, Any] = {"replace": self.replace}
            if self.weighted and graph.edge_weight is not None:
                options["weight_attr"] = "edge_weight"
            if self.amid is None:
                dst = np.repeat(np.arange(graph.num_nodes), graph.in_degrees)
                edge_index = torch.from_numpy(np.stack([graph.indices, dst]))
                made = self.data.Data(edge_index=edge_index, num_nodes=graph.num_nodes)
                made.edge_weight = None if graph.edge_weight is None else tensor_view(graph.edge_weight)
                options["is_sorted"] = True
            else:
                lists = self.amid(graph)
                made = self._amid(lists, graph.num_nodes)
                options |= {"time_attr": "time"} if lists[COUNTED].time is not None else {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that pyg-lib would be faster
                self._held = graph, fanouts, self.samplers.NeighborSampler(made, fanouts, **options)
        return self._held[2]

    def _amid(self, lists: Mapping[EdgeType, GivenEdges], num_nodes: int) -> Any:
        made = self.data.Data(num_nodes=num_nodes) if len(lists) == 1 else self.data.HeteroData()
        if len(lists) > 1:
            made[NODE].num_nodes = num_nodes
        for kind, held in lists.items():
            store = made if len(lists) == 1 else made[kind]
            store.edge_index = torch.from_numpy(np.stack(held[:2]).astype(np.int64))
            store.edge_weight = tensor_view(held.weight)
            if held.time is not None:
                store.time = tensor_view(held.time)
        return made


def _counted_hops(out: Any) -> list[DrawnEdges]:
    """Returns the hops of a HeteroSamplerOutput, of the edges that count."""
    nodes = out.node[NODE].numpy()
    ends = np.cumsum(out.num_sampled_edges[COUNTED])
    src, dst = (nodes[side[COUNTED].numpy()] for side in (out.row, out.col))
    return [DrawnEdges(dst[begin:end], src[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def peers() -> tuple[list[Subject], list[str]]:
    """Finds the peers that are installed here, and says why others cannot be used."""
    found, missing = [], []
    for name, subjects_of in _SUBJECTS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found += list(subjects_of(importlib.import_module(name)))
        except (ImportError, OSError) as error:  # OSError: a library built for another torch
            missing.append(f"{name}: {error}")
    return found, list(dict.fromkeys(missing))


def _dgl_subjects(dgl: ModuleType) -> Iterator[Subject]:
    name = f"DGL {dgl.__version__}"
    for law in LAWS:
        replaced, weighted = law.endswith("replaced"), law.startswith("weighted")
        yield _peer(name, law, DGLDraw(replaced, weighted))
        yield _peer(f"{name}, by type", law, DGLDraw(replaced, weighted, amid=amid_types))
    yield Subject(
        f"{name}, int32 ids",
        draw=DGLDraw(False, False, torch.int32),
        suite_of=lambda quick: [Check("edges exist", existing_edges)],
        peer=True,
        known="its fused path returns corrupt blocks on int32 graphs from the second batch on",
    )


def _pyg_subjects(pyg: ModuleType) -> Iterator[Subject]:
    typing = importlib.import_module("torch_geometric.typing")
    if typing.WITH_PYG_LIB:
        name = f"PyG {pyg.__version__}, pyg-lib {importlib.import_module('pyg_lib').__version__}"
        for law in LAWS:
            yield _peer(name, law, PyGDraw(law.endswith("replaced"), law.startswith("weighted")))
    elif typing.WITH_TORCH_SPARSE:
        name = f"PyG {pyg.__version__}, torch-sparse {importlib.import_module('torch_sparse').__version__}"
        known = "its Floyd draws j over [0, j) instead of [0, j], so that the last neighbours come too seldom"
        yield _peer(name, "uniform", PyGDraw(False, False), known)
        yield _peer(name, "uniform, replaced", PyGDraw(True, False))
    else:
        raise ImportError("it samples only with pyg-lib or torch-sparse, and neither is installed")


def _timed_pyg_subjects(pyg: ModuleType) -> Iterator[Subject]:
    if not importlib.import_module("torch_geometric.typing").WITH_PYG_LIB:
        raise ImportError("it samples by type and by time with pyg-lib, which is not installed")
    name = f"PyG {pyg.__version__}, pyg-lib {importlib.import_module('pyg_lib').__version__}"
    for law in LAWS:
        yield _peer(f"{name}, by type", law, PyGDraw(law.endswith("replaced"), law.startswith("weighted"), amid_types))
    for among, amid in (("by time", amid_times), ("by type and time", amid_types_and_times)):
        yield _peer(f"{name}, {among}", "uniform", PyGDraw(False, False, partial(amid, past=False)))


_SUBJECTS: Sequence[tuple[str, Callable[[ModuleType], Iterator[Subject]]]] = (
    ("dgl", _dgl_subjects),
    ("torch_geometric", _pyg_subjects),
    ("torch_geometric", _timed_pyg_subjects),
)


def _peer(name: str, law: Law, draw: Draw, known: str = "") -> Subject:
    is_plain = getattr(draw, "amid", None) is None  # the figure is of plain graphs
    return Subject(
        f"{name}: {law}",
        draw=_faults_told(draw),
        law=law if is_plain else None,
        suite_of=partial(_suite, law),
        peer=True,
        known=known,
    )


def _faults_told(draw: Draw) -> Draw:
    """Returns the same draws; what they raise is a finding, and does not end the run."""

    def drawn(graph: Graph, seeds: np.ndarray, fanouts: Sequence[int], key: DrawKey) -> list[DrawnEdges]:
        try:
            return draw(graph, seeds, fanouts, key)
        except ConformanceError:
            raise
        except Exception as error:
            raise ConformanceError(f"raised {error!r:.200}") from error

    return drawn


def _suite(law: Law, quick: bool) -> list[Check]:
    return suite(law, quick=quick, keyed=False)
