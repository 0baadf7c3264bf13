"""PyG's data modules over GraphDataModule: the drop-in loaders' mini-batches, in PyG's number, under Lightning."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything
from torch.utils.data import SequentialSampler

from lightning_gnnload import CacheMonitor, FactoredStrategy, FeatureCache, GraphDataModule
from lightning_gnnload.data.orders.proximity import ProximityOrder
from lightning_gnnload.errors import CacheConfigError, LoaderConfigError, SeedError
from tests.integration.learnable import quiet_trainer
from tests.unit.pyg.test_loaders import A_TO_A, A_TO_B, N, check_equal, homogeneous, typed

if TYPE_CHECKING:
    from torch_geometric.data import Data
    from torch_geometric.loader import ImbalancedSampler, NodeLoader
    from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput
    from torch_geometric.testing import MyFeatureStore, MyGraphStore

    from lightning_gnnload.pyg import (
        GnnloadSampler,
        LightningLinkData,
        LightningNodeData,
        LinkNeighborLoader,
        NeighborLoader,
    )

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script", "ignore:.*does not have many workers", "ignore:num_workers means threads"
)
SETTINGS: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 16, "seed": 3}
SEEDS = torch.arange(0, N, 2)
LINKS = torch.stack([torch.arange(50), torch.arange(50, 100)])


class Reads(LightningModule):
    """Keeps every mini-batch that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.batches: dict[str, list[Any]] = {"train": [], "val": [], "test": [], "predict": []}

    def training_step(self, batch: Any) -> torch.Tensor:
        self.batches["train"].append(batch)
        return self.weight * 1.0

    def validation_step(self, batch: Any) -> None:
        self.batches["val"].append(batch)

    def test_step(self, batch: Any) -> None:
        self.batches["test"].append(batch)

    def predict_step(self, batch: Any) -> None:
        self.batches["predict"].append(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def nodes(data: Any, seeds: Any, **settings: Any) -> tuple[LightningNodeData, NeighborLoader]:
    """A data module, and the loader whose mini-batches it is to give; times are those of both."""
    settings = SETTINGS | settings
    time = settings.pop("input_time", None)
    module = LightningNodeData(data, input_train_nodes=seeds, input_train_time=time, **settings)
    return module, NeighborLoader(data, input_nodes=seeds, input_time=time, shuffle=True, **settings)


def links(data: Any, ends: Any, **settings: Any) -> tuple[LightningLinkData, LinkNeighborLoader]:
    settings = SETTINGS | settings
    labels, time = settings.pop("edge_label", None), settings.pop("edge_label_time", None)
    module = LightningLinkData(
        data, input_train_edges=ends, input_train_labels=labels, input_train_time=time, **settings
    )
    loader = LinkNeighborLoader(
        data, edge_label_index=ends, edge_label=labels, edge_label_time=time, shuffle=True, **settings
    )
    return module, loader


PAIRS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "nodes": lambda: nodes(homogeneous(), SEEDS),
    "threads": lambda: nodes(homogeneous(), SEEDS, num_workers=2),
    "times": lambda: nodes(homogeneous(), SEEDS, time_attr="time", input_time=torch.arange(len(SEEDS)) + 40),
    "both ways": lambda: nodes(homogeneous(), SEEDS, subgraph_type="bidirectional"),
    "weights": lambda: nodes(homogeneous(), SEEDS, weight_attr="edge_weight", drop_last=True),
    "transform": lambda: nodes(homogeneous(), SEEDS, transform=with_degree),
    "transform of who was sampled": lambda: nodes(homogeneous(), SEEDS, transform_sampler_output=without_batch),
    "types": lambda: nodes(typed(), ("a", SEEDS)),
    "times of types": lambda: nodes(typed(), "a", time_attr="time", input_time=torch.arange(N)),
    "links": lambda: links(homogeneous(), LINKS, neg_sampling="binary"),
    "labels": lambda: links(homogeneous(), LINKS, edge_label=torch.arange(50) % 3, neg_sampling_ratio=0.5),
    "triplets": lambda: links(homogeneous(), LINKS, neg_sampling={"mode": "triplet", "amount": 2}),
    "links of types": lambda: links(typed(), A_TO_B, batch_size=400, neg_sampling="binary"),
    "times of links": lambda: links(
        typed(),
        (A_TO_A, LINKS),
        time_attr="time",
        edge_label_time=torch.arange(50) + 30,
        neg_sampling={"mode": "triplet"},
    ),
}


