"""Which Lightning is in use, and every private name of it that this package relies on, in one place.

Lightning comes under two names, ``pytorch_lightning`` and ``lightning.pytorch``, whose classes are not each other's:
a Trainer of the one refuses a strategy of the other. The rest of the package says ``pl``, and gets the user's.

Releases 2.5 and 2.6 differ little in the private names. Should one go, importing this module says which.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

from torch.nn import SyncBatchNorm
from torch.utils.data import BatchSampler, DataLoader

from lightning_gnnload.errors import LightningCompatibilityError

PACKAGE_VARIABLE = "GNNLOAD_LIGHTNING"
"""The environment variable that chooses between ``pytorch_lightning`` and ``lightning``."""
PACKAGES = {"pytorch_lightning": "pytorch_lightning", "lightning": "lightning.pytorch"}


def _package() -> str:
    """The Lightning that the environment chooses; else the one that the user has imported; else ``pytorch_lightning``,
    where it is installed."""
    chosen = os.environ.get(PACKAGE_VARIABLE)
    if chosen is None:
        only_unified = "lightning.pytorch" in sys.modules and "pytorch_lightning" not in sys.modules
        is_missing = "pytorch_lightning" not in sys.modules and find_spec("pytorch_lightning") is None
        chosen = "lightning" if only_unified or is_missing else "pytorch_lightning"
    if chosen not in PACKAGES:
        raise LightningCompatibilityError(
            f"{PACKAGE_VARIABLE}={chosen!r} names no Lightning: set it to one of {', '.join(PACKAGES)}, or unset it."
        )
    return PACKAGES[chosen]


if TYPE_CHECKING:
    import pytorch_lightning as pl
    from pytorch_lightning import cli as lightning_cli
    from pytorch_lightning.plugins import environments
else:
    pl = import_module(_package())
    lightning_cli = import_module(f"{pl.__name__}.cli")
    environments = import_module(f"{pl.__name__}.plugins.environments")

_RELEASES = f"Releases 2.5 and 2.6 work: pip install '{pl.__name__.split('.')[0].replace('_', '-')}>=2.5,<2.7'"
if [int(number) for number in pl.__version__.split(".")[:2]] < [2, 5]:
    raise LightningCompatibilityError(
        f"{pl.__name__} {pl.__version__} resumes wrongly, whatever the loader. From a checkpoint made after a training "
        f"step it counts that step's mini-batch once more, and leaves out the epoch's validation; from one made after "
        f"a validation, it repeats that on a single mini-batch. {_RELEASES}"
    )

try:
    MultiProcessingLauncher = pl.strategies.launchers._MultiProcessingLauncher
    SubprocessScriptLauncher = pl.strategies.launchers._SubprocessScriptLauncher
    DummyLogger = pl.loggers.logger.DummyLogger
    TunerExit = pl.utilities.exceptions._TunerExitException
    LearningRates = pl.tuner.lr_finder._LRFinder  # type: ignore[attr-defined]
    Loop = pl.loops.loop._Loop
    IS_INTERACTIVE: bool = pl.trainer.connectors.accelerator_connector._IS_INTERACTIVE  # type: ignore[attr-defined]
    """A notebook or a prompt, where Lightning takes strategies that fork, and no others."""
except AttributeError as error:
    raise LightningCompatibilityError(
        f"{pl.__name__} {pl.__version__} lacks a name that FactoredStrategy relies on: {error}. {_RELEASES}"
    ) from error

RunningStage = pl.trainer.states.RunningStage
TrainerFn = pl.trainer.states.TrainerFn
TrainerStatus = pl.trainer.states.TrainerStatus

_log = logging.getLogger(pl.__name__)  # whose words these are

LOADER_BARRIERS = {f"{phase}_dataloader()": phase for phase in ("train", "val", "test", "predict")}
"""Before Lightning processes the loaders of a phase, one by one, it calls the strategy's barrier by these names."""

LOOPS = ("fit_loop", "validate_loop", "test_loop", "predict_loop")
CONNECTORS = ("_logger_connector", "_checkpoint_connector", "_signal_connector")
"""The Trainer's attributes that keep its metrics, the checkpoint that it started from, and the signals it heard."""

STRATEGY_OVERRIDES = (
    "_configure_launcher",
    "_get_process_group_backend",
    "_register_ddp_hooks",
    "barrier",
    "process_dataloader",
    "set_world_ranks",
    "setup_distributed",
)
"""Methods of DDPStrategy that FactoredStrategy overrides or calls; a test checks that they are still there."""


