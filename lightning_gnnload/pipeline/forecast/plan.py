"""Plan: what is predicted for a run, from what was measured of it; as a file, and beside what came of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from lightning_gnnload.errors import PlanError
from lightning_gnnload.host.memory import in_units
from lightning_gnnload.pipeline.forecast.machine import Machine
from lightning_gnnload.pipeline.forecast.memory import BatchSize, DataSize, trainer_bytes
from lightning_gnnload.pipeline.forecast.search import (
    CacheEffect,
    EpochForecast,
    MeasuredRun,
    forecast_all,
    forecast_epoch,
    recommend_layout,
)
from lightning_gnnload.pipeline.forecast.work import WAYS, BatchWork, RunLayout, Way, check_number

FORMAT = 1
_MOST_BYTES, _MOST_COUNT = 1 << 60, 1 << 40


class ComparedFigure(NamedTuple):
    """A figure as it was predicted, and as it came out."""

    name: str
    predicted: float
    actual: float
    unit: str

    @property
    def off(self) -> float:
        """How far the prediction is from what came out, as a share of that."""
        return self.predicted / self.actual - 1 if self.actual else 0.0

    def __str__(self) -> str:
        if self.unit == "bytes":
            return f"{self.name} {in_units(int(self.predicted))}, was {in_units(int(self.actual))} ({self.off:+.0%})"
        return f"{self.name} {self.predicted:.3g} {self.unit}, was {self.actual:.3g} ({self.off:+.0%})"


@dataclass(frozen=True)
class Plan:
    """A prediction for each sensible layout of a run, fastest first, and the one that is recommended. All of it follows
    from the machine and what was measured, which are what its file keeps."""

    machine: Machine
    measured: MeasuredRun
    forecasts: tuple[EpochForecast, ...]
    recommended: EpochForecast

    @classmethod
    def of(cls, measured: MeasuredRun, machine: Machine) -> Plan:
        """Raises PlanError: no layout fits the machine."""
        forecasts = tuple(forecast_all(measured, machine))
        return cls(machine, measured, forecasts, recommend_layout(forecasts, measured.mine_on(machine)))

    @property
    def mine(self) -> EpochForecast:
        """What is predicted for the configuration as it was."""
        mine = self.measured.mine_on(self.machine)
        return next(forecast for forecast in self.forecasts if forecast.layout == mine)

    def epochs_by_format(self) -> dict[str, float]:
        """An epoch of the recommended layout in seconds, by each batch format that was tried."""
        layouts = {name: replace(self.recommended.layout, batch_format=name) for name in self.measured.formats}
        return {name: forecast_epoch(self.measured, layout, self.machine).epoch_s for name, layout in layouts.items()}

    def to_json(self) -> dict[str, Any]:
        """Returns what it follows from, and the predictions for people and other programs."""
        return {
            "format": FORMAT,
            "machine": self.machine.to_json(),
            "measured": asdict(self.measured),
            "recommended": str(self.recommended.layout),
            "epoch_s_by_format": self.epochs_by_format(),
            "forecasts": [
                {
                    "name": str(forecast.layout),
                    "layout": asdict(forecast.layout),
                    "epoch_s": forecast.epoch_s,
                    **asdict(forecast.step),
                    "host_bytes": forecast.host_bytes,
                    "memory": [asdict(part) for part in forecast.parts],
                    "problem": forecast.problem,
                }
                for forecast in self.forecasts
            ],
        }

    @classmethod
    def from_json(cls, values: Any) -> Plan:
        """Reads what :meth:`to_json` returned, and predicts anew. Raises PlanError: it is none of that."""
        if not isinstance(values, Mapping) or values.get("format") != FORMAT:
            raise PlanError(f"it is no plan of format {FORMAT}. Make one by gnnload plan.")
        try:
            return cls.of(_measured_of(values["measured"]), Machine.from_json(values["machine"]))
        except (TypeError, LookupError, ValueError, AttributeError, ArithmeticError) as error:
            raise PlanError(f"it is no plan: {type(error).__name__}: {error}. Make one by gnnload plan.") from error

    def layout_like(self, *, samplers: int, trainers: int, threads: int, switching: bool) -> RunLayout:
        """The layout of a run of so many ranks and threads."""
        mine, ranks = self.measured.mine_on(self.machine), samplers + trainers
        way: Way = "factored" if samplers or switching else "auto" if trainers == 1 else "ddp"
        if (mine.way, mine.samplers, mine.trainers, mine.switching) == (way, samplers, trainers, switching):
            return replace(mine, threads=threads)
        return replace(
            mine,
            way=way,
            samplers=samplers,
            trainers=trainers,
            threads=threads,
            torch_threads=max(self.machine.cores // ranks, 1),
            batch_size=max(self.measured.global_batch // trainers, 1),
            switching=switching,
        )

    def beside(self, report: Mapping[str, Any]) -> tuple[EpochForecast, list[ComparedFigure]]:
        """Compares a run's ``where_the_time_went.json`` with what is predicted for its layout.

        Raises:
            PlanError: it is no such report, or of a run without a mini-batch.
        """
        try:
            settings, loader = report["settings"], report["loader"]
            batches = loader["num_batches"]
            layout = self.layout_like(
                samplers=settings["samplers"],
                trainers=report.get("ranks", settings["trainers"]),
                threads=max(settings["threads"], 1),
                switching=bool(settings["alternates"] or settings.get("switching")),
            )
            step_ms = (report["wall_ms"] - report["first_wait_ms"]) / batches
            made_ms = {name: loader[f"{name}_ms"] / batches for name in ("sample", "gather", "convert")}
            train_ms, peak = report["train_ms"] / batches, report.get("peak_private_bytes", 0)
        except (KeyError, TypeError, ZeroDivisionError) as error:
            raise PlanError(
                f"the report is no where_the_time_went.json of a PipelineMonitor: {type(error).__name__}: {error}."
            ) from error
        forecast = forecast_epoch(self.measured, layout, self.machine)
        work = self.measured.work_of(layout, self.machine)
        steps = self.measured.num_steps(layout, self.machine)
        figures = [
            ComparedFigure("epoch", forecast.epoch_s, step_ms * steps / 1e3, "s"),
            ComparedFigure("step", forecast.step.step_ms, step_ms, "ms"),
            ComparedFigure("sampling", work.sample_ms + work.draw_device_ms, made_ms["sample"], "ms"),
            ComparedFigure("gathering", work.gather_ms + work.wait_ms, made_ms["gather"], "ms"),
            ComparedFigure("conversion", work.convert_ms, made_ms["convert"], "ms"),
            ComparedFigure("training", work.train_ms(layout.torch_threads), train_ms, "ms"),
            ComparedFigure("a trainer's memory", trainer_bytes(layout, forecast.parts), peak, "bytes"),
        ]
        return forecast, [figure for figure in figures if figure.actual > 0]


def read_plan(file: Path) -> Plan:
    """Reads a plan's file, JSON or YAML. Raises PlanError: it cannot be read, or is no plan."""
    import yaml

    try:
        text = file.read_text()
        values = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise PlanError(f"the plan {file} cannot be read: {' '.join(str(error).split())}") from error
    try:
        return Plan.from_json(values)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from None