def with_degree(batch: Any) -> Any:
    batch.degree = batch.edge_index[1].bincount(minlength=batch.num_nodes)
    return batch


def without_batch(output: SamplerOutput) -> SamplerOutput:
    output.num_sampled_edges = None
    return output


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_trainer_is_given_the_loaders_mini_batches(pair: Callable[[], tuple[Any, Any]]) -> None:
    module, loader = pair()
    model = Reads()
    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(model, datamodule=module)
    wanted = [batch for _ in range(2) for batch in loader]
    assert trainer.num_training_batches == len(loader) == len(wanted) // 2
    assert isinstance(module, GraphDataModule)
    for batch, expected in zip(model.batches["train"], wanted, strict=True):
        check_equal(batch, expected)


def test_all_phases_have_their_rows() -> None:
    data = typed()
    for name, rows in {"train": SEEDS, "valid": SEEDS + 1, "test": torch.arange(50)}.items():
        data["a"][f"{name}_idx"] = rows
    del data["b"].train_mask
    module = LightningNodeData(data, **SETTINGS, input_pred_nodes=("b", None), eval_loader_kwargs={"batch_size": 7})
    model, trainer = Reads(), quiet_trainer(max_epochs=1, num_sanity_val_steps=0)
    trainer.fit(model, module)
    trainer.test(model, module, verbose=False)
    trainer.predict(model, module)
    seen = {phase: [batch[batch_type(phase)] for batch in batches] for phase, batches in model.batches.items()}
    ids = {phase: torch.cat([each.n_id[: each.batch_size] for each in of]) for phase, of in seen.items()}
    assert ids["train"].tolist() != SEEDS.tolist()
    assert ids["train"].sort().values.tolist() == SEEDS.tolist()
    assert ids["val"].tolist() == (SEEDS + 1).tolist(), "in the order that they were given in"
    assert ids["test"].tolist() == [*range(50)]
    assert ids["predict"].tolist() == [*range(40)]
    assert {each.batch_size for each in seen["test"]} == {7, 1}
    assert str(module) == (
        "{Train dataloader: size=60}\n{Validation dataloader: size=60}\n"
        "{Test dataloader: size=50}\n{Predict dataloader: size=40}"
    )


def batch_type(phase: str) -> str:
    return "b" if phase == "predict" else "a"


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count", [1, 16, 17, 33, 100, 120])
def test_there_are_as_many_steps_as_in_pygs_loader(count: int, drop_last: bool) -> None:
    """A rest of one row in 64 is a step, too, which a GraphDataModule adds to the step before."""
    rows = torch.arange(count)
    for batch_size in (1, 16, 64):
        wanted = NodeLoader(homogeneous(), GnnloadSampler(homogeneous(), [1]), rows, batch_size=batch_size)
        module = LightningNodeData(
            homogeneous(), rows, input_val_nodes=rows, num_neighbors=[1], batch_size=batch_size, drop_last=drop_last
        )
        assert len(module.val_dataloader()) == len(wanted)
        if not drop_last:
            assert len(module.train_dataloader()) == len(wanted)
        elif count >= batch_size:
            assert len(module.train_dataloader()) == count // batch_size
    sizes = [batch.batch_size for batch in module.val_dataloader()]
    assert sizes == [len(rows[at : at + 64]) for at in range(0, count, 64)]


