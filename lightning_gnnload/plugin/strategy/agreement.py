"""Agreement: one rank measures and decides, all ranks of the job hear of it, before any plays a role.

Global rank 0 is a trainer whatever is decided. The others wait at a store that it keeps, and need no role for that.
"""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
import torch.distributed
from rich.console import Console

from lightning_gnnload.data.heartbeat import Patience
from lightning_gnnload.data.progress import shown_display
from lightning_gnnload.errors import SamplerDiedError, TrainerDiedError
from lightning_gnnload.pipeline.failure import Failure
from lightning_gnnload.plugin import handover
from lightning_gnnload.plugin.compat import TrainerFn, pl
from lightning_gnnload.plugin.job import Job, RoleDecision
from lightning_gnnload.plugin.strategy import profile
from lightning_gnnload.plugin.strategy.launcher import Siblings
from lightning_gnnload.plugin.strategy.rehearsal import RehearsalSetting
from lightning_gnnload.plugin.strategy.rendezvous import launch_store, leave_group
from lightning_gnnload.plugin.strategy.roles import load_decision, samplers_needed, save_decision
from lightning_gnnload.plugin.strategy.sampler_device import SamplerDevice

_KEY = "decision"
_PRESENT = "present-{}"
_POLL_S = 0.05  # to wait in the store itself would leave signals unheard
_GIVEN_THREADS = int(value) if (value := os.environ.get("OMP_NUM_THREADS", "")).isdigit() else None
"""Torch's threads as the user gave them: Lightning sets the same variable when it launches ranks."""


def agree(job: Job, trainer: pl.Trainer, arguments: dict[str, Any]) -> RoleDecision:
    """Returns in every rank what global rank 0 decides.

    Args:
        job: with roles that are provisional.
        trainer: Lightning's.
        arguments: of the function that it launches.

    Raises:
        RoleConfigError: in rank 0: it cannot be measured.
        TrainerFailedError, TrainerDiedError: in the others: rank 0 failed, ended, or did not come.
    """
    if job.roles.is_lone:
        decision = _decide(job, trainer, arguments)
        pl.utilities.rank_zero.rank_zero_info(str(decision))
        return decision
    # An earlier Trainer's: rank 0 must not measure in a group, and there may soon be another number of trainers.
    leave_group()
    store = launch_store(job, timedelta(seconds=job.connect_timeout_s), _patience(job, 0, 0))
    # By place, as global ranks depend on the roles that are to be decided.
    here = job.node_rank * job.roles.num_devices + job.local_rank
    if here != 0:
        store.set(_PRESENT.format(here), "")
        return _hear(store)
    try:
        _await_all(store, job)
        decision = _decide(job, trainer, arguments)
    except BaseException as error:
        # Even for Ctrl-C: the others wait for this key without a limit.
        failure = Failure.of(error, role="trainer", rank=0, stage="deciding roles")
        store.set(_KEY, json.dumps({"failure": failure.to_json()}))
        raise
    store.set(_KEY, json.dumps({"decision": decision.to_json()}))
    pl.utilities.rank_zero.rank_zero_info(str(decision))
    return decision


def _await_all(store: torch.distributed.Store, job: Job) -> None:
    """Waits until all ranks have started: those that still import would take cores that are to be measured."""
    for rank in range(1, job.roles.num_nodes * job.roles.num_devices):
        patience = _patience(job, *divmod(rank, job.roles.num_devices))
        while not store.check([_PRESENT.format(rank)]):
            time.sleep(_POLL_S)
            if patience.is_over():
                raise SamplerDiedError(
                    f"rank {rank} did not start in time: {patience}. See its own output above; "
                    f"if it is only slow to start, raise FactoredStrategy(connect_timeout_s=...)."
                )