SIGTERM_STATUS = 128 + signal.SIGTERM
_SIGTERM_GRACE_S = 5.0  # for the step under way, after which Lightning handles the signal by itself


def keep_collectives_out_of_sigterm(trainer: pl.Trainer, defer: Callable[[], bool]) -> Callable[[], None]:
    """Has the SIGTERM handler start no collective. Lightning's broadcasts from it, amid whatever collective is under
    way, and ranks may wait for each other for good. Every rank gets the signal, and every training step begins with a
    broadcast that says so: the handler need only note it, unless ``defer()`` says that the caller takes care of it.

    Returns a function for long waits, where no step begins: some seconds after the signal, it raises SIGTERMException.
    """
    connector = trainer._signal_connector
    heard_at: float | None = None

    def note(number: int, frame: Any) -> None:
        nonlocal heard_at
        _log.info(f"[rank: {trainer.local_rank}] Received SIGTERM: {number}")
        # Not Lightning's ``received_sigterm``, which stays unset where the signal is deferred.
        if heard_at is None and trainer.strategy.launcher is not None:
            trainer.strategy.launcher.kill(number)
        heard_at = time.monotonic() if heard_at is None else heard_at
        if not defer():
            connector.received_sigterm = True

    # On the instance: other Trainers of this process, without this strategy, keep Lightning's own.
    connector._sigterm_notifier_fn = note  # type: ignore[assignment,method-assign]

    def end_on_sigterm() -> None:
        if heard_at is not None and time.monotonic() > heard_at + _SIGTERM_GRACE_S:
            raise pl.utilities.exceptions.SIGTERMException

    return end_on_sigterm


@contextmanager
def status_by_sigterm() -> Iterator[None]:
    """Gives Lightning's exit by SIGTERM the signal's status, as shells do; its own is 0, as of a job that is done."""
    try:
        yield
    except pl.utilities.exceptions.SIGTERMException as error:
        error.code = SIGTERM_STATUS
        raise


def end_on_sigterm(trainer: pl.Trainer) -> None:
    """Ends a loop in which Lightning does not check for SIGTERM, as it ends the others."""
    if trainer.received_sigterm:
        end_by(signal.SIGTERM)


def end_by(number: int) -> NoReturn:
    """Ends what runs as Lightning does on SIGTERM, with the status of a signal."""
    error = pl.utilities.exceptions.SIGTERMException()
    error.code = 128 + number
    raise error


def logging_step(trainer: pl.Trainer) -> int | None:
    """The step under which Lightning logs the training step that ends; None where it does not log it."""
    if not trainer._logger_connector.should_update_logs:
        return None
    return trainer.fit_loop.epoch_loop._batches_that_stepped


@contextmanager
def own_hyperparameters(module: pl.LightningModule) -> Iterator[None]:
    """Lets a module save its own arguments, where a command line makes it as a setting of another module, whose
    settings it has at hand for all."""
    mixin = import_module(f"{pl.__name__}.core.mixins.hparams_mixin")
    at_hand = mixin._given_hyperparameters.get() or {}
    is_other = at_hand.get("_class_path", "").rpartition(".")[2] not in ("", type(module).__name__)
    token = mixin._given_hyperparameters.set(None if is_other else mixin._given_hyperparameters.get())
    try:
        yield
    finally:
        mixin._given_hyperparameters.reset(token)


def dump_config_again(cli: lightning_cli.LightningCLI) -> None:
    """Makes the model's hyperparameters those of the command line's present configuration. Before release 2.5.2,
    Lightning keeps those from before ``before_instantiate_classes``; since then, it looks later."""
    if hasattr(cli, "config_dump"):
        cli._add_instantiators()


def end_by_sigterm(trainer: pl.Trainer) -> None:
    """Has Lightning end the training after this step, as it does on SIGTERM; called in all ranks alike."""
    trainer._signal_connector.received_sigterm = True


@contextmanager
def requeue_deferred(trainer: pl.Trainer, ask: Callable[[], None]) -> Iterator[None]:
    """Has SLURM's warning call ``ask``: Lightning's handler would save a checkpoint at once, wherever each rank is.
    Entered before a fit sets its handlers; :func:`requeue` saves."""
    connector = trainer._signal_connector
    connector._slurm_sigusr_handler_fn = lambda number, frame: ask()  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        del connector._slurm_sigusr_handler_fn


def requeue(trainer: pl.Trainer) -> None:
    """Saves a checkpoint and has SLURM start the job again; called in all ranks at the same step."""
    connector = trainer._signal_connector
    # The class's own: the instance's is :func:`requeue_deferred`'s, which would only ask again.
    type(connector)._slurm_sigusr_handler_fn(connector, signal.SIGUSR1, None)  # type: ignore[arg-type]


