"""``gnnload fit``, ``validate``, ``test`` and ``predict``: Lightning's command line over a GraphDataModule."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NoReturn

from lightning_gnnload import GraphDataModule
from lightning_gnnload.errors import GnnLoadError, LoaderConfigError, PeerError
from lightning_gnnload.host import malloc
from lightning_gnnload.plugin.accelerate import Accelerate
from lightning_gnnload.plugin.commands.arguments import read_config, with_nearest
from lightning_gnnload.plugin.commands.causes import instantiate, known_cause
from lightning_gnnload.plugin.commands.faults import faults_of_file
from lightning_gnnload.plugin.commands.fromdata import allow_missing, missing_arguments, read_from_data
from lightning_gnnload.plugin.commands.reasons import reason, refusal, unfit_part
from lightning_gnnload.plugin.compat import dump_config_again, lightning_cli, pl
from lightning_gnnload.plugin.module import error_reporting
from lightning_gnnload.plugin.module.predictions import PredictionWriter
from lightning_gnnload.plugin.monitor.epoch_lines import without_bars
from lightning_gnnload.storage.output import check_output

_REFUSALS = (ValueError, TypeError, RuntimeError, ImportError)
"""What Lightning's Trainer raises of settings that it does not take, besides an error of its own."""

_FOUND_BY_LIGHTNING = ("best", "last", "hpc")
"""What names a checkpoint that Lightning looks for."""


class GraphCLI(lightning_cli.LightningCLI):
    """LightningCLI with a GraphDataModule under ``data``, any LightningModule under ``model``, ``--test_after_fit`` and
    ``--out``. All but ``fit`` needs a checkpoint, or ``--untrained true``."""

    def init_parser(self, **kwargs: Any) -> lightning_cli.LightningArgumentParser:
        parser = super().init_parser(**kwargs)
        parser.error = partial(_error, parser)  # type: ignore[method-assign]  # spawned ranks get it in a callback
        return parser

    def add_arguments_to_parser(self, parser: lightning_cli.LightningArgumentParser) -> None:
        allow_missing(parser)
        parser.add_argument(
            "--accelerate",
            type=bool | Literal["bf16"],
            default=False,
            help="Swap the model's dropout for one that takes little time on CPUs; bf16: and compute in bfloat16, "
            "where the processor has instructions for it.",
        )
        parser.add_argument("--test_after_fit", type=bool, default=False, help="After fit, test the best checkpoint.")
        parser.add_argument(
            "--out",
            type=str | None,
            default="predictions.npz",
            help="Where predict writes, a .parquet, .csv, .csv.gz, .npz or .npy file; null: nowhere.",
        )
        parser.add_argument(
            "--as-of",
            "--as_of",
            dest="as_of",
            type=int | float | str | None,
            default=None,
            help="Predict for this time, a date as 2026-07-01: in place of the rows' own times, or the task's as_of.",
        )
        parser.add_argument(
            "--untrained", type=bool, default=False, help="Validate, test or predict with the model's first weights."
        )

    def parse_arguments(self, parser: lightning_cli.LightningArgumentParser, args: Any) -> None:
        self._arguments = sys.argv[1:] if args is None else args
        files = [*_config_files(self._arguments)]
        for file in files:
            read_config(file, parser)
        self._files = files
        commands = getattr(self, "_subcommand_parsers", {})
        named = next((name for name in self._arguments if name in commands), None)
        for subparser in (parser, *commands.values()):
            whole = commands[named] if named else parser
            subparser.error = partial(_error, subparser, files=files, whole=whole, home=os.getcwd())
        try:
            super().parse_arguments(parser, args)
        except (ValueError, RecursionError) as error:  # YAML's, of a value that is none, or lies too deep
            if known_cause(error) is not None:
                raise
            raise SystemExit(f"gnnload: the configuration cannot be read: {' '.join(str(error).split())}") from None
        command = self.config.get("subcommand")
        config = self.config[command] if command else self.config
        if problem := unfit_part(config):
            parser.error(problem)

    def instantiate_classes(self) -> None:
        try:
            super().instantiate_classes()
        except GnnLoadError as error:
            self._tell_faults(error)
            raise
        except ValueError as error:
            self._tell_faults(known_cause(error))
            raise

    def _tell_faults(self, error: GnnLoadError | None) -> None:
        """Ends the process, if an error is of what the configuration says, with all that is wrong there."""
        if error is not None and error_reporting.is_reported_here(error):
            _exit_by_faults(self._parser(self.subcommand), self._files)

    def before_instantiate_classes(self) -> None:
        """Takes arguments that the model lacks from the data, before its configuration is saved anywhere; or ends the
        process, if a strategy has others run the command."""
        if self._has_run_elsewhere():
            sys.exit()
        subparser = self._parser(self.subcommand)
        allow_missing(subparser, False)
        settings = self._get(self.config, "model")
        if settings is None or not (names := missing_arguments(settings)):
            return
        parser = lightning_cli.LightningArgumentParser(exit_on_error=False)
        parser.add_class_arguments(GraphDataModule, "data")
        # Made for this alone: the Trainer's is made with the model.
        data = instantiate(parser, parser.parse_object({"data": self._get(self.config, "data")})).data
        values = read_from_data(data, names)
        for name, value in values.items():
            pl.utilities.rank_zero.rank_zero_info(f"model.{name} = {value}, from the data")
        filled = settings.as_dict()
        filled["init_args"] |= values
        whole = {"model": filled} if self.subcommand is None else {self.subcommand: {"model": filled}}
        self.config = self.parser.parse_object(whole, self.config)
        dump_config_again(self)

    def _has_run_elsewhere(self) -> bool:
        """Runs the command in workers of the strategy's, if it has any; that for Ray Train does."""
        trainer = self._get(self.config, "trainer")
        module, _, name = str(getattr(trainer.get("strategy"), "class_path", "")).rpartition(".")
        start = getattr(getattr(import_module(module), name), "start_command", None) if module else None
        return start is not None and start(self._arguments, trainer.as_dict())

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        try:
            trainer = super().instantiate_trainer(**kwargs)
        except (*_REFUSALS, pl.utilities.exceptions.MisconfigurationException) as error:
            if known_cause(error) is not None:
                raise
            raise SystemExit(f"gnnload: {refusal(error, self._get(self.config, 'trainer'))}") from None
        without_bars(trainer)
        if choice := self._get(self.config, "accelerate"):
            trainer.callbacks.append(Accelerate(bf16=choice == "bf16"))  # type: ignore[attr-defined]
        return trainer

    def before_fit(self) -> None:
        if self.config["fit"]["ckpt_path"] is not None:
            self._check_checkpoint("fit")

    def before_validate(self) -> None:
        self._check_checkpoint("validate")

    def before_test(self) -> None:
        self._check_checkpoint("test")

    def before_predict(self) -> None:
        self._check_checkpoint("predict")
        if (as_of := self.config["predict"]["as_of"]) is not None:
            self.datamodule.as_of = as_of
        if (path := self.config["predict"]["out"]) is not None:
            check_output(path)  # before the data are prepared
            self.trainer.callbacks.append(PredictionWriter(path))  # type: ignore[attr-defined]
            # Nobody uses what the call would return, which would take memory for all rows.
            self.config_init["predict"]["return_predictions"] = False

    def _check_checkpoint(self, command: str) -> None:
        """Raises LoaderConfigError: the model would run with its initial weights, or with none."""
        check_checkpoint(command, self.config[command], self.trainer.default_root_dir)

    def after_fit(self) -> None:
        if self.config["fit"]["test_after_fit"]:
            # "best" is an error where no checkpoint was saved; then the model is tested as it is.
            checkpoint = self.trainer.checkpoint_callback
            best = "best" if getattr(checkpoint, "best_model_path", "") else None
            self.trainer.test(self.model, datamodule=self.datamodule, ckpt_path=best)


