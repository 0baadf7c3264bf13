"""All faults of a configuration, where its parser stops at the first: it is asked again, part by part."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import lightning_gnnload
from lightning_gnnload.datasets.description import YamlLines, load_yaml
from lightning_gnnload.errors import GraphSpecError
from lightning_gnnload.ingest.dataset import Tables
from lightning_gnnload.ingest.spec import GraphSpec
from lightning_gnnload.plugin.commands.causes import instantiate, known_cause
from lightning_gnnload.plugin.commands.classes import import_class
from lightning_gnnload.plugin.commands.reasons import reason
from lightning_gnnload.plugin.compat import lightning_cli, pl

_NOT_GIVEN = re.compile(r"(?P<owner>.*) needs (?P<names>[\w., ]+), which is not given\.")
_REQUIRED = "the following arguments are required"
_STRANGER = re.compile(r"(?:Group '(\w+)' does not accept o|O)ption '([\w.]+)'(?: is not accepted)?")
_GROUPS = ("trainer", "data")
_Whole = Callable[[Any], dict[str, Any]]
"""Makes a whole configuration of one part of it."""


class Fault(NamedTuple):
    """One thing that is wrong, and where, as ``data.sampler.init_args.fanouts``."""

    where: str
    sentence: str


class _SaidError(Exception):
    """What a parser says of a configuration."""


def faults_of_file(parser: Any, file: Path, parts: Container[str] | None = None) -> list[str]:
    """Lists what is wrong in a configuration that ``parser``, of one command, does not take; a line for each, as
    ``run.yaml:3: ...``. Examples follow where there is but one. Empty: by itself nothing is. ``parts`` are those to
    look at, as ``data``; None: all."""
    text = file.read_text()
    values = {part: value for part, value in load_yaml(text).items() if parts is None or part in parts}
    lines, faults = YamlLines(text), list(_faults(parser, values))
    sentences = dict.fromkeys((lines.of(fault.where), fault.sentence) for fault in faults)
    if len(sentences) > 1:
        sentences = dict.fromkeys(
            (line, re.sub(r"; for example$", ".", sentence.splitlines()[0])) for line, sentence in sentences
        )
    return [f"{file}:{line}: {sentence}" for line, sentence in sorted(sentences, key=lambda entry: entry[0])]


def _faults(parser: Any, values: Mapping[str, Any]) -> Iterator[Fault]:
    for part, settings in values.items():
        if part in _GROUPS and isinstance(settings, Mapping):
            for name, value in settings.items():
                unset = _complaint(parser, _in_group(part, name, None))
                if unset is not None and f"{part} has no setting {name}" in unset:
                    yield Fault(f"{part}.{name}", unset)
                    continue
                yield from _within(parser, value, partial(_in_group, part, name), f"{part}.{name}")
        else:
            yield from _within(parser, settings, partial(_alone, part), str(part))


def _alone(part: str, value: Any) -> dict[str, Any]:
    return {part: value}


def _in_group(part: str, name: str, value: Any) -> dict[str, Any]:
    return {part: {name: value}}


def _within(parser: Any, value: Any, whole: _Whole, where: str) -> list[Fault]:
    """Lists the faults of one value: of its parts where these have any, else its own."""
    sentence = _complaint(parser, whole(value))
    is_class = isinstance(value, Mapping) and isinstance(value.get("class_path"), str)
    if sentence is None:
        return _of_making(value, where) if is_class else []
    faults: list[Fault] = []
    if is_class and isinstance(value.get("init_args"), Mapping):
        faults = (_of_tables(value, where) or []) + _of_settings(parser, value, whole, where)
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value):
            faults += _within(parser, item, lambda item: whole([item]), f"{where}[{number}]")
    return faults or [Fault(where, sentence)]


def _of_settings(parser: Any, value: Mapping[str, Any], whole: _Whole, where: str) -> list[Fault]:
    """Lists the faults of a class's settings, each of which is tried alone."""

    def with_settings(settings: dict[str, Any]) -> dict[str, Any]:
        return whole({**value, "init_args": settings})

    settings: Mapping[str, Any] = value["init_args"]
    faults: list[Fault] = []
    sound = {}
    # What is said whatever is set: of the class itself, or of settings that it needs.
    always = _complaint(parser, with_settings({}))
    for name, one in settings.items():
        sentence = _complaint(parser, with_settings({name: one}))
        if sentence is None or sentence == always or (always and _is_of_missing(sentence)):
            sound[name] = one
        else:
            faults += _within(parser, one, partial(_setting, with_settings, name), f"{where}.init_args.{name}")
    sentence = _complaint(parser, with_settings(sound))
    if sentence and (missing := _NOT_GIVEN.fullmatch(sentence)):
        named = {*settings, *(name for fault in faults for name in re.findall(r"did you mean (\w+)\?", fault.sentence))}
        names = [name for name in missing["names"].split(", ") if name not in named]
        sentence = f"{missing['owner']} needs {', '.join(names)}, which is not given." if names else None
    return [*faults, Fault(where, sentence)] if sentence else faults


