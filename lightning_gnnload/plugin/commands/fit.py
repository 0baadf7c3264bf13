"""``gnnload fit``, ``validate``, ``test`` and ``predict``: Lightning's command line over a GraphDataModule."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from lightning_gnnload import GraphDataModule
from lightning_gnnload.errors import GnnLoadError, LoaderConfigError, PeerError
from lightning_gnnload.plugin.commands.arguments import known_cause, with_nearest
from lightning_gnnload.plugin.commands.reasons import reason, refusal
from lightning_gnnload.plugin.compat import lightning_cli, pl
from lightning_gnnload.plugin.module import telling
from lightning_gnnload.plugin.module.predictions import PredictionWriter


class GraphCLI(lightning_cli.LightningCLI):
    """LightningCLI with a GraphDataModule under ``data``, any LightningModule under ``model``, ``--test_after_fit``
    and ``--predictions``. What is not fitted needs a checkpoint, or ``--untrained true``."""

    def init_parser(self, **kwargs: Any) -> lightning_cli.LightningArgumentParser:
        parser = super().init_parser(**kwargs)
        parser.error = partial(_error, parser)  # type: ignore[method-assign]  # spawned ranks get it in a callback
        return parser

    def add_arguments_to_parser(self, parser: lightning_cli.LightningArgumentParser) -> None:
        parser.add_argument("--test_after_fit", type=bool, default=False, help="After fit, test the best checkpoint.")
        parser.add_argument(
            "--predictions", type=str | None, default="predictions.npz", help="Where predict writes; null: nowhere."
        )
        parser.add_argument(
            "--untrained", type=bool, default=False, help="Validate, test or predict with the model's first weights."
        )

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        try:
            return super().instantiate_trainer(**kwargs)
        except (ValueError, TypeError, RuntimeError, pl.utilities.exceptions.MisconfigurationException) as error:
            if known_cause(error) is not None:
                raise
            raise SystemExit(f"gnnload: {refusal(error, self._get(self.config, 'trainer'))}") from None

    def before_validate(self) -> None:
        self._check_checkpoint("validate")

    def before_test(self) -> None:
        self._check_checkpoint("test")

    def before_predict(self) -> None:
        self._check_checkpoint("predict")
        if (path := self.config["predict"]["predictions"]) is not None:
            self.trainer.callbacks.append(PredictionWriter(path))  # type: ignore[attr-defined]

    def _check_checkpoint(self, command: str) -> None:
        """Raises LoaderConfigError: the model would work with the weights that it was made with."""
        if self.config[command]["ckpt_path"] is not None or self.config[command]["untrained"]:
            return
        found = max(Path(self.trainer.default_root_dir).rglob("*.ckpt"), key=os.path.getmtime, default="FILE.ckpt")
        raise LoaderConfigError(
            f"gnnload {command} would use an untrained model, as no checkpoint was given. Give --ckpt_path {found}; or "
            f"--untrained true, if the model brings its weights."
        )

    def after_fit(self) -> None:
        if self.config["fit"]["test_after_fit"]:
            checkpoint = self.trainer.checkpoint_callback
            best = "best" if getattr(checkpoint, "best_model_path", "") else None
            self.trainer.test(self.model, datamodule=self.datamodule, ckpt_path=best)


def main(_: Sequence[str]) -> int:
    """Runs the command of ``sys.argv``, which Lightning reads itself; the exit status."""
    try:
        GraphCLI(
            pl.LightningModule,
            GraphDataModule,
            subclass_mode_model=True,
            # Else a second run in the same folder fails on the first one's configuration.
            save_config_kwargs={"overwrite": True},
        )
    except PeerError:
        raise  # its traceback shows where this rank was when the other one ended
    except GnnLoadError as error:
        if not telling.is_told_here(error):
            return 1
        _exit(error)
    except ValueError as error:  # the parser's, which lists all that a setting may be
        reason = known_cause(error)
        if reason is None:
            raise
        _exit(reason)
    return 0


def _error(parser: lightning_cli.LightningArgumentParser, message: str, cause: Exception | None = None) -> NoReturn:
    # In the place of the class's own, which prints all options first: more than a screen of them.
    print(f"gnnload: {reason(message) or with_nearest(message, parser)}", file=sys.stderr)
    sys.exit(2)


def _exit(error: GnnLoadError) -> NoReturn:
    sys.exit(f"gnnload: {type(error).__name__}: {error}")
