"""A data module whose lists and rows lie with owners: the same mini-batches and weights, in all phases."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    SAGE,
    FeatureCache,
    Graph,
    GraphData,
    GraphDataModule,
    LaborSampler,
    LayerSampler,
    Negatives,
    NeighborSampler,
    Packing,
    Partition,
    Sampler,
    ShadowSampler,
    WeightedNeighborSampler,
    load_partition,
    partition_graph,
)
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.errors import (
    DatasetError,
    GnnLoadError,
    LoaderConfigError,
    PartitionError,
    PartitionMismatchError,
    RemoteListsError,
    StrangerError,
)
from lightning_gnnload.owners.batch_owner import BatchOwner
from lightning_gnnload.owners.tcp import TcpFront
from lightning_gnnload.plugin.compat import pl
from tests.integration.scripts.toy import batch_digest, digest
from tests.unit.owners.serving import SECRET, served
from tests.unit.plugin.module.test_works_with import data_of
from tests.unit.storage.test_head import head_of, made, rich_data

pytestmark = pytest.mark.timeout(120)
PHASES = ("train", "val", "test", "predict")
SETTINGS: dict[str, Any] = {"batch_size": 7, "num_threads": 1}


@pytest.fixture(scope="module")
def data() -> GraphData:
    return rich_data()


@pytest.fixture(scope="module")
def folder(data: GraphData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("owned") / "parts"
    made(folder, data)
    return folder


@pytest.fixture(scope="module")
def head(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a trainer's machine has: nothing of any part."""
    return head_of(folder, tmp_path_factory.mktemp("trainer") / "head")


