import pickle
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.trainer.states import TrainerState

from lightning_gnnload import (
    Dataset,
    Debian,
    Graph,
    GraphData,
    GraphDataModule,
    Negatives,
    NeighborSampler,
    SeedTable,
    partition_graph,
)
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GraphDataError, LoaderConfigError, PartitionError, SeedError
from lightning_gnnload.plugin.module.settings import default_num_threads
from tests.integration.learnable import quiet_trainer
from tests.unit.toy import content, toy_data, toy_graph

SAMPLER = NeighborSampler([3, 2])


@dataclass
class Described(Dataset):
    """Counts how often it was prepared and loaded."""

    num_prepared: int = 0
    num_loaded: int = 0

    def prepare(self) -> None:
        self.num_prepared += 1

    def load(self) -> GraphData:
        self.num_loaded += 1
        return toy_data(val=[1, 2], test=[3])


def module(
    data: Any = None, rank: int = 0, num_ranks: int | None = None, overfit: float = 0, **settings: Any
) -> GraphDataModule:
    """A data module as rank ``rank`` of ``num_ranks`` trainers has it; without a trainer when that is None."""
    settings.setdefault("num_threads", 0)
    settings.setdefault("batch_size", 16)
    made = GraphDataModule(
        data or toy_data(val=range(40), test=range(40, 50)), settings.pop("sampler", SAMPLER), **settings
    )
    if num_ranks is not None:
        strategy = SimpleNamespace(root_device=torch.device("cpu"))
        made.trainer = SimpleNamespace(  # type: ignore[assignment]
            world_size=num_ranks,
            global_rank=rank,
            num_devices=num_ranks,
            overfit_batches=overfit,
            strategy=strategy,
            state=TrainerState(),
        )
    return made


def seeds_of(loader) -> list[list[int]]:
    return [batch.seeds.tolist() for batch in loader]


def flat(loader) -> list[int]:
    return [seed for step in seeds_of(loader) for seed in step]


@pytest.mark.parametrize("phase", ["train", "val", "test", "predict"])
def test_four_ranks_share_4097_seeds(phase: str) -> None:
    data = GraphData(
        toy_graph(5000, 5000), **{"train": range(4097), phase if phase != "predict" else "val": range(4097)}
    )
    predict = range(4097)
    ranks = []
    for rank in range(4):
        made = module(data, rank, 4, sampler=NeighborSampler([1]), batch_size=256, predict=predict)
        ranks.append(seeds_of(getattr(made, f"{phase}_dataloader")()))
    assert len({len(steps) for steps in ranks}) == 1  # a rank with a step less leaves the others in a collective
    assert sorted(seed for steps in ranks for step in steps for seed in step) == list(range(4097))
    sizes = [[len(step) for step in steps] for steps in ranks]
    assert all(max(step) - min(step) <= 1 and min(step) >= 1 for step in zip(*sizes, strict=True))


def test_training_is_shuffled_and_evaluation_is_not() -> None:
    made = module()
    first = flat(made.train_dataloader())
    assert first != made.data.train.tolist()
    assert sorted(first) == sorted(made.data.train)
    assert flat(made.val_dataloader()) == list(range(40))
    loader = made.train_dataloader()
    loader.set_epoch(1)
    assert flat(loader) != first
    assert flat(module(order="sequential").train_dataloader()) == made.data.train.tolist()
    assert flat(module(order=Sequential()).train_dataloader()) == made.data.train.tolist()


def neighbours(loaders) -> dict[int, list[int]]:
    """What each seed drew at the nearest hop, as node ids."""
    found = {}
    for batch in (batch for loader in loaders for batch in loader):
        block = batch.blocks[-1]
        for at, seed in enumerate(batch.seeds.tolist()):
            found[seed] = batch.nodes[block.indices[block.indptr[at] : block.indptr[at + 1]].long()].tolist()
    return found


