"""docs/guides/owners.md, "What trains over owners": each cell is tried against the whole graph, bit for bit.

What the whole graph refuses, owners refuse, and for the same reason; what they alone refuse is named here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    GraphDataModule,
    LayerSampler,
    Negatives,
    NeighborSampler,
    Sampler,
    WeightedNeighborSampler,
    load_partition,
    partition_graph,
)
from lightning_gnnload.errors import GnnLoadError, GraphDataError, PartitionError, RemoteListsError
from lightning_gnnload.storage.partitions import StoredPartition
from tests.integration.scripts.toy import digest
from tests.unit.owners.serving import SECRET, served
from tests.unit.plugin.module.test_owners import tensors_of
from tests.unit.plugin.module.test_works_with import BACK, BUYS, KINDS, NUM_EDGES, OTHERS, data_of
from tests.unit.storage.test_head import head_of

pytestmark = pytest.mark.timeout(120)

SAMPLERS: dict[str, Sampler] = {
    "neighbors": NeighborSampler([3, 2], edge_ids=True),
    "all neighbors": NeighborSampler([-1, -1]),
    "rows apart": NeighborSampler([3, 2], sharing="disjoint"),
    "along paths": NeighborSampler([3, 2], order="path", sharing="time", window=20),
    "the newest": NeighborSampler([3, 2], pick="last"),
    **{name: sampler for name, sampler in OTHERS.items() if name not in ("shadow", "shadow with ids", "hgt")},
    "fastgcn": LayerSampler([40, 40], "fastgcn", edge_ids=True),
    "dsp": LayerSampler([40, 40], "dsp", edge_ids=True),
    **{name: OTHERS[name] for name in ("shadow", "shadow with ids", "hgt")},
}
"""In the order of the rows in the guide's table."""


@contextmanager
def owned(data: GraphData, folder: Path, **settings: Any) -> Iterator[tuple[StoredPartition, list[str]]]:
    """The head of a partition, and the addresses of the owners of its two parts."""
    partition = partition_graph(data, folder / "parts", 2, "random", hops=0, progress=False, **settings)
    head = load_partition(head_of(folder / "parts", folder / "head"))
    assert isinstance(head, StoredPartition)
    with served(partition) as (_, fronts):
        yield head, [str(front.address) for front in fronts]


def outcome(module: GraphDataModule) -> Any:
    """What two epochs of training hold, and further nodes; or what is refused, and why."""
    try:
        module.setup()
        loaders = [module.train_dataloader(), module.train_dataloader()]
        if module.graph_data.graph.clock is None:  # else nodes have no times to be looked at
            loaders.append(module.loader_of([4, 11, 7], 2))
        return [digest(tensors_of(contents_of(batch))) for loader in loaders for batch in loader]
    except GnnLoadError as error:
        return str(error)
    finally:
        module.teardown()


def contents_of(batch: Any) -> Any:
    """Of PyG's mini-batches what they hold."""
    return batch.to_dict() if hasattr(batch, "to_dict") else batch


def is_refused(found: Any) -> bool:
    return isinstance(found, str)


def data_of_kind(kind: str) -> GraphData:
    data = data_of("rows" if kind == "nodes" else kind)
    return GraphData(data.graph, data.x, np.arange(150) % 3, range(40)) if kind == "nodes" else data


OF_LAW = ("nodes", "types", "types, times, links")


@pytest.mark.parametrize(
    "kind", [kind if kind in OF_LAW else pytest.param(kind, marks=pytest.mark.matrix) for kind in ("nodes", *KINDS)]
)
def test_samplers_and_kinds(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
    data = data_of_kind(kind)
    settings: dict[str, Any] = {"batch_size": 10, "num_threads": 0}
    settings |= {"negatives": Negatives("triplet", num=2), "exclude": None} if "links" in kind else {}
    with owned(data, tmp_path) as (head, where):
        works = {}
        for name, sampler in SAMPLERS.items():
            here = outcome(GraphDataModule(data, sampler, **settings))
            for made_by in ("ranks", "owners"):
                there = GraphDataModule(head, sampler, graph=where, features=where, made_by=made_by, **settings)
                found = outcome(there)
                if is_refused(here):
                    # Owners may add who says it.
                    assert is_refused(found), name
                    assert here.split(": ")[-1] in found, name
                else:
                    assert found == here, (name, made_by)
            works[name] = not is_refused(here)
    assert cells()[kind] == works


def cells() -> dict[str, dict[str, bool]]:
    """The table of the guide, by kind of data and sampler."""
    text = (Path(__file__).parents[4] / "docs" / "guides" / "owners.md").read_text()
    table = text.partition("## What trains over owners")[2].partition("\n\n| ")[2].partition("\n\n")[0]
    head, _, *rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()]
    assert len(rows) == len(SAMPLERS)
    return {
        kind: {name: row[1 + at] == "yes" for name, row in zip(SAMPLERS, rows, strict=True)}
        for at, kind in enumerate(head[1:])
    }


