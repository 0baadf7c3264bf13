"""``gnnload completion``: a script by which bash and zsh complete commands, options and the names of classes.

In ~/.bashrc:  source <(gnnload completion bash)
In ~/.zshrc:   source <(gnnload completion zsh)

Faster at each start of the shell: write it to a file once, and source that.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import lightning_gnnload
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.plugin.commands.classes import serving
from lightning_gnnload.plugin.commands.cli import COMMANDS
from lightning_gnnload.plugin.compat import pl

_CLASSES: Mapping[str, type] = {
    "--model": pl.LightningModule,
    "--data.data": lightning_gnnload.Dataset,
    "--data.sampler": lightning_gnnload.Sampler,
    "--data.order": SeedOrder,
    "--trainer.strategy": pl.strategies.Strategy,
    "--trainer.callbacks": pl.callbacks.Callback,
    "--trainer.logger": pl.loggers.Logger,
}
"""Options whose values are names of classes, and what these derive from."""
_AS_FIT = ("plan", "infer")
"""Commands that take all that ``gnnload fit`` takes."""
_SCRIPT = """# Completes gnnload's commands, options and class names; written by: gnnload completion {shell}
{before}_gnnload() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=""
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then
    words="{commands} --help --version"
  elif [[ $word == -* ]]; then
    case ${{COMP_WORDS[1]}} in
{options}
    esac
  else
    case $before in
{values}
    esac
  fi
  [[ -n $words ]] && COMPREPLY=( $(compgen -W "$words" -- "$word") )
  return 0
}}
complete -o default -F _gnnload gnnload
"""
_BEFORE = {"bash": "", "zsh": "autoload -U +X compinit && compinit -i\nautoload -U +X bashcompinit && bashcompinit\n"}


def main(arguments: Sequence[str]) -> int:
    """Prints the script; returns the exit code."""
    parser = argparse.ArgumentParser(
        "gnnload completion", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shell", choices=tuple(_BEFORE))
    print(script(parser.parse_args(arguments).shell), end="")
    return 0


def script(shell: str) -> str:
    """Writes the script: all that it completes stands in it, so that a key press starts no Python. ``shell`` is
    ``"bash"`` or ``"zsh"``."""
    by_command = {name: options_of(name) for name in COMMANDS if name != "completion"}
    fit = by_command["fit"]
    for name, options in by_command.items():
        fit_options = fit if name in _AS_FIT else [option for option in fit if option.startswith("--data.")]
        if name in _AS_FIT or "--data.KEY" in options:
            by_command[name] = sorted({*options, *fit_options} - {"--data.KEY"})
    values = {option: list(serving((base,))) for option, base in _CLASSES.items()} | {"completion": list(_BEFORE)}
    return _SCRIPT.format(
        shell=shell,
        before=_BEFORE[shell],
        commands=" ".join(COMMANDS),
        options=_cases(by_command),
        values=_cases(values),
    )


def options_of(command: str) -> list[str]:
    """Lists a command's long options, as its help shows them; with those of the classes that it may name."""
    printed, before = io.StringIO(), sys.argv
    sys.argv = ["gnnload", command, "--help"]  # Lightning's command line reads its arguments there
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            import_module(f"lightning_gnnload.plugin.commands.{COMMANDS[command][0]}").main(["--help"])
    finally:
        sys.argv = before
    options = {*re.findall(r"(?<![\w-])--[A-Za-z](?:[\w.-]*\w)?(?!\.?\w)", printed.getvalue())}
    for option in options & {"--model", "--data.sampler"}:
        for name in serving((_CLASSES[option],)):
            cls = getattr(lightning_gnnload, name, None)
            if cls is not None:
                options |= {f"{option}.{argument}" for argument in inspect.signature(cls).parameters}
    return sorted(option for option in options if not option.endswith((".help", ".KEY")) or option == "--data.KEY")


def _cases(words: Mapping[str, Sequence[str]]) -> str:
    return "\n".join(f'      {name}) words="{" ".join(choices)}" ;;' for name, choices in words.items())
