"""LightningNodeData and LightningLinkData: PyG's data modules, over a GraphDataModule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch_geometric.loader as pyg
from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import BaseSampler

from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.pyg.datamodule import PyGDataModule
from lightning_gnnload.pyg.phases import PhaseLinkLoader, PhaseNodeLoader
from lightning_gnnload.pyg.sampler import GnnloadSampler


class LightningNodeData(PyGDataModule):
    """PyG's ``LightningNodeData``, over a :class:`.GraphDataModule`: with neither pyg-lib nor torch-sparse, and with
    what that has more.

    Arguments, attributes and mini-batches are PyG's, and these those of :class:`.NeighborLoader`. What is otherwise:

    - With :class:`.FactoredStrategy`, other processes sample and gather. ``transform`` and
      ``transform_sampler_output`` are called by the trainer, as are PyG's own rules for attributes that are no tables
      of numbers: ragged columns of a TensorFrame, sparse and transposed tensors.
    - A run resumes in mid-epoch from Lightning's checkpoints, mini-batch for mini-batch.
    - With several trainers each row comes exactly once in an epoch. One trainer has as many steps as PyG's loader; of
      several, a rest of fewer rows than there are trainers joins the step before.
    - A node draws the same neighbours whenever it is evaluated, unless ``eval_draws="fresh"``; and ``drop_last`` is of
      training alone, unless ``eval_loader_kwargs`` has it.
    - ``num_workers=n`` means n threads of this process; 0 samples in the caller's thread.

    Args:
        data: a ``Data``, a ``HeteroData``, or a pair ``(FeatureStore, GraphStore)``.
        input_train_nodes: the seeds: ids, a mask, or in a graph with types a type or ``(type, ids)``; None: those of
            ``train_mask``, ``train_idx`` or ``train_index``, where the data have one, else all nodes.
        input_train_time: their times, where these are not the nodes' own.
        input_val_nodes: likewise, of ``val_mask`` or ``valid_mask`` and so on; without them nothing is validated on.
        input_val_time: likewise.
        input_test_nodes: likewise, of ``test_mask`` and so on.
        input_test_time: likewise.
        input_pred_nodes: likewise, of ``pred_mask`` and so on, else all nodes.
        input_pred_time: likewise.
        loader: ``"neighbor"``, or ``"full"``, by which the data are the only mini-batch, as PyG has it.
        node_sampler: samples instead: a :class:`.GnnloadSampler`, or another one, by PyG's own loader.
        eval_loader_kwargs: what is otherwise in validation, test and prediction, such as ``dict(num_neighbors=[-1])``.
        **kwargs: those of :class:`.NeighborLoader` and of torch's DataLoader, where ``sampler`` and ``batch_sampler``
            are of training alone; and of :class:`.GraphDataModule` ``seed``, ``order``, ``cache``, ``eval_draws`` and
            ``num_threads``, which is ``num_workers``. Without ``seed`` it is that of ``seed_everything``, else one that
            torch draws, which goes with Lightning's checkpoints; of several ranks 0.

    Raises:
        LoaderConfigError: keywords that are none, or that cannot be heeded together.
        GraphDataError, GraphFormatError, SamplerConfigError: as :class:`.GnnloadSampler`.
        SeedError: when a loader is made: nothing to begin at, or what is no node.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.arange(4.0)[:, None], edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]))
        >>> data.train_mask = torch.tensor([True, True, True, False])
        >>> module = LightningNodeData(data, num_neighbors=[-1], batch_size=2)
        >>> [batch.batch_size for batch in module.train_dataloader()], module.data is data
        ([2, 1], True)
    """

    _LOADER = pyg.NodeLoader
    _SAMPLER = "node_sampler"
    _INPUTS = ("nodes", "time", "id")

    def __init__(
        self,
        data: Any,
        input_train_nodes: Any = None,
        input_train_time: torch.Tensor | None = None,
        input_val_nodes: Any = None,
        input_val_time: torch.Tensor | None = None,
        input_test_nodes: Any = None,
        input_test_time: torch.Tensor | None = None,
        input_pred_nodes: Any = None,
        input_pred_time: torch.Tensor | None = None,
        loader: Literal["neighbor", "full"] = "neighbor",
        node_sampler: BaseSampler | None = None,
        eval_loader_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._set_inputs("train", _split_nodes(input_train_nodes, data, "train"), input_train_time)
        self._set_inputs("val", _split_nodes(input_val_nodes, data, "val", "valid"), input_val_time)
        self._set_inputs("test", _split_nodes(input_test_nodes, data, "test"), input_test_time)
        self._set_inputs("pred", _split_nodes(input_pred_nodes, data, "pred"), input_pred_time)
        super().__init__(data, loader, node_sampler, eval_loader_kwargs, kwargs)

    def dataloader(
        self,
        input_nodes: Any,
        input_time: torch.Tensor | None = None,
        input_id: torch.Tensor | None = None,
        node_sampler: BaseSampler | None = None,
        **kwargs: Any,
    ) -> DataLoader:
        if self.loader == "full":
            return self.full_dataloader(**kwargs)
        kwargs |= {"input_nodes": input_nodes, "input_time": input_time, "input_id": input_id}
        # The sampler of another package is left to PyG's own loader.
        if isinstance(node_sampler, GnnloadSampler):
            return PhaseNodeLoader(self.data, node_sampler, seed=self.seed, **kwargs)
        return pyg.NodeLoader(self.data, node_sampler, **kwargs)


class LightningLinkData(PyGDataModule):
    """PyG's ``LightningLinkData``, as :class:`LightningNodeData` is its ``LightningNodeData``.

    Args:
        data: as :class:`LightningNodeData` has it.
        input_train_edges: the links: their ends ``[2, R]``, or in a graph with types an edge type, or
            ``(edge type, ends)``; None for all edges.
        input_train_labels: their labels, ``[R]`` or ``[R, C]``.
        input_train_time: their times.
        input_val_edges: likewise, as are the others of ``val``, ``test`` and ``pred``; without them nothing is
            validated or tested on.
        loader: as :class:`LightningNodeData` has it.
        link_sampler: likewise.
        eval_loader_kwargs: likewise.
        **kwargs: likewise, and those of :class:`.LinkNeighborLoader`: ``neg_sampling``, ``neg_sampling_ratio``.

    Raises:
        LoaderConfigError, GraphDataError, GraphFormatError, SamplerConfigError, SeedError: as
            :class:`LightningNodeData`.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]), num_nodes=4)
        >>> settings = dict(num_neighbors=[-1], neg_sampling="binary", batch_size=2)
        >>> module = LightningLinkData(data, input_train_edges=data.edge_index, **settings)
        >>> [batch.edge_label.tolist() for batch in module.train_dataloader()]
        [[1.0, 1.0, 0.0, 0.0], [1.0, 0.0]]
    """

    _LOADER = pyg.LinkLoader
    _SAMPLER = "link_sampler"
    _INPUTS = ("edges", "labels", "time", "id")

    def __init__(
        self,
        data: Any,
        input_train_edges: Any = None,
        input_train_labels: torch.Tensor | None = None,
        input_train_time: torch.Tensor | None = None,
        input_val_edges: Any = None,
        input_val_labels: torch.Tensor | None = None,
        input_val_time: torch.Tensor | None = None,
        input_test_edges: Any = None,
        input_test_labels: torch.Tensor | None = None,
        input_test_time: torch.Tensor | None = None,
        input_pred_edges: Any = None,
        input_pred_labels: torch.Tensor | None = None,
        input_pred_time: torch.Tensor | None = None,
        loader: Literal["neighbor", "link_neighbor", "full"] = "neighbor",
        link_sampler: BaseSampler | None = None,
        eval_loader_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._set_inputs("train", input_train_edges, input_train_labels, input_train_time)
        self._set_inputs("val", input_val_edges, input_val_labels, input_val_time)
        self._set_inputs("test", input_test_edges, input_test_labels, input_test_time)
        self._set_inputs("pred", input_pred_edges, input_pred_labels, input_pred_time)
        super().__init__(data, loader, link_sampler, eval_loader_kwargs, kwargs)

    def dataloader(
        self,
        input_edges: Any,
        input_labels: torch.Tensor | None = None,
        input_time: torch.Tensor | None = None,
        input_id: torch.Tensor | None = None,
        link_sampler: BaseSampler | None = None,
        **kwargs: Any,
    ) -> DataLoader:
        if self.loader == "full":
            return self.full_dataloader(**kwargs)
        kwargs |= {"edge_label_index": input_edges, "edge_label": input_labels}
        kwargs |= {"edge_label_time": input_time, "input_id": input_id}
        if isinstance(link_sampler, GnnloadSampler):
            return PhaseLinkLoader(self.data, link_sampler, seed=self.seed, **kwargs)
        return pyg.LinkLoader(self.data, link_sampler, **kwargs)


def _split_nodes(nodes: Any, data: Any, *splits: str) -> Any:
    """Returns a split's nodes: the user's, or those of the data's attribute for it, of whatever name PyG gives it; None
    without either. Raises LoaderConfigError where several types of nodes have the attribute."""
    if nodes is not None or not isinstance(data, Data | HeteroData):
        return nodes
    names = [f"{split}_{suffix}" for split in splits for suffix in ("mask", "idx", "index")]
    if (name := next((name for name in names if name in data), None)) is None:
        return None
    if isinstance(data, Data):
        return data[name]
    by_type = [(node_type, store[name]) for node_type, store in data.node_items() if name in store]
    if len(by_type) != 1:
        raise LoaderConfigError(
            f"{name} is an attribute of {len(by_type)} types of nodes "
            f"({', '.join(node_type for node_type, _ in by_type)}), so that which of them is meant is not known. Give "
            f"input_{splits[0]}_nodes=('type', ids)."
        )
    return by_type[0]
