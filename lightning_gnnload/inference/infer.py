"""infer: a model's output for all nodes, layer by layer."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from lightning_gnnload.adapters.formats import FORMATS, FormatName
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.moment import moment_text
from lightning_gnnload.data.predicted import PREDICTION
from lightning_gnnload.errors import InferenceError
from lightning_gnnload.host.memory import free_bytes
from lightning_gnnload.host.progress import progress as shown
from lightning_gnnload.inference.compare import compare, rehearse
from lightning_gnnload.inference.model import Layers, call_of, has_layers
from lightning_gnnload.inference.neighborhoods import Batches, Columns, InLists
from lightning_gnnload.inference.passes import Bounds, Passes, find_plan, reach_of, widest
from lightning_gnnload.inference.request import NodesByType, lists_of_sampler, requested_nodes, time_of
from lightning_gnnload.inference.save import EMBEDDING, check_files, save_rows
from lightning_gnnload.inference.stages import Key
from lightning_gnnload.inference.trace import trace
from lightning_gnnload.sample.aggregates import check_times
from lightning_gnnload.storage.aggregates import check_fresh
from lightning_gnnload.storage.folders import clear_leftovers, staging_folder
from lightning_gnnload.storage.output import explain_write_errors

_log = logging.getLogger(__name__)
_MOST_EDGES = 4_000_000
_MOST_NODES = 1 << 18
_ROWS_OF_EDGE = 4  # rows that a block holds at once for each of its edges, at the most
_PREDICTING = (None, "predict_step", "forward")
_FEW = 3  # neighbours of a node, in comparisons that come first


def infer(
    model: nn.Module,
    data: Any,
    *,
    nodes: Any = "all",
    batch_format: FormatName | None = None,
    method: str | None = None,
    layers: Sequence[str] | None = None,
    num_layers: int | None = None,
    time: Any = None,
    out: str | os.PathLike[str] | None = None,
    dtype: torch.dtype = torch.float32,
    memory: int | None = None,
    max_edges: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    num_compared: int = 8,
    seed: int = 0,
    progress: bool = True,
) -> torch.Tensor | dict[str, torch.Tensor]:
    """Returns a model's output for all nodes, as its whole neighbourhoods give it: each layer is computed once a node.

    The model stays as it is. It is run on nodes and their in-neighbours, layer after layer: convolutions that are done
    give what is stored of them, the one at hand is kept, and the rest is cut off. Convolutions are the modules that
    are given edges: ``edge_index``, a :class:`Block`, or a graph of DGL. A model may instead say itself what its
    layers do, by ``layer(i, block, h)``, which returns rows of the block's destinations, and ``num_layers``. A method
    ``take_tables(data, samplers)`` is called before, to find or refuse the data's tables, as :class:`.SAGE` does.

    Before the passes, the same is done over a few neighbours of few nodes, and after them some nodes' whole
    neighbourhoods are computed at once; where either differs from what the model gives, nothing is returned.

    Args:
        model: gives rows for the seeds of a mini-batch, by ``predict_step``, if it has its own, or ``forward``, of a
            batch or of arguments named like what batches hold (``x, edge_index``).
        data: a GraphData, or a GraphDataModule, whose batch format and names are then taken.
        nodes: whose rows are wanted: ``"all"``, ``"train"``, ``"val"``, ``"test"``, ``"predict"``, ids, or in a graph
            with types the name of a type or a dict of ids by type.
        batch_format: what the model takes: ``"blocks"``, ``"pyg"`` or ``"dgl"``.
        method: another method to run.
        layers: names of the convolutions among ``model.named_modules()``, instead of those found.
        num_layers: hops of the model's mini-batches; None: those of the data module's sampler, or found by trying.
        time: in a graph with times, edges later than this do not count, a date as ``"2026-07-01"``; None: that of the
            task, or the latest of the seeds, or of all. The log says which it is.
        out: a file for the rows, ``.npy``, ``.parquet``, ``.csv`` or ``.csv.gz``; with several types, one each:
            ``name.TYPE.parquet``. Their columns are named as :class:`.PredictionWriter` has it; what another ``method``
            gives is ``embedding``.
        dtype: of rows between layers on disk, ``torch.float32`` or ``torch.float16``.
        memory: bytes that blocks, and files in memory, may take; None: half of what is free.
        max_edges: edges of a block; None: at most 4 million, fewer where memory asks for it. A node that has more
            stands alone.
        scratch: a folder for rows between layers; None: beside ``out``, or the system's temporary folder.
        num_compared: how many nodes are compared at the end; those whose neighbourhood is very large are not.
        seed: which ones.
        progress: show a bar.

    Returns:
        ``[N, ...]``, or ``[S, ...]`` of the nodes asked for, in their order; by node type in a graph with types. A file
        without a name, or ``out``, holds them, and is mapped.

    Raises:
        InferenceError: no convolutions are found, or the model gives other rows on its own mini-batches.
        OutputError: ``out`` cannot be written.
        GraphDataError, StaleTableError: ids that are no nodes; tables of :func:`.preaggregate` that are of other data,
            or count edges later than ``time``.

    Example:
        >>> from lightning_gnnload import Graph, GraphData
        >>> from torch_geometric.nn import GCN
        >>> graph = Graph.from_coo(src=[0, 1, 2, 3], dst=[1, 2, 3, 0])
        >>> data, model = GraphData(graph, x=torch.randn(4, 8)), GCN(8, 16, num_layers=2, out_channels=3)
        >>> infer(model, data, batch_format="pyg", progress=False).shape
        torch.Size([4, 3])
    """
    graph_data = data if isinstance(data, GraphData) else cast(GraphData, data.known_data())
    batch_format = batch_format or cast(FormatName, getattr(data, "batch_format", "blocks"))
    sampler = getattr(data, "eval_sampler", None)
    _check(dtype, sampler)
    # Of other libraries, models find the graph's weights and types among the batch's attributes.
    if FORMATS[batch_format].library is not None:
        graph_data = graph_data.with_graph_columns()
    until = time_of(graph_data, sampler, time)
    if until is not None:
        moment, origin = moment_text(until, graph_data.graph.clock), _origin(graph_data, time)
        _log.info("infer: edges up to %s count%s.", moment, origin)
    lists = InLists(graph_data, time=until, settings=lists_of_sampler(sampler))
    for name in graph_data.aggregates.keys() & graph_data.tables.keys():
        check_fresh(graph_data, name)
        check_times(graph_data, name, None if lists.time is None else (lists.time, lists.time), sampler, "the nodes")
    if hasattr(model, "take_tables"):
        cast(Any, model).take_tables(graph_data, [] if sampler is None else [sampler])
    few = replace(lists, fanout=_FEW)
    memory = free_bytes() // 2 if memory is None else memory
    with ExitStack() as stack:
        stack.enter_context(_evaluation(model))
        batches, run, traced = _batches_of(model, data, graph_data, batch_format, method, memory)
        hops = getattr(sampler, "num_layers", None) if num_layers is None else num_layers
        stages = trace(traced, run, batches, few, layers=layers, num_layers=hops)
        requested = requested_nodes(nodes, graph_data, stages, few)
        files = check_files(out, requested)
        folder = Path(scratch) / "infer" if scratch is not None else Path(out or _default_folder())
        with explain_write_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            clear_leftovers(folder)
            folder = stack.enter_context(staging_folder(folder))
        plan = find_plan(stages, lists, list(requested))
        # A block's rows of all its edges are to fit memory several times over.
        most = memory // (_ROWS_OF_EDGE * widest(stages, plan))
        max_nodes = max(min(_MOST_NODES, most), 1)
        bounds = Bounds(max_edges or max(min(_MOST_EDGES, most), 1), max_nodes, memory, dtype == torch.float16)
        reach = max(reach_of(stages, plan), 0 if batches.nested else stages.batches.num_layers)
        # A model that is refused is refused now, and not after hours.
        rehearse(Passes(stages, few, plan, _new(folder, "few"), bounds), requested, reach, seed)
        passes = Passes(stages, lists, plan, _new(folder, "rows"), bounds)
        total = sum(passes.num_nodes(name) + passes.num_edges(key, name) for key, name in plan)
        with shown("inference", total, show=progress) as advance:
            rows = passes.over(_nodes_of_stages(passes, requested), advance)
        compare(passes, rows, requested, reach, num_compared, seed)
        output = {name: stored.rows for name, stored in rows.items()}
        if files:
            # As predict_step and forward give them, they are what trainer.predict has.
            output = save_rows(files, rows, requested, graph_data, PREDICTION if method in _PREDICTING else EMBEDDING)
    return output if graph_data.graph.types is not None else output[""]


def _check(dtype: torch.dtype, sampler: Any) -> None:
    if dtype not in (torch.float32, torch.float16):
        raise InferenceError(f"dtype={dtype} of rows between layers: give torch.float32 or torch.float16.")
    if getattr(sampler, "order", "root") == "path":
        raise InferenceError(
            f"{sampler} bounds the edges of a node by the path that leads to it, so that a node has no one row a "
            "layer. Predict batch by batch: gnnload predict."
        )


def _origin(data: GraphData, time: Any) -> str:
    """Says where the time comes from, of which nothing was said."""
    if time is not None:
        return ""
    return (
        ", the time of the task"
        if data.as_of is not None
        else ", the latest time of the seeds; time= (--as-of) names another"
    )


def _nodes_of_stages(passes: Passes, requested: NodesByType) -> Callable[[Key, str], np.ndarray]:
    """Returns what gives the ids, within their type, of the nodes that a stage computes: all, if a later stage reads
    it."""
    stages, everywhere = passes.stages, set[Key]()
    for (key, _), reads in passes.plan.items():
        if key != stages.output:
            everywhere.update(map(Key, reads.stored))

    def nodes_of(key: Key, node_type: str) -> np.ndarray:
        ids = requested.get(node_type)
        whole = key != stages.output and (key in everywhere or key.degrees)
        if whole or ids is None:
            return np.arange(passes.num_nodes(node_type) if whole or node_type in requested else 0)
        return ids if key == stages.output else np.unique(ids)

    return nodes_of


@contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _batches_of(
    model: nn.Module, data: Any, graph_data: GraphData, batch_format: FormatName, method: str | None, memory: int
) -> tuple[Batches, Callable[[Any], Any], nn.Module]:
    """Returns what makes batches, what runs the model, and the module in which convolutions are looked for."""
    names: dict[str, Any] = {name: getattr(data, name, default) for name, default in _NAMES.items()}
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    if has_layers(model) and method is None:
        batch_format, traced = "blocks", cast(nn.Module, Layers(model))
        run, nested = cast(Callable[[Any], Any], traced), False
    else:
        traced = model
        run, nested = call_of(model, method, batch_format, names["feature_name"])
    convert = FORMATS[batch_format].adapter(graph_data, getattr(data, "template", None), **names)
    return Batches(Columns(graph_data, memory), convert, 1, nested, device), run, traced


_NAMES = {"feature_name": "feat", "label_name": "label", "edge_feature_name": "feat"}


def _default_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"gnnload-infer-{os.getuid()}"


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name