def test_an_evaluation_draws_alike_unless_told_otherwise() -> None:
    def draws(module: Any) -> list[Any]:
        found = []
        for epoch in range(2):
            loader = module.val_dataloader()
            loader.set_epoch(epoch)
            found.append([batch.n_id.tolist() for batch in loader])
        return found

    first, second = draws(LightningNodeData(homogeneous(), input_val_nodes=SEEDS, **SETTINGS))
    assert first == second
    first, second = draws(LightningNodeData(homogeneous(), input_val_nodes=SEEDS, eval_draws="fresh", **SETTINGS))
    assert first != second


def test_settings_of_evaluation_are_its_own() -> None:
    data = homogeneous()
    module = LightningNodeData(
        data,
        SEEDS,
        input_val_nodes=SEEDS,
        eval_loader_kwargs={"num_neighbors": [-1], "batch_size": 60, "subgraph_type": "induced"},
        **SETTINGS,
    )
    assert module.graph_sampler.num_neighbors.values == [4, 3]
    assert module.eval_graph_sampler.num_neighbors.values == [-1]
    assert (module.loader_kwargs["batch_size"], module.eval_loader_kwargs["batch_size"]) == (16, 60)
    [batch] = module.val_dataloader()
    loader = NeighborLoader(data, [-1], SEEDS, subgraph_type="induced", batch_size=60, seed=3)
    check_equal(batch, next(iter(loader)))  # whole neighbourhoods, however they were drawn
    assert next(iter(module.train_dataloader())).num_sampled_edges is not None
    module.batch_size = 8  # as Lightning's search for a batch size does
    assert next(iter(module.train_dataloader())).batch_size == module.loader_kwargs["batch_size"] == 8


class Stop(Callback):
    """Makes a checkpoint in mid-epoch and ends the fit."""

    def __init__(self, path: Path, batch: int) -> None:
        self.path, self.batch = path, batch

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.batch:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


@pytest.mark.parametrize("kind", ["nodes", "triplets", "times of types"])
def test_a_run_resumes_in_mid_epoch(kind: str, tmp_path: Path) -> None:
    module, loader = PAIRS[kind]()
    num_steps = len(loader)
    at = num_steps + 2
    path = tmp_path / "cut.ckpt"
    trainer = quiet_trainer(max_epochs=3, callbacks=[Stop(path, at)], min_epochs=0)
    trainer.fit(Reads(), module)
    model = Reads()
    quiet_trainer(max_epochs=3).fit(model, PAIRS[kind]()[0], ckpt_path=path)
    wanted = [batch for _ in range(3) for batch in loader][at:]
    for batch, expected in zip(model.batches["train"], wanted, strict=True):
        check_equal(batch, expected)


@pytest.mark.parametrize(("data", "seeds", "name"), [(homogeneous, SEEDS[:20], "x"), (typed, ("a", SEEDS), "x.a")])
def test_a_cache_changes_no_mini_batch(data: Callable[[], Any], seeds: Any, name: str) -> None:
    plain, cached, hits = Reads(), Reads(), Hits()
    module = partial(LightningNodeData, data(), seeds, input_val_nodes=seeds, **SETTINGS)
    quiet_trainer(max_epochs=2).fit(plain, module())
    cached_module = module(cache={name: FeatureCache(policy="presample", ratio=0.3)})
    quiet_trainer(max_epochs=2, callbacks=[hits]).fit(cached, cached_module)
    for phase in ("train", "val"):
        for batch, expected in zip(cached.batches[phase], plain.batches[phase], strict=True):
            check_equal(batch, expected)
    assert hits.rate > 0


def test_a_cache_is_filled_for_training() -> None:
    """Not for the validation that a fit begins with, whose nodes are others."""
    ring = torch.arange(100)
    data = Data(x=torch.randn(100, 4), edge_index=torch.stack([ring, (ring + 1) % 100]))
    seeds, others = torch.arange(20), torch.arange(50, 90)
    module = LightningNodeData(data, seeds, input_val_nodes=others, num_neighbors=[1], cache=FeatureCache(ratio=0.21))
    hits = Hits()
    quiet_trainer(max_epochs=1, callbacks=[hits]).fit(Reads(), module)
    assert hits.rate == 1.0


