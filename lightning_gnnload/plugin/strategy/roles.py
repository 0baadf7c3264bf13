"""Roles: how many ranks should sample, and the file that remembers what was measured."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.job import FILE_NAME, RoleDecision


def samplers_needed(sample_ms: float, train_ms: float, num_ranks: int) -> int:
    """Computes how many of a machine's ranks should sample, so that trainers need not wait: at least 1, and not all.

    One sampler feeds ``K = train_ms / sample_ms`` trainers. Of ``K + 1`` ranks one samples, rounded up, as a
    trainer that waits is worse than a sampler that does.

    Args:
        sample_ms: what one sampler takes for a mini-batch, at its throughput (T_s).
        train_ms: what one trainer takes for a step, its mini-batch being ready (T_t).
        num_ranks: ranks of the machine, 2 or more (N_g).

    Source: GNNLab (EuroSys'22), section 5.3.

    Example:
        >>> samplers_needed(sample_ms=12.1, train_ms=31.0, num_ranks=8)  # 8 / (2.56 + 1) = 2.2
        3
    """
    # N_g / (K + 1) without the division by T_s, which may be as small as the clock can tell.
    wanted = math.ceil(num_ranks * sample_ms / max(sample_ms + train_ms, 1e-9))
    return min(max(wanted, 1), num_ranks - 1)


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
