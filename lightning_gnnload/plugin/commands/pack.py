"""``gnnload pack``: packs the mini-batches of epochs ahead of a run, which then reads them in long stretches."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from lightning_gnnload import GraphDataModule
from lightning_gnnload.cache.packed.ahead import pack_ahead
from lightning_gnnload.errors import GnnLoadError, PackingConfigError
from lightning_gnnload.plugin.commands.arguments import FANOUT, data_parser, parse_data
from lightning_gnnload.plugin.module.packing import run_of
from lightning_gnnload.sample.workload import Workload

_ABOUT = "Packs the rows of coming mini-batches, which a run then reads in long stretches."
_EPILOG = f"""
DATA: Debian, Synthetic, OGB, package.module.Class of your own, or the folder of
a graph. Where no sampler is given, it is a NeighborSampler of fanouts {FANOUT}, {FANOUT}.

  gnnload pack --config run.yaml --data.packing.folder packed --epochs 0:3

The settings are those of the run to come: it trains from what is packed only if
data, sampler, seed, order, batch size and number of trainers are the same.
What was packed stays until you remove the folder. A command that was broken off
goes on where it was.
"""


def main(arguments: Sequence[str]) -> int:
    """Packs epochs of mini-batches; returns the exit code."""
    console = Console()
    try:
        options, module = _parse(arguments)
        if module.packing is None:
            raise PackingConfigError("no folder was named: give --data.packing.folder FOLDER, or packing: in data.")
        module.prepare_data()
        module.setup("fit")
        workload = Workload(**{**module.workload("train").settings(), "num_ranks": options.trainers})
        epochs = options.epochs or range(module.packing.cycle or 1)
        run = run_of(module.graph_data, workload, None, module.threads_of_rank)
        run = replace(run, ranks=tuple(range(options.trainers)), num_processes=options.trainers)
        packed = pack_ahead(module.packing, run, epochs)
        console.print(str(packed), markup=False, soft_wrap=True)
        return 0
    except GnnLoadError as error:
        console.print(f"gnnload pack: {type(error).__name__}: {error}", markup=False, soft_wrap=True)
        return 2


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, GraphDataModule]:
    parser = data_parser("gnnload pack", _ABOUT, _EPILOG)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--epochs",
        type=_epochs,
        metavar="A:B",
        help="those from A on and before B, counted from 0; default 0:1, or all of a cycle",
    )
    return parse_data(parser, arguments)


def _epochs(text: str) -> range:
    """Reads epochs, for ``argparse``."""
    match = re.fullmatch(r"(\d{0,9}):(\d{1,9})", text, re.ASCII)
    epochs = range(int(match[1] or 0), int(match[2])) if match else range(0)
    if not epochs:
        raise argparse.ArgumentTypeError(f"{text!r}: epochs A:B are needed, of which B is not among them, as 0:3")
    return epochs