class Hits(CacheMonitor):
    """Keeps what a cache achieves."""

    rate = 0.0

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        self.rate = float(trainer.callback_metrics["cache/hit_rate"])


def test_the_data_are_the_users_own() -> None:
    data = homogeneous()
    data.x = data.x.clone()
    module = LightningNodeData(data, SEEDS, **SETTINGS)
    assert module.data is data
    data.x.add_(1)
    batch = next(iter(module.train_dataloader()))
    assert torch.equal(batch.x, data.x[batch.n_id]), "features are shared, not copied"
    data.extra = torch.arange(N)
    data.x = data.x[:, :2].clone()
    batch = next(iter(module.train_dataloader()))
    assert torch.equal(batch.extra, batch.n_id), "a loader gives the attributes that there are when it is made"
    assert torch.equal(batch.x, data.x[batch.n_id])
    module.data = other = homogeneous()
    batch = next(iter(module.train_dataloader()))
    assert torch.equal(batch.x, other.x[batch.n_id])
    assert "extra" not in batch


def test_stores_are_taken() -> None:
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(torch.arange(20.0), group_name="a", attr_name="x", index=None)
    edge_index = torch.randint(20, (2, 60))
    graph.put_edge_index((edge_index[0], edge_index[1]), edge_type=A_TO_A, layout="coo", size=(20, 20))
    module = LightningLinkData((features, graph), A_TO_A, num_neighbors=[3], batch_size=60)
    [batch] = module.train_dataloader()
    assert torch.equal(batch["a"].x, batch["a"].n_id.float())
    found = batch["a"].n_id[batch[A_TO_A].edge_label_index]
    assert sorted(found.t().tolist()) == sorted(edge_index.t().tolist())
    cached = LightningLinkData((features, graph), A_TO_A, num_neighbors=[3], cache=FeatureCache(ratio=0.5))
    with pytest.raises(CacheConfigError, match="no features 'x'"):
        cached.train_dataloader()


def test_seeds_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    monkeypatch.setenv("PL_GLOBAL_SEED", "17")  # as seed_everything does, for all ranks
    assert LightningNodeData(homogeneous(), num_neighbors=[1]).seed == 17
    assert LightningNodeData(homogeneous(), num_neighbors=[1], seed=4).seed == 4
    sampler = GnnloadSampler(homogeneous(), [1], seed=9)
    assert LightningNodeData(homogeneous(), node_sampler=sampler).seed == 9


def test_torchs_seed_decides_where_none_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in the loaders; and goes with the checkpoint, as the process that resumes it has another one."""
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    settings = {name: value for name, value in SETTINGS.items() if name != "seed"}

    def module(seed: int) -> LightningNodeData:
        torch.manual_seed(seed)
        return LightningNodeData(homogeneous(), SEEDS, **settings)

    def rows(seed: int) -> list[list[int]]:
        return [batch.input_id.tolist() for batch in module(seed).train_dataloader()]

    assert rows(4) == rows(4)
    assert rows(4) != rows(5)
    for step in (2, 4):  # in mid-epoch, and at its end
        whole, resumed = Reads(), Reads()
        quiet_trainer(max_epochs=2, callbacks=[Save(tmp_path / "cut.ckpt", step)]).fit(whole, module(4))
        quiet_trainer(max_epochs=2).fit(resumed, module(5), ckpt_path=tmp_path / "cut.ckpt")
        for batch, expected in zip(resumed.batches["train"], whole.batches["train"][step:], strict=True):
            check_equal(batch, expected)


class Save(Callback):
    """Makes a checkpoint after a step, at an epoch's end when that is over."""

    def __init__(self, path: Path, step: int) -> None:
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.step and not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            trainer.save_checkpoint(self.path)

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


