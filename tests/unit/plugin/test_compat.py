"""What the strategy relies on in Lightning. A release that renames one of these fails here, by name."""

import inspect
import re
import signal
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from lightning_fabric.utilities import rank_zero as fabric_rank_zero
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import LearningRateFinder, ModelCheckpoint
from pytorch_lightning.demos.boring_classes import BoringModel
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loops import evaluation_loop, fit_loop, prediction_loop
from pytorch_lightning.plugins.environments import LightningEnvironment, SLURMEnvironment
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.trainer.connectors import data_connector
from pytorch_lightning.trainer.states import RunningStage
from pytorch_lightning.utilities import rank_zero
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch import tensor

from lightning_gnnload.errors import LightningCompatibilityError
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.strategy.factored import FactoredStrategy
from lightning_gnnload.plugin.strategy.ranked import RankedStrategy
from tests.runif import RunIf


@pytest.mark.parametrize(("version", "works"), [("2.4.0", False), ("2.5.0.post0", True), ("2.10.0", True)])
def test_a_release_that_resumes_wrongly_is_refused(version: str, works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat.pl, "__version__", version)
    refused = pytest.raises(LightningCompatibilityError, match=r"2\.4\.0 resumes wrongly.*pip install '.*>=2\.5,<2\.7'")
    with nullcontext() if works else refused:
        run_path(str(compat.__file__))


@pytest.mark.parametrize("name", compat.STRATEGY_OVERRIDES)
def test_an_overridden_method_is_still_there(name: str) -> None:
    assert callable(getattr(DDPStrategy, name, None)), f"DDPStrategy has no {name}: an override of it is never called"


def test_every_override_of_a_private_method_is_listed() -> None:
    overridden = {
        name
        for name, value in (vars(RankedStrategy) | vars(FactoredStrategy)).items()
        if name.startswith("_")
        and not name.startswith("__")
        and inspect.isfunction(value)
        and hasattr(DDPStrategy, name)
    }
    assert overridden <= set(compat.STRATEGY_OVERRIDES)


@pytest.mark.parametrize(
    "name",
    ["parallel_devices", "root_device", "world_size", "global_rank", "is_global_zero", "num_nodes", "local_rank"],
)
def test_an_overridden_property_is_still_one(name: str) -> None:
    assert isinstance(inspect.getattr_static(DDPStrategy, name), property)


@pytest.mark.parametrize("loop", [fit_loop, evaluation_loop, prediction_loop])
def test_loops_announce_their_loaders_at_a_barrier(loop) -> None:
    """The strategy counts these barriers to know which loader of which phase it is given."""
    source = inspect.getsource(loop)
    names = re.findall(r'strategy\.barrier\(f?"([^"]*dataloader\(\))"\)', source)
    assert len(names) == 1, f"{loop.__name__} announces its loaders otherwise: {names}"
    prefixes = ("val", "test") if names[0].startswith("{stage.dataloader_prefix}") else (None,)
    announced = {names[0].replace("{stage.dataloader_prefix}", str(prefix)) for prefix in prefixes}
    assert announced <= set(compat.LOADER_BARRIERS)
    # It comes before the loaders are processed.
    assert source.index("strategy.barrier(") < source.index("_process_dataloader(")


def test_stages_go_by_the_names_of_the_phases() -> None:
    named = {stage.dataloader_prefix for stage in RunningStage if stage.dataloader_prefix is not None}
    assert named == set(compat.LOADER_BARRIERS.values())


def test_every_loader_is_given_to_the_strategy() -> None:
    assert "strategy.process_dataloader(" in inspect.getsource(data_connector._process_dataloader)


