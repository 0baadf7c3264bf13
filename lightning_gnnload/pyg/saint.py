"""GraphSAINT's samplers: PyG's own loaders, without torch-sparse, with norms of the law that subgraphs are drawn by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch_geometric.loader as pyg
from torch_geometric.data import Data

from lightning_gnnload.data.checksums import checksum_of
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GraphDataError, LoaderConfigError, SamplerConfigError, StoreFormatError
from lightning_gnnload.host.progress import progress
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.checks import as_integer
from lightning_gnnload.pyg.attributes import Attributes
from lightning_gnnload.pyg.epochs import Origins
from lightning_gnnload.pyg.keywords import drawn_seed
from lightning_gnnload.pyg.subgraphs import InducedLoader, InducedSubgraphs, check_data, filled
from lightning_gnnload.sample.saint import edge_odds, nodes_by_degree, nodes_of_edges, nodes_of_walks
from lightning_gnnload.storage.keep import kept_arrays

# Norms are the same whatever the seed of the loader, so that a file serves all; no training reaches this epoch.
_NORM_SEED, _NORM_EPOCH = 0, (1 << 32) - 1
_LEAST_COUNT, _MOST_NORM = 0.1, 1e4  # PyG's, and the authors': of what no subgraph had, or hardly any


class GraphSAINTSampler(InducedLoader, pyg.GraphSAINTSampler):
    """The base class of the loaders by which GraphSAINT trains: each mini-batch is the subgraph that some nodes induce.

    Fields of mini-batches are PyG's: nodes in ascending order, all edges among them by source and target, attributes,
    and with ``sample_coverage`` the norms by which losses and messages are unbiased. ``node_norm`` is
    ``1 / (N * p_v)``, the weight of a node's loss, and ``edge_norm`` is ``p_v / p_uv``, the weight of the message from
    u to v, where p_v and p_uv are the chances of the node and the edge to be in a mini-batch. They are estimated from
    so many subgraphs that each node is in ``sample_coverage`` of them on average; what was in none gets PyG's values.

    What is otherwise, beside what :class:`.NeighborLoader` has otherwise:

    - A mini-batch is a pure function of (graph, settings, seed, epoch, step); norms do not depend on the seed.
    - ``edge_norm`` counts the target of an edge, where messages are summed; PyG counts its source.
    - :class:`GraphSAINTEdgeSampler` draws edges by the paper's law.
    - ``save_dir`` keeps norms in a file that is never unpickled, one for each graph and settings.
    - ``batch_size`` stays what was given, so that Lightning can make the loader anew for several ranks; PyG's is 1.

    A sampler of one's own is a subclass with :meth:`sample_nodes`, in place of PyG's ``_sample_nodes``.

    Args:
        data: a ``Data`` with ``edge_index``.
        batch_size: how many edges or roots are drawn for a mini-batch.
        num_steps: mini-batches in an epoch.
        sample_coverage: 0 for no norms.
        save_dir: a folder for norms; None keeps none.
        log: show progress.
        seed: random seed; None: of ``generator``, or of torch's own, which ``torch.manual_seed`` decides.
        **kwargs: those of torch's DataLoader, such as ``num_workers``.

    Raises:
        GraphDataError: no such data, or data that have norms already.
        SamplerConfigError: a number that is too small, or a graph without edges.
        LoaderConfigError: keywords that are none, or of DataLoader that mean nothing to threads.
        StoreFormatError: what is in ``save_dir`` under the name of these norms is none of ours.

    Source: Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method" (ICLR'20), sections 3.2 and 3.4.
    """

    subgraphs: InducedSubgraphs

    def __init__(
        self,
        data: Data,
        batch_size: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        if type(self).sample_nodes is GraphSAINTSampler.sample_nodes:
            raise LoaderConfigError(
                f"{name} does not say which nodes it draws: define sample_nodes(self, key), which returns their ids, "
                "int64, as a function of key.seed, key.epoch and key.step. It stands for PyG's _sample_nodes."
            )
        check_data(name, data)
        if present := [norm for norm in ("node_norm", "edge_norm") if norm in data]:
            raise GraphDataError(
                f"{name}: data.{present[0]} is there already, which mini-batches get: del data.{present[0]}."
            )
        for setting, value, least in (
            ("batch_size", batch_size, 1),
            ("num_steps", num_steps, 1),
            ("sample_coverage", sample_coverage, 0),
        ):
            if as_integer(setting, value) < least:
                raise SamplerConfigError(f"{name}: {setting} is {value}, but must be at least {least}.")
        if data.num_edges == 0:
            raise SamplerConfigError(f"{name}: the graph has no edges to draw from.")
        self.data, self.num_steps, self._batch_size = data, num_steps, batch_size
        self.sample_coverage, self.save_dir, self.log = sample_coverage, save_dir, log
        self.N, self.E = int(data.num_nodes), data.num_edges
        self.subgraphs = InducedSubgraphs(data)
        seed, steps = drawn_seed(seed, None, kwargs), cast(Any, range(num_steps))
        torch.utils.data.DataLoader.__init__(
            self, steps, batch_size=1, collate_fn=self._collate, **self._honoured(kwargs, seed)
        )
        # Torch lets nobody set it, and its own is of the batch sampler.
        cast(dict[str, Any], vars(self))["batch_size"] = batch_size
        self._begin()
        if sample_coverage > 0:
            self.node_norm, self.edge_norm = self._norms()

    def sample_nodes(self, key: DrawKey) -> np.ndarray:
        """Draws the nodes of a mini-batch: int64 ids, in any order; those that repeat count once."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __getitem__(self, idx: int) -> Data:
        """Returns the mini-batch of a step of the epoch that was begun last, or is to begin."""
        return self._collate([idx])

    def _collate(self, data_list: Any) -> Data:
        key = DrawKey(self.seed, self.position.drawn_epoch, int(data_list[0]))
        return self._subgraph(self._attributes(), key)

    def _made_of(self, requests: Iterator[BatchRequest]) -> Iterator[Any]:
        attributes = self._attributes()

        def make(request: BatchRequest) -> Data:
            return self._ready(self._subgraph(attributes, DrawKey(self.seed, request.epoch, int(request.rows[0]))))

        return self._in_threads(make, requests)

    def _drawn(self, key: DrawKey) -> np.ndarray:
        """Returns the distinct nodes of a mini-batch, ascending."""
        return np.unique(np.asarray(self.sample_nodes(key), np.int64).reshape(-1))

    def _subgraph(self, attributes: Attributes | None, key: DrawKey) -> Data:
        assert attributes is not None, "a Data has them"
        nodes = self._drawn(key)
        edge_index, edges = self.subgraphs.edges_among(nodes)
        node_ids, edge_ids = torch.from_numpy(nodes), torch.from_numpy(self.subgraphs.order[edges])
        data = filled(attributes, node_ids, edge_ids, edge_index)
        data.num_nodes = len(nodes)
        if self.sample_coverage > 0:
            data.node_norm, data.edge_norm = self.node_norm[node_ids], self.edge_norm[edge_ids]
        return data

    # Norms.

    def _norms(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the norms of nodes and edges, float32 ``[N]`` and ``[E]``, from ``save_dir`` where they are there."""
        if self.save_dir is None:
            arrays = self._compute_norm()
        else:
            made_of = checksum_of([self.data.edge_index, np.frombuffer(self._settings.encode(), np.uint8)])
            path = Path(self.save_dir, f"{self._filename.removesuffix('.pt')}-{made_of:08x}.npz")
            shapes = {"node_norm": ("<f4", self.N), "edge_norm": ("<f4", self.E)}
            arrays = kept_arrays(path, shapes, made_of, self._compute_norm)
            if not all(np.isfinite(norm).all() and (norm >= 0).all() for norm in arrays.values()):
                raise StoreFormatError(f"{path} has norms that are none: it is damaged. Move it away.")
        return torch.from_numpy(arrays["node_norm"]), torch.from_numpy(arrays["edge_norm"])

    @property
    def _settings(self) -> str:
        return f"{type(self).__name__} {self.N} {self._batch_size} {self.sample_coverage}"

    def _compute_norm(self) -> dict[str, np.ndarray]:
        node_count, edge_count = np.zeros(self.N, np.int64), np.zeros(self.E, np.int64)
        num_samples = num_nodes = 0
        least_nodes = self.N * self.sample_coverage

        def sampled(request: BatchRequest) -> tuple[np.ndarray, np.ndarray]:
            nodes = self._drawn(DrawKey(_NORM_SEED, _NORM_EPOCH, request.step))
            return nodes, self.subgraphs.order[self.subgraphs.edges_among(nodes)[1]]

        requests = (BatchRequest(_NORM_EPOCH, step, 0, 1) for step in range(1 << 32))
        samples = self._in_threads(sampled, requests)
        with closing(cast(Any, samples)), progress("GraphSAINT's norms", least_nodes, show=self.log) as advance:
            for nodes, edges in samples:
                node_count[nodes] += 1
                edge_count[edges] += 1
                num_samples, num_nodes = num_samples + 1, num_nodes + len(nodes)
                advance(len(nodes))
                if num_nodes >= least_nodes:
                    break
        return norms_of(node_count, edge_count, self.data.edge_index[1].numpy(), num_samples)

    def _origins(self) -> Origins:
        fingerprint = self.subgraphs.graph.fingerprint
        return Origins("", fingerprint, self._settings, {"num_steps": self.num_steps})


def norms_of(
    node_count: np.ndarray, edge_count: np.ndarray, target: np.ndarray, num_samples: int
) -> dict[str, np.ndarray]:
    """Returns ``node_norm`` ``[N]`` and ``edge_norm`` ``[E]``, float32, of how many of ``num_samples`` subgraphs had
    each node and each edge, int64, and of the edges' targets."""
    with np.errstate(divide="ignore", invalid="ignore"):
        edge_norm = np.minimum(node_count[target] / edge_count, _MOST_NORM)
    edge_norm[np.isnan(edge_norm)] = _LEAST_COUNT
    node_norm = num_samples / np.maximum(node_count, _LEAST_COUNT) / max(len(node_count), 1)
    return {"node_norm": node_norm.astype(np.float32), "edge_norm": edge_norm.astype(np.float32)}


class GraphSAINTNodeSampler(GraphSAINTSampler):
    """Draws ``batch_size`` edges uniformly, with replacement, and takes their sources: nodes by their out-degree.

    Arguments and mini-batches are those of :class:`GraphSAINTSampler`.

    Example:
        >>> data = Data(x=torch.arange(4.0), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
        >>> [batch] = GraphSAINTNodeSampler(data, batch_size=3, sample_coverage=5, log=False, seed=7)
        >>> batch.x.tolist(), batch.edge_index.tolist(), batch.node_norm.shape, batch.edge_norm.shape
        ([0.0, 1.0, 3.0], [[0, 2], [1, 0]], torch.Size([3]), torch.Size([2]))
    """

    def _check_rows(self) -> None:
        super()._check_rows()
        if 2 * (num_lone := int((np.diff(self.subgraphs.graph.indptr) == 0).sum())) > self.N:
            self._tell(
                f"no edge leaves {num_lone} of {self.N} nodes, which are never drawn. Have edges both ways, as "
                "torch_geometric.transforms.ToUndirected(), or take GraphSAINTRandomWalkSampler."
            )

    def sample_nodes(self, key: DrawKey) -> np.ndarray:
        return nodes_by_degree(self.subgraphs.graph.indptr, self._batch_size, key)


class GraphSAINTEdgeSampler(GraphSAINTSampler):
    """Draws ``batch_size`` distinct edges, one after the other, and takes their ends.

    The edge from u to v is drawn in proportion to ``1 / out-degree of u + 1 / in-degree of v``, as in the paper
    (Theorem 3.2). PyG inverts the degrees twice, and so draws in proportion to their sum. Arguments and mini-batches
    are those of :class:`GraphSAINTSampler`.

    Example:
        >>> data = Data(x=torch.arange(4.0), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
        >>> [batch] = GraphSAINTEdgeSampler(data, batch_size=1, seed=7)
        >>> batch.x.tolist(), batch.edge_index.tolist()
        ([0.0, 1.0], [[0], [1]])
    """

    @cached_property
    def _odds(self) -> np.ndarray:
        return edge_odds(self.subgraphs.graph.indptr, self.subgraphs.graph.indices)

    def sample_nodes(self, key: DrawKey) -> np.ndarray:
        graph = self.subgraphs.graph
        return nodes_of_edges(graph.indptr, graph.indices, self._odds, self._batch_size, key)


class GraphSAINTRandomWalkSampler(GraphSAINTSampler):
    """Walks ``walk_length`` steps along edges from each of ``batch_size`` roots, and takes the nodes visited.

    Roots are drawn uniformly, with replacement; a walk stays at a node that no edge leaves. Arguments and mini-batches
    are those of :class:`GraphSAINTSampler`.

    Example:
        >>> data = Data(x=torch.arange(4.0), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
        >>> [batch] = GraphSAINTRandomWalkSampler(data, batch_size=1, walk_length=2, seed=7)
        >>> batch.num_nodes, batch.num_edges
        (3, 2)
    """

    def __init__(
        self,
        data: Data,
        batch_size: int,
        walk_length: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        *,
        seed: int | None = None,  # by name, as Lightning looks here for what makes the loader anew
        **kwargs: Any,
    ) -> None:
        if as_integer("walk_length", walk_length) < 0:
            raise SamplerConfigError(f"walk_length is {walk_length}, but must be 0 or more: steps from each root.")
        self.walk_length = walk_length
        super().__init__(data, batch_size, num_steps, sample_coverage, save_dir, log, seed=seed, **kwargs)

    @property
    def _settings(self) -> str:
        return f"{super()._settings} {self.walk_length}"

    def sample_nodes(self, key: DrawKey) -> np.ndarray:
        graph = self.subgraphs.graph
        return nodes_of_walks(graph.indptr, graph.indices, self._batch_size, self.walk_length, key)