def _patience(job: Job, node_rank: int, local_rank: int) -> Patience:
    """How long to wait for a rank. What one of another machine does cannot be seen from here."""
    is_busy = partial(Siblings().is_busy, local_rank) if node_rank == job.node_rank else lambda: False
    return Patience(job.connect_timeout_s, job.setup_timeout_s, is_busy)


def _hear(store: torch.distributed.Store) -> RoleDecision:
    """Waits for the decision, without a limit: data may be prepared meanwhile, and Lightning sets that none either."""
    try:
        handed = handover.handed()
        while not store.check([_KEY]):
            time.sleep(_POLL_S)
            if handed is not None and not handed.is_held:
                raise torch.distributed.DistNetworkError("the process that started this one is gone")
        said = json.loads(store.get(_KEY))
    except torch.distributed.DistNetworkError as error:
        raise TrainerDiedError(
            f"rank 0 ended while it decided the ranks' roles; its own output says why. ({error})"
        ) from error
    if "failure" in said:
        raise Failure.from_message(said["failure"]).error()
    return RoleDecision.from_json(said["decision"])


def _decide(job: Job, trainer: pl.Trainer, arguments: dict[str, Any]) -> RoleDecision:
    plan = job.roles
    provisional = RoleDecision(plan.num_devices, plan.num_samplers)
    alone = "it trains too, as it is the only one"
    # Several machines of one rank each decide apart, without a store; on a device all is made by that device.
    if plan.is_lone and (job.switching or plan.num_nodes > 1 or job.device.type != "cpu"):
        return replace(provisional, reason=alone)
    if trainer.state.fn != TrainerFn.FITTING:
        reason = alone if plan.is_lone else "roles are measured by training, and this run does not train"
        return replace(provisional, reason=reason)
    folder = trainer.default_root_dir
    earlier = load_decision(folder)
    cores = sorted(os.sched_getaffinity(0))
    # A sampler's cores are known once the roles are, so it is measured on a rank's equal share.
    share = max(len(cores) // plan.num_devices, 1)
    setting = RehearsalSetting(
        job.device,
        job.num_sampler_threads,
        cores[-share:],
        _facts(job, trainer),
        torch_threads=_most_torch_threads(job),
        on_sampler=lambda module, source: SamplerDevice(job).source(module, source),
    )
    with shown_display(
        Console(stderr=True).status("measuring how long mini-batches take to make, and to train on ...")
    ):
        measured_on, stages = profile.measure(
            trainer, arguments, setting, lambda facts: earlier is not None and earlier.measured_on == facts
        )
    if stages is None:
        assert earlier is not None
        decision = earlier
    else:
        decision = replace(provisional, stages=stages, num_cores=len(cores), measured_on=measured_on)
    if plan.is_lone:
        decision = replace(decision, num_samplers=1, reason=alone)
    elif job.samplers == "auto":
        assert decision.sample_ms is not None
        assert decision.train_ms is not None
        needed = samplers_needed(decision.sample_ms, decision.train_ms, plan.num_devices)
        decision = replace(decision, num_samplers=needed, reason="")
    else:
        decision = replace(decision, num_samplers=job.samplers, reason="their number was given")
    if stages is not None:
        save_decision(decision, folder)
    return decision


def _most_torch_threads(job: Job) -> int:
    """All cores, unless the user has given less; a fork of a process that has computed must do with one."""
    if job.start_method == "fork":
        return 1
    return min(_GIVEN_THREADS or len(os.sched_getaffinity(0)), len(os.sched_getaffinity(0)))


def _facts(job: Job, trainer: pl.Trainer) -> dict[str, Any]:
    """Collects what the measured times depend on, apart from data and model."""
    device = job.device
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "ranks": [job.roles.num_nodes, job.roles.num_devices],
        "precision": str(trainer.precision_plugin.precision),
        "sampler_threads": job.num_sampler_threads,
        "torch_threads": _most_torch_threads(job),
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "versions": [version("lightning-gnnload"), torch.__version__, pl.__version__],
    }
