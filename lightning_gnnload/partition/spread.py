"""Parts that the machines of a cluster write, each from the graph's folder, which all of them reach."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.tables import EDGE_PREFIX, OF_ALL_EDGES
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.host.machines import Machines
from lightning_gnnload.partition.closure import Closure, Holdings, OwnLists
from lightning_gnnload.partition.head import edge_columns_of
from lightning_gnnload.partition.numbering import Numbering
from lightning_gnnload.partition.partitioner import Advance
from lightning_gnnload.partition.write import OwnRows, Seeds, write_one_part
from lightning_gnnload.storage.graphs import load_graph_data
from lightning_gnnload.storage.manifest import part_folder

_PURPOSE = "gnnload partition --engine ray"


@dataclass(frozen=True)
class SpreadPlan:
    """What machines are told of a partition: where the graph is, and what parts hold of it."""

    target: Path
    source: Path
    fingerprint: str | None  # of the source's content
    holds: Closure | np.ndarray  # what parts hold, or the owner of each node, whose lists they hold
    seeds: Seeds
    numbering: Numbering
    names: Sequence[str] | None  # arrays of rows that parts own; None: they own none


class PartMachine:
    """Writes parts on one machine, each by itself."""

    def __init__(self, plan: SpreadPlan) -> None:
        self.plan, data = plan, load_graph_data(plan.source)
        if data.folder_fingerprint != plan.fingerprint:
            raise PartitionError(
                f"{_PURPOSE}: {plan.source} holds another graph on this machine. All machines need the same folder, as "
                "of a shared disk."
            )
        self.graph = data.graph
        self.holdings = plan.holds if isinstance(plan.holds, Closure) else OwnLists(self.graph, plan.holds)
        named = [name for name in OF_ALL_EDGES if EDGE_PREFIX + name in (plan.names or ())]
        data.edge_tables = {**edge_columns_of(data.graph, named), **data.edge_tables}
        self.rows = None if plan.names is None else OwnRows(data, plan.names)

    def write(self, part: int) -> int:
        """Writes a part, and returns the checksum of its manifest."""
        # Of a machine that was lost.
        shutil.rmtree(self.plan.target / part_folder(part), ignore_errors=True)
        plan = self.plan
        return write_one_part(plan.target, self.graph, self.holdings, plan.seeds, plan.numbering, self.rows, part)


def spread_machines(data: GraphData, target: Path) -> Machines:
    """Starts the machines that write a partition's parts to ``target``; raises PartitionError where they cannot open
    the graph, as it is in no folder."""
    if data.folder is None:
        raise PartitionError(
            f"{_PURPOSE}: the graph is in this process's memory, where no other machine finds it. Write it to a folder "
            "that all reach, save_graph_data(data, folder), and give GraphFolder(folder)."
        )
    return Machines(_PURPOSE, [data.folder, target])


def write_spread_parts(
    machines: Machines,
    target: Path,
    data: GraphData,
    holdings: Holdings,
    seeds: Seeds,
    numbering: Numbering,
    rows: OwnRows | None,
    advance: Advance,
) -> list[int]:
    """Has machines write all parts, as :func:`.write_parts` does; returns the checksum of each one's manifest."""
    num_parts = len(numbering.starts) - 1
    advance("Writing parts", 0.0)
    assert isinstance(holdings, Closure | OwnLists)
    assert data.folder is not None
    plan = SpreadPlan(
        target.absolute(),
        data.folder,
        data.folder_fingerprint,
        holdings if isinstance(holdings, Closure) else holdings.owner,
        seeds,
        numbering,
        None if rows is None else list(rows.described()),
    )
    machines.make(PartMachine, plan)
    checksums = []
    with machines.in_order("write", ((part,) for part in range(num_parts))) as written:
        for checksum in written:
            checksums.append(checksum)
            advance("Writing parts", len(checksums) / num_parts)
    return checksums