def evaluation(epoch: int = 0, num_ranks: int = 1, **settings: Any) -> dict[int, list[int]]:
    loaders = [module(rank=rank, num_ranks=num_ranks, **settings).val_dataloader() for rank in range(num_ranks)]
    for loader in loaders:
        loader.set_epoch(epoch)
    return neighbours(loaders)


def test_evaluation_draws_alike_whatever_the_epoch_batch_size_and_ranks() -> None:
    wanted = evaluation()
    assert evaluation(epoch=3) == wanted
    assert evaluation(eval_batch_size=7) == wanted
    assert evaluation(num_ranks=3) == wanted
    assert evaluation(seed=1) != wanted
    assert evaluation(epoch=3, eval_draws="fresh") != evaluation(eval_draws="fresh")


def test_training_draws_anew_each_epoch() -> None:
    loader = module(order="sequential").train_dataloader()
    first = neighbours([loader])
    loader.set_epoch(1)
    assert neighbours([loader]) != first


class Epochs(LightningModule):
    """Keeps the epoch of each mini-batch that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.found: list[int] = []

    def training_step(self, batch: Any) -> torch.Tensor:
        self.found.append(batch.epoch)
        return self.weight * 1.0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_each_loop_by_hand_is_the_next_epoch_whichever_loader_it_reads() -> None:
    made = module()
    loader = made.train_dataloader()
    read = (made.train_dataloader(), loader, made.train_dataloader(), loader)
    assert [{batch.epoch for batch in each} for each in read] == [{0}, {1}, {2}, {3}]
    copy = pickle.loads(pickle.dumps(made))  # noqa: S301  as Lightning's spawn launcher does
    assert {batch.epoch for batch in copy.train_dataloader()} == {0}
    trained = Epochs()
    quiet_trainer(max_epochs=2, num_sanity_val_steps=0).fit(trained, made)  # which says itself where it is
    assert trained.found == [0] * 7 + [1] * 7
    first, second = (neighbours([module(eval_draws=draws).val_dataloader()] * 2) for draws in ("fixed", "fresh"))
    assert first == neighbours([made.val_dataloader()])
    assert second != neighbours([module(eval_draws="fresh").val_dataloader()])


def test_evaluation_has_its_own_batch_size_and_sampler() -> None:
    made = module(eval_batch_size=10, eval_sampler=NeighborSampler([-1]))
    (batch, *rest) = made.val_dataloader()
    assert (batch.num_seeds, len(rest), len(batch.blocks)) == (10, 3, 1)
    assert len(next(iter(made.train_dataloader())).blocks) == 2


@pytest.mark.parametrize(
    ("predict", "wanted"),
    [("all", range(300)), ("test", range(40, 50)), ([7, 3], [7, 3]), (np.arange(300) % 100 == 3, [3, 103, 203])],
)
def test_what_is_predicted(predict, wanted) -> None:
    assert flat(module(predict=predict).predict_dataloader()) == list(wanted)
    assert flat(module(predict=torch.tensor(list(wanted))).predict_dataloader()) == list(wanted)


@pytest.mark.parametrize(
    ("predict", "error", "message"),
    [
        ("everything", LoaderConfigError, "predict='everything'.*'all'.*train, val, test"),
        ([SeedTable([0])], GraphDataError, "predict: one SeedTable is needed, not a list of 1"),
        ([300], GraphDataError, r"predict ids: id 300.*\[0, 300\)"),
        ([], SeedError, "no seeds to predict"),
        (np.ones(299, bool), GraphDataError, r"predict ids: a boolean mask of shape \(299,\).*there are 300 nodes"),
    ],
)
def test_what_cannot_be_predicted(predict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        module(predict=predict).predict_dataloader()


def test_the_last_step_may_be_left_out() -> None:
    # 100 seeds in steps of 16: the rest of 4 is dropped in training, and nowhere else.
    assert [len(step) for step in seeds_of(module(drop_last=True).train_dataloader())] == [16] * 6
    assert len(module(drop_last=True).val_dataloader()) == 3
    with pytest.raises(SeedError, match=r"100 seeds.*at least 128.*drop_last"):
        module(drop_last=True, batch_size=64, num_ranks=2).train_dataloader()


def test_overfitting_repeats_the_same_batches() -> None:
    loader = module(num_ranks=1, overfit=0.1).train_dataloader()
    first = [content(batch) for batch in loader]
    loader.set_epoch(5)
    assert [content(batch) for batch in loader] == first


def test_missing_splits() -> None:
    made = module(toy_data())
    assert made.val_dataloader() == []  # Lightning then skips validation
    with pytest.raises(SeedError, match=r"no seeds to test on.*test=ids"):
        made.test_dataloader()
    with pytest.raises(SeedError, match=r"no seeds to train on.*train=ids"):
        module(GraphData(toy_graph())).train_dataloader()


def test_too_few_seeds_are_found_when_the_loader_is_made() -> None:
    with pytest.raises(SeedError, match="3 seeds cannot be shared by 4 trainers"):
        module(toy_data(num_train=3), num_ranks=4).train_dataloader()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, r"batch_size=0.*at least 1"),
        ({"batch_size": 2.5}, r"batch_size=2\.5"),
        ({"batch_size": True}, r"batch_size=True"),
        ({"eval_batch_size": -1}, r"eval_batch_size=-1.*at least 1"),
        ({"num_threads": -1}, r"num_threads=-1.*0 samples in the main thread"),
        ({"num_threads": 1.5}, r"num_threads=1\.5"),
        ({"batch_format": "jax"}, r"batch_format='jax'.*'blocks', 'dgl', 'pyg'"),
        ({"eval_draws": "some"}, r"eval_draws='some'.*'fixed', 'fresh'"),
        ({"order": "random"}, r"order='random'.*'shuffle', 'sequential'"),
        ({"seed": -1}, r"seed=-1.*0 to 2\*\*64"),
        ({"seed": 2**64}, r"seed=18446744073709551616"),
        ({"seed": 0.5}, r"seed=0\.5"),
        (
            {"batch_format": "pyg", "sampler": NeighborSampler([3, 2], expand="all")},
            r"new nodes only.*NeighborSampler\(\[3, 2\], expand='all'\).*expand='new'",
        ),
        ({"data": 3}, r"data is a int; give a GraphData.*from_dgl"),
    ],
)
def test_settings_that_cannot_work(settings, message: str) -> None:
    with pytest.raises(LoaderConfigError, match=message):
        module(**settings)


def test_a_description_is_loaded_once_and_only_when_asked() -> None:
    dataset = Described()
    made = module(dataset)
    assert (dataset.num_prepared, dataset.num_loaded) == (0, 0)
    with pytest.raises(LoaderConfigError, match=r"not loaded yet.*prepare_data\(\).*setup\(\)"):
        made.train_dataloader()
    made.prepare_data()
    made.setup("fit")
    made.setup("test")
    assert (dataset.num_prepared, dataset.num_loaded) == (1, 1)
    assert (made.num_features, made.num_classes) == (5, 7)


def test_printing_calls_no_loader_and_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # Lightning's own __str__ calls every loader hook, which would need data that is not there yet.
    dataset = Described()
    made = module(dataset)
    for phase in ("train", "val", "test", "predict"):
        monkeypatch.setattr(GraphDataModule, f"{phase}_dataloader", lambda self: pytest.fail("a loader was made"))
    for text in (str(made), repr(made)):
        assert "GraphDataModule" in text
    assert "Described" in str(made)
    assert "batch_size=16" in str(made)
    assert dataset.num_loaded == 0
    made.setup()
    assert "num_nodes=300" in str(made)


def test_pickling_leaves_loaded_data_behind() -> None:
    made = module(Described())
    light = len(pickle.dumps(made))
    made.setup()
    wanted = [content(batch) for batch in made.train_dataloader()]
    assert len(pickle.dumps(made)) == light
    copy = pickle.loads(pickle.dumps(made))  # noqa: S301  as Lightning's spawn launcher does
    with pytest.raises(LoaderConfigError, match="not loaded yet"):
        _ = copy.data
    copy.setup()
    assert [content(batch) for batch in copy.train_dataloader()] == wanted
    assert made.data is not None  # the original keeps its own


def test_given_data_is_pickled_with_it() -> None:
    made = module()
    copy = pickle.loads(pickle.dumps(made))  # noqa: S301
    assert [content(b) for b in copy.train_dataloader()] == [content(b) for b in made.train_dataloader()]


def test_loaders_know_their_rank_and_threads() -> None:
    loader = module(rank=2, num_ranks=3, num_threads=2).train_dataloader()
    assert (loader.rank, loader.num_ranks, loader.num_threads) == (2, 3, 2)
    assert module(num_threads=None, num_ranks=2).train_dataloader().num_threads == default_num_threads(2)


@pytest.mark.parametrize(
    ("cores", "ranks", "wanted"), [(1, 1, 1), (2, 1, 1), (8, 1, 4), (64, 1, 4), (8, 2, 2), (2, 8, 1)]
)
def test_threads_leave_half_of_the_cores(monkeypatch: pytest.MonkeyPatch, cores: int, ranks: int, wanted: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)))
    assert default_num_threads(ranks) == wanted


def test_batches_move_to_a_device() -> None:
    made = module()
    moved = made.transfer_batch_to_device(next(iter(made.train_dataloader())), torch.device("meta"), 0)
    assert moved.x.device.type == moved.blocks[0].indptr.device.type == "meta"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("num_neighbors", r"sampler=NeighborSampler\(\[15, 10\]\)"),
        ("input_nodes", "train=ids"),
        ("num_workers", "num_threads"),
        ("batch_sampler", "SeedOrder"),
        ("fanouts", r"sampler=NeighborSampler\(fanouts\)"),
        ("train", r"GraphData\(..., train=ids\)"),
        ("shuffle", "order='shuffle'"),
        ("input_time", "SeedTable"),
    ],
)
def test_settings_of_other_loaders_are_told_what_they_are_here(name: str, ours: str) -> None:
    with pytest.raises(LoaderConfigError, match=f"no {name}=.*{ours}"):
        module(**{name: 1})


def test_a_setting_that_nobody_has_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"GraphDataModule has no bach_size=\. Did you mean batch_size=\?"):
        module(bach_size=3)


def test_the_settings_of_pygs_loader_in_the_place_of_a_sampler_are_told_what_they_are_here() -> None:
    with pytest.raises(LoaderConfigError, match=r"no num_neighbors=.*sampler=NeighborSampler"):
        GraphDataModule(toy_data(), num_neighbors=[3, 3])


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        ([10, 5], r"sampler is \[10, 5\], of type list; give a sampler: .*sampler=NeighborSampler\(\[10, 5\]\)"),
        (10, r"sampler is 10, of type int.*NeighborSampler\(\[15, 10\]\)"),
        (None, r"sampler is None; give a sampler"),
        (NeighborSampler, r"sampler is the class NeighborSampler; give one of it: NeighborSampler\(\[15, 10\]\)"),
    ],
)
def test_what_is_no_sampler_is_refused_at_once(sampler: Any, message: str) -> None:
    with pytest.raises(LoaderConfigError, match=message):
        GraphDataModule(toy_data(), sampler)
    if sampler is not None:
        with pytest.raises(LoaderConfigError, match=f"eval_{message}"):
            GraphDataModule(toy_data(), SAMPLER, eval_sampler=sampler)


@pytest.mark.parametrize("order", [[1, 2], True, "shuffled"])
def test_an_order_that_is_none_is_told_which_there_are(order: Any) -> None:
    with pytest.raises(LoaderConfigError, match=r"order=.* is not known; give one of 'shuffle'"):
        module(order=order)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Debian, r"data is the class Debian; give one of it: Debian\(\.\.\.\)"),
        (None, "data is None; give a GraphData, a dataset"),
        (toy_graph(), r"data is a Graph; .*GraphData\(graph, x, y"),
        (SAMPLER, "data is a NeighborSampler; give a GraphData"),
    ],
)
def test_what_is_no_graph_data_is_refused_at_once(data: Any, message: str) -> None:
    with pytest.raises(LoaderConfigError, match=message):
        GraphDataModule(data, SAMPLER)


@pytest.mark.parametrize(
    ("y", "num_classes", "message"),
    [
        ([0, 1, -1, 2, -1, 0], None, "of 4 seeds to train on, 2 have a label that is none, first node 2 with -1"),
        ([0, 1, 2, 5, 5, 9], 5, r"1 have a label that is none, first node 3 with 5: classes lie in \[0, 5\)"),
        ([0.0, float("nan"), 1, 1, 1, 1], None, "1 have a label that is none, first node 1 with nan"),
    ],
)
def test_labels_that_are_none_are_named_before_anybody_trains_on_them(y: Any, num_classes: Any, message: str) -> None:
    data = GraphData(
        toy_graph(6, 6), y=y, train=[1, 0, 2, 4 if num_classes is None else 3], val=[5], num_classes=num_classes
    )
    with pytest.raises(GraphDataError, match=message):
        module(data).train_dataloader()
    module(data).val_dataloader()  # they are of no account there


def test_labels_that_losses_pass_over_and_targets_below_zero_are_trained_on() -> None:
    for y in ([0, -100, 1, 2, 0, 1], [0.5, -3.0, 0.0, 1.0, 0.0, 0.0]):
        assert len(flat(module(GraphData(toy_graph(6, 6), y=y, train=[0, 1, 2])).train_dataloader())) == 3


def test_training_on_links_leaves_their_edges_out_and_evaluation_does_not() -> None:
    graph = toy_graph()
    links = SeedTable(
        src=graph.indices[:20].astype(np.int64), dst=np.searchsorted(graph.indptr, range(20), "right") - 1
    )
    made = module(GraphData(graph, train=links, val=links), negatives=Negatives("triplet", num=2), predict=links)
    request = BatchRequest(0, 0, 0, 1)
    assert len(made.workload("train").seed_batch(request).draw.queries.excluded)
    assert made.workload("val").seed_batch(request).draw.queries is None
    assert made.workload("val").seed_batch(request).columns["negatives"].shape == (16, 2)
    assert "negatives" not in made.workload("predict").seed_batch(request).columns
    every = module(GraphData(graph, train=links), exclude=None)
    assert every.workload("train").seed_batch(request).draw.queries is None
    ranked = {"negatives": Negatives("triplet", num=2), "eval_negatives": Negatives("triplet", num=9)}
    made = module(GraphData(graph, train=links, val=links), **ranked)
    assert made.workload("train").seed_batch(request).columns["negatives"].shape == (16, 2)
    assert made.workload("val").seed_batch(request).columns["negatives"].shape == (16, 9)


def test_negatives_are_drawn_by_a_table_of_the_nodes() -> None:
    links = SeedTable(src=np.zeros(50, int), dst=np.ones(50, int))
    data = GraphData(toy_graph(), train=links, tables={"popular": (np.arange(toy_graph().num_nodes) == 7).astype("f4")})
    request = BatchRequest(0, 0, 0, 1)
    made = module(data, negatives=Negatives("triplet", num=3, weight="popular"), exclude=None)
    columns = made.workload("train").seed_batch(request)
    assert set(columns.draw.seeds[columns.columns["negatives"]][columns.columns["negative_mask"].numpy()].tolist()) == {
        7
    }
    with pytest.raises(GraphDataError, match=r"no table 'unknown'.*popular"):
        module(data, negatives=Negatives(weight="unknown")).workload("train")
    with pytest.raises(LoaderConfigError, match=r"negatives='binary'.*Negatives"):
        module(data, negatives="binary")


def tables_of_types(num_nodes: int = 30) -> GraphData:
    """Links of two edge types, 40 and 20, to train and to validate on."""
    rng, types = np.random.default_rng(3), {}
    for name, count in (("buys", 40), ("views", 20)):
        types["u", name, "i"] = rng.integers(0, num_nodes, (2, count))
    graph = Graph.from_hetero({"u": num_nodes, "i": num_nodes}, types, keep_order=True)

    def table() -> dict:
        return {
            edge_type: SeedTable(
                src=src, dst=dst, edge_ids=np.arange(len(src)), edge_type=edge_type, columns={"negatives": dst[:, None]}
            )
            for edge_type, (src, dst) in types.items()
        }

    return GraphData(graph, train=table(), val=table())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.columns["negatives"][43:44].fill_(30), r"views', 'i'\): negatives\[3, 0\] is 30, which"),
        (lambda table: table.edge_ids.__setitem__(43, 60), r"views', 'i'\): edge_ids\[3\] is 60, which is not an edge"),
        (lambda table: table.ends.__setitem__((43, 0), 30), r"views', 'i'\): src\[3\] is 30, which is not a node"),
        (lambda table: table.columns.pop("negatives"), "SeedTable: Negatives of mode 'hard' take its column"),
    ],
)
@pytest.mark.parametrize("phase", ["train", "val"])
def test_a_row_is_told_by_its_own_number_and_phase(phase: str, change: Any, message: str) -> None:
    data = tables_of_types()
    change(data.table(phase))
    made, other = module(data, negatives=Negatives("hard")), {"train": "val", "val": "train"}[phase]
    assert len(made.workload(other).seeds) == 60
    with pytest.raises((SeedError, GraphDataError), match=f"^{phase}: .*{message}"):
        made.workload(phase)


def test_an_edge_that_is_another_is_told_by_the_row_of_its_table() -> None:
    data = tables_of_types()
    data.table("val").edge_ids[43] = 0
    made = module(data, eval_batch_size=8)
    with pytest.raises(SeedError, match=r"edge 0 of \('u', 'views', 'i'\) does not .* row 3 of the seed table"):
        list(made.val_dataloader())


def test_a_table_of_links_that_is_none_is_told_by_its_split() -> None:
    tables = {("u", "buys", "i"): SeedTable(src=[0], dst=[1], y=[1]), ("u", "views", "i"): SeedTable(src=[0], dst=[1])}
    with pytest.raises(GraphDataError, match=r"^test: SeedTable\.of_types: 'y' is"):
        GraphData(toy_graph(), test=tables)
    with pytest.raises(LoaderConfigError, match=r"negatives of 'views'='triplet'"):
        module(negatives={"buys": None, "views": "triplet"})


def test_links_that_are_edges_are_left_out_in_evaluation_too() -> None:
    graph = Graph.from_coo(src=[0, 1, 2, 3], dst=[1, 2, 3, 0], keep_order=True)
    known = SeedTable(src=[0, 1], dst=[1, 2], edge_ids=[0, 1])
    unknown = SeedTable(src=[0, 1], dst=[1, 2])
    made = module(GraphData(graph, train=unknown, val=known, test=unknown), exclude="self")
    request = BatchRequest(epoch=0, step=0, rank=0, num_ranks=1)
    asked = {phase: made.workload(phase).seed_batch(request).draw.queries for phase in ("train", "val", "test")}
    assert asked["train"].excluded.tolist() == asked["val"].excluded.tolist() == [1, 2]  # of lists 0 1 2 3
    assert asked["test"] is None


def test_a_partition_serves_no_rows(tmp_path) -> None:
    data = GraphData(toy_graph(), train=SeedTable(range(100)))
    partition = partition_graph(toy_data(), tmp_path / "parts", 1, hops=2, progress=False)
    with pytest.raises(PartitionError, match="SeedTable"):
        module(data, partition=partition).workload("train")
