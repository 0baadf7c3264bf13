"""``gnnload``: which module runs a command. That module alone is imported, so that help is there at once."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from difflib import get_close_matches
from importlib import import_module

from lightning_gnnload import __version__
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.plugin.commands.ending import heeding_signals

_COMMANDS = {
    "fit": ("fit", "train a model on mini-batches of sampled neighbourhoods"),
    "validate": ("fit", "run a trained model on the validation split"),
    "test": ("fit", "run a trained model on the test split"),
    "predict": ("fit", "write a trained model's predictions, by your own ids"),
    "build": ("build", "make a graph folder of your tables: Parquet, CSV, Arrow or SQL"),
    "infer": ("infer", "write a trained model's output for all nodes, by layers"),
    "conform": ("conform", "check a sampler of your own: contract and law of its draws"),
    "cache": ("cache", "compare caches of features on your graph and sampler"),
    "order": ("order", "compare orders of seeds: what they save, and how labels mix"),
    "partition": ("partition", "cut a graph into parts, and say how good they are"),
    "verify": ("verify", "read a folder of data or parts, and compare it with its checksums"),
    "doctor": ("doctor", "say what this machine offers, and whether its GPUs can be used"),
}
"""The module of a command, in this folder, and what the command does."""
_USAGE = "usage: gnnload COMMAND [options]\n       gnnload --version\n"
_LIST = "commands:\n" + "".join(f"  {name:<10} {does}\n" for name, (_, does) in _COMMANDS.items())
_HELP = f"""{_USAGE}
Train graph neural networks on sampled neighbourhoods, with PyTorch Lightning.

{_LIST}
fit, validate, test, predict and infer take a configuration, --config FILE, and
single settings, which go over it: --data.batch_size 512. gnnload COMMAND --help
lists the options of a command.
"""


def main() -> None:
    """Entry point of ``gnnload``. Classes of models and samplers are also looked for in the current folder."""
    # A console script has its own folder there instead, unlike ``python -m``.
    sys.path.insert(0, os.getcwd())
    # Paths may hold any bytes, and messages name them.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # of one that cannot be flushed
                stream.reconfigure(errors="backslashreplace")
    command = "".join(sys.argv[1:2])
    if command in ("-h", "--help"):
        print(_HELP, end="")
    elif command == "--version":
        print(f"gnnload {__version__}")
    elif command in _COMMANDS:
        sys.exit(_run(command, _COMMANDS[command][0]))
    elif command.startswith("-") or "_ARGCOMPLETE" in os.environ:  # Lightning's: an option for all of its commands
        sys.exit(_run("fit", "fit"))
    else:
        near = get_close_matches(command, _COMMANDS, 1)
        problem = f"there is no command {command!r}{f'; did you mean {near[0]}?' if near else '.'}" if command else ""
        print(f"{_USAGE}\n{_LIST}\ngnnload: {problem or 'give a command.'}", file=sys.stderr)
        sys.exit(2)


def _run(name: str, module: str) -> int:
    def run() -> int:
        try:
            command = import_module(f"lightning_gnnload.plugin.commands.{module}")
        except GnnLoadError as error:  # no compiled kernels, or a Lightning that this package does not know
            sys.exit(f"gnnload: {type(error).__name__}: {error}")
        return command.main(sys.argv[2:])

    return heeding_signals(f"gnnload {name}", run)
