"""Which Lightning is in use, and every private name of it that this package relies on, in one place.

Lightning comes under two names, ``pytorch_lightning`` and ``lightning.pytorch``, whose classes are not each other's:
a Trainer of the one refuses a strategy of the other. The rest of the package says ``pl``, and gets the user's.

Between releases 2.4 and 2.6 the private names changed in typing only. Should one go, importing this module says which.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightning_gnnload.errors import LightningCompatibilityError

PACKAGE_VARIABLE = "GNNLOAD_LIGHTNING"
"""An environment variable that chooses: ``pytorch_lightning`` or ``lightning``."""
_PACKAGES = {"pytorch_lightning": "pytorch_lightning", "lightning": "lightning.pytorch"}


def _package() -> str:
    """What the environment says; else what the user has imported; else ``pytorch_lightning``."""
    chosen = os.environ.get(PACKAGE_VARIABLE)
    if chosen is None:
        only_unified = "lightning.pytorch" in sys.modules and "pytorch_lightning" not in sys.modules
        chosen = "lightning" if only_unified else "pytorch_lightning"
    if chosen not in _PACKAGES:
        raise LightningCompatibilityError(
            f"{PACKAGE_VARIABLE}={chosen!r} names no Lightning: set it to one of {', '.join(_PACKAGES)}, or unset it."
        )
    return _PACKAGES[chosen]


if TYPE_CHECKING:
    import pytorch_lightning as pl
    from pytorch_lightning import cli as lightning_cli
    from pytorch_lightning.plugins import environments
else:
    pl = import_module(_package())
    lightning_cli = import_module(f"{pl.__name__}.cli")
    environments = import_module(f"{pl.__name__}.plugins.environments")

try:
    MultiProcessingLauncher = pl.strategies.launchers._MultiProcessingLauncher
    SubprocessScriptLauncher = pl.strategies.launchers._SubprocessScriptLauncher
    DummyLogger = pl.loggers.logger.DummyLogger
    TunerExit = pl.utilities.exceptions._TunerExitException
except AttributeError as error:
    raise LightningCompatibilityError(
        f"{pl.__name__} {pl.__version__} lacks a name that FactoredStrategy relies on: {error}. "
        f"Releases 2.4 to 2.6 work: pip install 'pytorch-lightning>=2.4,<2.7'"
    ) from error

TrainerFn = pl.trainer.states.TrainerFn
TrainerStatus = pl.trainer.states.TrainerStatus

_log = logging.getLogger(pl.__name__)  # whose words these are

LOADER_BARRIERS = {f"{phase}_dataloader()": phase for phase in ("train", "val", "test", "predict")}
"""Before Lightning processes the loaders of a phase, one by one, it calls the strategy's barrier by these names."""

STRATEGY_OVERRIDES = (
    "_configure_launcher",
    "_get_process_group_backend",
    "barrier",
    "process_dataloader",
    "set_world_ranks",
    "setup_distributed",
)
"""Methods of DDPStrategy that FactoredStrategy overrides or calls; a test checks that they are still there."""


def keep_collectives_out_of_sigterm(trainer: pl.Trainer) -> None:
    """On SIGTERM, Lightning broadcasts from the signal's handler, in the middle of whatever collective is under way,
    and ranks may wait for each other for good. Every rank gets the signal, and every training step begins with a
    broadcast that says so: the handler need only note it."""
    connector = trainer._signal_connector

    def note(number: int, frame: Any) -> None:
        _log.info(f"[rank: {trainer.local_rank}] Received SIGTERM: {number}")
        if not connector.received_sigterm and trainer.strategy.launcher is not None:
            trainer.strategy.launcher.kill(number)
        connector.received_sigterm = True

    connector._sigterm_notifier_fn = note  # type: ignore[assignment,method-assign]


def set_process_rank(rank: int) -> None:
    """Tells all of Lightning's ``rank_zero_only`` functions which rank this process is."""
    pl.utilities.rank_zero.rank_zero_only.rank = rank  # type: ignore[attr-defined]
