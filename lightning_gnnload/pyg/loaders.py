"""NeighborLoader and LinkNeighborLoader: PyG's own, whose mini-batches our threads make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch_geometric.loader as pyg

from lightning_gnnload.data.clock import Before
from lightning_gnnload.pyg.inputs import check_links, check_tensors, checked_nodes
from lightning_gnnload.pyg.keywords import drawn_seed
from lightning_gnnload.pyg.sampler import GnnloadSampler
from lightning_gnnload.pyg.threads import ThreadedLoader


class NeighborLoader(ThreadedLoader, pyg.NeighborLoader):
    """PyG's ``NeighborLoader``, with neither pyg-lib nor torch-sparse, and the same mini-batches in every run.

    Arguments and fields of mini-batches are PyG's. What is otherwise:

    - ``num_workers=n`` means n threads of this process, which share the graph and its features; 0 samples in the
      caller's thread.
    - ``seed`` decides all draws and the order of ``shuffle=True``. Each iteration is the next epoch, whose draws are
      new; :meth:`set_epoch` sets it.
    - :meth:`state_dict` and :meth:`load_state_dict` resume in mid-epoch.
    - ``disjoint`` and times work with every ``subgraph_type``; of ``"bidirectional"`` each edge has its own number.
    - Attributes that number the whole graph's nodes are left out of mini-batches, with a warning: :func:`.repeated`.

    Args:
        data: a ``Data``, a ``HeteroData``, or a pair ``(FeatureStore, GraphStore)``.
        num_neighbors: neighbours of each node, by hop: a list, a dict of lists by edge type, or a ``NumNeighbors``.
        input_nodes: the seeds: None for all nodes, ids, a slice or a mask; in a graph with types ``(type, those)``.
        input_time: of the seeds; those of nodes are their own, where there are some.
        replace: draw with replacement.
        subgraph_type: ``"directional"``, ``"bidirectional"`` or ``"induced"``: as :class:`.GnnloadSampler` has it.
        disjoint: each seed has nodes of its own; always so by time.
        temporal_strategy: ``"uniform"``, or ``"last"``, which takes the newest.
        time_attr: the attribute of nodes or edges by which nothing later than its seed is drawn.
        weight_attr: the attribute of edges in proportion to which they are drawn, or ``{edge type: attribute}``; edges
            of other types are drawn uniformly.
        transform: called with each mini-batch, in the thread that made it.
        transform_sampler_output: called with who was sampled, before attributes are gathered.
        is_sorted: nothing: edges are sorted in linear time.
        filter_per_worker: nothing: threads gather.
        neighbor_sampler: a :class:`.GnnloadSampler`, to share its graph; with another one it is PyG's own loader.
        directed: False is ``subgraph_type="induced"``.
        before: ``"<="``: edges up to a seed's time count; ``"<"``: those strictly before it. PyG has the first.
        time_window: the greatest age, at the seed's time, of edges that count, in the unit of ``time_attr``; with
            ``subgraph_type="directional"``.
        seed: random seed; None: of ``generator``, or of torch's own, which ``torch.manual_seed`` decides.
        **kwargs: those of torch's DataLoader.

    Raises:
        LoaderConfigError: keywords that are none, or of DataLoader that mean nothing to threads.
        GraphDataError, GraphFormatError, SamplerConfigError: as :class:`.GnnloadSampler`.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.arange(4.0)[:, None], edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]))
        >>> [batch] = NeighborLoader(data, [-1, -1], input_nodes=torch.tensor([0]), seed=7)
        >>> batch.x.view(-1).tolist(), batch.edge_index.tolist(), batch.batch_size
        ([0.0, 1.0, 2.0, 3.0], [[1, 2, 3], [0, 0, 1]], 1)
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: torch.Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | Mapping[tuple[str, str, str], str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        before: Before = "<=",
        time_window: float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        settings = (subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr, is_sorted)
        seed = drawn_seed(seed, neighbor_sampler, kwargs)
        sampler = neighbor_sampler
        if sampler is None:
            by_time: dict[str, Any] = {"before": before, "time_window": time_window}
            sampler = GnnloadSampler(data, num_neighbors, *settings, directed=directed, seed=seed, **by_time)
        # Before PyG's constructor, which reads a list of booleans as ids, and other mistakes in silence.
        input_nodes = checked_nodes(getattr(sampler, "num_nodes", None), input_nodes)
        check_tensors(input_time=input_time, input_id=kwargs.get("input_id"))
        # Lightning makes a loader anew of its attributes.
        self.num_neighbors, self.neighbor_sampler, self.time_attr = num_neighbors, sampler, time_attr
        super().__init__(
            data,
            num_neighbors,
            input_nodes,
            input_time,
            time_attr=time_attr,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            # PyG's constructor would else make its own, which needs pyg-lib or torch-sparse.
            neighbor_sampler=sampler,
            **self._honoured(kwargs, seed, isinstance(sampler, GnnloadSampler)),
        )
        self._begin()

    @property
    def _sampler(self) -> Any:
        return self.node_sampler


class LinkNeighborLoader(ThreadedLoader, pyg.LinkNeighborLoader):
    """PyG's ``LinkNeighborLoader``, as :class:`NeighborLoader` is its ``NeighborLoader``.

    Negatives are drawn by PyG's rules, and so may be edges of the graph; :class:`.Negatives` of a
    :class:`.GraphDataModule` never are. By time, none is later than its link: :class:`.NamedNegatives`.

    Args:
        data: as :class:`NeighborLoader` has it.
        num_neighbors: likewise.
        edge_label_index: the links: None for all edges, their ends ``[2, R]``, or in a graph with types an edge type,
            or ``(edge type, ends)``.
        edge_label: their labels, ``[R]`` or ``[R, C]``.
        edge_label_time: their times; needs ``time_attr``, which needs them.
        replace: as :class:`NeighborLoader` has it, as are the others that are not named here.
        neg_sampling: a ``NegativeSampling``, its mode, or a dict of its arguments.
        neg_sampling_ratio: binary negatives for each link.
        seed: random seed, of negatives as well.
        **kwargs: those of torch's DataLoader.

    Raises:
        LoaderConfigError: keywords that are none, or of DataLoader that mean nothing to threads.
        GraphDataError, GraphFormatError, SamplerConfigError: as :class:`.GnnloadSampler`; weights of negatives that are
            none.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]), num_nodes=4)
        >>> [batch] = LinkNeighborLoader(data, [-1], neg_sampling="binary", batch_size=3, seed=7)
        >>> batch.n_id[batch.edge_label_index][:, :3].tolist(), batch.edge_label.tolist()
        ([[1, 2, 3], [0, 0, 1]], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: torch.Tensor | None = None,
        edge_label_time: torch.Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | Mapping[tuple[str, str, str], str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        before: Before = "<=",
        time_window: float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        settings = (subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr, is_sorted)
        seed = drawn_seed(seed, neighbor_sampler, kwargs)
        sampler = neighbor_sampler
        if sampler is None:
            by_time: dict[str, Any] = {"before": before, "time_window": time_window}
            sampler = GnnloadSampler(data, num_neighbors, *settings, directed=directed, seed=seed, **by_time)
        self.num_neighbors, self.neighbor_sampler, self.time_attr = num_neighbors, sampler, time_attr
        self.edge_label, self.edge_label_time = edge_label, edge_label_time
        check_links(data, edge_label_index)
        check_tensors(edge_label=edge_label, edge_label_time=edge_label_time, input_id=kwargs.get("input_id"))
        super().__init__(
            data,
            num_neighbors,
            edge_label_index,
            edge_label,
            edge_label_time,
            neg_sampling=neg_sampling,
            neg_sampling_ratio=neg_sampling_ratio,
            time_attr=time_attr,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=sampler,
            **self._honoured(kwargs, seed, isinstance(sampler, GnnloadSampler)),
        )
        self._begin()

    @property
    def _sampler(self) -> Any:
        return self.link_sampler
