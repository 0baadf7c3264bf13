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
from importlib.metadata import version
from typing import Any

import torch
import torch.distributed
from rich.console import Console

from lightning_gnnload.errors import SamplerDiedError, TrainerDiedError
from lightning_gnnload.pipeline.failure import Failure
from lightning_gnnload.plugin import handover
from lightning_gnnload.plugin.compat import TrainerFn, pl
from lightning_gnnload.plugin.job import Job, RoleDecision
from lightning_gnnload.plugin.strategy import profile
from lightning_gnnload.plugin.strategy.rendezvous import launch_store, leave_group
from lightning_gnnload.plugin.strategy.roles import load_decision, samplers_needed, save_decision

_KEY = "decision"
_PRESENT = "present-{}"
_POLL_S = 0.05  # to wait in the store itself would leave signals unheard


def agree(job: Job, trainer: pl.Trainer, arguments: dict[str, Any]) -> RoleDecision:
    """Returns in every rank what global rank 0 decides.

    Args:
        job: with roles that are provisional.
        trainer: Lightning's.
        arguments: of the function that it launches.

    Raises:
        RoleConfigError: in rank 0: it cannot be measured.
        TrainerFailedError, TrainerDiedError: in the others: rank 0 failed, or ended.
    """
    if job.roles.is_lone:
        decision = RoleDecision(1, 1, reason="it trains too, as it is the only one")
        pl.utilities.rank_zero.rank_zero_info(str(decision))
        return decision
    # An earlier Trainer's: rank 0 must not measure in a group, and there may soon be another number of trainers.
    leave_group()
    store = launch_store(job, timedelta(seconds=job.connect_timeout_s))
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
    deadline = time.monotonic() + job.connect_timeout_s
    for rank in range(1, job.roles.num_nodes * job.roles.num_devices):
        while not store.check([_PRESENT.format(rank)]):
            time.sleep(_POLL_S)
            if time.monotonic() > deadline:
                raise SamplerDiedError(
                    f"rank {rank} did not start within {job.connect_timeout_s:.0f} s. See its own output above; "
                    f"if it is only slow to start, raise FactoredStrategy(connect_timeout_s=...)."
                )


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
    if trainer.state.fn != TrainerFn.FITTING:
        return RoleDecision(
            plan.num_devices, plan.num_samplers, reason="roles are measured by training, and this run does not train"
        )
    folder = trainer.default_root_dir
    earlier = load_decision(folder)
    # A sampler's cores are known once the roles are, so it is measured on a rank's equal share.
    share = max(len(os.sched_getaffinity(0)) // plan.num_devices, 1)
    setting = profile.ProfileSetting(
        job.device,
        job.num_sampler_threads,
        sorted(os.sched_getaffinity(0))[-share:],
        _facts(job, trainer),
    )
    with Console(stderr=True).status("measuring how long mini-batches take to make, and to train on ..."):
        measured_on, times = profile.measure(
            trainer, arguments, setting, lambda facts: earlier is not None and earlier.measured_on == facts
        )
    if times is None:
        assert earlier is not None
        decision = earlier
    else:
        decision = RoleDecision(
            plan.num_devices,
            1,
            sample_ms=times.sample_ms,
            train_ms=times.train_ms,
            sample_cores=min(setting.num_threads, share),
            train_cores=torch.get_num_threads(),
            batch_bytes=times.batch_bytes,
            measured_on=measured_on,
        )
    decision = _with_samplers(decision, job)
    if times is not None:
        save_decision(decision, folder)
    return decision


def _with_samplers(decision: RoleDecision, job: Job) -> RoleDecision:
    if job.samplers != "auto":
        return replace(decision, num_samplers=job.samplers, reason="their number was given")
    assert decision.sample_ms is not None
    assert decision.train_ms is not None
    needed = samplers_needed(decision.sample_ms, decision.train_ms, job.roles.num_devices)
    return replace(decision, num_samplers=needed, reason="")


def _facts(job: Job, trainer: pl.Trainer) -> dict[str, Any]:
    """Collects what the measured times depend on, apart from data and model."""
    device = job.device
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "ranks": [job.roles.num_nodes, job.roles.num_devices],
        "precision": str(trainer.precision_plugin.precision),
        "sampler_threads": job.num_sampler_threads,
        "torch_threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "versions": [version("lightning-gnnload"), torch.__version__, pl.__version__],
    }