def test_ranks_do_not_share_rows_by_a_seed_that_each_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    made = [LightningNodeData(homogeneous(), SEEDS, num_neighbors=[2], batch_size=16) for _ in range(2)]
    before = [module.train_dataloader() for module in made]  # before there are ranks
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    rows: dict[str, list[int]] = {"before": [], "now": []}
    for rank, module in enumerate(made):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        for name, loader in (("before", before[rank]), ("now", module.train_dataloader())):
            rows[name] += [row for batch in loader for row in batch.input_id.tolist()]
    assert sorted(rows["before"]) == sorted(rows["now"]) == list(range(len(SEEDS)))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    for is_lone, seeds in ((True, {module._seed for module in made}), (False, {0})):  # samplers have no group
        for module in made:
            roles = SimpleNamespace(is_lone=is_lone)
            module.trainer = SimpleNamespace(world_size=1, strategy=SimpleNamespace(roles=roles))
        assert {module.seed for module in made} == seeds


def test_rows_of_torchs_samplers_are_trained_on() -> None:
    data = homogeneous()

    def rows() -> ImbalancedSampler:
        return ImbalancedSampler(data.y[SEEDS], num_samples=40)

    module = LightningNodeData(data, SEEDS, input_val_nodes=SEEDS, **SETTINGS, sampler=rows())
    assert not module.train_shuffle
    model = Reads()
    seed_everything(5, verbose=False)
    quiet_trainer(max_epochs=1, num_sanity_val_steps=0).fit(model, module)
    assert [batch.batch_size for batch in model.batches["train"]] == [16, 16, 8]
    assert sum(batch.batch_size for batch in model.batches["val"]) == len(SEEDS), "an evaluation has every row once"
    seed_everything(5, verbose=False)
    loader = NeighborLoader(data, input_nodes=SEEDS, sampler=rows(), **SETTINGS)
    for batch, expected in zip(model.batches["train"], loader, strict=True):
        check_equal(batch, expected)
    module = LightningNodeData(data, SEEDS, **SETTINGS, sampler=SequentialSampler(SEEDS))
    first, second = ([batch.n_id.tolist() for batch in module.train_dataloader()] for _ in range(2))
    assert first != second  # a loop by hand is the next epoch here, too


def alone() -> BaseSampler:
    """A sampler of the user's own, which finds nothing but the seeds."""

    class Alone(BaseSampler):
        edge_permutation = None

        def sample_from_nodes(self, inputs: NodeSamplerInput, **_: Any) -> SamplerOutput:
            nothing = torch.empty(0, dtype=torch.long)
            return SamplerOutput(inputs.node, nothing, nothing, nothing, metadata=(inputs.input_id, inputs.time))

        def sample_from_edges(self, *_: Any, **__: Any) -> SamplerOutput:
            raise NotImplementedError

    return Alone()


def test_samplers_of_others_are_run_by_pygs_loader() -> None:
    sampler = alone()
    module = LightningNodeData(homogeneous(), node_sampler=sampler, input_train_nodes=SEEDS, batch_size=16)
    assert module.graph_sampler is module.eval_graph_sampler is sampler
    assert type(module.train_dataloader()) is NodeLoader
    model = Reads()
    quiet_trainer(max_epochs=1).fit(model, module)
    assert sorted(torch.cat([batch.n_id for batch in model.batches["train"]]).tolist()) == SEEDS.tolist()
    with pytest.raises(LoaderConfigError, match="samples nothing itself with loader='custom'"):
        _ = module.graph_data


def test_a_given_sampler_is_shared() -> None:
    sampler = GnnloadSampler(homogeneous(), [4, 3], seed=3)
    with pytest.warns(UserWarning, match=r"Ignoring the arguments \['replace'\]"):
        module = LightningNodeData(homogeneous(), SEEDS, node_sampler=sampler, batch_size=16, replace=True)
    assert module.graph_sampler is sampler
    loader = NeighborLoader(homogeneous(), None, SEEDS, neighbor_sampler=sampler, shuffle=True, batch_size=16)
    for batch, expected in zip(module.train_dataloader(), loader, strict=True):
        check_equal(batch, expected)


