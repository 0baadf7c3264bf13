"""ThreadedLoader: what a loader of PyG becomes where threads of its process make the mini-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NodeSamplerInput

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.checksums import checksum_of
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.sanity import visibility_issue
from lightning_gnnload.data.seedform import SeedForm
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.visibility import VisibleEdges
from lightning_gnnload.errors import warn
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.slots import SlotPool
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.pyg.attributes import Attributes, as_data, describe_omitted, repeated
from lightning_gnnload.pyg.epochs import EpochRows, Origins
from lightning_gnnload.pyg.inputs import check_range, check_structure
from lightning_gnnload.pyg.outputs import NEW_MEMORY, sampler_output
from lightning_gnnload.pyg.sampler import GnnloadSampler
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.seeds.rows import SeedBatch, SeedKind, Sharing
from lightning_gnnload.sample.workload import Workload


class PyGSeeds(SeedKind):
    """The rows of a PyG loader's input, as PyG's rules ask for them."""

    form = SeedForm("pyg")

    def __init__(self, loader: ThreadedLoader) -> None:
        self.loader = loader
        self._sampler, self._inputs = loader._sampler, loader.input_data
        self._negatives = getattr(loader, "neg_sampling", None)
        self.rows = np.arange(len(loader.dataset))
        self.sharing: Sharing = "disjoint" if self._sampler.disjoint else "plain"
        self.is_timed = self._sampler.is_temporal
        self.has_negatives = self._negatives is not None

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(("rows",) if self.sharing == "disjoint" else ())

    @property
    def settings_by_name(self) -> dict[str, Any]:
        labels, negatives = getattr(self._inputs, "label", None), self._negatives
        settings = {"subgraph_type": self._sampler.subgraph_type.value, "inputs": checksum_of_inputs(self._inputs)}
        settings["edge_label"] = None if labels is None else f"{checksum_of([labels]):08x}"
        settings["neg_sampling"] = None
        if negatives is not None:
            weights = checksum_of([negatives.src_weight, negatives.dst_weight])
            settings["neg_sampling"] = f"{negatives.mode.value} {negatives.amount} {weights:08x}"
        return settings

    def nodes_of(self, rows: np.ndarray) -> np.ndarray:
        return self._sampler.nodes_of(self._inputs[torch.from_numpy(rows)])

    def ask(self, rows: Any, key: DrawKey) -> SeedBatch:
        listed = torch.as_tensor(rows)
        check_range(listed, len(self._inputs.node if isinstance(self._inputs, NodeSamplerInput) else self._inputs.row))
        return self._sampler.seed_batch(self._inputs[listed], key, self._negatives)

    def seen(self, rows: np.ndarray) -> VisibleEdges | None:
        return self._sampler.seen(self._inputs[torch.from_numpy(rows)])

    def bound(self, order: SeedOrder, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        table = self._ordered_table
        return order.bind_rows(table, table.ends, self._sampler.graph, global_batch_size)

    @cached_property
    def _ordered_table(self) -> SeedTable:
        """The nodes of all rows, and their times, as orders look at them."""
        nodes, times, node_time = self.nodes_of(self.rows), self._inputs.time, self._sampler.graph.node_time
        if nodes.shape[1] == 2:
            return SeedTable(src=nodes[:, 0], dst=nodes[:, 1], time=times)
        return SeedTable(nodes[:, 0], time=node_time[nodes[:, 0]] if times is None and node_time is not None else times)


class ThreadedLoader(EpochRows):
    """What our loaders around seeds do otherwise than PyG's, beside which each of them inherits it: threads make
    mini-batches."""

    # Set by PyG's loaders.
    data: Any
    input_data: Any
    transform: Any
    transform_sampler_output: Any
    _attributes_class = Attributes
    _is_told = False

    @property
    def _sampler(self) -> Any:
        """The sampler of nodes or links."""
        raise NotImplementedError

    @property
    def _is_ours(self) -> bool:  # type: ignore[override]
        return isinstance(self._sampler, GnnloadSampler)

    def _check_rows(self) -> None:
        """Refuses rows and attributes that no mini-batch can have, and tells what is seldom meant, once a sampler."""
        check_structure(self.data)
        rows = self.input_data, getattr(self, "neg_sampling", None)
        self._sampler.check_inputs(*rows)
        oddities: list[str | None] = [*self._sampler.oddities(*rows)]
        if isinstance(self.data, Data | HeteroData):
            is_links = not isinstance(self.input_data, NodeSamplerInput)
            oddities.append(describe_omitted(self.data, self.input_data.input_type, links=is_links))
        if can_read(self.data):
            self._attributes_class(self.data, self._sampler.graph, edges=False)  # refuses what has no rows
        for text in oddities:
            if text is not None and text not in self._sampler.warned:
                self._sampler.warned.add(text)
                self._tell(text)

    def _made_of(self, requests: Iterator[BatchRequest]) -> Iterator[Any]:
        sampler = self._sampler
        attributes = Attributes(self.data, sampler.graph, edges=are_drawn(sampler)) if self._is_gathered() else None
        lists, rows = SlotPool(pinned=self._is_pinned), SlotPool(pinned=self._is_pinned)
        room = rows.room if self._is_pinned else NEW_MEMORY

        def convert(batch: MiniBatch) -> Any:
            if not self._is_pinned:  # few: who keeps labels does not keep what was sampled
                batch.seed_columns = {name: column.clone() for name, column in batch.seed_columns.items()}
            output = sampler_output(batch, sampler, room=lists.room)
            return self._filtered(output, attributes, lambda source: source.gathered(output, rows.room, room))

        return self._threads(GraphData(sampler.graph), sampler.inner(), convert).made(requests)

    def _threads(self, tables: GraphData, inner: Sampler, convert: Callable[[MiniBatch], Any]) -> SampledLoader:
        """Returns what makes mini-batches of the rows that this loader lists: ``inner`` draws, ``tables`` are gathered,
        and ``convert`` makes of a mini-batch what the loader yields."""
        sampler = self._sampler
        workload = Workload(sampler.graph, inner, lambda *_: PyGSeeds(self), seed=self.seed)
        if not self._is_told and (edges := workload.seen()) is not None:
            issue = visibility_issue(edges, f"{type(self).__name__}: the seeds", _OF_SEEDS)
            if issue is not None and issue.is_suspicious:
                warn(issue.text)
        self._is_told = True
        return SampledLoader(
            BatchSource(tables, workload),
            num_threads=self.num_workers,
            num_ahead=None if self.prefetch_factor is None else self.num_workers * self.prefetch_factor,
            on_thread=self.worker_init_fn,
            convert=convert,
            pinned=self._is_pinned,
        )

    def filter_fn(self, out: Any) -> Any:
        """Returns the data of who was sampled, as PyG's own does, by whose fields it goes."""
        if not isinstance(self._sampler, GnnloadSampler):
            return super().filter_fn(out)  # type: ignore[misc]
        if not can_read(self.data):
            loader = copy(self)
            if isinstance(self.data, Data | HeteroData):
                loader.data = repeated(self.data)
            return super(ThreadedLoader, loader).filter_fn(out)  # type: ignore[misc]
        if self.transform_sampler_output is not None:
            out = self.transform_sampler_output(out)
        attributes = Attributes(self.data, self._sampler.graph, edges=False)
        return self._as_data(out, attributes, attributes.gathered(out, NEW_MEMORY, NEW_MEMORY))

    def _is_gathered(self) -> bool:
        """Whether our kernels gather attributes for all that was sampled, before somebody makes something else of
        it."""
        return self.transform_sampler_output is None and can_gather(self.data, self._sampler)

    def _filtered(
        self, output: Any, attributes: Attributes | None, gather: Callable[[Attributes], dict[str, torch.Tensor]]
    ) -> Any:
        """Returns the data of who was sampled, whose attributes ``gather`` gives."""
        return self.filter_fn(output) if attributes is None else self._as_data(output, attributes, gather(attributes))

    def _as_data(self, output: Any, attributes: Attributes, rows: dict[str, torch.Tensor]) -> Any:
        negatives = getattr(self, "neg_sampling", None)
        data = as_data(output, rows, attributes, self.input_data.input_type, negatives)
        return data if self.transform is None else self.transform(data)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not self._is_ours:
            warn(
                f"the epoch begins anew: with the sampler {type(self._sampler).__name__}, which is not of this "
                f"package, a {type(self).__name__} is PyG's own, and cannot go on in mid-epoch."
            )
            return
        super().load_state_dict(state)

    def _origins(self) -> Origins:
        sampler = self._sampler
        settings = PyGSeeds(self).settings_by_name
        return Origins(
            checksum_of_inputs(self.input_data), sampler.graph.fingerprint, sampler.inner().description, settings
        )


def checksum_of_inputs(inputs: Any) -> str:
    """Returns a checksum of a loader's rows, with their times, and their type."""
    columns = {name: values for name, values in vars(inputs).items() if isinstance(values, torch.Tensor)}
    return f"{checksum_of(columns[name] for name in sorted(columns) if name != 'label'):08x} {inputs.input_type}"


_OF_SEEDS = "give input_time=, or edge_label_time= of links; or leave time_attr= out"
"""What to do where seeds have the times of their nodes."""


def can_read(data: Any) -> bool:
    """Whether mini-batches' attributes are looked up here; otherwise by PyG, in stores and beside ``adj_t``."""
    return isinstance(data, Data | HeteroData) and not any("adj_t" in store for store in data.stores)


def can_gather(data: Any, sampler: GnnloadSampler) -> bool:
    """Whether our kernels can gather these data's attributes for what the sampler finds."""
    return can_read(data) and sampler.sample_direction == "forward"  # types of edges are the graph's


def are_drawn(sampler: GnnloadSampler) -> bool:
    """Whether a mini-batch's edges are those that were drawn."""
    return sampler.subgraph_type.value == "directional"