def test_the_processs_rank_reaches_every_rank_zero_function(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = (fabric_rank_zero.rank_zero_only, rank_zero.rank_zero_only)
    for function in functions:
        monkeypatch.setattr(function, "rank", getattr(function, "rank", 0))
    compat.set_process_rank(5)
    assert [function.rank for function in functions] == [5, 5]


def test_the_training_loop_counts_the_batches_it_has_processed() -> None:
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    assert compat.training_progress(trainer) == (0, 0)
    trainer.fit_loop.epoch_loop.batch_progress.increment_processed()
    trainer.fit_loop.epoch_progress.increment_completed()
    assert compat.training_progress(trainer) == (1, 1)
    # Loaders say in a checkpoint where they are; the loop saves that, and on a restart loads it.
    source = inspect.getsource(fit_loop)
    assert "_combined_loader._state_dicts()" in source
    assert "_combined_loader._load_state_dicts(" in source


def test_an_exit_by_sigterm_has_the_signals_status() -> None:
    """Lightning's has none, and a script that trained a quarter would end with 0."""
    with pytest.raises(SystemExit) as ended, compat.status_by_sigterm():
        raise SIGTERMException
    assert ended.value.code == 143
    with pytest.raises(SystemExit) as ended, compat.status_by_sigterm():
        sys.exit(3)
    assert ended.value.code == 3
    trainer = Trainer(barebones=True)
    compat.end_on_sigterm(trainer)
    trainer._signal_connector.received_sigterm = True
    with pytest.raises(SIGTERMException) as told:
        compat.end_on_sigterm(trainer)
    assert told.value.code == 143


def test_sigterm_is_noted_without_a_collective() -> None:
    """Lightning's own handler is replaced by name: under another name, its broadcast would hang ranks again."""
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    connector = trainer._signal_connector
    assert not connector.received_sigterm
    assert "self._sigterm_notifier_fn" in inspect.getsource(type(connector).register_signal_handlers)
    deferred = [True, False]
    compat.keep_collectives_out_of_sigterm(trainer, lambda: deferred.pop(0))
    connector._sigterm_notifier_fn(15, None)
    assert not trainer.received_sigterm
    connector._sigterm_notifier_fn(15, None)
    assert trainer.received_sigterm


@RunIf(min_lightning=(2, 5, 2))
def test_a_training_step_begins_with_a_broadcast_that_can_be_left_out() -> None:
    """Under another name, the broadcast would come back, and late trainers would delay all others again."""
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    loop = trainer.fit_loop.epoch_loop
    own = type(loop)._broadcast_sigterm_tensor
    assert "self._broadcast_sigterm_tensor()" in inspect.getsource(type(loop).advance)
    # No other collective comes before the forward pass.
    assert inspect.getsource(type(loop).advance).count("torch.distributed.") == 2
    with compat.no_sigterm_broadcast(trainer):
        loop._broadcast_sigterm_tensor()  # would ask for the strategy's device
        assert loop._broadcast_sigterm_tensor.__name__ != own.__name__
    assert loop._broadcast_sigterm_tensor.__func__ is own


def test_slurms_notice_leads_to_a_question() -> None:
    """Under another name, the checkpoint would be saved from the signal's handler again, in mid-step."""
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    connector, asked = trainer._signal_connector, []
    source = inspect.getsource(type(connector).register_signal_handlers)
    assert "sigusr_handlers.append(self._slurm_sigusr_handler_fn)" in source
    assert "self.trainer.save_checkpoint(" in inspect.getsource(type(connector)._slurm_sigusr_handler_fn)
    with compat.requeue_deferred(trainer, lambda: asked.append(1)):
        connector._slurm_sigusr_handler_fn(10, None)
    assert asked == [1]
    assert "_slurm_sigusr_handler_fn" not in vars(connector)
    # What is asked for can be done once setup is over: handlers are set after it.
    run = inspect.getsource(Trainer._run)
    assert run.index("self.strategy.setup(self)") < run.index("register_signal_handlers()")


def test_training_ends_where_a_sigterm_was_noted() -> None:
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    compat.end_by_sigterm(trainer)
    assert trainer.received_sigterm
    for loop in (trainer.fit_loop, trainer.fit_loop.epoch_loop):
        assert "trainer.received_sigterm" in inspect.getsource(type(loop).on_advance_end)


def test_the_last_step_is_known_within_it() -> None:
    seen = []

    class Asks(BoringModel):
        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            seen.append(compat.is_last_step(self.trainer))
            super().optimizer_step(*args, **kwargs)

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False) | {
        "accelerator": "cpu",
        "limit_val_batches": 0,
    }
    Trainer(**quiet, max_epochs=2, limit_train_batches=3).fit(Asks())
    assert seen == [False, False, True] * 2
    seen.clear()
    Trainer(**quiet, max_steps=2, limit_train_batches=3).fit(Asks())
    assert seen == [False, True]


