"""Graphs built from tables in memory, and the same by ``Graph.from_hetero`` or ``from_coo``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lightning_gnnload import Graph, load_graph_data
from lightning_gnnload.ingest.edges import EdgeReader
from lightning_gnnload.ingest.ids import write_node_ids
from lightning_gnnload.ingest.lists import WrittenGraph, write_lists
from lightning_gnnload.ingest.source import Source
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.ingest.sql import open_database
from lightning_gnnload.storage.folders import new_folder, write_manifest

MICROSECONDS = 1000  # nanoseconds


def build(
    described: dict[str, Any], folder: Path, *, memory_bytes: int = 1 << 30, most_records: int | None = None
) -> tuple[Graph, WrittenGraph]:
    """Builds a graph folder without features and tasks, and loads it; ``most_records`` are sorted at once."""
    spec, entries = GraphSpec.of(described), {}
    with new_folder(folder, "graph", overwrite=False) as made:
        con = open_database(spec.build, made.parent, Path())
        sources = {name: Source(con, each.table, f"nodes.{name}") for name, each in spec.nodes.items()}
        tables = {name: Source(con, each.table, f"edges.{name}") for name, each in spec.edges.items()}
        is_typed = len(spec.nodes) + sum(len(each.relations(name)) for name, each in spec.edges.items()) > 2
        nodes = {
            name: write_node_ids(
                name, each, sources[name], made, made.parent, entries, is_typed=is_typed, show_progress=False
            )
            for name, each in spec.nodes.items()
        }
        with closing(
            _reader(most_records)(
                spec, nodes, tables, made.parent, memory_bytes=memory_bytes, num_threads=2, show_progress=False
            )
        ) as edges:
            edges.read_all()
            written = write_lists(edges, made, made.parent, entries, repeats=spec.build.repeats)
        write_manifest(
            made,
            entries,
            num_nodes=written.num_nodes,
            types=None if written.types is None else written.types.to_json(),
            clock=None if written.clock is None else written.clock.to_json(),
            user_ids={
                name if is_typed else "": {"kind": each.id_type, "column": each.column} for name, each in nodes.items()
            },
        )
    return load_graph_data(folder, verify=True).graph, written


def _reader(most_records: int | None) -> type[EdgeReader]:
    """Returns a reader whose edges are sorted few at a time; None: as many as memory has room for."""

    class Few(EdgeReader):
        pass

    if most_records is not None:
        Few.most_records = most_records  # type: ignore[assignment, method-assign]
    return Few


def texts(prefix: str, count: int) -> list[str]:
    """Ids of many lengths, among them the empty one."""
    return ["", *(f"{prefix}{number * 7919 % 104729}" + "x" * (number % 23) for number in range(1, count))][:count]


def assert_same_graph(built: Graph, wanted: Graph) -> None:
    assert built.types == wanted.types
    for name in Graph.ARRAYS:
        have, want = getattr(built, name), getattr(wanted, name)
        assert (have is None) == (want is None), name
        if have is not None and want is not None:
            assert have.dtype == want.dtype, name
            np.testing.assert_array_equal(have, want, err_msg=name)
    assert (built.clock is None) == (wanted.clock is None)
    if built.clock is not None and wanted.clock is not None:
        assert built.clock.to_json() == wanted.clock.to_json()
        if wanted.clock.ranked is not None:
            np.testing.assert_array_equal(built.clock.ranked, wanted.clock.ranked)


def edge_table(src: list[Any], dst: list[Any], **columns: Any) -> pa.Table:
    return pa.table({"src": src, "dst": dst, **columns})
