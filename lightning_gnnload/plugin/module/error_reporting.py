"""Error reports: the rank where an error happened prints it, in the user's own frames, and no other rank does.

A rank claims an error when it leaves a call of the Trainer, before the other ranks fail in consequence. Whether it is
printed is decided where Python would print a traceback: an error that a script catches is the script's.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from lightning_gnnload.errors import LaunchError, PeerError
from lightning_gnnload.pipeline.queue.failure import Failure
from lightning_gnnload.plugin import handover
from lightning_gnnload.plugin.compat import SubprocessScriptLauncher, environments, pl
from lightning_gnnload.plugin.module.gather_group import public_name, run_name

_SWITCH = "GNNLOAD_TRACEBACK"
"""The environment variable that, set to ``full``, has every rank print what Python would."""
_LIBRARIES = ("lightning_gnnload", "pytorch_lightning", "lightning_fabric", "lightning", "torch", "jsonargparse")
_OMITTED = f"frames of torch, Lightning and lightning_gnnload are left out; {_SWITCH}=full shows them"


class _Origin(NamedTuple):
    """Where an error happened, and whether this process prints it. An attribute of the error: a list of errors would
    keep all that their frames refer to."""

    rank: str
    is_reported_here: bool


_MARK = "_gnnload_origin"
_calls = 0
"""Of the Trainer, in this process; alike in all ranks, which run the same script."""
_previous_hook: list[Callable[..., None]] = []
"""What printed errors before this module did."""


def begin_call() -> None:
    """Begins a call of the Trainer, in which another error may happen."""
    global _calls
    _calls += 1


def note(error: BaseException, run: str | None, rank: str) -> None:
    """Notes an error that leaves a call of the Trainer, so that one rank reports it if nobody catches it. ``run`` is
    the job's :func:`.public_name`, None if no other process prints anything; ``rank`` a name such as ``"trainer rank
    1"``."""
    # Ctrl-C and SystemExit need no explanation.
    if os.environ.get(_SWITCH) == "full" or hasattr(error, _MARK) or not isinstance(error, Exception):
        return
    setattr(error, _MARK, _Origin(rank, run is None or (not _is_another_ranks(error) and _claims(run))))
    if sys.excepthook is not _print:  # torch sets its hook when it forms a process group
        _previous_hook[:], sys.excepthook = [sys.excepthook], _print


def begin_script_call(trainer: pl.Trainer | None) -> None:
    """Likewise, where several ranks run the script under another strategy than ours, which reports errors itself."""
    if trainer is not None and (environment := _script_environment(trainer)) is not None:
        begin_call()
        # Before any rank fails: the first one makes a secret for all, which is gone with the last.
        run_name(environment, trainer.node_rank)


def note_in_script(error: BaseException, trainer: pl.Trainer | None) -> None:
    """As :func:`note`, under another strategy than ours."""
    if trainer is not None and (environment := _script_environment(trainer)) is not None:
        note(error, public_name(environment, trainer.node_rank), f"rank {trainer.global_rank}")


def _script_environment(trainer: pl.Trainer) -> environments.ClusterEnvironment | None:
    strategy: Any = getattr(trainer, "strategy", None)
    several = isinstance(getattr(strategy, "launcher", None), SubprocessScriptLauncher) and trainer.world_size > 1
    return strategy.cluster_environment if several and not hasattr(strategy, "gather_group") else None


def is_reported_here(error: BaseException) -> bool:
    """Whether this rank prints an error."""
    origin: _Origin | None = getattr(error, _MARK, None)
    return origin is None or origin.is_reported_here


def _is_another_ranks(error: Exception) -> bool:
    """Whether the error is that of a rank that lives, and reports it."""
    failure = getattr(error, "failure", None)
    return isinstance(error, PeerError) and isinstance(failure, Failure) and not failure.died


def _claims(run: str) -> bool:
    """Whether this rank is the first to claim an error of this call."""
    try:
        return handover.is_first(run, f"error-{_calls}")
    except (OSError, RuntimeError, LaunchError):
        return True  # what ranks share is gone: better twice than never


def _print(error_type: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    origin: _Origin | None = getattr(error, _MARK, None)
    if origin is None:
        _previous_hook[0](error_type, error, trace)
        return
    text = report(error, origin.rank) if origin.is_reported_here else f"{origin.rank} ends too: {_in_a_line(error)}\n"
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def report(error: BaseException, rank: str) -> str:
    """The traceback of an error by the user's frames and the last one, or by all where none is the user's. The text of
    a spawned rank's error contains its traceback."""
    if isinstance(error, PeerError):
        text = _short_text(str(error))
        return f"{type(error).__name__}: {text}\n{f'({_OMITTED}){chr(10)}' if text != str(error) else ''}"
    formatted = traceback.TracebackException.from_exception(error)
    shortened = [_shorten(part) for part in _chain(formatted)]
    return f"{rank} failed{f' ({_OMITTED})' if any(shortened) else ''}:\n{''.join(formatted.format())}"


def _chain(error: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    if error is not None:
        yield error
        yield from _chain(error.__cause__)
        yield from _chain(error.__context__)


def _shorten(error: traceback.TracebackException) -> bool:
    """Removes the frames of libraries; returns whether there were any."""
    frames = list(error.stack)
    users = [frame for frame in frames if not _is_of_library(frame.filename)]
    if not users or len(users) == len(frames):
        return False
    error.stack = traceback.StackSummary.from_list([*users, *frames[-1:]] if users[-1] is not frames[-1] else users)
    return True


def _short_text(text: str) -> str:
    """Removes the frames of libraries from a traceback that is text."""
    parts = re.split(r"(?m)^(?=  File |\S)", text)
    frames = [part for part in parts if part.startswith("  File ")]
    users = {part for part in frames if not _is_of_library(part.split('"')[1])}
    return (
        "".join(part for part in parts if part not in frames or part in users or part is frames[-1]) if users else text
    )


def _is_of_library(filename: str) -> bool:
    modules = (sys.modules.get(name) for name in _LIBRARIES)
    folders = tuple(f"{Path(module.__file__).parent}{os.sep}" for module in modules if module and module.__file__)
    return filename.startswith((*folders, "<frozen"))


def _in_a_line(error: BaseException) -> str:
    """An error's first line; of another rank's, also the last one, which is that rank's error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    also = f" {lines[-1]}" if isinstance(error, Exception) and _is_another_ranks(error) and len(lines) > 1 else ""
    return f"{type(error).__name__}: {lines[0]}{also}"[:600]
