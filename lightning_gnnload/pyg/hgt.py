"""HGTLoader: PyG's own, whose mini-batches our threads make, by :class:`.HGTSampler`'s draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch_geometric.loader as pyg
from torch_geometric.data import Data
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling

from lightning_gnnload.errors import SamplerUnsupportedError, SeedError
from lightning_gnnload.ops import DrawKey, Queries
from lightning_gnnload.pyg.inputs import check_tensors, checked_nodes
from lightning_gnnload.pyg.keywords import drawn_seed
from lightning_gnnload.pyg.sampler import GnnloadSampler
from lightning_gnnload.pyg.threads import ThreadedLoader
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.hgt import HGTSampler

_NUM_BLOCKS = 2  # the edges into the seeds, and all edges, which PyG gets


class GnnloadHGTSampler(GnnloadSampler):
    """Draws by budgets for PyG's loaders, as ``torch_geometric.sampler.HGTSampler`` does, without torch-sparse.

    Args:
        data: a ``HeteroData``, or a pair ``(FeatureStore, GraphStore)`` with types.
        num_samples: as :class:`.HGTSampler` has it.
        is_sorted: nothing: edges in any order are sorted in time linear in their number.
        share_memory: nothing: threads share it, and forked processes do.
        seed: random seed of the draws.

    Raises:
        SamplerUnsupportedError: a ``Data``, which has no types.
        GraphDataError, GraphFormatError: as :func:`.topology_of`.
        SamplerConfigError: as :class:`.HGTSampler`.

    Example:
        >>> import torch
        >>> from torch_geometric.data import HeteroData
        >>> from torch_geometric.loader import NodeLoader
        >>> data = HeteroData({"author": {"num_nodes": 2}, "paper": {"num_nodes": 3}})
        >>> data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 1], [0, 0, 2]])
        >>> [batch] = NodeLoader(data, GnnloadHGTSampler(data, [5]), input_nodes=("paper", torch.tensor([2])))
        >>> batch["author"].n_id.tolist()
        [1]
    """

    counts_hops = False  # PyG's own does not, either

    def __init__(
        self,
        data: Any,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        is_sorted: bool = False,
        share_memory: bool = False,
        *,
        seed: int = 0,
    ) -> None:
        if isinstance(data, Data):
            raise SamplerUnsupportedError(
                "HGTLoader draws so many nodes of each type, but a Data has no types. Give a HeteroData, as "
                "data.to_heterogeneous() makes it, or NeighborLoader."
            )
        self._inner = HGTSampler(num_samples, edge_ids=True, num_layers=_NUM_BLOCKS)
        super().__init__(data, [], seed=seed)
        self._inner.check_graph(self.graph)

    @property
    def num_hops(self) -> int:
        return _NUM_BLOCKS

    def inner(self) -> Sampler:
        return self._inner

    def sample_from_edges(self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> Any:
        """Raises SamplerUnsupportedError: PyG's own sampler, too, draws around nodes alone."""
        raise SamplerUnsupportedError("HGT's budgets are of seeds that are nodes. For links, give a GnnloadSampler.")

    def _queries(
        self, nodes: np.ndarray, times: np.ndarray | None, inputs: Any, num_rows: int, per_endpoint: int, key: DrawKey
    ) -> Queries | None:
        # Budgets belong to all seeds together: a seed that comes twice would be one node, but two rows.
        distinct, first = np.unique(nodes, return_index=True)
        if len(distinct) < len(nodes):
            twice = inputs.node[int(np.setdiff1d(np.arange(len(nodes)), first)[0])]
            raise SeedError(
                f"node {int(twice)} of type {inputs.input_type!r} is in a mini-batch's seeds twice, but budgets are of "
                "all seeds together: name each once in input_nodes."
            )
        return None

    def __repr__(self) -> str:
        return f"GnnloadHGTSampler({self._inner.num_samples})"


class HGTLoader(ThreadedLoader, pyg.HGTLoader):
    """PyG's ``HGTLoader``, without torch-sparse, and the same mini-batches in every run.

    Each hop draws so many nodes of each type, by how many edges lead from them to what is there already:
    :class:`.HGTSampler`. A mini-batch has all edges among its nodes. Fields of mini-batches are PyG's. What is
    otherwise:

    - ``num_workers``, ``seed``, epochs and resuming are those of :class:`.NeighborLoader`.
    - All edges among the nodes are there, by their own numbers. PyG's leaves edges into a node of more than 50 by one
      type out, and numbers those that it keeps as if they were the node's first (``e_id``, ``edge_attr``).
    - The nodes of a hop are in ascending order.

    Args:
        data: a ``HeteroData``, or a pair ``(FeatureStore, GraphStore)`` with types.
        num_samples: nodes by hop, of every type, or ``{node type: [nodes by hop]}`` with all types.
        input_nodes: the seeds: a type, or ``(type, ids)`` with ids, a mask or None; distinct within a mini-batch.
        is_sorted: nothing: edges are sorted in linear time.
        transform: called with each mini-batch, in the thread that made it.
        transform_sampler_output: called with who was sampled, before attributes are gathered.
        filter_per_worker: nothing: threads gather.
        seed: random seed; None: of ``generator``, or of torch's own, which ``torch.manual_seed`` decides.
        **kwargs: those of torch's DataLoader.

    Raises:
        LoaderConfigError: keywords that are none, or of DataLoader that mean nothing to threads.
        GraphDataError, GraphFormatError, SamplerConfigError: as :class:`.GnnloadHGTSampler`.

    Example:
        >>> import torch
        >>> from torch_geometric.data import HeteroData
        >>> data = HeteroData()
        >>> data["author"].num_nodes, data["paper"].x = 2, torch.arange(3.0)
        >>> data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 1], [0, 0, 2]])
        >>> [batch] = HGTLoader(data, [5], input_nodes=("paper", torch.tensor([2])), seed=7)
        >>> batch["author"].n_id.tolist(), batch["paper"].x.tolist(), batch["paper"].batch_size
        ([1], [2.0], 1)
    """

    def __init__(
        self,
        data: Any,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        input_nodes: Any,
        is_sorted: bool = False,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        seed = drawn_seed(seed, None, kwargs)
        sampler = GnnloadHGTSampler(data, num_samples, is_sorted, seed=seed)
        input_nodes = checked_nodes(sampler.num_nodes, input_nodes)
        check_tensors(input_id=kwargs.get("input_id"))
        self.num_samples = num_samples  # Lightning makes a loader anew of its attributes
        # The constructor of PyG's HGTLoader would make its own sampler.
        pyg.NodeLoader.__init__(
            self,
            data,
            sampler,
            input_nodes,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **self._honoured(kwargs, seed),
        )
        self._begin()

    @property
    def _sampler(self) -> Any:
        return self.node_sampler
