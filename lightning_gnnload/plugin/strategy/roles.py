"""Roles: how many ranks should sample, and the file that remembers what was measured."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.pipeline.forecast.stages import MEASURING_ERROR, batch_every_ms
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.job import FILE_NAME, RoleDecision
from lightning_gnnload.plugin.module.settings import check_positive, is_positive
from lightning_gnnload.settings import check_one_of


def samplers_needed(sample_ms: float, train_ms: float, num_ranks: int) -> int:
    """Computes how many of a machine's ``num_ranks`` (2 or more) should sample: the fewest with which mini-batches come
    at most 3 % slower than with the best number (:func:`.batch_every_ms`). At least 1 samples, and at least 1 trains.

    ``sample_ms`` (T_s) is a sampler's time for a mini-batch at its throughput, ``train_ms`` (T_t) a trainer's for a
    step whose mini-batch is ready. GNNLab's ``N_g / (K + 1)`` samplers, rounded up, never make trainers wait. But where
    one less makes them wait for an instant, one trainer more is worth far more.

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


def check_role_options(
    samplers: object, trainers: object, queue_depth: object, queue_memory_bytes: object, sampler_nodes: object
) -> None:
    """Checks how FactoredStrategy's ranks are divided. Raises RoleConfigError: impossible, whatever the devices."""
    if type(sampler_nodes) is not int or sampler_nodes < 0:
        raise RoleConfigError(
            f"sampler_nodes={sampler_nodes!r}: the number of machines is needed whose ranks all sample, 0 or more."
        )
    if sampler_nodes and samplers == "auto":
        raise RoleConfigError(
            f"samplers='auto', sampler_nodes={sampler_nodes}: 'auto' weighs the ranks of one machine against each "
            f"other, and knows no network. Give the number of each training machine's samplers; it may be 0."
        )
    if samplers != "auto" and not is_positive(samplers) and not (sampler_nodes and samplers == 0):
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
    check_positive("trainers", trainers, RoleConfigError, optional=True)
    check_positive("queue_depth", None if queue_depth == "auto" else queue_depth, RoleConfigError, optional=True)
    check_positive("queue_memory_bytes", queue_memory_bytes, RoleConfigError, optional=True)


def check_run_options(
    switching: object,
    sampler_threads: object,
    takeover: object,
    sampler_nodes: int,
    gathered_by: object,
    *,
    measures: bool,
    **timeouts_s: float,
) -> None:
    """Checks how FactoredStrategy's ranks run. Raises RoleConfigError: an option of another type or range."""
    if switching and sampler_nodes:
        raise RoleConfigError(
            f"switching={switching!r}, sampler_nodes={sampler_nodes}: samplers that train get parameters, and give "
            f"gradients, in shared memory, which other machines have no part of. Leave one of the two out."
        )
    if sampler_threads == "auto" and sampler_nodes:
        raise RoleConfigError(
            f"sampler_threads='auto', sampler_nodes={sampler_nodes}: they are measured on a machine that trains. Give "
            f"their number, or leave it out."
        )
    check_one_of("gathered_by", gathered_by, ("samplers", "trainers"), RoleConfigError)
    if gathered_by == "trainers" and measures:
        raise RoleConfigError(
            "gathered_by='trainers' with 'auto': what is measured are samplers that gather. Give samplers and "
            "sampler_threads as numbers."
        )
    if not isinstance(switching, int) or switching < 0:
        raise RoleConfigError(
            f"switching={switching!r}: True or False is needed, or by how many updates a sampler's gradient may be "
            f"late (True is 1)."
        )
    if sampler_threads not in (None, "auto") and (not isinstance(sampler_threads, int) or sampler_threads < 1):
        raise RoleConfigError(
            f"sampler_threads={sampler_threads!r}: a whole number of at least 1 is needed, or 'auto'."
        )
    for name, seconds in timeouts_s.items():
        if not seconds > 0:
            raise RoleConfigError(f"{name}={seconds!r}: a positive number of seconds is needed.")
    if not isinstance(takeover, bool):
        raise RoleConfigError(f"takeover={takeover!r}: True or False is needed.")


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
