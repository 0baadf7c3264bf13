"""Agreement: one rank measures and decides on the roles, and all ranks of the job learn it before any takes a role.

Global rank 0 is a trainer whatever is decided. The others wait at its store, for which they need no role.
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

from lightning_gnnload.errors import SamplerDiedError, TrainerDiedError
from lightning_gnnload.host.heartbeat import Patience
from lightning_gnnload.host.progress import shown_display
from lightning_gnnload.pipeline.forecast.stages import MEASURING_ERROR, StageTimes
from lightning_gnnload.pipeline.queue.failure import Failure
from lightning_gnnload.plugin import handover
from lightning_gnnload.plugin.compat import TrainerFn, pl
from lightning_gnnload.plugin.job import Job, RoleDecision
from lightning_gnnload.plugin.strategy import profile
from lightning_gnnload.plugin.strategy.launcher import Siblings
from lightning_gnnload.plugin.strategy.rehearsal import RehearsalSetting
from lightning_gnnload.plugin.strategy.rendezvous import launch_store, leave_group
from lightning_gnnload.plugin.strategy.resources import most_torch_threads
from lightning_gnnload.plugin.strategy.roles import load_decision, samplers_needed, save_decision
from lightning_gnnload.plugin.strategy.sampler_device import SamplerDevice
from lightning_gnnload.plugin.strategy.trial import describe_trial, fastest_way

_KEY = "decision"
_PRESENT = "present-{}"
_ALONE = "it trains too, as it is the only one"
_POLL_S = 0.05  # to wait in the store itself would leave signals unheard


def agree(job: Job, trainer: pl.Trainer, arguments: dict[str, Any]) -> RoleDecision:
    """Returns in every rank what global rank 0 decides; the roles of ``job`` are provisional.

    Raises RoleConfigError in rank 0 if nothing can be measured; in the others TrainerFailedError or TrainerDiedError,
    if rank 0 failed, ended or did not come.
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
    """Waits until all ranks have started: those that still import would take cores during the measurement."""
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
    """How long to wait for a rank. What a rank of another machine does cannot be seen from here."""
    is_busy = partial(Siblings().is_busy, local_rank) if node_rank == job.node_rank else lambda: False
    return Patience(job.connect_timeout_s, job.setup_timeout_s, is_busy)


def _hear(store: torch.distributed.Store) -> RoleDecision:
    """Waits for the decision, without a limit: data may be prepared meanwhile, for which Lightning sets no limit
    either."""
    try:
        launch_info = handover.current()
        while not store.check([_KEY]):
            time.sleep(_POLL_S)
            if launch_info is not None and not launch_info.is_launcher_alive:
                raise torch.distributed.DistNetworkError("the process that started this one is gone")
        message = json.loads(store.get(_KEY))
    except torch.distributed.DistNetworkError as error:
        raise TrainerDiedError(
            f"rank 0 ended while it decided the ranks' roles; its own output says why. ({error})"
        ) from error
    if "failure" in message:
        raise Failure.from_message(message["failure"]).error()
    return RoleDecision.from_json(message["decision"])