def with_edge_tables(kind: str) -> GraphData:
    data, rng = data_of(kind), np.random.default_rng(1)
    graph = data.graph
    if graph.types is None:
        rows = rng.random(graph.num_edges)
        return GraphData(graph, train=range(40), edge_x=rng.random((graph.num_edges, 3)), edge_tables={"price": rows})
    tables = {BUYS: {"price": rng.random(NUM_EDGES), "day": rng.integers(0, 9, (NUM_EDGES, 2))}}
    edge_x = {BACK: torch.rand(NUM_EDGES, 2)}
    return GraphData(graph, train={"user": range(40)}, edge_x=edge_x, edge_tables=tables)


@pytest.mark.parametrize("kind", ["types", "rows", "types, times"])
def test_rows_of_edges_are_their_own(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
    data, sampler = with_edge_tables(kind), NeighborSampler([4, 3], edge_ids=True)
    if data.graph.clock is not None:
        sampler = NeighborSampler([4, 3], edge_ids=True, before=None)
    here = outcome(GraphDataModule(data, sampler, 10))
    assert not is_refused(here)
    with owned(data, tmp_path) as (head, where):
        for made_by in ("ranks", "owners"):
            module = GraphDataModule(head, sampler, 10, graph=where, features=where, made_by=made_by)
            assert outcome(module) == here
        # Whoever has all parts' folders gathers the same.
        assert outcome(GraphDataModule(load_partition(tmp_path / "parts"), sampler, 10, graph=where)) == here


def weighted(*, typed: bool) -> GraphData:
    """Of edges whose order was not kept, so that other libraries' mini-batches have no ids of them."""
    rng = np.random.default_rng(5)
    src, dst, weight = *rng.integers(60, size=(2, 500)), rng.random(500)
    if typed:
        graph = Graph.from_hetero(
            {"user": 60, "item": 60}, {BUYS: (src, dst), BACK: (dst, src)}, edge_weight={BUYS: weight}
        )
        return GraphData(graph, {"user": torch.rand(60, 3)}, train={"user": range(40)})
    return GraphData(Graph.from_coo(src, dst, 60, weight, rng.integers(0, 3, 500)), torch.rand(60, 3), train=range(40))


@pytest.mark.parametrize("form", ["pyg", "dgl"])
@pytest.mark.parametrize("typed", [False, True])
def test_weights_and_types_come_as_rows(
    form: Any, typed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other libraries' models look for them in mini-batches."""
    pytest.importorskip({"pyg": "torch_geometric", "dgl": "dgl"}[form])
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
    data, sampler = weighted(typed=typed), WeightedNeighborSampler([3, 2], edge_ids=True)
    here = outcome(GraphDataModule(data, sampler, 10, form))
    assert not is_refused(here)
    assert len(set(here)) == len(here)
    columns = ["edge_weight"] if typed else ["edge_weight", "edge_type"]
    with owned(data, tmp_path, edge_columns=columns) as (head, where):
        assert outcome(GraphDataModule(head, sampler, 10, form, graph=where, features=where)) == here


@pytest.mark.parametrize("kind", ["types, times", "times"])
def test_times_come_as_rows(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
    data, sampler = data_of(kind), NeighborSampler([3, 2], edge_ids=True)
    here = outcome(GraphDataModule(data, sampler, 10, edge_time=True))
    assert not is_refused(here)
    with owned(data, tmp_path, edge_columns=["edge_time"]) as (head, where):
        for made_by in ("ranks", "owners"):
            settings: dict[str, Any] = {"graph": where, "features": where, "made_by": made_by, "edge_time": True}
            assert outcome(GraphDataModule(head, sampler, 10, **settings)) == here


def test_columns_that_nobody_has(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match="'edge_type', but the graph's columns of edges are edge_weight"):
        partition_graph(data_of("types"), tmp_path / "parts", 2, hops=0, edge_columns=["edge_type"], progress=False)
    partition_graph(data_of("times"), tmp_path / "parts", 2, "random", hops=0, progress=False)
    with pytest.raises(RemoteListsError, match=r"edge_columns=\[...\] \(gnnload partition --edge-columns\)"):
        GraphDataModule(tmp_path / "parts", NeighborSampler([2]), graph="remote", edge_time=True).setup()


@pytest.mark.parametrize("name", ["NeighborLoader", "GraphSAINTNodeSampler", "ClusterData", "ShaDowKHopSampler"])
def test_loaders_of_graphs_in_memory_say_what_serves_a_partition(name: str, tmp_path: Path) -> None:
    pyg = pytest.importorskip("lightning_gnnload.pyg")
    partition = partition_graph(data_of("links"), tmp_path / "parts", 2, "random", hops=0, progress=False)
    settings: dict[str, Any] = {
        "NeighborLoader": {"num_neighbors": [2]},
        "GraphSAINTNodeSampler": {"batch_size": 3},
        "ClusterData": {"num_parts": 2},
        "ShaDowKHopSampler": {"depth": 1, "num_neighbors": 2},
    }
    with pytest.raises(GraphDataError, match=r"a partition was given. GraphDataModule\(partition, sampler"):
        getattr(pyg, name)(partition, **settings[name])
