"""Roles: how many ranks should sample, and the file that remembers what was measured."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.job import FILE_NAME, MEASURING_ERROR, RoleDecision, batch_every_ms


def samplers_needed(sample_ms: float, train_ms: float, num_ranks: int) -> int:
    """Computes how many of a machine's ranks should sample: the fewest with which mini-batches come at most 3 % slower
    than with the best number (:func:`.batch_every_ms`). At least 1 samples, and at least 1 trains.

    With the samplers that GNNLab takes, ``N_g / (K + 1)`` rounded up, trainers never wait. But where one sampler less
    makes them wait for an instant, one trainer more is worth far more than that.

    Args:
        sample_ms: what one sampler takes for a mini-batch, at its throughput (T_s).
        train_ms: what one trainer takes for a step, its mini-batch being ready (T_t).
        num_ranks: ranks of the machine, 2 or more (N_g).

    Raises:
        RoleConfigError: a time is negative or no number, or there are fewer ranks.

    Source: GNNLab (EuroSys'22), section 5.3, for T_s, T_t and K = T_t / T_s.

    Example:
        >>> samplers_needed(sample_ms=21.1, train_ms=63.1, num_ranks=4)  # every 21.1 ms; with 2 it is every 31.6 ms
        1
    """
    if not (0 <= sample_ms < math.inf and 0 <= train_ms < math.inf and num_ranks > 1):
        raise RoleConfigError(
            f"sample_ms={sample_ms}, train_ms={train_ms}, num_ranks={num_ranks}: two times in milliseconds are needed, "
            "neither negative nor infinite, and 2 ranks or more."
        )
    every_ms = [batch_every_ms(sample_ms, train_ms, count, num_ranks) for count in range(1, num_ranks)]
    enough_ms = min(every_ms) * (1 + MEASURING_ERROR)
    return 1 + next(index for index, time_ms in enumerate(every_ms) if time_ms <= enough_ms)


def check_role_options(samplers: object, trainers: object, queue_depth: object, queue_memory_bytes: object) -> None:
    """Checks options of FactoredStrategy. Raises RoleConfigError: they are impossible, whatever the devices."""
    if samplers != "auto" and (not isinstance(samplers, int) or isinstance(samplers, bool) or samplers < 1):
        raise RoleConfigError(
            f"samplers={samplers!r}: the number of samplers is needed, at least 1, or 'auto'. "
            f"To sample inside the training ranks, use strategy='auto' or 'ddp' with the same data module."
        )
    if samplers == "auto" and trainers is not None:
        raise RoleConfigError(
            f"samplers='auto', trainers={trainers!r}: 'auto' divides as many ranks as there are devices. "
            f"Give the number of both, or leave trainers out."
        )
    if queue_memory_bytes is not None and queue_depth != "auto":
        raise RoleConfigError(
            f"queue_depth={queue_depth!r} and queue_memory_bytes={queue_memory_bytes!r} both set the queue's depth. "
            f"Leave one of them out, or give queue_depth='auto'."
        )
    for name, value in (
        ("trainers", trainers),
        ("queue_depth", None if queue_depth == "auto" else queue_depth),
        ("queue_memory_bytes", queue_memory_bytes),
    ):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise RoleConfigError(f"{name}={value!r}: a whole number of at least 1 is needed.")


def save_decision(decision: RoleDecision, folder: str) -> None:
    """Writes the figures to ``folder``, where a later run finds them. A folder that cannot be written is no harm."""
    if "://" in folder:
        return
    path = Path(folder) / FILE_NAME
    # By process: jobs that share the folder must not write into each other's.
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(decision.to_json())
        temporary.replace(path)  # at once: another job may read it
    except OSError as error:
        pl.utilities.rank_zero.rank_zero_warn(f"the measured times are not kept for the next run: {error}")


def load_decision(folder: str) -> RoleDecision | None:
    """Reads what an earlier run wrote to ``folder``; None, with a warning, when the file is broken or not ours."""
    path = Path(folder) / FILE_NAME
    if "://" in folder or not path.is_file():
        return None
    try:
        return replace(RoleDecision.from_json(path.read_text()), reused=True)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        pl.utilities.rank_zero.rank_zero_warn(f"{path} is ignored, and will be written anew: {error}")
        return None
