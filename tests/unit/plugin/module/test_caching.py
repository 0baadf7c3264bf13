"""A data module with a cache: which batches, for which mini-batches it is filled, when it is opened and closed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from jsonargparse import ArgumentParser
from pytorch_lightning import LightningModule

from lightning_gnnload import (
    CacheMonitor,
    FeatureCache,
    FeatureStore,
    Graph,
    GraphData,
    GraphDataModule,
    MemoryFeatureStore,
    NeighborSampler,
    NodeTable,
)
from lightning_gnnload.cache.device.memory_use import MemoryUse
from lightning_gnnload.cache.store import DeferredStore
from lightning_gnnload.errors import CacheConfigError, CacheShareError
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.module import caching
from lightning_gnnload.plugin.module.caching import CacheSettings, cache_levels, close_caches, open_on_sampler
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.plugin.module.probe import WARM_UP_STEPS, MachineMemory
from lightning_gnnload.plugin.strategy.profile import measure
from lightning_gnnload.plugin.strategy.rehearsal import RehearsalSetting
from lightning_gnnload.sample.workload import Workload
from tests.integration.learnable import quiet_trainer
from tests.unit.toy import content, toy_data, toy_graph

POLICIES = ["presample", "clairvoyant", "degree", "random", "fifo", "clock", "s3fifo", "belady"]
CACHES: dict[str, Any] = {
    **{policy: FeatureCache(policy, ratio=0.2) for policy in POLICIES},
    "nothing": FeatureCache("degree", ratio=0.0),
    "everything": FeatureCache("degree", ratio=1.0),
    "bytes": FeatureCache("degree", capacity_bytes=4000),
    "levels": [FeatureCache("fifo", ratio=0.05), FeatureCache("degree", ratio=0.3)],
    "auto": "auto",
}


class Fits(LightningModule):
    """Keeps the content of every batch that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(5, 7)
        self.seen: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.seen.append(content(batch))
        return self.layer(batch.x).sum()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.seen.append(content(batch))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.seen.append(content(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def module(cache: Any = None, data: GraphData | None = None, **settings: Any) -> GraphDataModule:
    data = data or toy_data(val=range(40), test=range(40, 50))
    return GraphDataModule(data, NeighborSampler([3, 2]), **{"batch_size": 16, "cache": cache, **settings})


def seen(data: GraphDataModule) -> list[Any]:
    """By a fit of three epochs and a test."""
    model, trainer = Fits(), quiet_trainer(max_epochs=3)
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    return model.seen


@pytest.fixture(scope="module")
def uncached() -> list[Any]:
    return seen(module())


@pytest.mark.parametrize("num_threads", [0, 3])
@pytest.mark.parametrize("name", CACHES)
def test_a_cache_changes_no_batch(uncached: list[Any], name: str, num_threads: int) -> None:
    assert seen(module(CACHES[name], num_threads=num_threads)) == uncached


def typed() -> GraphData:
    """Without x: two types of nodes, a table of all and features of edges."""
    ids, graph = torch.arange(300.0)[:, None], toy_graph()
    tables = {"all": ids, "low": NodeTable(ids[:200], 0), "high": NodeTable(ids[200:].expand(100, 3), 200)}
    edge_x = torch.arange(graph.num_edges)[:, None]
    return GraphData(Graph.from_csc(graph.indptr, graph.indices), train=range(100), tables=tables, edge_x=edge_x)


BY_NAME: list[dict[str, Any]] = [
    {"low": FeatureCache("degree", ratio=0.3), "high": FeatureCache("presample", ratio=0.3)},
    {"high": FeatureCache("clairvoyant", ratio=0.3), "all": "auto"},
    {"low": FeatureCache("s3fifo", ratio=0.2), "edge_x": [FeatureCache("fifo", ratio=0.1)]},
    {"high": [FeatureCache("clock", ratio=0.1), FeatureCache("random", ratio=0.5)]},
]


@pytest.mark.parametrize("cache", BY_NAME, ids=repr)
def test_caches_of_tables_change_no_batch(cache: dict[str, Any]) -> None:
    def epochs(**settings: Any) -> list[Any]:
        made = GraphDataModule(typed(), NeighborSampler([3, 2], edge_ids=True), batch_size=16, **settings)
        loader = made.train_dataloader()
        batches = []
        for epoch in range(3):
            loader.set_epoch(epoch)
            batches += [content(batch) for batch in loader]
        if settings:
            assert any(read.tier == "cache" and read.rows for read in loader.stats.reads), loader.stats.reads
        made.teardown()
        return batches

    assert epochs(cache=cache) == epochs()


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        ("auto", r"no features 'x' to be cached, but only \['all', 'edge_x', 'high', 'low'\]"),
        ({"age": FeatureCache()}, "no features 'age'"),
        ({"edge_x": FeatureCache("degree")}, "'edge_x' has rows of edges.*'s3fifo'"),
        ({"low": FeatureCache("belady")}, "'low' has rows of some nodes.*'s3fifo'"),
    ],
)
def test_caches_that_fit_no_table(cache: Any, message: str) -> None:
    sampler = NeighborSampler([3, 2], edge_ids=True)
    with pytest.raises(CacheConfigError, match=message):
        GraphDataModule(typed(), sampler, cache=cache).train_dataloader()


