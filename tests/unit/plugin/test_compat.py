"""What the strategy relies on in Lightning. A release that renames one of these fails here, by name."""

import inspect
import re
import signal

import pytest
from lightning_fabric.utilities import rank_zero as fabric_rank_zero
from pytorch_lightning import Trainer
from pytorch_lightning.loops import evaluation_loop, fit_loop, prediction_loop
from pytorch_lightning.plugins.environments import LightningEnvironment, SLURMEnvironment
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.trainer.connectors import data_connector
from pytorch_lightning.trainer.states import RunningStage
from pytorch_lightning.utilities import rank_zero

from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.strategy import FactoredStrategy


@pytest.mark.parametrize("name", compat.STRATEGY_OVERRIDES)
def test_an_overridden_method_is_still_there(name: str) -> None:
    assert callable(getattr(DDPStrategy, name, None)), f"DDPStrategy has no {name}: an override of it is never called"


def test_every_override_of_a_private_method_is_listed() -> None:
    overridden = {
        name
        for name, value in vars(FactoredStrategy).items()
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


def test_sigterm_is_noted_without_a_collective() -> None:
    """Lightning's own handler is replaced by name: under another name, its broadcast would hang ranks again."""
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    connector = trainer._signal_connector
    assert not connector.received_sigterm
    assert "self._sigterm_notifier_fn" in inspect.getsource(type(connector).register_signal_handlers)
    compat.keep_collectives_out_of_sigterm(trainer)
    connector._sigterm_notifier_fn(15, None)
    assert trainer.received_sigterm


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
