"""``gnnload``: which module runs a command. That module alone is imported, so that help is there at once."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from lightning_gnnload import __version__
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.host.progress import no_bars_elsewhere
from lightning_gnnload.plugin.commands.versions import versions

COMMANDS = {
    "fit": ("fit", "train a model on mini-batches of sampled neighbourhoods"),
    "validate": ("fit", "run a trained model on the validation split"),
    "test": ("fit", "run a trained model on the test split"),
    "predict": ("fit", "write a trained model's predictions, by your own ids"),
    "plan": ("plan", "predict memory and epoch times before a run"),
    "init": ("init", "draft a graph.yaml of your tables: ids, keys, times, columns"),
    "schema": ("schema", "print the JSON Schema of graph.yaml or run.yaml, for editors"),
    "build": ("build", "make a graph folder of your tables: Parquet, CSV, Arrow or SQL"),
    "preaggregate": ("preaggregate", "sum features over all in-neighbours once, in place of a hop"),
    "infer": ("infer", "write a trained model's output for all nodes, by layers"),
    "conform": ("conform", "check a sampler of your own: contract and law of its draws"),
    "cache": ("cache", "compare caches of features on your graph and sampler"),
    "pack": ("pack", "write coming mini-batches ahead of a run, for tables on a disk"),
    "order": ("order", "compare orders of seeds: what they save, and how labels mix"),
    "partition": ("partition", "cut a graph into parts, and say how good they are"),
    "own": ("own", "serve parts of a graph to trainers on other machines"),
    "verify": ("verify", "read a folder of data or parts, and compare it with its checksums"),
    "doctor": ("doctor", "say what this machine offers, and whether its GPUs can be used"),
    "completion": ("completion", "print what completes commands and options in bash or zsh"),
}
"""The module of a command, in this folder, and what the command does."""
_USAGE = "usage: gnnload COMMAND [options]\n       gnnload --version\n"
_LIST = "commands:\n" + "".join(f"  {name:<12} {does}\n" for name, (_, does) in COMMANDS.items())
_HELP = f"""{_USAGE}
Train graph neural networks on sampled neighbourhoods, with PyTorch Lightning.

{_LIST}
fit, validate, test, predict, plan and infer take a configuration (--config
FILE) and single settings, which go over it: --data.batch_size 512. gnnload
COMMAND --help lists the options of a command.
"""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE_S = 1.0  # signals that follow each other faster are one request: Ctrl-C twice, systemd's SIGTERM and SIGHUP


def main() -> None:
    """Entry point of ``gnnload``. Classes of models and samplers are also looked for in the current folder."""
    # A console script has its own folder there instead, unlike ``python -m``.
    sys.path.insert(0, os.getcwd())
    # Paths may contain any bytes, and messages name them.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # of one that cannot be flushed
                stream.reconfigure(errors="backslashreplace")
    command = "".join(sys.argv[1:2])
    if command in ("-h", "--help"):
        print(_HELP, end="")
    elif command == "--version":
        print(f"gnnload {__version__} ({', '.join(versions()[1:])})")
    elif command in COMMANDS:
        sys.exit(_run(command, COMMANDS[command][0]))
    elif command.startswith("-") or "_ARGCOMPLETE" in os.environ:  # Lightning's: an option for all of its commands
        sys.exit(_run("fit", "fit"))
    else:
        near = get_close_matches(command, COMMANDS, 1)
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

    with no_bars_elsewhere():
        return heeding_signals(f"gnnload {name}", run)


def heeding_signals(name: str, command: Callable[[], int]) -> int:
    """Runs a command, which SIGTERM and SIGHUP end as Ctrl-C does: it removes its unfinished output. A signal that is
    ignored (``nohup``) stays so; a Trainer that has begun ends by SIGTERM in its own way. ``name`` is for messages.

    Returns the exit status: after a signal, 128 and its number, as in a shell, and never 0, which would call the output
    whole.
    """
    received: list[int] = []
    raised_at = -_AT_ONCE_S

    def heed(number: int, frame: Any) -> None:
        nonlocal raised_at
        received.append(number)
        if signal.getsignal(number) is heed and time.monotonic() > raised_at + _AT_ONCE_S:
            raised_at = time.monotonic()
            raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        defaults = (signal.SIG_DFL, signal.default_int_handler)
        before = {number: signal.signal(number, heed) for number in _ENDING if signal.getsignal(number) in defaults}
    try:
        status = command()
        return 128 + received[0] if received and status else status
    except BaseException as error:
        if not received:
            raise
        reason = f": {type(error).__name__}: {error}" if isinstance(error, Exception) else ""
        print(f"{name}: ended by {signal.Signals(received[0]).name}{reason}", file=sys.stderr)
        return 128 + received[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":  # python -m, by which ranks are started again as they were
    main()
