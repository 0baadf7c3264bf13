"""Deliveries made by hand: a mini-batch's way, moment by moment."""

from __future__ import annotations

from lightning_gnnload.pipeline.stats import Delivery, QueueFill


def delivery(
    *,
    step: int = 0,
    began: float,
    sample: float = 0.010,
    gather: float = 0.005,
    cpu: float | None = None,
    asked: float,
    taken: float,
    convert: tuple[float, float] | None = None,
    made_by: int = 1,
    thread: str = "gnnload-sample_0",
    fill: QueueFill = QueueFill(1, 1, 4),  # noqa: B008
) -> Delivery:
    """Seconds throughout. Where ``cpu`` is not told, its maker ran on a core all the while."""
    return Delivery(
        step=step,
        num_seeds=32,
        num_nodes=500,
        num_edges=2000,
        made_by=made_by,
        thread=thread,
        began_s=began,
        sample_ms=sample * 1e3,
        gather_ms=gather * 1e3,
        cpu_ms=(sample + gather if cpu is None else cpu) * 1e3,
        asked_s=asked,
        taken_s=taken,
        convert_s=convert or (taken, taken),
        fill=fill,
    )
