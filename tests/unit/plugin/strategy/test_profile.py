"""The measurement: its figures, and that it leaves no trace."""

from __future__ import annotations

import copy
import logging
import random
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch.utils.data import DataLoader

from lightning_gnnload import Accelerate, Dropout, GraphDataModule, NeighborSampler, Synthetic
from lightning_gnnload.errors import LoaderConfigError, RoleConfigError, SeedError
from lightning_gnnload.pipeline.forecast.stages import StageTimes
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.job import RoleDecision
from lightning_gnnload.plugin.module.trainer_device import TrainerDevice
from lightning_gnnload.plugin.strategy import rehearsal
from lightning_gnnload.plugin.strategy.profile import measure
from lightning_gnnload.plugin.strategy.rehearsal import ReadyBatches, RehearsalSetting
from tests.unit.toy import toy_data

SETTING = RehearsalSetting(torch.device("cpu"), 2, (), {"machine": "this"})


class Sleepy(NeighborSampler):
    """Takes 600 ms."""

    def draw(self, *arguments: Any) -> Any:
        time.sleep(0.6)
        return super().draw(*arguments)


class Model(LightningModule):
    """Draws from every generator, counts its steps, and takes 40 ms for each."""

    def __init__(self, pause_s: float = 0.0) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(5, 7)
        self.norm = torch.nn.BatchNorm1d(5)
        self.pause_s = pause_s
        self.num_steps = 0

    def loss(self, batch: Any) -> torch.Tensor:
        time.sleep(self.pause_s)
        self.num_steps += 1
        noise = torch.rand(1) + np.random.rand() + random.random()
        x = self.norm(batch.x[: batch.num_seeds]) * noise
        return torch.nn.functional.cross_entropy(self.layer(x), batch.y)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("loss", loss, batch_size=batch.num_seeds, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def data_module(sampler: NeighborSampler | None = None, **settings: Any) -> GraphDataModule:
    return GraphDataModule(toy_data(), sampler or NeighborSampler([3, 2]), batch_size=16, **settings)


def trainer(**settings: Any) -> Trainer:
    settings = {"logger": False, "enable_checkpointing": False} | settings
    return Trainer(accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, **settings)


def measured(model: LightningModule, data: Any = None, **settings: Any) -> StageTimes:
    facts, found, *_ = measure(
        trainer(**settings), {"model": model, "datamodule": data or data_module()}, SETTING, lambda facts: False
    )
    assert found is not None
    assert facts["machine"] == "this"
    return found


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "LIMIT_S", 0.3)


def training_ms(found: StageTimes) -> float:
    return found.train_work_ms + found.train_fixed_ms


def test_the_figures_are_those_of_the_stages() -> None:
    found = measured(Model(pause_s=0.04), data_module(Sleepy([3, 2])))
    # A step that waited for its batch would sleep 640 ms. A busy machine adds to it.
    assert found.sample_ms >= 600
    assert found.making_core_ms < 300
    assert found.making_wait_ms >= 590  # the rest it slept
    assert 40 <= training_ms(found) < 600
    assert (found.sampler_threads, found.torch_threads, found.draws_on_device) == (2, 1, False)


def slowly(call: Any) -> Any:
    """80 ms later."""
    return lambda *arguments: (time.sleep(0.08), call(*arguments))[1]


@dataclass
class Completing:
    """Stands for what gathers features at a trainer, on its device."""

    source: Any

    def take(self, queue: Any, stream: int, step: int, stop: int) -> Any:
        assert queue.has_come(stream, step)
        ready, payload = queue.take(stream, step)
        batch = copy.copy(ready)  # it comes again
        assert batch.x is None, "a sampler has gathered in vain"
        batch.x = torch.empty(len(batch.nodes), 5)
        self.source.features["x"].gather(batch.nodes, batch.x)
        return batch, payload


