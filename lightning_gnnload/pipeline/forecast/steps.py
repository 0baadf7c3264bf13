"""How long a global step takes by a layout of ranks and threads, and what limits it: a pure function of both.

The assumptions, and where they come from:

- Stages run side by side, joined by bounded queues (GNNLab, EuroSys'22, section 5.2; DSP, PPoPP'23, section 5): a maker
  waits for a free slot, a trainer for a mini-batch. Every mini-batch takes as long as the one that was measured.
- A stage's work on cores is ``a / cores + d`` (BGL, NSDI'23, section 3.4). Threads share the cores equally. Torch's
  threads of a step wait for each other without leaving their cores, also while one of them computes alone (``d``).
- Python code of one process takes turns, and so does all work on one device.
- A trainer's missed rows come over its link while its device trains on the mini-batch before; rows that it has cached
  are read by the device itself, between two steps.
- Trainers average their gradients after each step, so that all go at the pace of the slowest. Machines do so in a ring,
  over the same links as rows and lists (Patarasuk and Yuan, JPDC 69, 2009).
- Ranks that sample together meet in rounds (:class:`.ExchangeRounds`); owners answer each for itself. Messages take
  cores at both ends, as :class:`.MessageCosts` has it.
- An idle sampler that trains (GNNLab, section 5.3) adds its steps to the trainers'.
"""

from __future__ import annotations

from dataclasses import replace

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.cluster import Cluster, RemoteTask
from lightning_gnnload.pipeline.forecast.run import PipelineRun, StepForecast, training_limit
from lightning_gnnload.pipeline.forecast.stages import PipelineStage, shared_ms
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout

ALONE = Cluster()
"""One machine, which has all that it needs."""


def least_ms(work: BatchWork, layout: RunLayout, cores: int) -> float:
    """The least time that a step can take: that of the slowest stage by itself, or of all work on all cores."""
    trainers, makers = layout.trainers, layout.samplers or layout.trainers
    converts = work.convert_ms if layout.samplers else 0.0
    training = PipelineStage(
        trainers * work.train_work_ms,
        trainers,
        max_cores=layout.torch_threads,
        fixed_ms=work.train_ms(layout.torch_threads) - work.train_work_ms / layout.torch_threads + converts,
    )
    making = PipelineStage(
        trainers * (work.making_core_ms + (work.convert_ms - converts)),
        makers,
        max_cores=layout.threads,
        wait_ms=trainers * work.wait_ms,
    )
    return max(shared_ms([training, making], [layout.torch_threads, layout.threads], cores), work.gather_link_ms)


def forecast_step(
    work: BatchWork,
    layout: RunLayout,
    cores: int,
    num_devices: int = 0,
    cluster: Cluster = ALONE,
    tasks: tuple[RemoteTask, ...] = (),
    gradient_bytes: float = 0.0,
    batch_bytes: float = 0.0,
) -> StepForecast:
    """Predicts a global step on equal machines with so many cores and devices each.

    Several machines (``cluster``) average ``gradient_bytes`` over their links, after ``work.exchange_ms`` in each, and
    each mini-batch asks ``tasks`` of those who have what its machine lacks, one after the other. Where others sample
    (``sampler_nodes``), a mini-batch of ``batch_bytes`` crosses the network.

    Example:
        >>> work = BatchWork(sample_ms=20.0, train_fixed_ms=30.0)
        >>> steps = [forecast_step(work, RunLayout(), cores) for cores in (1, 2)]
        >>> [(step.step_ms, step.limit) for step in steps]
        [(50.0, 'cores'), (30.0, 'training')]
    """
    if layout.alternates:
        if cluster != ALONE:
            raise PlanError("a rank that samples and trains in turns is simulated on one machine: give samplers=1.")
        return _in_turns(work, layout, cores)
    alone = PipelineRun(work, layout, cores, num_devices, cluster, tasks, gradient_bytes, batch_bytes).forecast()
    if not cluster.sampler_nodes:
        alone = replace(alone, step_ms=max(alone.step_ms, least_ms(work, layout, cores)))
    if not layout.switching:
        return alone
    step_ms = max(_with_switching(work, layout, alone.step_ms), work_on_cores_ms(work, layout) / cores)
    return alone if step_ms >= alone.step_ms else replace(alone, step_ms=step_ms)


def work_on_cores_ms(work: BatchWork, layout: RunLayout) -> float:
    """What a step takes of one core, if that does all of it."""
    return layout.trainers * (work.making_core_ms + work.convert_ms + work.train_on_cores_ms(1))


def _in_turns(work: BatchWork, layout: RunLayout, cores: int) -> StepForecast:
    """One rank makes all mini-batches of a queue, then trains on them (GNNLab, section 5.3, the lone device)."""
    threads = min(layout.threads, cores)
    made_core_ms = work.making_core_ms + work.convert_ms
    making_ms = max(made_core_ms / threads, (made_core_ms + work.wait_ms) / layout.threads)
    making_ms = max(making_ms, work.making_python_ms) + work.draw_device_ms
    train_ms = work.train_ms(min(layout.torch_threads, cores)) + work.gather_device_ms + work.gather_link_ms
    step_ms = making_ms + train_ms
    limit = "sampling" if making_ms > train_ms else training_limit(work)
    return StepForecast(step_ms, limit, making_ms / step_ms if step_ms else 0.0, 1.0)


def _with_switching(work: BatchWork, layout: RunLayout, step_ms: float) -> float:
    """A step of all trainers, if samplers train on one core each while they have nothing to make.

    Of each step's mini-batches, samplers train x of them: they make all and train theirs in the time in which trainers
    train the others.
    """
    made_ms = work.making_core_ms / layout.threads + work.wait_ms / layout.threads + work.draw_device_ms
    theirs_ms = work.train_ms(1) + work.convert_ms + work.gather_device_ms + work.gather_link_ms
    idle_ms = step_ms - layout.trainers * made_ms / layout.samplers
    if idle_ms <= 0 or theirs_ms <= 0:
        return step_ms
    # Rates of trained mini-batches: the trainers', and the samplers' in what making leaves of their time.
    rate = (layout.trainers / step_ms + layout.samplers / theirs_ms) / (1 + made_ms / theirs_ms)
    return layout.trainers / rate