def test_collectives_in_each_step_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    class Logs(BoringModel):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("reduced", 1.0, sync_dist=True)
            self.log("at_the_end", 1.0, sync_dist=True, on_step=False, on_epoch=True)
            self.log("alone", 1.0)
            return super().training_step(batch, batch_idx)

        def on_train_batch_end(self, *args: Any) -> None:
            found.append(compat.collectives_each_step(self.trainer))

    options = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "use_distributed_sampler"), False)
    checkpoints = ModelCheckpoint(train_time_interval=timedelta(hours=1))
    trainer = Trainer(**options, accelerator="cpu", max_time="01:00:00:00", fast_dev_run=1, callbacks=[checkpoints])
    monkeypatch.setattr(type(trainer._accelerator_connector), "is_distributed", True)
    trainer.fit(Logs())
    (words,) = found
    assert [word.split(" ")[0] for word in words] == [
        "self.log('reduced',",
        "Trainer(max_time=...)",
        "ModelCheckpoint(train_time_interval=...)",
    ]


def test_slurms_signal_is_the_one_that_lightning_listens_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NTASKS": "1", "NTASKS_PER_NODE": "1", "PROCID": "0", "LOCALID": "0", "NODEID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.delenv("SLURM_JOB_NAME", raising=False)
    for environment, signals in (
        (SLURMEnvironment(), [signal.SIGUSR1]),
        (SLURMEnvironment(requeue_signal=signal.SIGHUP), [signal.SIGHUP]),
        (SLURMEnvironment(auto_requeue=False), []),
        (LightningEnvironment(), []),
    ):
        trainer = Trainer(accelerator="cpu", plugins=[environment], logger=False, enable_checkpointing=False)
        assert compat.requeue_signals(trainer) == signals
    assert "environment.requeue_signal" in inspect.getsource(type(trainer._signal_connector).register_signal_handlers)


class _Built(BoringModel):
    """Notes in which order it is built, and how its batches are moved."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def setup(self, stage: str) -> None:
        self.called.append(f"setup {stage}")

    def configure_model(self) -> None:
        self.called.append("configure_model")

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch + 1


def test_a_model_can_be_built_and_given_batches_where_no_loop_runs() -> None:
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    module = _Built()
    trainer.strategy.connect(module)
    module.trainer = trainer
    compat.attach_data_hooks(trainer, module, None)
    compat.build_model(trainer)
    assert module.called == ["setup fit", "configure_model"]
    assert compat.before_transfer(module, 1) == 2
    compat.set_global_step(trainer, 17)
    assert trainer.global_step == 17


def test_what_a_training_step_takes_is_known() -> None:
    class TakesIterator(BoringModel):
        def training_step(self, dataloader_iter: Any) -> Any: ...

    class TakesBatch(BoringModel):
        def training_step(self, batch: Any) -> Any: ...

    assert [compat.reads_loader_itself(module) for module in (BoringModel(), TakesIterator())] == [False, True]
    assert [compat.takes_batch_idx(module) for module in (BoringModel(), TakesBatch())] == [True, False]


def test_a_sized_loader_is_asked_for_a_batch_when_the_last_one_is_trained() -> None:
    """Else all trainers might pass over other steps: what is known of a step grows until it comes."""
    trained = []

    class Steps:
        def __len__(self) -> int:
            return 4

        def __iter__(self) -> Any:
            for step in range(4):
                assert len(trained) == step, "batches are fetched ahead"
                yield tensor([[0.0] * 32])

    class Notes(BoringModel):
        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            super().optimizer_step(*args, **kwargs)
            trained.append(None)

    options = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    Trainer(**options, accelerator="cpu", max_epochs=1, limit_val_batches=0).fit(Notes(), Steps())
    assert len(trained) == 4


def test_the_step_of_a_log_is_lightnings_own(tmp_path: Path) -> None:
    told, logged = [], []

    class Logs(BoringModel):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("loss", 1.0)
            return super().training_step(batch, batch_idx)

        def on_train_batch_end(self, *args: Any) -> None:
            told.append(compat.logging_step(self.trainer))

    class Listener(CSVLogger):
        def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
            logged.append(step)

    Trainer(
        accelerator="cpu",
        max_steps=3,
        accumulate_grad_batches=2,
        log_every_n_steps=2,
        logger=Listener(tmp_path),
        callbacks=[],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    ).fit(Logs())
    assert {step for step in told if step is not None} == set(logged) == {1}


def test_a_search_for_a_learning_rate_holds_what_samplers_must_be_told() -> None:
    callback = LearningRateFinder()
    wanted = {"optimal_lr", "_mode", "_min_lr", "_max_lr", "_num_training_steps", "_update_attr", "_attr_name"}
    assert wanted <= set(vars(callback)) | {"optimal_lr"}  # 2.5 has no optimal_lr until it has searched
    rates = compat.LearningRates("linear", 0.1, 1.0, 2)
    assert rates.results == {}
    assert callable(rates.suggestion)
