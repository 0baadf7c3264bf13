"""Runs parts of a report, one process after the other, and ends those that take too long."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Any, Literal, NamedTuple

from lightning_gnnload.plugin.device_report.parts import RESULT_BYTES

_ENDING_S = 10.0
_LAST_BYTES = 600  # of what a process that crashed has said


class PartOutcome(NamedTuple):
    """What became of a part."""

    outcome: Literal["done", "failed", "stopped"]
    seconds: float
    why: str = ""
    result: Any = None


def run_part(command: Sequence[str], limit_s: float) -> PartOutcome:
    """Runs the process of a part, and kills it and all that it has started after ``limit_s``, or when this one is
    ended."""
    began = time.monotonic()
    # Files, as pipes would stay open in what a killed process has started.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True)
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            has_ended = _end(process)
        seconds = round(time.monotonic() - began, 1)
        if status is None:
            left_behind = "" if has_ended else "; the driver does not let its process end"
            return PartOutcome("stopped", seconds, f"it took longer than {limit_s:g} s{left_behind}")
        return _outcome(status, seconds, _text(out), _text(log))


def _outcome(status: int, seconds: float, text: str, log: str) -> PartOutcome:
    try:
        answer = json.loads(text)
    except ValueError:
        ended = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return PartOutcome("failed", seconds, f"its process ended with {ended}: {log[-_LAST_BYTES:].strip()}")
    if "error" in answer:
        return PartOutcome("failed", seconds, answer["error"])
    return PartOutcome("done", seconds, result=answer.get("result"))


def _end(process: subprocess.Popen[bytes]) -> bool:
    """Kills a process's whole session; returns whether it has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:  # within a call of the driver that does not return
        return False
    return True


def _text(file: IO[bytes]) -> str:
    file.seek(0, os.SEEK_END)
    file.seek(max(file.tell() - RESULT_BYTES, 0))
    return file.read().decode(errors="replace")