@pytest.mark.parametrize("gathers", ["sampler", "trainer"])
def test_who_gathers_has_the_time_for_it(gathers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_module()
    x = data.graph_data.x
    assert x is not None
    monkeypatch.setattr(x, "gather", slowly(x.gather))
    if gathers == "trainer":
        monkeypatch.setattr(TrainerDevice, "prefetcher", lambda self, module, source: Completing(source))
    found = measured(Model(), data)
    late, quick = (found.gather_ms, training_ms(found))[:: 1 if gathers == "sampler" else -1]
    assert late >= 80
    assert quick < 80
    assert (found.trainer_gather_ms >= 80) == (gathers == "trainer")
    decision = RoleDecision(8, 1, found, num_cores=8)
    assert decision.sample_ms is not None
    assert (decision.sample_ms >= 40) == (gathers == "sampler"), "two threads"


def test_conversion_is_a_stage_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_module()
    monkeypatch.setattr(data, "_convert", lambda workload: slowly(lambda batch: batch))
    found = measured(Model(), data)
    assert found.convert_ms >= 80
    assert max(training_ms(found), found.making_ms) < 80


def test_training_is_tried_with_one_thread_and_with_all() -> None:
    class Divided(Model):
        """300 ms that threads share, and 20 that they do not."""

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            time.sleep(0.02 + 0.3 / torch.get_num_threads())
            return self.loss(batch)

    before = torch.get_num_threads()
    setting = replace(SETTING, torch_threads=4)
    found = measure(trainer(), {"model": Divided(), "datamodule": data_module()}, setting, lambda facts: False)[1]
    assert found is not None
    assert torch.get_num_threads() == before
    assert found.torch_threads == 4
    assert found.train_work_ms > 200  # as much as 225 ms less with four of them tell, but for what the machine adds
    assert training_ms(found) >= 320


@pytest.mark.parametrize(
    ("one_ms", "four_ms", "work_ms", "threads"),
    [
        (120.0, 45.0, 100.0, 4),  # 100 / 4 + 20
        (60.0, 10.0, 60.0, 4),  # faster than by four, as caches have it
        (30.0, 31.0, 0.0, 1),  # more threads are no help
    ],
)
def test_two_points_give_what_cores_share(one_ms: float, four_ms: float, work_ms: float, threads: int) -> None:
    steps = ReadyBatches([], lambda batch: batch, None, replace(SETTING, torch_threads=4))
    steps._steps_ms, steps._converts_ms = {1: [one_ms], 4: [four_ms]}, [0.0]
    assert steps.shared_by_cores() == (pytest.approx(work_ms), threads)


class VirtualTime:
    """Stands for ``time``: a clock that goes on by what a test says, and all of it on a core."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    thread_time = perf_counter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    clock = VirtualTime()
    monkeypatch.setattr(rehearsal, "time", clock)
    monkeypatch.setattr(rehearsal, "_displaced_less_slept", iter(range(10**6)).__next__)  # displaced in each step
    return clock


def steps_of(clock: VirtualTime, *took_s: float) -> ReadyBatches:
    """Steps that take so long, the last of these times for all others."""
    steps = ReadyBatches([({}, {})], lambda batch: batch, None, replace(SETTING, limit_s=0.3))  # type: ignore[arg-type,list-item]
    for number, _ in enumerate(steps):
        clock.now_s += took_s[min(number, len(took_s) - 1)]
    return steps


def test_a_first_step_that_imports_for_long_leaves_time_for_the_others(clock: VirtualTime) -> None:
    assert len(steps_of(clock, 0.4, 0.01)._steps_ms[1]) >= 30


def test_what_reading_the_waits_takes_is_no_part_of_a_step(clock: VirtualTime, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(thread: int) -> float:
        clock.now_s += 0.005
        return 0.0

    monkeypatch.setattr(rehearsal, "queued_s", slow)
    steps_ms = steps_of(clock, 0.02)._steps_ms[1]  # as many as there is time for: a read takes 5 ms a thread
    assert steps_ms == pytest.approx([20.0] * max(len(steps_ms), 1))


def test_samplers_are_measured_as_they_are() -> None:
    """On devices, say: what a source becomes there is asked for with its data module."""
    seen: list[Any] = []

    class Elsewhere(BatchSource):
        def make(self, *arguments: Any) -> Any:
            seen.append("made")
            return super().make(*arguments)

    def on_sampler(module: Any, source: BatchSource) -> BatchSource:
        seen.append(type(module))
        return Elsewhere(source.data, source.workload)

    arguments = {"model": Model(), "datamodule": data_module()}
    measure(trainer(), arguments, replace(SETTING, on_sampler=on_sampler), lambda facts: False)
    assert seen[:2] == [GraphDataModule, "made"]


def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    class Leaving(Model):
        def configure_callbacks(self) -> Any:
            return ModelCheckpoint(dirpath=tmp_path / "checkpoints")

    model, data = Leaving(), data_module()
    user = trainer(default_root_dir=tmp_path)
    rank_zero_only.rank = 0

    def state() -> list[Any]:
        return [
            {name: value.clone() for name, value in model.state_dict().items()},
            torch.get_rng_state(),
            np.random.get_state()[1].tolist(),  # type: ignore[call-overload,index]
            random.getstate(),
            [model.num_steps, model._trainer, data.trainer, set(data.__dict__), set(model.__dict__)],
            [user.state.fn, user.state.status, user.current_epoch, user.global_step, dict(user.callback_metrics)],
            [logging.root.manager.disable, warnings.filters[:], torch.get_num_threads(), torch.is_grad_enabled()],
            [rank_zero_only.rank, sorted(path.name for path in tmp_path.rglob("*"))],
        ]

    before = copy.deepcopy(state())
    measure(user, {"model": model, "datamodule": data}, SETTING, lambda facts: False)
    torch.testing.assert_close(state()[:2], before[:2], rtol=0, atol=0)
    assert state()[2:] == before[2:]


def test_a_data_set_is_not_loaded_into_the_users_data_module(tmp_path: Path) -> None:
    dataset = Synthetic("chung-lu", num_nodes=300, num_edges=2000, num_features=5, num_classes=7, root=str(tmp_path))
    data = GraphDataModule(dataset, NeighborSampler([3, 2]), batch_size=16)
    measured(Model(), data)
    assert data._data is None


def test_what_makes_steps_faster_is_measured_with_them() -> None:
    class Dropping(Model):
        dropouts: ClassVar[list[torch.nn.Module]] = []

        def __init__(self) -> None:
            super().__init__()
            self.dropout = torch.nn.Dropout()

        def on_train_start(self) -> None:
            self.dropouts.append(self.dropout)

    facts = []
    for callbacks in ([], [Accelerate()]):
        arguments = {"model": Dropping(), "datamodule": data_module()}
        facts.append(measure(trainer(callbacks=callbacks), arguments, SETTING, lambda facts: False)[0])
    assert [type(dropout) for dropout in Dropping.dropouts] == [torch.nn.Dropout, Dropout]
    assert facts[1] == facts[0] | {"accelerate": [False]}  # a file of times of the one is not for the other


def test_what_is_known_is_not_measured() -> None:
    model = Model()
    told: list[dict[str, Any]] = []
    arguments = {"model": model, "datamodule": data_module()}

    def is_known(facts: dict[str, Any]) -> bool:
        told.append(facts)
        return True

    class Failing(Model):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            raise AssertionError("trained")

    assert measure(trainer(), arguments | {"model": Failing()}, SETTING, is_known)[1] is None
    assert told[0]["model"].endswith("Failing")
    assert told[0]["parameters"] == [f"{name} {list(parameter.shape)}" for name, parameter in model.named_parameters()]
    assert (told[0]["batch_size"], told[0]["num_seeds"], told[0]["graph"][0]) == (16, 100, 300)
    assert told[0]["sampler"] == repr(NeighborSampler([3, 2]))


@pytest.mark.parametrize(
    "settings",
    [{"precision": "bf16-mixed"}, {"gradient_clip_val": 0.1}, {"accumulate_grad_batches": 3}, {"max_epochs": 0}],
)
def test_the_users_options_are_met(settings: dict[str, Any]) -> None:
    assert measured(Model(), **settings).train_fixed_ms > 0


class Manual(Model):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        optimizer = self.optimizers()
        optimizer.zero_grad()  # type: ignore[union-attr]
        self.manual_backward(self.loss(batch))
        optimizer.step()  # type: ignore[union-attr]


class Late(Model):
    """Built by Lightning's hook; writes to its logger itself."""

    def __init__(self) -> None:
        super().__init__()
        del self.layer

    def configure_model(self) -> None:
        self.layer = torch.nn.Linear(5, 7)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        assert self.logger is not None
        self.logger.log_metrics({"a": 1.0})
        return self.loss(batch)


def test_models_that_do_things_themselves(tmp_path: Path) -> None:
    assert measured(Manual()).train_fixed_ms > 0
    late = Late()
    assert measured(late, logger=CSVLogger(tmp_path)).train_fixed_ms > 0
    assert not hasattr(late, "layer")
    assert not list(tmp_path.rglob("*.csv"))


def test_a_model_that_was_fitted_before_is_copied_without_its_trainer() -> None:
    model = Model()
    first = trainer(max_steps=1)
    first.fit(model, data_module())
    assert measured(model).train_fixed_ms > 0
    assert model.trainer is first


def test_loaders_may_be_given_in_place_of_a_data_module() -> None:
    data = data_module()
    for loaders in (data, data.train_dataloader()):
        arguments = {"model": Model(), "train_dataloaders": loaders}
        assert measure(trainer(), arguments, SETTING, lambda facts: False)[1] is not None


class Locked(Model):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot copy a lock")


class Broken(Model):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        raise ZeroDivisionError("by zero")


class Stops(Model):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.trainer.should_stop = True
        return super().training_step(batch, batch_idx)


class Skips(Model):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int:
        return -1


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Locked, r"Locked cannot be copied with TypeError: cannot copy a lock.*samplers=1"),
        (Broken, r"copy of Broken failed with ZeroDivisionError: by zero.*samplers=1"),
        (Stops, r"training ended by itself on a copy of Stops, before steps were timed\. .*samplers=1"),
        (Skips, r"training ended by itself on a copy of Skips, before steps were timed\. .*samplers=1"),
    ],
)
def test_what_cannot_be_measured_says_so(model: type[Model], says: str) -> None:
    with pytest.raises(RoleConfigError, match=says):
        measured(model())


def test_data_that_are_not_ours_or_not_there() -> None:
    foreign = {"model": Model(), "train_dataloaders": DataLoader([1, 2])}  # type: ignore[arg-type]
    with pytest.raises(LoaderConfigError, match=r"there is a DataLoader.*samplers=1"):
        measure(trainer(), foreign, SETTING, lambda facts: False)
    empty = GraphDataModule(toy_data(num_train=0), NeighborSampler([3]), batch_size=16)
    with pytest.raises(SeedError, match="no seeds to train on"):
        measured(Model(), empty)
