"""The worker's side: carries out orders until there are no more."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

from tests.benchmarks.errors import Unavailable


def serve(library: type[Any]) -> None:
    """Makes ``library(**settings)`` and calls its methods as ordered, one line of JSON each way."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not get among the replies
    made: Any = None
    try:
        for line in sys.stdin:
            order = json.loads(line)
            try:
                made = made or library(**json.loads(sys.argv[1]))
                reply = getattr(made, order["task"])(**order["arguments"])
            except Unavailable as reason:
                reply = {"unavailable": str(reason)}
            except Exception:
                reply = {"error": traceback.format_exc()}
            print(json.dumps(reply), file=replies, flush=True)
    except KeyboardInterrupt:
        pass  # the one who gave the orders was interrupted, too, and says so
    finally:
        if hasattr(made, "close"):
            made.close()
