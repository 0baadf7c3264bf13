"""What commands share of their arguments: a data module's settings, and how mistakes are reported."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.datasets.description import load_yaml, short
from lightning_gnnload.datasets.folder import subclass_names
from lightning_gnnload.errors import StoreFormatError
from lightning_gnnload.plugin.commands.causes import instantiate, known_cause
from lightning_gnnload.storage.targets import check_creatable

RENAMED = {"predictions": "out"}
"""Options of earlier releases by their names of then."""
FANOUT = 10
"""Of each hop, where no sampler is given."""
YOURS = "package.module.Class of your own"


class Parser(argparse.ArgumentParser):
    """A parser that names the nearest option to a wrong one."""

    def error(self, message: str) -> NoReturn:
        super().error(with_nearest(message, self))


def with_nearest(message: str, parser: argparse.ArgumentParser) -> str:
    """Adds to a parser's message of a wrong option the one that was probably meant, where there is one."""
    for old, new in RENAMED.items():
        if re.search(rf"(unrecognized arguments: .*--|does not accept option '){old}\b", message):
            return f"{message}; --{old} is now called --{new}"
    wrong = re.match(r"(?:unrecognized arguments|unknown): (--[^\s=]+)", message)
    near = get_close_matches(wrong[1], parser._option_string_actions, 1) if wrong else []
    return f"{message}; did you mean {near[0]}?" if near and "did you mean" not in message else message


def parse_module(
    command: argparse.ArgumentParser, config: Path | None, arguments: Sequence[str], **further: type
) -> argparse.Namespace:
    """Makes the data module of a configuration file, of which it reads the part ``data``, and of ``--data.KEY VALUE``
    arguments, which override it. ``further`` are base classes, by argument, of more objects to make. Returns all by
    name. ``command`` reports mistakes in a line, and exits."""
    import jsonargparse

    from lightning_gnnload import GraphDataModule  # and with it all classes that settings may name
    from lightning_gnnload.plugin.compat import lightning_cli

    parser = lightning_cli.LightningArgumentParser(prog=command.prog, exit_on_error=False)
    parser.add_argument("--config", action=jsonargparse.ActionConfigFile)
    parser.add_class_arguments(GraphDataModule, "data")
    for name, base in further.items():
        parser.add_subclass_arguments(base, name)
    # First, as later arguments win.
    from_config = [] if config is None else ["--config", _data_of(config, command)]
    with _one_line(command, parser, config):
        return instantiate(parser, parser.parse_args([*from_config, *arguments]))


def data_parser(command: str, description: str | None, epilog: str) -> Parser:
    """The parser of a command that examines a data module; :func:`parse_data` parses with it."""
    command_parser = Parser(
        command,
        usage="%(prog)s [DATA] [--data.sampler CLASS] [options]",
        description=description,
        epilog=epilog,
        allow_abbrev=False,
    )
    command_parser.add_argument(
        "--config", type=Path, metavar="YAML", help="a configuration of gnnload fit; its part data is read"
    )
    command_parser.add_argument(
        "--data.KEY", metavar="VALUE", help="a setting of GraphDataModule, as gnnload fit --help has them"
    )
    command_parser.add_argument("--trainers", type=at_least(1), default=1, help="that share each step; default 1")
    return command_parser


def parse_data(command: Parser, arguments: Sequence[str]) -> tuple[argparse.Namespace, Any]:
    """Parses the arguments of a :func:`data_parser`. Returns its options, and the data module that they name."""
    remaining = list(arguments)
    data = take_data(remaining, command)
    options, rest = command.parse_known_args(remaining)
    strangers = [text for text in rest if text.startswith("-") and not text.startswith("--data")]
    if strangers or (options.config is None and not rest and not data):
        command.error(f"unknown: {' '.join(strangers)}" if strangers else "give DATA, or --config FILE")
    return options, parse_module(command, options.config, [*data, *sampler_arguments(rest, options.config), *rest]).data


def take_data(arguments: list[str], command: argparse.ArgumentParser) -> list[str]:
    """Removes DATA, a folder or a data set's name, from the front of the arguments; returns the setting that it stands
    for."""
    if not arguments or arguments[0].startswith("-"):
        return []
    data = arguments.pop(0)
    if "." not in data and not os.path.exists(data) and data not in subclass_names(Dataset):
        expected = "folder" if "/" in data else "data set or folder"
        command.error(f"DATA {data}: there is no such {expected}. Give Debian, Synthetic, OGB, a folder, or {YOURS}")
    return ["--data.data", data]


