"""ClusterData and ClusterLoader: PyG's own, whose clusters our partitioners make, and whose mini-batches threads do."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
import torch_geometric.loader as pyg
from torch_geometric.data import Data
from torch_geometric.utils import select

from lightning_gnnload.data.checksums import checksum_of
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GraphDataError, MissingExtraError, PartitionError, StoreFormatError, warn
from lightning_gnnload.host.progress import progress
from lightning_gnnload.ops.checks import as_integer
from lightning_gnnload.partition.metis import Metis
from lightning_gnnload.partition.partitioner import Partitioner, partitioner
from lightning_gnnload.partition.settle import settle
from lightning_gnnload.pyg.attributes import describe_omitted, repeated
from lightning_gnnload.pyg.epochs import Origins
from lightning_gnnload.pyg.keywords import drawn_seed
from lightning_gnnload.pyg.subgraphs import SubgraphLoader, check_data, check_distinct
from lightning_gnnload.storage.keep import kept_arrays

_ELSEWHERE = -(1 << 62)  # with any node's number, it is below 0


class ClusterData(pyg.ClusterData):
    """PyG's ``ClusterData``, with neither pyg-lib nor torch-sparse: a graph's nodes in clusters with few edges between.

    Attributes are PyG's: ``data`` has nodes and edges in the order of clusters, ``partition`` says where each begins,
    and ``cluster_data[i]`` is the subgraph of a cluster. What is otherwise:

    - METIS is PyMetis's; ``method`` names others, which need no further package.
    - Clusters are the same in every run, by ``seed``.
    - ``save_dir`` keeps which node is in which cluster, in a file that is never unpickled. Files of PyG's own are
      refused, as is one that was made of another graph or by other settings.
    - Attributes that number the whole graph's nodes are left out, with a warning: :func:`.repeated`.

    Args:
        data: a ``Data`` with ``edge_index``.
        num_parts: number of clusters; METIS may leave some empty where they are nearly as many as nodes.
        recursive: METIS bisects repeatedly, instead of cutting into all clusters at once.
        save_dir: a folder; None keeps nothing.
        filename: of the file in ``save_dir/part_<num_parts>``; None names it by its content, so that other graphs and
            settings get files of their own.
        log: show progress.
        keep_inter_cluster_edges: ``cluster_data[i]`` has the edges to other clusters, too, whose ends are places in
            ``data``.
        sparse_format: ``"csr"`` or ``"csc"``: edges by source, or by target.
        method: ``"metis"``, ``"bgl"``, ``"ldg"``, ``"random"``, or a :class:`.Partitioner`.
        seed: random seed of the method.

    Raises:
        GraphDataError: no such data.
        PartitionError: more clusters than nodes, or settings that cannot be.
        MissingExtraError: METIS without pymetis.
        StoreFormatError: what is in ``save_dir`` is none of ours, or of something else.

    Source: Chiang et al., "Cluster-GCN: An Efficient Algorithm for Training Deep and Large Graph Convolutional
    Networks" (KDD'19), section 3.1.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2, 3, 1], [1, 0, 3, 2, 2]])
        >>> data = Data(x=torch.arange(4.0), edge_index=edge_index)
        >>> clusters = ClusterData(data, num_parts=2, log=False, method="ldg")
        >>> len(clusters), sorted(clusters[0].x.tolist() + clusters[1].x.tolist())
        (2, [0.0, 1.0, 2.0, 3.0])
    """

    def __init__(
        self,
        data: Data,
        num_parts: int,
        recursive: bool = False,
        save_dir: str | None = None,
        filename: str | None = None,
        log: bool = True,
        keep_inter_cluster_edges: bool = False,
        sparse_format: Literal["csr", "csc"] = "csr",
        *,
        method: str | Partitioner = "metis",
        seed: int = 0,
    ) -> None:
        check_data("ClusterData", data)
        num_parts = as_integer("num_parts", num_parts, PartitionError)
        if not 1 <= num_parts <= max(int(data.num_nodes), 1):
            raise PartitionError(f"num_parts is {num_parts}; it must lie in [1, {data.num_nodes}], the nodes.")
        if sparse_format not in ("csr", "csc"):
            raise PartitionError(f"sparse_format={sparse_format!r} is not known; give 'csr' or 'csc'.")
        self.num_parts, self.recursive, self.seed = num_parts, recursive, seed
        self.keep_inter_cluster_edges, self.sparse_format = keep_inter_cluster_edges, sparse_format
        self._way = self._partitioner(method)
        self._log = log
        self.partition = self._partition(data.edge_index, self._clusters(data, save_dir, filename))
        if (omitted := describe_omitted(data, None, links=False)) is not None:
            warn(f"ClusterData: {omitted}")
        data = copy.copy(repeated(data))
        data.num_nodes = data.num_nodes  # else PyG guesses it where there are no edges left
        self.data = self._permute_data(data, self.partition)
        self._rows = {
            name: (not data.is_node_attr(name), data.__cat_dim__(name, value))
            for name, value in data.items()
            if name != "edge_index" and (data.is_node_attr(name) or data.is_edge_attr(name))
        }
        sizes = self.partition.partptr.diff()
        self._cluster_of = torch.repeat_interleave(torch.arange(num_parts, dtype=torch.int32), sizes)

    def _partitioner(self, method: str | Partitioner) -> Partitioner:
        if method == "metis":
            return Metis(recursive=self.recursive)
        if self.recursive:
            raise PartitionError(f"recursive=True is of METIS, not of method={method!r}: leave one out.")
        return partitioner(method)

    def _clusters(self, data: Data, save_dir: str | None, filename: str | None) -> torch.Tensor:
        """Returns the cluster of each node, int64 ``[N]``: from the file, or by the method."""
        num_nodes = int(data.num_nodes)
        if save_dir is None:
            return self._metis(data.edge_index, num_nodes)
        settings = f"{num_nodes} {self.num_parts} {self._way!r} {self.seed}".encode()
        made_of = checksum_of([data.edge_index, np.frombuffer(settings, np.uint8)])
        folder = f"part_{self.num_parts}{'_recursive' if self.recursive else ''}"
        path = Path(save_dir, folder, filename or f"{self._way.name}-{made_of:08x}.npz")
        arrays = kept_arrays(
            path,
            {"cluster": ("<i4", num_nodes)},
            made_of,
            lambda: {"cluster": self._metis(data.edge_index, num_nodes).numpy()},
        )
        cluster = torch.from_numpy(arrays["cluster"].astype(np.int64))
        if num_nodes and not 0 <= int(cluster.min()) <= int(cluster.max()) < self.num_parts:
            raise StoreFormatError(
                f"{path} has clusters from {int(cluster.min())} to {int(cluster.max())}, but there are "
                f"{self.num_parts}, from 0: it is damaged. Move it away to have it made anew."
            )
        return cluster

    def _metis(self, edge_index: torch.Tensor, num_nodes: int) -> torch.Tensor:
        if self.num_parts == 1:
            return torch.zeros(num_nodes, dtype=torch.long)
        graph, none = Graph.from_coo(edge_index[0], edge_index[1], num_nodes), np.empty(0, np.int64)
        with progress(f"Clusters by {self._way.name}", None, show=self._log) as beat:

            def advance(stage: str, share: float) -> None:
                beat(0)

            try:
                owner = self._way.assign(
                    graph, {"train": none}, self.num_parts, hops=0, seed=self.seed, advance=advance
                )
            except MissingExtraError as error:
                raise MissingExtraError(
                    "pymetis", "partition", "ClusterData by METIS (method='ldg' needs no package)", error
                ) from error
            owner = settle(graph, owner, None, self.num_parts, advance)
        return torch.from_numpy(owner.astype(np.int64))

    def __getitem__(self, idx: int) -> Data:
        idx = operator.index(idx)
        if not -len(self) <= idx < len(self):
            raise IndexError(f"there is no cluster {idx}: they are numbered from 0 to {len(self) - 1}.")
        return self.subgraph(torch.tensor([idx % len(self)]), inter_cluster_edges=self.keep_inter_cluster_edges)

    def subgraph(self, clusters: torch.Tensor, *, inter_cluster_edges: bool = False) -> Data:
        """Returns the nodes of some clusters, int64 ``[C]``, one after the other, with all edges among them.

        ``inter_cluster_edges`` keeps edges to the nodes of others as well, and has their far ends as places in
        ``data``.
        """
        part, source = self.partition, self.data
        begins, stops = part.partptr[clusters], part.partptr[clusters + 1]
        firsts, lasts = part.indptr[begins], part.indptr[stops]
        nodes, edges = _Spans(begins, stops - begins), _Spans(firsts, lasts - firsts)
        degrees = torch.cat([part.indptr[span.start : span.stop + 1].diff() for span in nodes.slices])
        near = torch.repeat_interleave(torch.arange(nodes.total), degrees)
        far, inside = edges.of(part.index), None
        if not inter_cluster_edges:
            # What is added to a node of each cluster for its place in the mini-batch.
            moved = torch.full((len(self),), _ELSEWHERE)
            moved[clusters] = nodes.starts - begins
            local = far + moved[self._cluster_of[far]]
            inside = (local >= 0).nonzero().view(-1)
            near, far = near[inside], local[inside]
        out = copy.copy(source)
        for name, (by_edge, dim) in self._rows.items():
            rows = (edges if by_edge else nodes).of(source[name], dim)
            out[name] = rows if inside is None or not by_edge else select(rows, inside, dim=dim)
        out.num_nodes = nodes.total
        out.edge_index = torch.stack([near, far] if part.sparse_format == "csr" else [far, near])
        return out


class _Spans:
    """Some spans of rows, one after the other."""

    def __init__(self, begins: torch.Tensor, sizes: torch.Tensor) -> None:
        self.slices = [slice(begin, begin + size) for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)]
        self.starts = sizes.cumsum(0) - sizes
        self.total = int(sizes.sum())

    def of(self, value: Any, dim: int = 0) -> Any:
        """Returns these rows of a value."""
        if isinstance(value, torch.Tensor):
            return torch.cat([value.narrow(dim, span.start, span.stop - span.start) for span in self.slices], dim=dim)
        return select(value, torch.cat([torch.arange(span.start, span.stop) for span in self.slices]), dim=dim)


class ClusterLoader(SubgraphLoader, pyg.ClusterLoader):
    """PyG's ``ClusterLoader``, and the same mini-batches in every run: some clusters, with all edges among them.

    Fields of mini-batches are PyG's, in its order. Which clusters come together is a pure function of (seed, epoch)
    with ``shuffle=True``. Threads, epochs and resuming are those of :class:`.NeighborLoader`.

    Args:
        cluster_data: a :class:`ClusterData`.
        seed: random seed of the order; None: of ``generator``, or of torch's own, which ``torch.manual_seed`` decides.
        **kwargs: those of torch's DataLoader, such as ``batch_size``, clusters a mini-batch, and ``shuffle``.

    Raises:
        GraphDataError: no such data; PyG's own are none.
        LoaderConfigError: keywords that are none, or of DataLoader that mean nothing to threads.
        SeedError: on loading, a ``sampler`` of others that names a cluster twice.

    Source: Chiang et al. (KDD'19), section 3.2, stochastic multiple partitions.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2, 3, 1], [1, 0, 3, 2, 2]])
        >>> clusters = ClusterData(Data(edge_index=edge_index, num_nodes=4), 2, log=False, method="ldg")
        >>> [batch] = ClusterLoader(clusters, batch_size=2, shuffle=True, seed=3)
        >>> batch.num_nodes, batch.num_edges
        (4, 5)
    """

    def __init__(self, cluster_data: ClusterData, *, seed: int | None = None, **kwargs: Any) -> None:
        if not isinstance(cluster_data, ClusterData):
            raise GraphDataError(
                f"ClusterLoader takes a ClusterData of lightning_gnnload.pyg, not a {type(cluster_data).__name__} of "
                f"{type(cluster_data).__module__}. Make one: ClusterData(data, num_parts)."
            )
        self.cluster_data = cluster_data
        seed, numbers = drawn_seed(seed, None, kwargs), cast(Any, range(len(cluster_data)))
        torch.utils.data.DataLoader.__init__(self, numbers, collate_fn=self._collate, **self._honoured(kwargs, seed))
        self._begin()

    def _made_of(self, requests: Iterator[BatchRequest]) -> Iterator[Any]:
        return self._in_threads(lambda request: self._ready(self._collate(request.rows)), requests)

    def _collate(self, batch: Any) -> Data:
        """Returns the subgraph of some clusters, by their numbers."""
        clusters = torch.as_tensor(batch).long()
        check_distinct("cluster", clusters)
        return self.cluster_data.subgraph(clusters)

    def _origins(self) -> Origins:
        part = self.cluster_data.partition
        seeds = checksum_of([part.partptr, part.node_perm])
        return Origins(f"{seeds:08x}", f"{checksum_of([part.indptr, part.index]):08x}", "clusters", {})
