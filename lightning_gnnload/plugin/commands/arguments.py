"""What commands share of their arguments: a data module's settings, and how mistakes are told."""

from __future__ import annotations

import argparse
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from lightning_gnnload.data.datasets.base import Dataset
from lightning_gnnload.data.datasets.described import short
from lightning_gnnload.data.datasets.folder import subclass_names
from lightning_gnnload.data.storage.targets import check_creatable
from lightning_gnnload.errors import GnnLoadError, StoreFormatError

RENAMED = {"predictions": "out"}
"""Options of earlier releases by their names of then."""
FANOUT = 10
"""Of each hop, where no sampler is given."""
YOURS = "package.module.Class of your own"
_UNION = "raise_union_unexpected_value"  # of jsonargparse


class Parser(argparse.ArgumentParser):
    """A parser that tells of a wrong option which one is nearest to it."""

    def error(self, message: str) -> NoReturn:
        super().error(with_nearest(message, self))


def with_nearest(message: str, parser: argparse.ArgumentParser) -> str:
    """Adds to a parser's message of a wrong option the one that was probably meant, where there is one."""
    for old, new in RENAMED.items():
        if re.search(rf"(unrecognized arguments: .*--|does not accept option '){old}\b", message):
            return f"{message}; --{old} is now called --{new}"
    given = re.match(r"(?:unrecognized arguments|unknown): (--[^\s=]+)", message)
    near = get_close_matches(given[1], parser._option_string_actions, 1) if given else []
    return f"{message}; did you mean {near[0]}?" if near and "did you mean" not in message else message


def parse_module(
    own: argparse.ArgumentParser, config: Path | None, arguments: Sequence[str], **further: type
) -> argparse.Namespace:
    """Makes the data module of a configuration file and of ``--data.KEY VALUE`` arguments, which override it.

    Args:
        own: tells mistakes in a line, and exits.
        config: of ``gnnload fit``; its part ``data`` is read.
        arguments: ``--data...``.
        further: classes whose subclasses may be given, by argument.

    Returns:
        ``data`` and the ``further`` ones, made.
    """
    import jsonargparse

    from lightning_gnnload import GraphDataModule  # and with it all classes that settings may name
    from lightning_gnnload.plugin.compat import lightning_cli

    parser = lightning_cli.LightningArgumentParser(prog=own.prog, exit_on_error=False)
    parser.add_argument("--config", action=jsonargparse.ActionConfigFile)
    parser.add_class_arguments(GraphDataModule, "data")
    for name, kind in further.items():
        parser.add_subclass_arguments(kind, name)
    # First, as later arguments win.
    given = [] if config is None else ["--config", _data_of(config, own)]
    with _one_line(own, parser):
        return made(parser, parser.parse_args([*given, *arguments]))


def data_parser(command: str, description: str | None, epilog: str) -> Parser:
    """Makes the parser of a command that looks at a data module; :func:`parse_data` parses with it."""
    own = Parser(
        command,
        usage="%(prog)s [DATA] [--data.sampler CLASS] [options]",
        description=description,
        epilog=epilog,
        allow_abbrev=False,
    )
    own.add_argument(
        "--config", type=Path, metavar="YAML", help="a configuration of gnnload fit; its part data is read"
    )
    own.add_argument("--data.KEY", metavar="VALUE", help="a setting of GraphDataModule, as gnnload fit --help has them")
    own.add_argument("--trainers", type=at_least(1), default=1, help="that share each step; default 1")
    return own


def parse_data(own: Parser, arguments: Sequence[str]) -> tuple[argparse.Namespace, Any]:
    """Parses the arguments of a :func:`data_parser`. Returns its options, and the data module that they name."""
    given = list(arguments)
    data = take_data(given, own)
    options, rest = own.parse_known_args(given)
    strangers = [text for text in rest if text.startswith("-") and not text.startswith("--data")]
    if strangers or (options.config is None and not rest and not data):
        own.error(f"unknown: {' '.join(strangers)}" if strangers else "give DATA, or --config FILE")
    return options, parse_module(own, options.config, [*data, *sampler_arguments(rest, options.config), *rest]).data