@contextmanager
def no_sigterm_broadcast(trainer: pl.Trainer) -> Iterator[None]:
    """Turns off rank 0's broadcast by which Lightning 2.5.2 and later begin each step, as it binds all ranks."""
    loop = trainer.fit_loop.epoch_loop
    loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        del loop._broadcast_sigterm_tensor


def is_last_step(trainer: pl.Trainer) -> bool:
    """Whether the optimizer step under way is the last one of this epoch, as far as can be known."""
    loop = trainer.fit_loop.epoch_loop
    # Lightning counts the step under way only once it is over.
    return loop._num_ready_batches_reached() or 0 <= loop.max_steps <= loop.global_step + 1


def collectives_each_step(trainer: pl.Trainer) -> list[str]:
    """What makes all ranks wait for each other in every training step, in a user's words. Called after a step's
    logging."""
    results = trainer.fit_loop.epoch_loop._results.values()
    reduced = {result.meta.name for result in results if result.meta.on_step and result.meta.sync.should}
    causes = [f"self.log({name!r}, sync_dist=True) with on_step=True" for name in sorted(reduced)]
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, pl.callbacks.Timer) and callback._interval == "step" and callback._duration is not None:
            causes.append("Trainer(max_time=...) or a Timer that looks at the clock in every step")
        if isinstance(callback, pl.callbacks.ModelCheckpoint) and callback._train_time_interval is not None:
            causes.append("ModelCheckpoint(train_time_interval=...)")
    if any(isinstance(module, SyncBatchNorm) for module in trainer.strategy.lightning_module.modules()):  # type: ignore[union-attr]
        causes.append("Trainer(sync_batchnorm=True)")
    return causes


def training_progress(trainer: pl.Trainer) -> tuple[int, int]:
    """The training epoch, and how many of its batches are processed: above 0 on a restart in mid-epoch.

    The epoch is not always the one that Lightning announces to loaders: a restart from an epoch's end counts that epoch
    as processed twice where ``max_steps`` is set.
    """
    batches: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    return trainer.current_epoch, batches.processed


def batch_limits(trainer: pl.Trainer) -> tuple[int | None, int | None]:
    """How many batches of an epoch, and how many at all, training takes at most, by ``limit_train_batches`` and
    ``max_steps``; None: all."""
    limit: Any = trainer.limit_train_batches
    num_batches = trainer.num_training_batches  # infinite before Lightning has counted them
    if isinstance(limit, float):
        limit = None if limit == 1.0 or num_batches == float("inf") else int(num_batches)
    # A step has one optimizer's batches; where a loop makes several of a batch, they are fewer.
    steps = trainer.max_steps
    return limit, None if steps < 0 else steps * trainer.accumulate_grad_batches


@contextmanager
def no_advice_to_sync(num_trainers: int) -> Iterator[None]:
    """Leaves out Lightning's advice to log with ``sync_dist=True`` where a single trainer has nobody to sync with."""
    with warnings.catch_warnings():
        if num_trainers == 1:
            warnings.filterwarnings("ignore", r"It is recommended to use `self\.log\(.*sync_dist=True\)`")
        yield


def requeue_signals(trainer: pl.Trainer) -> list[signal.Signals]:
    """The signals by which SLURM warns its tasks of their end, if Lightning then requeues the job."""
    environment = trainer._accelerator_connector.cluster_environment
    if not isinstance(environment, environments.SLURMEnvironment) or not environment.auto_requeue:
        return []
    return [environment.requeue_signal or signal.SIGUSR1]


def set_process_rank(rank: int) -> None:
    """Sets the rank of this process in all of Lightning's ``rank_zero_only`` functions."""
    pl.utilities.rank_zero.rank_zero_only.rank = rank  # type: ignore[attr-defined]


def attach_data_hooks(trainer: pl.Trainer, module: pl.LightningModule, datamodule: Any) -> None:
    """Connects the transfer hooks of ``module`` or ``datamodule`` where no fit loop does."""
    trainer._data_connector.attach_datamodule(module, datamodule)


def build_model(trainer: pl.Trainer, stage: str = "fit") -> None:
    """Calls the module's own ``setup`` and ``configure_model`` where no loop does."""
    pl.trainer.call._call_lightning_module_hook(trainer, "setup", stage=stage)
    pl.trainer.call._call_configure_model(trainer)


