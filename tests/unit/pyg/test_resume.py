"""PyG's loaders passed to Lightning: a run that is resumed goes on as one that was not cut, wherever its checkpoint was
made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning_fabric import Fabric
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.utils.data import DistributedSampler, RandomSampler

from lightning_gnnload.errors import CheckpointError
from tests.integration.learnable import quiet_trainer

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

    from lightning_gnnload.pyg import (
        HGTLoader,
        LightningNodeData,
        LinkNeighborLoader,
        NeighborLoader,
        ShaDowKHopSampler,
    )

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script", "ignore:.*does not have many workers", "ignore:num_workers means threads"
)
N, SIZE = 16, 5
EDGES = torch.randint(N, (2, 200), generator=torch.Generator().manual_seed(3))
LISTS = [[3, 1], [4, 10, 7], [0, 2], [9], [11, 12]]

Make = Callable[..., Any]
KINDS = ["nodes", "links", "hgt", "shadow"]


def data() -> Data:
    return Data(edge_index=EDGES, x=torch.arange(N)[:, None], num_nodes=N)


def loader_of(kind: str) -> Make:
    """What makes a loader, whatever further settings it is given."""
    of, settings = data(), {"batch_size": SIZE, "seed": 7}
    typed = HeteroData({"a": {"x": of.x}, ("a", "to", "a"): {"edge_index": EDGES}})
    makes: dict[str, Make] = {
        "nodes": partial(NeighborLoader, of, [2, 2], **settings),
        "links": partial(LinkNeighborLoader, of, [2, 1], EDGES[:, :N], neg_sampling="binary", **settings),
        "hgt": partial(HGTLoader, typed, [4, 3], "a", **settings),
        "shadow": partial(ShaDowKHopSampler, of, 2, 2, **settings),
    }
    return makes[kind]


def ids_of(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: ids_of(each) for name, each in batch.items()}
    if isinstance(batch, HeteroData):
        return batch["a"].x.view(-1).tolist(), batch["a", "to", "a"].edge_index.tolist()
    return batch.x.view(-1).tolist(), batch.edge_index.tolist()


class Reads(LightningModule):
    """Keeps which nodes it is given, and after each step of training those that it is validated on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[Any] = []
        self.validated: dict[int, list[Any]] = {}

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.seen.append(ids_of(batch))
        return self.weight * 1.0

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.validated.setdefault(self.global_step, []).append(ids_of(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Save(Callback):
    """Makes a checkpoint in each of these hooks, in the second epoch: after its second step, its last one, or its
    end."""

    def __init__(self, folder: Path, only: tuple[str, ...]) -> None:
        self.folder, self.only = folder, only
        self.steps: dict[str, int] = {}

    def _save(self, name: str, trainer: Trainer) -> None:
        if trainer.current_epoch == 1 and not trainer.sanity_checking and name in self.only:
            self.steps[name] = trainer.global_step
            trainer.save_checkpoint(self.folder / name)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        batches = trainer.fit_loop.epoch_loop.batch_progress
        if batches.is_last_batch or batches.current.ready == 2:
            self._save("last" if batches.is_last_batch else "middle", trainer)

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        self._save("validated", trainer)

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        self._save("end", trainer)


def fit(train: Any, val: Any = None, ckpt: Path | None = None, *callbacks: Callback, **options: Any) -> Reads:
    model = Reads()
    trainer = quiet_trainer(callbacks=[*callbacks], **{"max_epochs": 3, **options})
    trainer.fit(model, train, val, ckpt_path=ckpt)
    return model


def check(
    make: Callable[[], Any],
    folder: Path,
    val: Callable[[], Any] = lambda: None,
    only: tuple[str, ...] = ("middle", "last", "end"),
    **options: Any,
) -> Reads:
    """Compares runs that are resumed from each checkpoint of an unbroken one with what that did. Returns it."""
    save = Save(folder, only)
    whole = fit(make(), val(), None, save, **options)
    for name, step in save.steps.items():
        resumed = fit(make(), val(), folder / name, **options)
        assert resumed.seen == whole.seen[step:], name
        assert resumed.seen, name
        for at, seen in resumed.validated.items():
            assert seen == whole.validated[at] or "max_steps" in options, name  # which Lightning then counts ahead
    assert set(save.steps) == set(only)
    return whole


@pytest.mark.parametrize("settings", [{"shuffle": True, "num_workers": 1}, {}], ids=["shuffled", "in order"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_loader_resumes(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    make = partial(loader_of(kind), **settings)
    only = ("middle", "validated", "end") if "shuffle" in settings else ("last", "end")
    limit = {} if "shuffle" in settings else {"limit_train_batches": 3}
    whole = check(make, tmp_path, loader_of("nodes"), only, **limit)
    by_hand = make()
    epochs = [[ids_of(batch) for batch in by_hand][: limit.get("limit_train_batches")] for _ in range(3)]
    assert whole.seen == [*chain(*epochs)]
    assert all(one != other for one, other in pairwise(epochs))


def test_lightning_counts_an_epoch_twice_with_max_steps(tmp_path: Path) -> None:
    make, only = partial(loader_of("nodes"), shuffle=True), ("last", "validated", "end")
    check(make, tmp_path, loader_of("nodes"), only, max_epochs=-1, max_steps=10, limit_train_batches=3)


@pytest.mark.parametrize("rows", [{"sampler": [8, 3, 11, 5, 2]}, {"batch_sampler": LISTS}])
def test_rows_of_a_users_sampler_are_drawn_for_in_the_right_epoch(rows: dict[str, Any], tmp_path: Path) -> None:
    check(partial(NeighborLoader, data(), [2, 2], seed=7, **rows), tmp_path, only=("middle", "end"))


def test_loaders_side_by_side(tmp_path: Path) -> None:
    """The shorter one is read again and again within an epoch, and gives others each time."""

    def make() -> dict[str, Any]:
        few = NeighborLoader(data(), [2], torch.tensor([1, 2, 3]), batch_size=2, seed=5, shuffle=True)
        return {"few": few, "all": loader_of("nodes")(shuffle=True)}

    whole = check(make, tmp_path, only=("middle", "end"), reload_dataloaders_every_n_epochs=1)
    found = [str(step["few"]) for step in whole.seen]
    assert len(set(found)) > len(found) - 3  # mini-batches of few nodes: some may draw alike


@pytest.fixture
def alone_in_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process group of one rank, for which Lightning makes loaders anew as it does for more."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")


@pytest.mark.usefixtures("alone_in_a_group")
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_share_rows_resume(kind: str, tmp_path: Path) -> None:
    check(partial(loader_of(kind), shuffle=True), tmp_path, only=("middle", "end"), strategy="ddp", devices=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_without_a_seed_goes_on_by_that_of_its_state(kind: str) -> None:
    then, now = (loader_of(kind)(seed=None, shuffle=True) for _ in range(2))
    assert then.seed != now.seed
    batches = iter(then)
    next(batches)
    now.load_state_dict(then.state_dict())
    for whole in (batches, then):
        assert [ids_of(batch) for batch in now] == [ids_of(batch) for batch in whole]


@pytest.mark.usefixtures("alone_in_a_group")
def test_ranks_without_a_seed_resume(tmp_path: Path) -> None:
    check(partial(loader_of("nodes"), seed=None, shuffle=True), tmp_path, only=("middle",), strategy="ddp", devices=1)


def test_lightning_shares_shuffled_rows_as_torchs() -> None:
    """Else each rank would take its share of an order of its own, where no seed is given."""
    loader = NeighborLoader(data(), [2], shuffle=True)
    assert isinstance(loader.sampler, RandomSampler)
    assert sorted(loader.sampler) == list(range(N))


def test_a_distributed_sampler_says_the_epoch() -> None:
    sampler = DistributedSampler(range(N), num_replicas=2, rank=1)
    loader, whole = (NeighborLoader(data(), [2], sampler=sampler, batch_size=SIZE, seed=7) for _ in range(2))
    epochs = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        epochs.append([ids_of(batch) for batch in whole])
    sampler.set_epoch(2)  # a job that begins there
    assert [ids_of(batch) for batch in loader] == epochs[2]


def test_rows_that_were_shared_among_fewer_ranks_do_not_go_on() -> None:
    then, now = (
        NeighborLoader(data(), [2], sampler=DistributedSampler(range(N), num_ranks, 0), batch_size=2, seed=7)
        for num_ranks in (2, 3)
    )
    next(iter(then))
    now.load_state_dict(then.state_dict())
    with pytest.raises(CheckpointError, match=r"shared by 2 ranks' then and .*shared by 3 ranks' now"):
        next(iter(now))


RESHAPED: dict[str, tuple[Any, dict[str, Any]]] = {
    "neg_sampling": ("links", {"neg_sampling": {"mode": "binary", "amount": 2}}),
    "neg_sampling by weight": ("links", {"neg_sampling": {"mode": "binary", "dst_weight": torch.arange(1.0, N + 1)}}),
    "edge_label": ("links", {"edge_label": torch.arange(N)}),
    "subgraph_type": ("nodes", {"subgraph_type": "induced"}),
    "drop_last": ("nodes", {"drop_last": True}),
}


@pytest.mark.parametrize("what", RESHAPED)
def test_what_shapes_mini_batches_is_compared(what: str) -> None:
    name, changed = RESHAPED[what]
    then = loader_of(name)()
    next(iter(then))
    now = loader_of(name)(**changed)
    now.load_state_dict(then.state_dict())
    with pytest.raises(CheckpointError, match=rf"\b{what.split()[0]}=.* then and .* now"):
        next(iter(now))


def test_a_data_module_s_rows_are_compared() -> None:
    then, now = (
        LightningNodeData(data(), rows, num_neighbors=[2], batch_size=SIZE, seed=7).train_dataloader()
        for rows in (torch.arange(10), torch.arange(10) + 1)
    )
    next(iter(then))
    now.load_state_dict(then.state_dict())
    with pytest.raises(CheckpointError, match=r"inputs='.* then and .* now"):
        next(iter(now))


def test_several_fits_and_validations_of_a_loader() -> None:
    loader, val = loader_of("nodes")(shuffle=True), loader_of("nodes")()
    first, second = (fit(loader, val, max_epochs=2, num_sanity_val_steps=steps) for steps in (2, 0))
    assert first.seen == second.seen
    for step, seen in second.validated.items():
        assert first.validated[step] == seen, step
    assert len({str(seen) for seen in second.validated.values()}) == 2  # drawn anew in each epoch, as with PyG's


def test_fabric_resumes() -> None:
    def loader() -> tuple[Any, Any]:
        made = loader_of("nodes")(shuffle=True)
        return made, Fabric(accelerator="cpu", devices=1).setup_dataloaders(made)

    made, set_up = loader()
    epochs = [[ids_of(batch) for batch in set_up] for _ in range(2)]
    reading = iter(set_up)
    third = [ids_of(next(reading)) for _ in range(2)]
    state = made.state_dict()
    third += [ids_of(batch) for batch in reading]
    fourth = [ids_of(batch) for batch in set_up]
    assert len({str(each) for each in (*epochs, third, fourth)}) == 4
    made, set_up = loader()
    made.load_state_dict(state)
    assert [[ids_of(batch) for batch in set_up] for _ in range(2)] == [third[2:], fourth]