def _measured_of(values: Mapping[str, Any]) -> MeasuredRun:
    values = dict(values)
    works = {int(size): BatchWork(**work) for size, work in values.pop("works").items()}
    sizes = {int(size): BatchSize(**_numbers("sizes", size_)) for size, size_ in values.pop("sizes").items()}
    data = DataSize(**_numbers("data", values.pop("data")))
    layout = RunLayout(**_numbers("mine", values.pop("mine")))
    if layout.way not in WAYS or not works or works.keys() != sizes.keys():
        raise PlanError(f"way is {layout.way!r}, or the measured sizes of mini-batches are not the same.")
    slowdown = {int(count): float(factor) for count, factor in values.pop("slowdown").items()}
    cache: dict[str, Any] = dict(values.pop("cache"))
    rates: dict[str, Any] = {name: tuple(map(float, cache.pop(name))) for name in ("ratios", "hit_rates")}
    if len(rates["ratios"]) != len(rates["hit_rates"]):
        raise PlanError("cache: there is not one of the hit_rates for each of the ratios.")
    effect = CacheEffect(**rates, **_numbers("cache", cache))
    hops = tuple((float(nodes), float(edges)) for nodes, edges in values.pop("hops", ()))
    shares = tuple(float(size) for size in values.pop("batch_sizes", ()))
    for number in (*(count for hop in hops for count in hop), *shares):
        check_number("hops and batch_sizes", number, _MOST_BYTES)
    for name, ms in values["formats"].items():
        check_number(f"formats: {name}", ms, _MOST_BYTES)
    further = {"hops": hops, "batch_sizes": shares, **_numbers("measured", values)}
    return MeasuredRun(works, sizes, data, mine=layout, slowdown=slowdown, cache=effect, **further)


def _numbers(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, of which all numbers are neither negative nor without bounds. Raises PlanError: one is."""
    for key, value in values.items():
        if type(value) in (int, float):
            check_number(f"{name}: {key}", value, _MOST_BYTES)
    for key in ("trainers", "threads", "torch_threads", "batch_size", "num_seeds"):
        if key in values and (type(values[key]) is not int or not 1 <= values[key] <= _MOST_COUNT):
            raise PlanError(f"{name}: {key} is {values[key]!r}; a whole number of at least 1 is needed.")
    return dict(values)