def sampler_arguments(arguments: Sequence[str], config: Path | None, num_hops: int = 2) -> list[str]:
    """The default sampler's arguments; empty where ``arguments`` or a configuration name one."""
    named = [text.partition("=")[0] for text in arguments if text.startswith("--data.sampler")]
    if config is not None or "--data.sampler" in named:
        return []
    if named:
        return ["--data.sampler", "NeighborSampler"]
    return ["--data.sampler", "NeighborSampler", "--data.sampler.fanouts", str([FANOUT] * num_hops)]


def at_least(least: int) -> Callable[[str], int]:
    """A reader of whole numbers of at least so much, for ``argparse``."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least {least} is needed")
        return int(text)

    return read


def fraction(text: str) -> float:
    """Reads a number in (0, 1], for ``argparse``."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a share above 0 and at most 1 is needed")
    return value


def output_folder(text: str) -> Path:
    """Reads the path of a folder to write files to, for ``argparse``: it is there, or can be made."""
    _check_output(Path(text) / "any")
    return Path(text)


def output_file(text: str) -> Path:
    """Reads the path of a file to write, for ``argparse``: its folder is there, and it is no folder itself."""
    file = Path(text)
    if not file.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {file.parent} to write {file.name} to")
    if file.is_dir():
        raise argparse.ArgumentTypeError(f"{file} is a folder; a file is needed")
    _check_output(file)
    return file


def _check_output(file: Path) -> None:
    try:
        check_creatable(file)
        if file.exists() and not os.access(file, os.W_OK):
            raise StoreFormatError(f"{file} may not be written to. Give another file.")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def read_config(file: Path, command: argparse.ArgumentParser) -> dict[str, Any]:
    """Reads a configuration file; ``command`` reports what is wrong with it in a line, and exits."""
    import yaml

    try:
        read = load_yaml(file.read_text())
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        command.error(f"--config {file} cannot be read: {' '.join(str(error).split())}")
    if not isinstance(read, dict):
        problem = "it is empty" if read is None else f"it is {short(read):.100}"
        command.error(f"--config {file}: settings by their names are needed, as data: and model:, but {problem}")
    return read


def _data_of(file: Path, command: argparse.ArgumentParser) -> str:
    """Reads the part ``data`` of a configuration file, as YAML: trainer and model do not matter here."""
    import yaml

    data = read_config(file, command).get("data")
    if not isinstance(data, dict):
        command.error(f"--config {file} has no part data, with the settings of a GraphDataModule")
    return str(yaml.safe_dump({"data": data}))


def report_failure(command: str, error: BaseException) -> int:
    """Prints what ended a command that writes its output whole or not at all; returns the exit status."""
    if isinstance(error, KeyboardInterrupt):
        print(f"{command}: interrupted; nothing was written.", file=sys.stderr)
        return 130
    print(f"{command}: {type(error).__name__}: {error}", file=sys.stderr)
    return 2


@contextmanager
def _one_line(command: argparse.ArgumentParser, parser: argparse.ArgumentParser, config: Path | None) -> Iterator[Any]:
    import jsonargparse

    from lightning_gnnload.plugin.commands.faults import faults_of_file
    from lightning_gnnload.plugin.commands.reasons import reason

    try:
        yield
    except ValueError as error:  # of a class that did not take its settings
        if config is not None and (lines := faults_of_file(parser, config, parts=("data",))):
            command.error("\n".join(lines))
        if (ours := known_cause(error)) is not None:
            raise ours from None
        command.error(_plain(error))
    except jsonargparse.ArgumentError as error:
        if config is not None and (lines := faults_of_file(parser, config, parts=("data",))):
            command.error("\n".join(lines))
        command.error(reason(str(error)) or with_nearest(_plain(error), parser))


def _plain(error: Exception) -> str:
    """The parser's message in one line, without its way of naming optional settings."""
    text = " ".join(str(error).split())
    aside = r"Does not validate against any of the Union .*? Errors: - | - Expected a <class '(NoneType|str)'>"
    aside += r"| - Not of type Path: .*? not \w+"
    return re.sub(rf"{aside}| Given value type: .*", "", text)
