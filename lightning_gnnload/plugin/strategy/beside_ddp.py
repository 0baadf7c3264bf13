"""Whether samplers of their own will make epochs longer than DDP on the same cores, by measured times."""

from __future__ import annotations

from lightning_gnnload.pipeline.forecast.stages import MEASURING_ERROR, StageTimes
from lightning_gnnload.pipeline.forecast.steps import least_ms
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout
from lightning_gnnload.plugin.job import Job
from lightning_gnnload.plugin.module.settings import default_num_threads
from lightning_gnnload.plugin.strategy.resources import Division


def loss_beside_ddp(job: Job, division: Division) -> str:
    """One sentence for people where all ranks compute on the same cores, and DDP with as many ranks is expected to be
    faster by more than measuring errs by; else, and where it is not known, an empty one.

    Not known are runs without measured times, over several machines, on devices, and with idle samplers that train.
    """
    decision, roles = job.decision, job.roles
    if decision is None or (times := decision.stages) is None or division.step_ms is None:
        return ""
    if roles.is_lone or roles.num_nodes > 1 or job.switching or times.trains_on_device or times.draws_on_device:
        return ""
    ours_ms, ddp_ms = division.step_ms / roles.num_trainers, ddp_batch_ms(times, roles.num_devices, decision.num_cores)
    if ours_ms <= ddp_ms * (1 + MEASURING_ERROR):
        return ""
    num_batches = -(-decision.measured_on["num_seeds"] // decision.measured_on["batch_size"])
    ours_s, ddp_s = (num_batches * each_ms / 1e3 for each_ms in (ours_ms, ddp_ms))
    return (
        f"FactoredStrategy will take {ours_ms / ddp_ms:.2f} times as long as DDP here, by the measured times: a batch "
        f"takes {decision.sample_ms:.1f} ms to make and {decision.train_ms:.1f} ms to train on, so an epoch of "
        f"{num_batches} batches takes {ours_s:.3g} s with {roles.num_samplers} of {roles.num_devices} ranks sampling, "
        f"and {ddp_s:.3g} s where all of them train on the same {decision.num_cores} cores. Set "
        f"Trainer(strategy='ddp'), with the same model and data module."
    )


def ddp_batch_ms(times: StageTimes, num_ranks: int, num_cores: int) -> float:
    """Predicts how often a machine has trained on a mini-batch where each of ``num_ranks`` ranks trains, and samples in
    threads beside: with as many threads as Lightning and the data module choose.

    Example:
        >>> times = StageTimes(4.0, 1.0, 5.0, 0.0, 0.0, train_work_ms=40.0, train_fixed_ms=15.0, torch_threads=2)
        >>> ddp_batch_ms(times, num_ranks=2, num_cores=2)  # 60 ms of work on two cores
        30.0
    """
    torch_threads = max(num_cores // num_ranks, 1)
    threads = default_num_threads(num_ranks)
    layout = RunLayout(way="ddp", trainers=num_ranks, threads=threads, torch_threads=torch_threads)
    return least_ms(BatchWork.measured(times), layout, num_cores) / num_ranks