@pytest.mark.parametrize("cache", [{"x": None}, {"x": []}, "degree", 0.1, [], [FeatureCache(), None], True])
def test_what_is_no_cache(cache: Any) -> None:
    with pytest.raises(CacheConfigError, match="FeatureCache"):
        module(cache)


def test_a_graph_without_features_has_nothing_to_cache() -> None:
    bare = GraphData(toy_graph(), train=[0, 1])
    assert [batch.x for batch in module(data=bare).train_dataloader()] == [None]
    with pytest.raises(CacheConfigError, match="no features"):
        module("auto", data=bare).train_dataloader()


@pytest.mark.parametrize(
    ("written", "levels"),
    [
        ("auto", (FeatureCache(),)),
        ("{policy: degree, ratio: 0.1}", (FeatureCache("degree", ratio=0.1),)),
        (
            "[{policy: fifo, ratio: 0.1}, {capacity_bytes: 9999}]",
            (FeatureCache("fifo", ratio=0.1), FeatureCache(capacity_bytes=9999)),
        ),
        ("null", None),
    ],
)
def test_configuration_files_hold_caches(written: str, levels: tuple[FeatureCache, ...] | None) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--cache", type=CacheSettings)
    cache = parser.instantiate_classes(parser.parse_args([f"--cache={written}"])).cache
    assert cache_levels(cache) == ({} if levels is None else {"x": levels})


def test_a_configuration_files_mistake_is_named() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--cache", type=CacheSettings)
    with pytest.raises(ValueError, match=r"ratio=1\.5: a share of all rows"):
        parser.instantiate_classes(parser.parse_args(["--cache={ratio: 1.5}"]))


# When, and what for.


class Opened:
    """Stands in for caches: notes what each was opened for."""

    def __init__(self) -> None:
        self.phases: list[tuple[int, int]] = []  # of each opening: seeds, epoch
        self.bars: list[bool] = []
        self.closed = 0

    def open_all(
        self,
        levels: Any,
        store: FeatureStore,
        workload: Workload,
        *,
        membership: Any,
        sharer_of: Any,
        epoch: int,
        progress: bool,
        allowance: Any,
    ) -> FeatureStore:
        assert membership is sharer_of is None
        assert allowance is None, "this table is in memory, so that nothing waits"
        self.bars.append(progress)
        self.phases.append((len(workload.seeds), epoch))
        front = DeferredStore(store, lambda: store, "a cache")
        close, note = front.close, self

        def closing() -> None:
            note.closed += 1
            close()

        front.close = closing  # type: ignore[method-assign]
        return front


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    noted = Opened()
    monkeypatch.setattr(caching, "open_all", noted.open_all)
    return noted


def test_one_cache_serves_all_phases_of_a_fit_and_is_closed_after_it(opened: Opened) -> None:
    data = module(FeatureCache(), predict="val")
    trainer, model = quiet_trainer(max_epochs=2), Fits()
    trainer.fit(model, data)
    # The sanity check comes first, and yet it is the training's hot rows that are wanted.
    assert (opened.phases, opened.closed) == ([(100, 0)], 1)
    trainer.test(model, data, verbose=False)
    trainer.validate(model, data, verbose=False)
    assert (opened.phases, opened.closed) == ([(100, 0), (10, 2), (40, 2)], 3)
    assert not any(opened.bars), "the Trainer shows none either"


def test_a_fit_that_fails_closes_its_cache(opened: Opened) -> None:
    class Fails(Fits):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        quiet_trainer(max_epochs=1).fit(Fails(), data := module(FeatureCache()))
    assert opened.closed == 1
    quiet_trainer(max_epochs=1).fit(Fits(), data)
    assert len(opened.phases) == 2


def test_nothing_is_opened_before_a_batch_is_read(opened: Opened) -> None:
    data = module(FeatureCache())
    iter(data.train_dataloader())
    assert len(data.val_dataloader()) == 3
    quiet_trainer(max_epochs=1, limit_train_batches=0, limit_val_batches=0).fit(Fits(), data)
    assert opened.phases == []