def test_the_whole_graph_is_a_mini_batch() -> None:
    data = homogeneous()
    data.val_mask = ~data.train_mask
    with pytest.warns(UserWarning, match="Re-setting 'batch_size' to 1"):
        module = LightningNodeData(data, loader="full", batch_size=5)
    model = Reads()
    quiet_trainer(max_epochs=2, num_sanity_val_steps=0).fit(model, module)
    assert model.batches["train"] == [data, data]
    assert model.batches["train"][0] is model.batches["val"][0] is data
    assert not hasattr(module, "graph_sampler")
    assert str(module).startswith(
        "{Train dataloader: size=1}\n{Validation dataloader: size=1}\n{Test dataloader: None}"
    )


@pytest.mark.parametrize("order", ["time", ProximityOrder(sequences=2)])
def test_orders_go_by_the_rows_nodes_and_times(order: Any) -> None:
    """Rows are numbers, not nodes: an order that takes them for these goes by other nodes' times."""
    seeds = torch.arange(N).flip(0)
    data = homogeneous()
    data.time = torch.arange(N) // 10
    module = LightningNodeData(data, seeds, order=order, time_attr="time", num_neighbors=[2], batch_size=10)
    batches = list(module.train_dataloader())
    assert sorted(torch.cat([batch.input_id for batch in batches]).tolist()) == [*range(N)]
    if order == "time":
        assert all(len(batch.time[:10].unique()) == 1 for batch in batches)
    ends = torch.stack([seeds, seeds])
    of_links = LightningLinkData(homogeneous(), ends, order=ProximityOrder(sequences=2), num_neighbors=[1])
    assert len(list(of_links.train_dataloader())) == N


def test_shuffle_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="The 'shuffle=False' option is ignored in 'LightningNodeData'"):
        module = LightningNodeData(homogeneous(), SEEDS, shuffle=False, **SETTINGS)
    assert "shuffle" not in module.kwargs
    assert "input_train" not in repr(module)
    sequential = LightningNodeData(homogeneous(), SEEDS, order="sequential", **SETTINGS)
    first = next(iter(sequential.train_dataloader()))
    assert first.n_id[:16].tolist() == SEEDS[:16].tolist()


def test_threads_are_as_many_as_workers() -> None:
    started = []
    module = LightningNodeData(
        homogeneous(), SEEDS, num_workers=2, prefetch_factor=3, worker_init_fn=started.append, **SETTINGS
    )
    loader = module.train_dataloader()
    assert (loader.num_threads, loader.num_ahead) == (2, 6)
    list(loader)
    assert sorted(started) == [0, 1]
    assert LightningNodeData(homogeneous(), SEEDS, **SETTINGS).train_dataloader().num_threads == 0
    assert LightningNodeData(homogeneous(), SEEDS, num_threads=3, **SETTINGS).loader_kwargs["num_workers"] == 3


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "loader": ({"loader": "none"}, r"Undefined 'loader' option \(got 'none'\)"),
    "custom": ({"loader": "custom"}, "without node_sampler="),
    "no neighbours": ({"num_neighbors": None, "batch_size": 3}, "needs num_neighbors="),
    "batch size": ({"batch_size": 0}, "batch_size=0"),
    "seed": ({"seed": -1}, "seed=-1"),
    "order": ({"order": "backwards"}, "order='backwards' is not known"),
    "draws": ({"eval_draws": "some"}, "eval_draws='some'"),
    "nobody's": ({"num_neighbours": [3]}, "knows no num_neighbours=.*cache, eval_draws"),
    "of the other": ({"partition": "folder"}, "has no partition=.*GraphDataModule.from_pyg"),
    "negatives": ({"negatives": 3}, "negatives=; that of GraphDataModule is here: neg_sampling="),
    "inputs": ({"input_nodes": [3]}, "knows no input_nodes="),
    "threads": ({"num_threads": 2, "num_workers": 3}, "num_threads=2 and num_workers=3"),
    "evaluation": ({"eval_loader_kwargs": {"time_attr": "time"}}, "has time_attr=, which is of the graph"),
    "evaluation's": ({"eval_loader_kwargs": {"sizes": 3}}, "knows no sizes="),
    "two orders": ({"order": "sequential", "sampler": [1, 2]}, "order= sets how.*sampler= replaces"),
    "cache": ({"cache": FeatureCache(ratio=0.1), "sampler": [1, 2]}, "cache= sets how this package makes mini-batches"),
    "cache of others": (
        {"cache": FeatureCache(ratio=0.1), "node_sampler": alone, "num_neighbors": None},
        "cache= sets how this package makes mini-batches.*node_sampler=",
    ),
    "cache of all": (
        {"cache": FeatureCache(ratio=0.1), "loader": "full", "batch_size": 1, "num_neighbors": None},
        "loader='full' replaces",
    ),
    "neighbours of all": ({"loader": "full", "batch_size": 1}, "knows no num_neighbors="),
}


