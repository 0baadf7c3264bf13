"""partition_graph: cuts a graph into parts and writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.host.machines import ENGINES
from lightning_gnnload.host.progress import ProgressLines, shown_display
from lightning_gnnload.partition.balance import balance_phases
from lightning_gnnload.partition.closure import Holdings, OwnLists, close_parts
from lightning_gnnload.partition.head import array_names, carried
from lightning_gnnload.partition.numbering import number_nodes
from lightning_gnnload.partition.partitioner import OPEN, Partitioner, partitioner
from lightning_gnnload.partition.quality import measure_quality
from lightning_gnnload.partition.settle import settle
from lightning_gnnload.partition.spread import spread_machines, write_spread_parts
from lightning_gnnload.partition.stages import StageClock
from lightning_gnnload.partition.write import (
    Advance,
    OwnRows,
    Seeds,
    write_features,
    write_head,
    write_numbering,
    write_parts,
)
from lightning_gnnload.settings import check_one_of
from lightning_gnnload.storage.folders import new_folder, write_manifest
from lightning_gnnload.storage.partitions import load_partition
from lightning_gnnload.storage.targets import check_target

MAX_HOPS = 255
_MEASURING = "Measuring quality"


def partition_graph(
    data: GraphData | Dataset,
    folder: str | os.PathLike[str],
    num_parts: int,
    method: str | Partitioner = "self-reliant",
    *,
    hops: int,
    phases: Sequence[str] = ("train",),
    seed: int = 0,
    features: bool = True,
    edge_columns: Sequence[str] = (),
    overwrite: bool = False,
    progress: bool = True,
    engine: str = "local",
) -> Partition:
    """Cuts a graph into parts and writes them as a folder, atomically.

    With ``hops`` of a sampler's reach, parts are self-reliant: each holds the neighbourhoods of its own seeds, as deep
    as they are sampled (PaGraph). With 0, each part holds the lists of its own nodes alone, and ranks sample together
    (DSP).

    Args:
        data: N nodes; its arrays may be mapped files larger than memory.
        folder: must not exist, unless ``overwrite``.
        num_parts: K; one a trainer, or one a sampler rank. At most 64 where ``hops`` is positive.
        method: ``"self-reliant"``, ``"metis"``, ``"bgl"``, ``"ldg"``, ``"random"``, or a :class:`.Partitioner`.
        hops: of in-neighbours that each part holds of its seeds: :attr:`.Sampler.reach`.
        phases: whose seeds parts hold, where ``hops`` is positive; each is balanced within 1. Others are sampled on the
            whole graph. With 0 hops, all seeds lie with their owners.
        seed: of what is random.
        features: write x, y and tables; without them, parts are topology alone. With 0 hops, the rows of each node and
            edge lie with its owner, and the folder's head, which is all but the parts, holds what a trainer needs
            beside lists and rows (:attr:`.StoredPartition.graph_data`). With more, x and tables of all nodes are
            written once for all parts; tables of one node type and edge features are taken from ``data``.
        edge_columns: with 0 hops, which of ``"edge_weight"``, ``"edge_type"`` and ``"edge_time"`` of the graph are also
            rows of edges, so that mini-batches carry them where no graph is. Samplers then need ``edge_ids=True``.
        overwrite: replace the folder, if it is one of a partition and holds nothing else.
        progress: show bars on stderr.
        engine: ``"local"``, or ``"ray"``: the machines of a Ray cluster write the parts, several at once, the same byte
            for byte. They map ``data`` from its folder, which all of them reach under the same path, as ``folder``.

    Memory: what the method takes; then 8 bytes a node for each hop, and some 50 more. Edges are read from ``data`` and
    written in turn.

    Raises:
        PartitionError: more parts than training nodes, none of these, a graph that is a part itself, rows of a table
            with hops, too many hops, a seed not in [0, 2**64), columns of edges that the graph does not have; ``"ray"``
            for a graph that is in no folder.
        LaunchError: as :class:`.Machines` has it.
        StoreFormatError: ``folder`` exists and ``overwrite`` is false, or is not replaced, as :func:`.check_target` has
            it.
        FeatureFileError: no room, or the disk fails; nothing is then left behind.

    Source: PaGraph (TPDS'21), section 3.2 and algorithm 1; DSP (PPoPP'23), section 3.1.

    Example:
        >>> from lightning_gnnload import Graph, GraphData
        >>> data = GraphData(Graph.from_coo([1, 2, 4, 5], [0, 1, 3, 4]), train=[0, 3])  # 2 -> 1 -> 0, and 5 -> 4 -> 3
        >>> partition = partition_graph(data, "parts", 2, hops=1, progress=False)
        >>> partition
        Partition(self-reliant, num_parts=2, num_nodes=6, hops=1)
        >>> [part.graph.origin.node_ids.tolist() for part in partition.parts]
        [[0, 1], [3, 4]]
    """
    way = partitioner(method)
    num_parts = ops.as_integer("num_parts", num_parts, PartitionError)
    hops = ops.as_integer("hops", hops, PartitionError)
    seed = ops.as_integer("seed", seed, PartitionError)
    check_one_of("engine", engine, ENGINES, PartitionError)
    check_target(folder, "partition", overwrite=overwrite)  # before a data set is fetched
    if isinstance(data, Dataset):
        data.prepare()
        data = data.load()
    if not isinstance(data, GraphData):
        raise PartitionError(f"a {type(data).__name__} cannot be partitioned. Give a GraphData or a dataset.")
    names = SPLITS if hops == 0 else phases
    _check(data, num_parts, hops, seed, names)
    graph = data.graph
    names = tuple(phase for phase in SPLITS if phase in names)  # training first, as methods have it
    seeds = {phase: data.split(phase) for phase in names}
    with (
        new_folder(folder, "partition", overwrite=overwrite) as target,
        spread_machines(data, target) if engine == "ray" else nullcontext() as machines,
        _stages(progress) as (advance, clock),
    ):
        owner = _assign(way, graph, seeds, num_parts, hops, seed, advance)
        owner, dealt, holdings = _close(graph, seeds, owner, num_parts, hops, advance)
        numbering = number_nodes(owner, num_parts)
        data = carried(data, features=features, edge_columns=edge_columns) if hops == 0 else data
        rows = OwnRows(data) if hops == 0 else None
        if machines is None:
            checksums = write_parts(target, graph, holdings, dealt, numbering, rows, advance)
        else:
            checksums = write_spread_parts(machines, target, data, holdings, dealt, numbering, rows, advance)
        if hops == 0:
            written = write_head(target, data)
        else:
            written = write_features(target, data, numbering.node_ids, advance) if features else {"arrays": {}}
            written["num_classes"] = data._num_classes
        written["arrays"] |= write_numbering(target, numbering, graph)
        written["types"] = None if graph.types is None else graph.types.to_json()
        written["clock"] = None if graph.clock is None else graph.clock.to_json()
        advance(_MEASURING, 0.0)
        described = {
            "hops": hops,
            "method": way.name,
            "fingerprint": graph.fingerprint,
            "num_edges": graph.num_edges,
            "phases": list(names),
            "settings": {"seed": seed, **_settings(way)},
            "parts": checksums,
            **(
                {}
                if rows is None
                else {"rows": rows.described(), "columns": array_names(graph), "order_checksum": graph.order_checksum}
            ),
        }
        describe = partial(write_manifest, target, **{"num_nodes": graph.num_nodes, **written})
        # Measuring maps the folder, which takes a manifest: it is written without the report, then with it.
        describe(attributes={"partition": described | {"report": {}}})
        report = _measured(target, graph, clock, advance)
        describe(attributes={"partition": described | {"report": report}})
    return load_partition(folder)


def _check(data: GraphData, num_parts: int, hops: int, seed: int, phases: Sequence[str]) -> None:
    if data.graph.origin is not None:
        raise PartitionError("this graph is a part of another already. Give the whole graph to partition_graph.")
    if not 0 <= hops <= MAX_HOPS:
        raise PartitionError(f"hops is {hops}, but must lie in [0, {MAX_HOPS}]: a sampler's reach, or 0.")
    if not 0 <= seed < 2**64:
        raise PartitionError(f"seed is {seed}, but must lie in [0, 2**64).")
    if num_parts < 1:
        raise PartitionError(f"num_parts is {num_parts}, but must be 1 or more: one a trainer, or one a sampler rank.")
    if hops and num_parts > ops.MAX_CLOSED_PARTS:
        raise PartitionError(
            f"num_parts is {num_parts}, but at most {ops.MAX_CLOSED_PARTS} parts can hold hops={hops}. Give fewer "
            f"parts, or hops=0 for parts that are sampled together."
        )
    _check_seeds(data, num_parts, hops, phases)


def _check_seeds(data: GraphData, num_parts: int, hops: int, phases: Sequence[str]) -> None:
    named = not isinstance(phases, str) and isinstance(phases, Sequence) and [*phases]
    if not named or "train" not in named or any(named.count(phase) > 1 or phase not in SPLITS for phase in named):
        raise PartitionError(
            f'phases is {phases!r}, but must be of "train", "val" and "test", with "train" among them.'
        )
    tables = [phase for phase in named if data.table(phase) is not None]
    if hops and tables:
        raise PartitionError(
            f"{', '.join(tables)} are rows of a SeedTable, but parts that sample alone hold what surrounds "
            "seeds that are node ids: a row may have another time, and negatives of links may be any node. Train on "
            "the whole graph, or give node ids."
        )
    if len(data.train) < num_parts:
        raise PartitionError(
            f"{num_parts} parts cannot share {len(data.train)} training nodes: each part needs one. Give fewer parts, "
            f"or data with more of them in train."
        )


def _assign(
    way: Partitioner,
    graph: Graph,
    seeds: Mapping[str, np.ndarray],
    num_parts: int,
    hops: int,
    seed: int,
    advance: Advance,
) -> np.ndarray:
    """Calls the method and checks the parts that it assigns, int32 ``[N]``, as kernels write to memory by them."""
    advance("Assigning nodes", 0.0)
    if num_parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    owner = way.assign(graph, seeds, num_parts, hops=hops, seed=seed, advance=advance)
    if not isinstance(owner, np.ndarray) or owner.dtype != np.int32 or owner.shape != (graph.num_nodes,):
        raise PartitionError(f"{way.name}: assign must return int32 [{graph.num_nodes}], one a node, but did not.")
    if owner.size and not (owner.min() >= OPEN and owner.max() < num_parts):
        raise PartitionError(
            f"{way.name}: assign returned parts from {owner.min()} to {owner.max()}, but there are {num_parts}, from 0."
        )
    for phase, ids in seeds.items():
        if (owner[ids] == OPEN).any():
            raise PartitionError(f"{way.name}: assign left a node of {phase} without a part; seeds need one.")
    return owner


def _close(
    graph: Graph, seeds: Mapping[str, np.ndarray], owner: np.ndarray, num_parts: int, hops: int, advance: Advance
) -> tuple[np.ndarray, Seeds, Holdings]:
    """Returns the owner of every node, int32 ``[N]``; the part of each seed; and what parts hold."""
    if hops == 0:
        owner = settle(graph, owner, None, num_parts, advance)
        return owner, {phase: (ids, owner[ids]) for phase, ids in seeds.items()}, OwnLists(graph, owner)
    # Seeds first: what a part holds depends on them alone. Owners of open nodes are then chosen among the holders.
    owner, dealt = balance_phases(graph, seeds, owner, num_parts)
    closure = close_parts(graph, dealt.values(), hops, advance)
    return settle(graph, owner, closure.masks, num_parts, advance), dealt, closure


def _measured(target: Path, graph: Graph, clock: StageClock, advance: Advance) -> dict[str, Any]:
    """Measures a partition that is written but for its report, and returns the report."""
    clock.enter(None)
    quality = measure_quality(
        load_partition(target), graph, clock.stages, advance=lambda share: advance(_MEASURING, share)
    )
    return quality.to_json()


def _settings(way: Partitioner) -> dict[str, Any]:
    return {name: value for name, value in vars(way).items() if isinstance(value, bool | int | float | str | None)}


@contextmanager
def _stages(progress: bool) -> Iterator[tuple[Advance, StageClock]]:
    """Shows a bar for each stage, and measures the stages' time and memory."""
    from rich.console import Console
    from rich.progress import Progress, TaskID

    console = Console(stderr=True)
    disable = not (progress and console.is_terminal)  # else a log gets a blank line
    with StageClock() as clock, shown_display(Progress(console=console, transient=True, disable=disable)) as bars:
        tasks: dict[str, TaskID] = {}
        lines: dict[str, ProgressLines] = {}

        def advance(stage: str, share: float) -> None:
            nonlocal lines
            clock.enter(stage)
            if stage not in tasks:
                for task in tasks.values():  # what came before is done, whatever was told of it last
                    bars.update(task, completed=1.0)
                for line in lines.values():
                    line.end()
                tasks[stage] = bars.add_task(stage, total=1.0)
                lines = {stage: ProgressLines(stage, 1.0)} if progress and not console.is_terminal else {}
            bars.update(tasks[stage], completed=share)
            for line in lines.values():
                line.set(share)

        yield advance, clock