def _decide(job: Job, trainer: pl.Trainer, arguments: dict[str, Any]) -> RoleDecision:
    plan = job.roles
    provisional = RoleDecision(plan.num_devices, plan.num_samplers)
    if (reason := _why_not_measured(job, trainer)) is not None:
        return replace(provisional, reason=reason)
    folder, cores = trainer.default_root_dir, sorted(os.sched_getaffinity(0))
    earlier = load_decision(folder)
    # A sampler's cores are known once the roles are, so it is measured on a rank's equal share.
    share = max(len(cores) // plan.num_devices, 1)
    setting = RehearsalSetting(
        job.device,
        job.num_sampler_threads,
        cores[-share:],
        _facts(job, trainer),
        torch_threads=most_torch_threads(job),
        on_sampler=lambda module, source: SamplerDevice(job).source(module, source),
        host_threads=_host_threads(job, len(cores)) if plan.is_lone and job.device.type == "cuda" else (),
    )
    with shown_display(
        Console(stderr=True).status("measuring how long mini-batches take to make, and to train on ...")
    ):
        measured = profile.measure(
            trainer, arguments, setting, lambda facts: earlier is not None and earlier.measured_on == facts
        )
    if earlier is not None and earlier.measured_on == measured.facts:
        return _with_samplers(earlier, job)
    decision = replace(provisional, num_cores=len(cores), measured_on=measured.facts)
    if measured.times is not None:
        decision = _with_drawing(decision, measured.times, measured.on_host, job)
    elif measured.steps_ms:
        way, drawing = fastest_way(measured.steps_ms), describe_trial(measured.steps_ms)
        decision = replace(decision, num_samplers=1, reason=_ALONE, host_threads=way, drawing=drawing)
    else:  # there was nothing to choose
        return replace(provisional, reason=_ALONE)
    save_decision(decision, folder)
    return decision


def _host_threads(job: Job, num_cores: int) -> tuple[int, ...]:
    """The numbers of threads by which the host may draw for a lone rank's device: as many as there would be anyway,
    and, unless the user has set them, one a core, but for the two of Lightning's thread and of the copies."""
    usual = job.num_sampler_threads
    return (usual,) if job.has_sampler_threads else tuple(sorted({usual, max(num_cores - 2, usual)}))


def _with_drawing(decision: RoleDecision, times: StageTimes, on_host: StageTimes | None, job: Job) -> RoleDecision:
    """Decides on the number of samplers, and whether these draw on their devices or by threads of the host: on devices,
    unless the host is faster by more than measuring errs by."""
    by_device = _with_samplers(replace(decision, stages=times), job)
    if on_host is None:
        return by_device
    threads = on_host.sampler_threads
    by_host = _with_samplers(replace(decision, stages=on_host, host_threads=threads), job)
    every_ms = [decision.every_ms for decision in (by_device, by_host)]
    text = (
        f"a batch is made in {by_device.sample_ms:.1f} ms where a sampler's device draws, in {by_host.sample_ms:.1f} "
        f"ms where {threads} thread{'s' * (threads != 1)} of the host do, so "
    )
    if every_ms[1] * (1 + MEASURING_ERROR) < every_ms[0]:
        return replace(by_host, drawing=f"{text}the host draws")
    return replace(by_device, drawing=f"{text}devices draw")


def _why_not_measured(job: Job, trainer: pl.Trainer) -> str | None:
    plan = job.roles
    # Several machines of one rank each decide apart, without a store.
    if plan.is_lone and (job.switching or plan.num_nodes > 1 or job.device.type not in ("cpu", "cuda")):
        return _ALONE
    if trainer.state.fn != TrainerFn.FITTING:
        return _ALONE if plan.is_lone else "roles are measured by training, and this run does not train"
    return None


def _with_samplers(decision: RoleDecision, job: Job) -> RoleDecision:
    """Decides on the number of samplers by the measured times."""
    if job.roles.is_lone:
        return replace(decision, num_samplers=1, reason=_ALONE)
    if job.samplers != "auto":
        return replace(decision, num_samplers=job.samplers, reason="their number was given")
    assert decision.sample_ms is not None
    assert decision.train_ms is not None
    needed = samplers_needed(decision.sample_ms, decision.train_ms, job.roles.num_devices)
    return replace(decision, num_samplers=needed, reason="")


def _facts(job: Job, trainer: pl.Trainer) -> dict[str, Any]:
    """What the measured times depend on, apart from data and model."""
    device = job.device
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "ranks": [job.roles.num_nodes, job.roles.num_devices],
        "precision": str(trainer.precision_plugin.precision),
        "sampler_threads": job.num_sampler_threads,
        "torch_threads": most_torch_threads(job),
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "versions": [version("lightning-gnnload"), torch.__version__, pl.__version__],
    }