def _setting(with_settings: _Whole, name: str, value: Any) -> dict[str, Any]:
    return with_settings({name: value})


def _is_of_missing(sentence: str) -> bool:
    return _NOT_GIVEN.fullmatch(sentence) is not None


def _complaint(parser: Any, values: dict[str, Any]) -> str | None:
    """Returns what is wrong with a part of a configuration by itself, in our words; of what is missing beside it,
    None."""

    def say(message: str, *_: Any) -> NoReturn:
        raise _SaidError(message)

    before, parser.error = parser.error, say
    try:
        parser.parse_object(values)
    except _SaidError as sentence:
        message = str(sentence)
        # As the parser of all commands says it, which names the whole of a setting.
        message = re.sub(
            r"^Group '(\w+)' does not accept option '", r"Subcommand 'fit' does not accept option '\1.", message
        )
        message = re.sub(r"^Option ('[\w.]+') is not accepted$", r"Subcommand 'fit' does not accept option \1", message)
        if message.startswith(_REQUIRED):
            return None
        return reason(message) or " ".join(message.split())
    finally:
        parser.error = before
    return None


def _of_making(value: Mapping[str, Any], where: str) -> list[Fault]:
    """Lists what a class of this package says of settings that the parser takes."""
    if (faults := _of_tables(value, where)) is not None:
        return faults
    cls = getattr(lightning_gnnload, value["class_path"], None) or import_class(value["class_path"])
    is_ours = isinstance(cls, type) and cls.__module__.startswith(f"{lightning_gnnload.__name__}.")
    if not is_ours or issubclass(cls, pl.LightningModule):
        return []
    parser = lightning_cli.LightningArgumentParser(exit_on_error=False)
    try:
        parser.add_argument("--it", type=cls | None)
        instantiate(parser, parser.parse_object({"it": dict(value)}))
    except Exception as error:  # what is not ours, the run itself tells
        cause = known_cause(error)
        return [Fault(where, f"{where}: {cause}")] if cause is not None else []
    return []


def _of_tables(value: Mapping[str, Any], where: str) -> list[Fault] | None:
    """Lists the faults of the description that a value of the class Tables is; None where it is no such."""
    settings = value.get("init_args")
    if value["class_path"].rpartition(".")[2] != Tables.__name__ or not isinstance(settings, Mapping):
        return None
    sections = {name: settings[name] for name in ("nodes", "edges", "tasks", "build") if settings.get(name) is not None}
    try:
        if sections:
            GraphSpec.of({"version": 1, **sections})
        elif isinstance(settings.get("graph"), str):
            GraphSpec.read(settings["graph"])
    except GraphSpecError as error:
        paths = [fault.where or str(fault).partition(": ")[0] for fault in error.faults or (error,)]
        sentence = str(error).splitlines() if "graph" in settings else map(str, error.faults or (error,))
        return [Fault(f"{where}.init_args.{path}", line) for path, line in zip(paths, sentence, strict=False)]
    return []