def made(parser: Any, settings: Any) -> Any:
    """Makes all objects that a parser of jsonargparse's has read the settings of."""
    # Older releases have the longer name only, newer ones warn of it.
    return (getattr(parser, "instantiate", None) or parser.instantiate_classes)(settings)


def take_data(given: list[str], own: argparse.ArgumentParser) -> list[str]:
    """Takes DATA, a folder or a data set's name, from the front of a command's arguments, where it is; returns the
    setting of a data module that it stands for."""
    if not given or given[0].startswith("-"):
        return []
    data = given.pop(0)
    if "." not in data and not os.path.exists(data) and data not in subclass_names(Dataset):
        what = "folder" if "/" in data else "data set or folder"
        own.error(f"DATA {data}: there is no such {what}. Give Debian, Synthetic, OGB, a folder, or {YOURS}")
    return ["--data.data", data]


def sampler_arguments(given: Sequence[str], config: Path | None, num_hops: int = 2) -> list[str]:
    """Returns the arguments that say which sampler, where neither ``given`` ones nor a configuration do."""
    named = [text.partition("=")[0] for text in given if text.startswith("--data.sampler")]
    if config is not None or "--data.sampler" in named:
        return []
    if named:
        return ["--data.sampler", "NeighborSampler"]
    return ["--data.sampler", "NeighborSampler", "--data.sampler.fanouts", str([FANOUT] * num_hops)]


def at_least(least: int) -> Callable[[str], int]:
    """Returns what reads a whole number of at least so much, for ``argparse``."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least {least} is needed")
        return int(text)

    return read


def share(text: str) -> float:
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


def known_cause(error: BaseException | None) -> GnnLoadError | None:
    """Finds this package's error among the causes of another one; None where there is none."""
    waiting = [error]
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, GnnLoadError):
            return each
        if each is not None:
            waiting += [each.__cause__, *_of_alternatives(each)]
    return None


def _of_alternatives(error: BaseException) -> list[BaseException]:
    """Returns why each type that a setting might have did not take it: the parser calls the first its cause, and has
    only words of the others."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    found = [frame.f_locals.get("exceptions") for frame in frames if frame.f_code.co_name == _UNION]
    return [each for held in found if isinstance(held, list) for each in held]


def read_config(file: Path, own: argparse.ArgumentParser) -> dict[str, Any]:
    """Reads a configuration file; ``own`` tells what is wrong with it in a line, and exits."""
    import yaml

    try:
        with open(file) as opened:
            read = yaml.safe_load(opened)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        own.error(f"--config {file} cannot be read: {' '.join(str(error).split())}")
    if not isinstance(read, dict):
        found = "it is empty" if read is None else f"it is {short(read):.100}"
        own.error(f"--config {file}: settings by their names are needed, as data: and model:, but {found}")
    return read


def _data_of(file: Path, own: argparse.ArgumentParser) -> str:
    """Reads the part ``data`` of a configuration file, as YAML: trainer and model do not matter here."""
    import yaml

    data = read_config(file, own).get("data")
    if not isinstance(data, dict):
        own.error(f"--config {file} has no part data, with the settings of a GraphDataModule")
    return str(yaml.safe_dump({"data": data}))


@contextmanager
def _one_line(own: argparse.ArgumentParser, parser: argparse.ArgumentParser) -> Iterator[Any]:
    import jsonargparse

    from lightning_gnnload.plugin.commands.reasons import reason

    try:
        yield
    except jsonargparse.ArgumentError as error:
        own.error(reason(str(error)) or with_nearest(_plain(error), parser))
    except ValueError as error:  # of a class that did not take its settings
        if (ours := known_cause(error)) is not None:
            raise ours from None
        own.error(_plain(error))


def _plain(error: Exception) -> str:
    """Writes the parser's message in one line, without its way of naming optional settings."""
    text = " ".join(str(error).split())
    aside = r"Does not validate against any of the Union .*? Errors: - | - Expected a <class '(NoneType|str)'>"
    aside += r"| - Not of type Path: .*? not \w+"
    return re.sub(rf"{aside}| Given value type: .*", "", text)