def _config_files(arguments: Any) -> Iterator[Path]:
    for option, value in pairwise([*arguments, ""]) if isinstance(arguments, list) else ():
        name, _, joined = option.partition("=")
        if name in ("--config", "-c") and os.path.isfile(file := joined or value):
            yield Path(file)


def check_checkpoint(command: str, config: Any, root: str) -> None:
    """Raises LoaderConfigError: there is neither a checkpoint nor ``--untrained true``; or no such file."""
    path = None if config["ckpt_path"] is None else str(config["ckpt_path"])
    if path is None and config["untrained"]:
        return
    # Lightning's own words, its registry, and other file systems are looked up by Lightning.
    if path is not None and (path in _FOUND_BY_LIGHTNING or path.startswith("registry") or "://" in path):
        return
    if path is not None and Path(path).exists():
        return
    newest = max(Path(root).rglob("*.ckpt"), key=os.path.getmtime, default="FILE.ckpt")
    if path is not None:
        raise LoaderConfigError(f"--ckpt_path {path}: there is no such file. Give one, such as {newest}.")
    raise LoaderConfigError(
        f"gnnload {command} would use an untrained model, as no checkpoint was given. Give --ckpt_path {newest}; or "
        f"--untrained true, if the model brings its weights."
    )


@contextmanager
def errors_in_a_line() -> Iterator[None]:
    """Ends the process with one line for an error of this package, and leaves others to Python."""
    try:
        yield
    except PeerError:
        raise  # its traceback shows where this rank was when the other one ended
    except GnnLoadError as error:
        if not error_reporting.is_reported_here(error):
            sys.exit(1)
        _exit(error)
    except ValueError as error:  # the parser's, which lists all that a setting may be
        cause = known_cause(error)
        if cause is None:
            raise
        _exit(cause)


def main(_: Sequence[str]) -> int:
    """Runs the subcommand of Lightning; returns the exit code."""
    with malloc.freed_memory_kept(), errors_in_a_line():
        GraphCLI(
            pl.LightningModule,
            GraphDataModule,
            subclass_mode_model=True,
            # Else a second run in the same folder fails on the first one's configuration.
            save_config_kwargs={"overwrite": True},
        )
    return 0


def _error(
    parser: lightning_cli.LightningArgumentParser,
    message: str,
    cause: Exception | None = None,
    *,
    files: Sequence[Path] = (),
    whole: lightning_cli.LightningArgumentParser | None = None,
    home: str = ".",
) -> NoReturn:
    os.chdir(home)  # while a file is read, its own folder is the current one
    # In the place of the class's own, which prints all options first: more than a screen of them.
    text = with_nearest(message, parser)
    if text == message and whole is not None:
        _exit_by_faults(whole, files)
    print(f"gnnload: {text if text != message else reason(message) or message}", file=sys.stderr)
    sys.exit(2)


def _exit_by_faults(parser: lightning_cli.LightningArgumentParser, files: Sequence[Path]) -> None:
    """Ends the process with a line for each fault of the configurations, if they have any by themselves."""
    if lines := [line for file in files for line in faults_of_file(parser, file)]:
        count = f"{len(lines)} faults in the configuration\n" if len(lines) > 1 else ""
        print(f"gnnload: {count}{chr(10).join(lines)}", file=sys.stderr)
        sys.exit(2)


def _exit(error: GnnLoadError) -> NoReturn:
    sys.exit(f"gnnload: {type(error).__name__}: {error}")
