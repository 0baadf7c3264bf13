"""Every private name of Lightning that this package relies on, in one place.

Between releases 2.4 and 2.6 they changed in typing only. Should one go, importing this module says which.
"""

from __future__ import annotations

import logging
from typing import Any

import pytorch_lightning

from lightning_gnnload.errors import LightningCompatibilityError

try:
    from lightning_fabric.utilities.rank_zero import rank_zero_only as fabric_rank_zero_only
    from lightning_utilities.core.rank_zero import rank_zero_only as utilities_rank_zero_only
    from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher, _SubprocessScriptLauncher
    from pytorch_lightning.utilities.exceptions import _TunerExitException
except ImportError as error:
    raise LightningCompatibilityError(
        f"pytorch-lightning {pytorch_lightning.__version__} lacks a name that FactoredStrategy relies on: {error}. "
        f"Releases 2.4 to 2.6 work: pip install 'pytorch-lightning>=2.4,<2.7'"
    ) from error

_log = logging.getLogger("pytorch_lightning")  # whose words these are
MultiProcessingLauncher = _MultiProcessingLauncher
SubprocessScriptLauncher = _SubprocessScriptLauncher
TunerExit = _TunerExitException

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


def keep_collectives_out_of_sigterm(trainer: pytorch_lightning.Trainer) -> None:
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
    for rank_zero_only in (fabric_rank_zero_only, utilities_rank_zero_only):
        rank_zero_only.rank = rank  # type: ignore[attr-defined]