def attach_model_callbacks(trainer: pl.Trainer) -> None:
    """Adds the callbacks that the model configures, as Lightning does before a call."""
    trainer._callback_connector._attach_model_callbacks()


def make_optimizers(trainer: pl.Trainer) -> None:
    """Calls ``configure_optimizers`` where no fit loop does; it may read how long training was planned to be."""
    # The loop knows the number of batches from its state, but would make a loader to count them if it had none.
    trainer.fit_loop._combined_loader = pl.utilities.combined_loader.CombinedLoader([])
    trainer.strategy.setup_optimizers(trainer)


def before_transfer(module: pl.LightningModule, batch: Any) -> Any:
    """Prepares a batch as Lightning does before it calls the strategy's ``batch_to_device``."""
    batch = module.trainer.precision_plugin.convert_input(batch)
    return module._on_before_batch_transfer(batch, dataloader_idx=0)


def set_global_step(trainer: pl.Trainer, step: int) -> None:
    """Has ``trainer.global_step`` say ``step``."""
    progress = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total
    progress.ready = progress.completed = step


@contextmanager
def at_global_step(trainer: pl.Trainer, step: int) -> Iterator[None]:
    """Makes ``trainer.global_step`` ``step`` meanwhile."""
    progress = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total
    ready, completed = progress.ready, progress.completed
    set_global_step(trainer, step)
    try:
        yield
    finally:
        progress.ready, progress.completed = ready, completed


def reads_loader_itself(module: pl.LightningModule) -> bool:
    """Whether ``training_step`` takes an iterator over the loader instead of a mini-batch."""
    takes = pl.utilities.signature_utils.is_param_in_hook_signature
    return takes(module.training_step, "dataloader_iter", explicit=True)


def takes_batch_idx(module: pl.LightningModule) -> bool:
    """Whether ``training_step`` takes the number of the mini-batch beside it."""
    return pl.utilities.signature_utils.is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)


def converts_input(precision: Any) -> bool:
    """Whether a Trainer's precision plugin changes the dtype of a batch's floats."""
    return type(precision).convert_input is not pl.plugins.Precision.convert_input


_OTHER, _OTHER_NAME = next((module, name) for name, module in PACKAGES.items() if module != pl.__name__)
REMEDY = (
    f"lightning_gnnload follows {pl.__name__} here. For {_OTHER}, set the environment variable "
    f"{PACKAGE_VARIABLE}={_OTHER_NAME}, or import nothing of {pl.__name__}"
)


@contextmanager
def restoring_loaders() -> Iterator[None]:
    """Gives torch's classes of loaders their own methods back, where a data module's hook raises.

    Lightning replaces these while it asks for a loader, and would leave them so: each loader that the process makes
    from then on keeps a record of its arguments.
    """
    try:
        yield
    except BaseException:
        classes: list[Any] = [DataLoader, BatchSampler]
        for cls in classes:  # which grows by subclasses of subclasses
            classes += cls.__subclasses__()
            for name in ("__init__", "__setattr__", "__delattr__"):
                if (original := vars(cls).get(f"__old{name}")) is not None:
                    setattr(cls, name, original)
                    delattr(cls, f"__old{name}")
        raise


def refuse(subject: str) -> NoReturn:
    """Raises LightningCompatibilityError: ``subject`` came to a Trainer of the other package."""
    raise LightningCompatibilityError(f"{subject} cannot work with a Trainer of {_OTHER}: {REMEDY}.")


def refuse_by_name(names: Iterable[str]) -> None:
    """Registers strategies with the other Lightning, if it is imported, only to refuse them by name."""
    if _OTHER in sys.modules:
        registry = import_module(_OTHER).strategies.StrategyRegistry
        for name in names:
            if name not in registry:
                registry.register(name, lambda name=name, **_: refuse(f"strategy={name!r}"))


class OneLightningMixin:
    """A mixin of data modules that refuses a Trainer of the other Lightning package."""

    _trainer: Any = None

    @property
    def trainer(self) -> Any:
        """Set by the Trainer that uses it. Raises LightningCompatibilityError: that is not of this Lightning."""
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Any) -> None:
        if type(trainer).__module__.startswith(f"{_OTHER}."):
            refuse(type(self).__name__)
        self._trainer = trainer

    def __iter__(self) -> NoReturn:
        """Raises LightningCompatibilityError, as a Trainer of the other Lightning takes the module for a loader."""
        raise LightningCompatibilityError(
            f"{type(self).__name__} is no loader: iterate over train_dataloader() or another of its loaders. "
            f"If it was given to a Trainer of {_OTHER}: {REMEDY}."
        )