@pytest.mark.parametrize(("settings", "message"), WRONG.values(), ids=WRONG)
def test_arguments_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    settings = {name: value for name, value in (SETTINGS | settings).items() if name != "num_neighbors" or value}
    made = {name: value() if value is alone else value for name, value in settings.items()}
    with pytest.raises(LoaderConfigError, match=message):
        LightningNodeData(homogeneous(), SEEDS, **made)


def test_what_a_loader_cannot_begin_at_is_refused() -> None:
    data = typed()
    data["a"].train_mask = data["a"].y > 0
    with pytest.raises(LoaderConfigError, match=r"train_mask is an attribute of 2 types of nodes \(a, b\)"):
        LightningNodeData(data, num_neighbors=[1])
    with pytest.raises(SeedError, match="input_train_nodes is empty"):
        LightningNodeData(homogeneous(), torch.empty(0, dtype=torch.long), num_neighbors=[1]).train_dataloader()
    with pytest.raises(SeedError, match="is 500"):
        LightningNodeData(homogeneous(), torch.tensor([500]), num_neighbors=[1]).train_dataloader()
    with pytest.raises(LoaderConfigError, match="does not support timeout=3"):
        LightningNodeData(homogeneous(), SEEDS, timeout=3, **SETTINGS).train_dataloader()


IDLE: dict[str, tuple[dict[str, Any], str]] = {
    "rows": ({"sampler": [1, 2], **SETTINGS}, "mini-batches of sampler=, which trainers read.*Give order="),
    "sampler": ({"node_sampler": alone}, r"of node_sampler=Alone\(...\).*Give node_sampler=GnnloadSampler"),
    "all": ({"loader": "full"}, "of loader='full'.*Give loader='neighbor'"),
}


@pytest.mark.parametrize(("settings", "message"), IDLE.values(), ids=IDLE)
def test_samplers_are_not_left_idle(settings: dict[str, Any], message: str) -> None:
    made = {name: value() if value is alone else value for name, value in settings.items()}
    module = LightningNodeData(homogeneous(), SEEDS, **made)
    module.trainer = quiet_trainer(strategy=FactoredStrategy(1), devices=2)
    with pytest.raises(LoaderConfigError, match=message):
        module.train_dataloader()
    module.trainer = None


def test_a_trainer_of_a_whole_graph_is_one() -> None:
    module = LightningNodeData(homogeneous(), loader="full")
    module.trainer = quiet_trainer(devices=2, strategy="ddp_spawn")
    with pytest.raises(LoaderConfigError, match="trains on a single device, but there are 2"):
        module.prepare_data()
    module.trainer = None
