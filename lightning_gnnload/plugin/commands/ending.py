"""How a command ends by a signal: it removes its unfinished output, and its status says which signal it was."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE_S = 1.0  # signals that follow each other faster are one request: Ctrl-C twice, systemd's SIGTERM and SIGHUP


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