def test_a_resumed_fit_begins_with_its_own_epoch(opened: Opened, tmp_path) -> None:
    first, model = quiet_trainer(max_epochs=2), Fits()
    first.fit(model, module())
    first.save_checkpoint(tmp_path / "after.ckpt")
    quiet_trainer(max_epochs=3).fit(model, module(FeatureCache()), ckpt_path=tmp_path / "after.ckpt")
    assert opened.phases == [(100, 2)]


# How large it is, where nobody says.


class Anywhere(MemoryFeatureStore):
    """A table of which this package cannot tell that it is in memory, as it is of a class of a user's own."""


def test_a_table_in_memory_gets_no_cache(capsys: pytest.CaptureFixture[str]) -> None:
    data = module("auto")
    loader = data.train_dataloader()
    list(loader)
    assert [read.tier for read in loader.stats.reads] == ["memory"]
    data.teardown()
    workload, table = data.workload("train"), data.graph_data.stores["x"]
    assert FeatureCache("fifo").open(table, workload).gather(torch.tensor([1]), torch.empty(1, 5))[0].tier == "memory"
    assert "none, as the table is in memory already" in capsys.readouterr().err


def test_a_fits_cache_opens_when_its_first_steps_have_shown_their_need(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def use(self: MachineMemory) -> MemoryUse:
        looks.append(trainer.global_step)
        # Half of the table is left, with its index of 4 bytes a row.
        return MemoryUse("memory", total=0, free=(1 << 30) + 300 * 4 + 150 * 20, reserved=7, peak=7)

    monkeypatch.setattr(MachineMemory, "use", use)
    toy = toy_data(val=range(40))
    anywhere = GraphData(toy.graph, x=Anywhere(toy.x.rows), y=toy.y, train=toy.train, val=toy.val)
    data, model, plain, trainer = module("auto", anywhere), Fits(), Fits(), quiet_trainer(max_epochs=2)
    monitor = CacheMonitor()
    trainer.callbacks.append(monitor)
    trainer.fit(model, data)
    quiet_trainer(max_epochs=2).fit(plain, module(None, toy_data(val=range(40))))
    assert looks == [WARM_UP_STEPS]
    assert model.seen == plain.seen
    assert 0.5 < trainer.callback_metrics["cache/hit_rate"] < 1


def test_copies_and_pickles_have_no_part_in_a_cache(opened: Opened) -> None:
    data = module(FeatureCache())
    next(iter(data.train_dataloader()))
    for other in (copy.copy(data), pickle.loads(pickle.dumps(data))):  # noqa: S301  as Lightning spawns ranks
        next(iter(other.train_dataloader()))
        other.teardown()
    assert (len(opened.phases), opened.closed) == (3, 2)


def test_the_profile_measures_with_a_cache_of_its_own(opened: Opened) -> None:
    data = module(FeatureCache())
    setting = RehearsalSetting(torch.device("cpu"), 1, (), {})
    arguments = {"model": Fits(), "datamodule": data}
    facts, profile, *_ = measure(quiet_trainer(), arguments, setting, lambda facts: False)
    assert profile is not None
    assert (opened.phases, opened.closed) == ([(100, 0)], 1)
    # Figures with one cache hold for no other.
    assert "FeatureCache" in facts["features"]
    next(iter(data.train_dataloader()))
    assert len(opened.phases) == 2, "the module's own is another"


# Who has a cache.


def source(make: Callable[[], FeatureStore]) -> BatchSource:
    data = toy_data()
    settings = {"batch_size": 16, "order": module().order}
    return BatchSource(
        data,
        Workload(data.graph, NeighborSampler([2]), data.train, **settings),
        {"x": DeferredStore(data.x, make, "a cache")},
    )


def test_a_successor_leaves_the_cache_to_the_others() -> None:
    opened = open_on_sampler(source(lambda: pytest.fail("made")), is_successor=True, takeover=True)
    opened.open()


def test_a_sampler_goes_on_without_a_cache_that_others_failed_at(caplog: pytest.LogCaptureFixture) -> None:
    def make() -> FeatureStore:
        raise CacheShareError("sharer 1 is late")

    with pytest.raises(CacheShareError):
        open_on_sampler(source(make), is_successor=False, takeover=False)
    opened = open_on_sampler(source(make), is_successor=False, takeover=True)
    assert "without a cache of features: sharer 1 is late" in caplog.text
    opened.open()  # reads the store now
    close_caches(opened)


def test_a_trainer_beside_samplers_opens_none(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GatherGroup, "of", lambda trainer: GatherGroup(is_here=False))
    data = module(FeatureCache())
    assert len(list(data.train_dataloader())) == 7
    assert opened.phases == []
