"""``gnnload infer``: a trained model's output for all nodes, layer by layer."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch

from lightning_gnnload import GraphDataModule
from lightning_gnnload.errors import CheckpointError, LoaderConfigError
from lightning_gnnload.inference.infer import infer
from lightning_gnnload.plugin.commands.fit import GraphCLI, check_checkpoint, errors_in_a_line
from lightning_gnnload.plugin.compat import lightning_cli, pl


class InferCLI(GraphCLI):
    """GraphCLI without a loop: it makes model, data module and trainer of a configuration of ``gnnload fit``."""

    def add_arguments_to_parser(self, parser: lightning_cli.LightningArgumentParser) -> None:
        super().add_arguments_to_parser(parser)
        parser.set_defaults({"out": "predictions.parquet"})
        for name, value_type, default, help_text in (
            ("ckpt_path", str | None, None, "The checkpoint whose weights the model takes."),
            ("nodes", str, "all", "Whose rows to write: all, train, val, test, predict, or the name of a node type."),
            ("layers", str | None, None, "Names of the convolutions in the model, as a,b; null: found."),
            ("method", str | None, None, "The method to run; null: predict_step, if the model has one, or forward."),
            (
                "time",
                int | float | str | None,
                None,
                "As --as-of; numbers are nanoseconds where the user's times are dates.",
            ),
            ("dtype", Literal["float32", "float16"], "float32", "Of rows between layers on disk."),
            ("memory", int | None, None, "Bytes that blocks may take; null: half of what is free."),
            ("max_edges", int | None, None, "Edges of a block; null: at most 4 million."),
            ("scratch", str | None, None, "A folder for rows between layers; null: beside the output."),
        ):
            parser.add_argument(f"--{name}", type=value_type, default=default, help=help_text)


def main(arguments: Sequence[str]) -> int:
    """Writes the output for all nodes; returns the exit code."""
    sys.argv[1:] = arguments  # where Lightning reads them
    with errors_in_a_line():
        cli = InferCLI(
            pl.LightningModule,
            GraphDataModule,
            subclass_mode_model=True,
            run=False,
            parser_kwargs={"prog": "gnnload infer"},
        )
        config = cli.config
        check_checkpoint("infer", config, cli.trainer.default_root_dir)
        _prepare(cli.model, cli.datamodule, cli.trainer, config["ckpt_path"])
        if config["as_of"] is not None and config["time"] is not None:
            raise LoaderConfigError("--as-of and --time say the same. Give one of them.")
        names = ("nodes", "method", "memory", "max_edges", "scratch", "out")
        began = time.monotonic()
        with _show_log():
            rows = infer(
                cli.model,
                cli.datamodule,
                layers=config["layers"].split(",") if config["layers"] else None,
                dtype=getattr(torch, config["dtype"]),
                time=config["time"] if config["as_of"] is None else config["as_of"],
                **{name: config[name] for name in names},
            )
        by_type = rows if isinstance(rows, dict) else {"": rows}
        sizes = ", ".join(
            f"{len(part)} nodes{node_type and f' of type {node_type}'}" for node_type, part in by_type.items()
        )
        print(f"{config['out']}: {sizes}, in {time.monotonic() - began:.1f} s", file=sys.stderr)
    return 0


@contextmanager
def _show_log() -> Iterator[None]:
    """Shows what the package logs, such as how many nodes were compared."""
    log, handler = logging.getLogger("lightning_gnnload"), logging.StreamHandler()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _prepare(model: Any, module: Any, trainer: Any, checkpoint: str | None) -> None:
    """Does what a Trainer does before its loop: data, layers that depend on them, weights. Raises CheckpointError: the
    file has no weights of this model."""
    module.prepare_data()
    module.setup("predict")
    trainer.datamodule = module
    model.trainer = trainer
    model.setup("predict")
    model.configure_model()
    if checkpoint is not None:
        try:
            contents = torch.load(checkpoint, map_location="cpu", weights_only=True)
            model.on_load_checkpoint(contents)
            model.load_state_dict(contents["state_dict"])
        except Exception as error:  # torch's own, of a file that is something else
            reason = (str(error).strip() or repr(error)).splitlines()[0]
            raise CheckpointError(
                f"--ckpt_path {checkpoint} has no weights for {type(model).__name__}: {reason}"
            ) from error
    model.to(trainer.strategy.root_device)