@pytest.fixture
def addresses(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two owners, each with the folders of its own parts alone."""
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
    machines = [load_partition(head_of(folder, tmp_path / f"owner{number}", *parts)) for number, parts in OWNED]
    fronts = [
        TcpFront(BatchOwner(machine, machine.parts_here, SECRET.encode()), "127.0.0.1", 0, SECRET.encode())
        for machine in machines
    ]
    yield [str(front.address) for front in fronts]
    for front in fronts:
        front.close()


OWNED = ((0, (0, 2)), (1, (1,)))


def batches(module: GraphDataModule) -> list[list[str]]:
    """Of each phase, two epochs of training."""
    module.prepare_data()
    module.setup()
    seen = [[batch_digest(batch) for batch in module._loader(phase)] for phase in (*PHASES, "train")]
    module.teardown()
    return seen


@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler([3, 2], edge_ids=True),
        WeightedNeighborSampler([4, 2], edge_ids=True),
        pytest.param(LaborSampler([3, 2], edge_ids=True), marks=pytest.mark.matrix),
        pytest.param(LayerSampler([9, 9], edge_ids=True), marks=pytest.mark.matrix),
        pytest.param(ShadowSampler([3, 2], num_layers=2, edge_ids=True), marks=pytest.mark.matrix),
    ],
)
def test_mini_batches_of_all_phases_are_those_of_the_whole_graph(
    sampler: Sampler, data: GraphData, head: Path, addresses: list[str]
) -> None:
    local = batches(GraphDataModule(data, sampler, **SETTINGS))
    assert len(local[0]) == 6
    assert local == batches(GraphDataModule(head, sampler, graph=addresses, features=addresses, **SETTINGS))


def test_lists_of_a_partition_come_with_its_rows(data: GraphData, head: Path, addresses: list[str]) -> None:
    module = GraphDataModule(load_partition(head), NeighborSampler([3]), features=addresses)
    assert module.owners.graph == module.owners.features == tuple(addresses)
    assert not GraphDataModule(data, NeighborSampler([3]), features=addresses, partition=head).owners.graph


def test_edge_features_come_with_their_edges(data: GraphData, head: Path, addresses: list[str]) -> None:
    # A digest of a mini-batch leaves the tables of edges out.
    def rows(module: GraphDataModule) -> list[torch.Tensor]:
        module.setup()
        blocks = [block for batch in module.train_dataloader() for block in batch.blocks]
        module.teardown()
        return [rows for block in blocks for rows in (block.x, block.tables["w"])]

    sampler = NeighborSampler([3, 2], edge_ids=True)
    whole = rows(GraphDataModule(data, sampler, **SETTINGS))
    remote = rows(GraphDataModule(head, sampler, graph=addresses, features=addresses, **SETTINGS))
    assert len(whole) == len(remote) > 10
    assert all(map(torch.equal, whole, remote))


def test_rows_alone_come_from_owners_where_the_graph_is_here(data: GraphData, head: Path, addresses: list[str]) -> None:
    sampler = NeighborSampler([3, 2], edge_ids=True)
    local = batches(GraphDataModule(data, sampler, **SETTINGS))
    bare = GraphData(data.graph, None, data.y, data.train, data.val, data.test, predict=data.predict)
    for known in (data, bare):
        module = GraphDataModule(known, sampler, features=addresses, partition=head, **SETTINGS)
        assert "RemoteFeatureStore" in repr(module.graph_data.x.codes)
        assert local == batches(module)
    assert bare.x is None  # the user's own object stays


def test_lists_alone_come_from_owners_where_rows_are_here(data: GraphData, folder: Path, addresses: list[str]) -> None:
    sampler = NeighborSampler([3, 2], edge_ids=True)
    local = batches(GraphDataModule(data, sampler, **SETTINGS))
    assert local == batches(GraphDataModule(load_partition(folder), sampler, graph=addresses, **SETTINGS))


def plain_data() -> GraphData:
    rng = np.random.default_rng(4)
    src, dst = rng.integers(0, 120, (2, 600))
    x, y, splits = rng.random((120, 6), np.float32), rng.integers(0, 3, 120), rng.permutation(120)
    return GraphData(Graph.from_coo(src, dst, 120), x, y, *np.split(splits, [60, 90]))


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[GraphData, Partition, list[str]]]:
    """Data, the head of their partition, and the addresses of two owners, who have told the environment."""
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
    data = plain_data()
    partition = partition_graph(data, tmp_path / "plain", 2, "random", hops=0, progress=False)
    fronts = [
        TcpFront(BatchOwner(partition, [part], SECRET.encode()), "127.0.0.1", 0, SECRET.encode()) for part in range(2)
    ]
    addresses = [str(front.address) for front in fronts]
    monkeypatch.setenv("GNNLOAD_OWNERS", ", ".join(addresses))
    yield data, load_partition(head_of(tmp_path / "plain", tmp_path / "plain_head")), addresses
    for front in fronts:
        front.close()


def trained(module: GraphDataModule, **settings: Any) -> torch.Tensor:
    """All weights after two epochs with validation, and a test."""
    pl.seed_everything(1, verbose=False)
    options: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    options |= {"enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 2}
    trainer, model = pl.Trainer(**options | settings), SAGE(8)
    trainer.fit(model, module)
    trainer.test(model, module, verbose=False)
    trainer.predict(model, module)
    return torch.cat([weights.detach().flatten() for weights in model.state_dict().values()])


@pytest.mark.parametrize(
    "cache",
    [
        None,
        FeatureCache("presample", ratio=0.3),
        pytest.param("auto", marks=pytest.mark.matrix),
        pytest.param(FeatureCache("clairvoyant", ratio=0.3), marks=pytest.mark.matrix),
        pytest.param(FeatureCache("degree", ratio=0.3), marks=pytest.mark.matrix),
        pytest.param(FeatureCache("s3fifo", ratio=0.3), marks=pytest.mark.matrix),
        FeatureCache("belady", ratio=0.3),
    ],
)
def test_weights_are_those_of_the_whole_graph(cache: Any, plain: tuple[GraphData, Partition, list[str]]) -> None:
    data, head, _ = plain
    sampler = NeighborSampler([3, 2])
    whole = trained(GraphDataModule(data, sampler, batch_size=16))
    remote = GraphDataModule(head, sampler, batch_size=16, graph="remote", features="remote", cache=cache)
    assert torch.equal(trained(remote), whole)


def test_the_strategy_s_addresses_come_before_the_environment_s(
    plain: tuple[GraphData, Partition, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, head, addresses = plain
    monkeypatch.setenv("GNNLOAD_OWNERS", "127.0.0.1:1")
    asked = []

    class Placed(pl.strategies.SingleDeviceStrategy):
        def owner_addresses(self) -> list[str]:
            asked.append(1)
            return addresses

    module = GraphDataModule(head, NeighborSampler([3]), batch_size=16, graph="remote", features="remote")
    trained(module, strategy=Placed("cpu"))
    assert asked


@pytest.mark.timeout(30)  # owners are looked for for 60 s
def test_another_secret_than_the_environment_s_owners_have_is_told_at_once(
    plain: tuple[GraphData, Partition, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNNLOAD_SECRET", "none that the owners know")
    module = GraphDataModule(plain[1], NeighborSampler([3]), graph="remote", features="remote")
    module.setup()
    with pytest.raises(StrangerError, match="does not take this secret"):
        next(iter(module.train_dataloader()))
    module.teardown()


def test_a_process_that_gets_the_module_connects_for_itself(
    plain: tuple[GraphData, Partition, list[str]],
) -> None:
    _, head, addresses = plain
    module = GraphDataModule(head, NeighborSampler([3]), batch_size=16, graph="remote", features=addresses)
    module.setup()
    first = [batch_digest(batch) for batch in module.train_dataloader()]
    sent = pickle.dumps(module)
    module.teardown()
    assert len(sent) < 5000
    assert SECRET.encode() not in sent
    again = pickle.loads(sent)  # noqa: S301  our own bytes
    again.setup()
    assert [batch_digest(batch) for batch in again.train_dataloader()] == first
    again.teardown()


def test_any_rows_are_drawn_by_owners(plain: tuple[GraphData, Partition, list[str]]) -> None:
    data, head, _ = plain
    local = GraphDataModule(data, NeighborSampler([3]), batch_size=16)
    remote = GraphDataModule(head, NeighborSampler([3]), batch_size=16, graph="remote", features="remote")
    remote.setup()
    found = [[batch_digest(batch) for batch in module.loader_of([5, 7, 9], 2)] for module in (local, remote)]
    remote.teardown()
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_a_partition_of_one_part_needs_nobody_else(tmp_path: Path) -> None:
    data = plain_data()
    partition = partition_graph(data, tmp_path / "one", 1, "random", hops=0, progress=False)
    whole = trained(GraphDataModule(data, NeighborSampler([3, 2]), batch_size=16, order="sequential"))
    assert torch.equal(
        trained(GraphDataModule(partition, NeighborSampler([3, 2]), batch_size=16, order="sequential")), whole
    )


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"graph": []}, LoaderConfigError, r"graph=\[\]: give 'remote', for the owners of the job, or addresses"),
        ({"features": [3]}, LoaderConfigError, r"features=\[3\]: give 'remote'"),
        ({"graph": "remote", "packing": Packing("rows")}, LoaderConfigError, "packing= reads tables on this machine"),
        ({"graph": "remote", "sampling_device": "cuda"}, LoaderConfigError, "needs lists and rows on this machine"),
        ({"graph": "remote", "order": "proximity"}, LoaderConfigError, "order='proximity' reads the graph's lists"),
    ],
)
def test_settings_that_need_lists_or_rows_here_are_refused(
    settings: dict[str, Any], error: type[GnnLoadError], message: str, head: Path
) -> None:
    with pytest.raises(error, match=message):
        GraphDataModule(head, NeighborSampler([3]), **settings)


def test_owners_of_what_is_asked(data: GraphData, head: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LoaderConfigError, match=r"not whose parts they own.*partition=folder"):
        GraphDataModule(data, NeighborSampler([3]), features="remote")
    with pytest.raises(PartitionMismatchError, match="was made of a graph with fingerprint"):
        GraphDataModule(plain_data(), NeighborSampler([3]), features="remote", partition=head)
    monkeypatch.delenv("GNNLOAD_OWNERS", raising=False)
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
    module = GraphDataModule(head, NeighborSampler([3], edge_ids=True), graph="remote", features="remote")
    module.setup()
    with pytest.raises(LoaderConfigError, match="its strategy names none, and GNNLOAD_OWNERS is not set"):
        module.train_dataloader()
    module.teardown()
    # Without owners, trainers have one part each; one alone has none of the lists.
    alone = GraphDataModule(head, NeighborSampler([3], edge_ids=True))
    alone.setup()
    with pytest.raises(PartitionError, match="the partition has 3 parts, one for each trainer"):
        alone.val_dataloader()
    deep = tmp_path / "deep"
    partition_graph(plain_data(), deep, 2, hops=1, progress=False)
    with pytest.raises(DatasetError, match=r"is a partition, which holds a graph in parts"):
        GraphDataModule(deep, NeighborSampler([3]), graph="remote", partition=deep).prepare_data()
    with pytest.raises(PartitionError, match="Make it with hops=0"):
        GraphDataModule(deep, NeighborSampler([3]), features="remote").setup()


@pytest.mark.parametrize(
    ("kind", "made_by"),
    [
        ("types", "owners"),
        ("times", "owners"),
        ("types, times", "owners"),
        ("types, rows", "owners"),
        ("links", "owners"),
        ("types, times, links", "owners"),
        ("types, links", "ranks"),
    ],
)
def test_types_times_rows_and_links_come_from_owners(
    kind: str, made_by: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
    data = data_of(kind, bare=True)
    partition = partition_graph(data, tmp_path / "parts", 2, "random", hops=0, progress=False)
    sampler = NeighborSampler([3, 2], expand="new", sharing="disjoint" if "rows" in kind else None)
    negatives = Negatives("triplet", num=2) if "links" in kind else None
    head = load_partition(head_of(tmp_path / "parts", tmp_path / "head"))
    with served(partition) as (_, fronts):
        where = [str(front.address) for front in fronts]
        remote = GraphDataModule(head, sampler, graph=where, features=where, made_by=made_by, negatives=negatives)
        local = GraphDataModule(data, sampler, negatives=negatives)
        remote.setup()
        found = [[digest(tensors_of(batch)) for batch in module.train_dataloader()] for module in (local, remote)]
        remote.teardown()
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0]) == 1


def tensors_of(content: Any) -> list[torch.Tensor]:
    """All tensors in a mini-batch, with types or without."""
    if isinstance(content, torch.Tensor):
        return [content]
    if isinstance(content, MiniBatch | TypedMiniBatch | Block):
        return tensors_of(vars(content))
    if isinstance(content, dict):
        content = [content[key] for key in sorted(content, key=str)]
    return [tensor for each in content for tensor in tensors_of(each)] if isinstance(content, list | tuple) else []


def test_what_formats_read_of_lists_is_refused_at_setup(tmp_path: Path) -> None:
    graph = Graph.from_coo([0, 1, 2], [1, 2, 0], keep_order=True)
    partition = partition_graph(GraphData(graph, train=[0, 1]), tmp_path / "parts", 2, hops=0, progress=False)
    for edge_ids in (False, True):
        module = GraphDataModule(
            partition, NeighborSampler([2], edge_ids=edge_ids), graph=["127.0.0.1:1"], batch_format="pyg"
        )
        with pytest.raises(RemoteListsError, match="edge_order") if edge_ids else contextlib.nullcontext():
            module.setup()


def test_what_reads_lists_itself_says_so(plain: tuple[GraphData, Partition, list[str]]) -> None:
    _, head, _ = plain
    module = GraphDataModule(
        head, NeighborSampler([3]), graph="remote", features="remote", cache=FeatureCache("degree-ratio", ratio=0.1)
    )
    with pytest.raises(RemoteListsError, match="policy='degree-ratio'"):
        trained(module)
