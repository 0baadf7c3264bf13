"""Machines, memory and plans: what is refused, what fits, what is recommended, and a plan beside a run's report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload.errors import PlanError
from lightning_gnnload.host.memory import forget_peak, resident_memory
from lightning_gnnload.pipeline.forecast.machine import GPUS, Machine, machine_of, read_machine, this_machine
from lightning_gnnload.pipeline.forecast.memory import memory_parts, needed_bytes, trainer_bytes, what_does_not_fit
from lightning_gnnload.pipeline.forecast.plan import Plan, read_plan
from lightning_gnnload.pipeline.forecast.search import forecast_epoch, recommend_layout, sensible_layouts
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout
from tests.unit.pipeline.forecast.runs import DATA, GIB, WORK, forecasts_of, measured_run
from tests.unit.toy import private_pages

MACHINE = Machine(cores=4, memory_gib=16.0)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (None, "None; settings by their names"),
        ({"cores": 8}, "memory_gib missing"),
        ({"cores": 0, "memory_gib": 8}, "cores is 0"),
        ({"cores": True, "memory_gib": 8}, "cores is True"),
        ({"cores": 8, "memory_gib": -1}, "memory_gib is -1"),
        ({"cores": 8, "memory_gib": float("nan")}, "memory_gib is nan"),
        ({"cores": 8, "memory_gib": 8, "gpu": ["H200"]}, "gpu not known; there are cores, memory_gib, gpus"),
        ({"cores": 8, "memory_gib": 8, "gpus": "H200"}, "a list is needed"),
        ({"cores": 8, "memory_gib": 8, "gpus": [{"name": "B300"}]}, "give its memory_gib and memory_gb_s"),
        ({"cores": 8, "memory_gib": 8, "gpus": [{"name": "H200", "count": 0}]}, "count is 0"),
        ({"cores": 8, "memory_gib": 8, "links": {"nvlink": 900}}, "links: nvlink not known; there are rows_gb_s"),
        ({"cores": 8, "memory_gib": 8, "stages": {"sample_ms": -1}}, "sample_ms is -1"),
        ({"cores": 8, "memory_gib": 8, "stages": {"seeds": 0}}, "stage_seeds is 0"),
    ],
)
def test_a_description_of_no_machine_is_refused(description: Any, message: str) -> None:
    with pytest.raises(PlanError) as error:
        machine_of(description)
    assert message in str(error.value)


def test_a_machine_is_described_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text(
        "{cores: 96, memory_gib: 512, gpus: [{name: H200, count: 2}, {name: own, memory_gib: 24, memory_gb_s: 600}],"
        " links: {nvlink_gb_s: 450, rows_gb_s: 18}, disk: {read_gb_s: 7}, machines: 2, network: {gb_s: 12}}"
    )
    machine = read_machine(file)
    assert [gpu.name for gpu in machine.gpus] == ["H200", "H200", "own"]
    assert (machine.peer_gb_s, machine.rows_gb_s, machine.disk_gb_s, machine.network_gb_s) == (450, 18, 7, 12)
    assert machine.device_bytes < 24 * GIB  # of the smallest
    assert GPUS["H200"].rows_gb_s == pytest.approx(1612 / 2)  # half of the traffic is written
    file.write_text("{[")
    with pytest.raises(PlanError, match="cannot be read"):
        read_machine(file)
    assert this_machine().is_here


def test_memory_is_counted_by_who_has_it() -> None:
    size = measured_run().size_of(1024)
    layout = RunLayout(way="factored", trainers=2, samplers=1, threads=3, slots=4, batch_size=1024)
    parts = {part.purpose: part for part in memory_parts(layout, DATA, size, MACHINE)}
    assert (parts["queue slots"].count, parts["queue slots"].num_bytes) == (8, 200 << 20)
    assert (parts["table of nodes"].count, parts["table of nodes"].num_bytes) == (3, 4_000_000)
    assert (parts["Python and libraries"].count, parts["features"].count) == (3, 1)
    copied = memory_parts(layout, replace(DATA, mapped=False), size, MACHINE)
    # Of files, a machine has one copy, and gives it up; of memory, each rank has its own.
    assert needed_bytes(copied) - needed_bytes([*parts.values()]) == 3 * (DATA.graph_bytes + DATA.feature_bytes)
    alone = memory_parts(RunLayout(threads=2, batch_size=1024), DATA, size, MACHINE)
    slots = next(part for part in alone if part.purpose == "slots")
    assert slots.count == 4  # made by two, ready, trained on
    assert trainer_bytes(RunLayout(threads=2), alone) == needed_bytes(alone)
    huge = memory_parts(layout, replace(DATA, num_nodes=1 << 29), size, MACHINE)
    assert next(part for part in huge if part.purpose == "table of nodes").num_bytes == 64 * 100_000


def test_what_does_not_fit_is_named_before_the_run() -> None:
    size = measured_run().size_of(1024)
    layout = RunLayout(way="factored", samplers=1, slots=64)
    parts = memory_parts(layout, DATA, size, Machine(cores=4, memory_gib=8.0))
    problem = what_does_not_fit(parts, Machine(cores=4, memory_gib=8.0))
    assert problem.startswith("the machine would need 13.")
    assert "queue slots take 12.5 GiB of it: lower FactoredStrategy(queue_depth=...)" in problem
    small = Machine(cores=4, memory_gib=64.0, gpus=machine_of({"cores": 1, "memory_gib": 1, "gpus": ["T4"]}).gpus)
    on_device = memory_parts(replace(layout, cache=1.0), replace(DATA, num_nodes=20_000_000), size, small)
    assert what_does_not_fit(on_device, small).startswith("each GPU would need 38")
    assert not what_does_not_fit(memory_parts(RunLayout(), DATA, size, MACHINE), MACHINE)
    with pytest.raises(PlanError, match="no layout fits this machine"):
        Plan.of(measured_run(), Machine(cores=4, memory_gib=0.1))


def test_all_layouts_train_on_as_many_seeds_a_step() -> None:
    run = measured_run()
    layouts = [*sensible_layouts(run, MACHINE)]
    assert {layout.trainers * layout.batch_size for layout in layouts} == {1024}
    assert {(layout.trainers, layout.samplers) for layout in layouts} >= {
        (1, 0),
        (2, 0),
        (4, 0),
        (1, 1),
        (1, 3),
        (2, 2),
    }
    assert all(layout.trainers != 3 for layout in layouts)  # which does not divide 1,024
    assert max(layout.ranks for layout in layouts) == 4
    epochs = {run.num_steps(layout, MACHINE) for layout in layouts}
    assert epochs == {100}
    assert run.num_steps(layouts[0], replace(MACHINE, machines=4)) == 25


def test_the_fastest_that_fits_is_recommended_and_nothing_new_for_a_trifle() -> None:
    forecasts = forecasts_of(MACHINE)
    mine = measured_run().mine
    best = recommend_layout(forecasts, mine)
    exact = [forecast for forecast in forecasts if forecast.layout.alternates or not forecast.layout.switching]
    assert best.epoch_s <= 1.03 * min(forecast.epoch_s for forecast in exact)
    close = [replace(forecast, epoch_s=1.0 if forecast.layout == mine else 0.98) for forecast in exact]
    assert recommend_layout(close, mine).layout == mine
    too_large = [replace(forecast, problem="x" if forecast == best else "") for forecast in forecasts]
    assert recommend_layout(too_large, mine).layout != best.layout


def test_rows_that_a_cache_serves_do_not_cross_the_link() -> None:
    machine = machine_of({"cores": 16, "memory_gib": 128, "gpus": ["H200"]})
    run = measured_run(draws_on_device=True)
    link_ms = [
        run.work_of(RunLayout(batch_size=1024, cache=ratio), machine).gather_link_ms for ratio in (0.0, 0.1, 1.0)
    ]
    whole_ms = 100_000 * 2048 / 20e6
    assert link_ms == pytest.approx([whole_ms, whole_ms / 2, 0.0])
    drawn = run.work_of(RunLayout(batch_size=1024), machine)
    assert (drawn.sample_ms, drawn.making_core_ms) == (0.0, 0.0)
    assert drawn.draw_device_ms == pytest.approx(0.6 + 150_000 / 4.6e6)


def test_sizes_between_and_beyond_the_measured_ones_lie_on_a_line() -> None:
    run = measured_run()
    for seeds, sample_ms in ((1024, 6.0), (512, 3.0), (768, 4.5), (256, 1.5), (2048, 12.0)):
        assert run.work_of(RunLayout(batch_size=seeds), MACHINE).sample_ms == pytest.approx(sample_ms)
    slower = replace(run, slowdown={1: 1.0, 2: 1.5})
    assert slower.work_of(RunLayout(batch_size=1024, threads=3), MACHINE).sample_ms == pytest.approx(9.0)
    there = replace(MACHINE, stages=BatchWork(sample_ms=7.0), stage_seeds=512)
    assert run.work_of(RunLayout(batch_size=1024), there).sample_ms == pytest.approx(14.0)


def test_another_batch_format_costs_its_conversion() -> None:
    run = measured_run(formats={"blocks": 0.0, "dgl": 30.0})
    layout = RunLayout(batch_size=512, batch_format="dgl", torch_threads=4)
    assert run.work_of(layout, MACHINE).convert_ms == pytest.approx(15.0)
    epochs_s = Plan.of(run, MACHINE).epochs_by_format()
    assert epochs_s["dgl"] > epochs_s["blocks"] == pytest.approx(Plan.of(run, MACHINE).recommended.epoch_s)


REPORT = {
    "settings": {"samplers": 1, "threads": 2, "trainers": 2, "alternates": False, "switching": False},
    "loader": {"num_batches": 10, "sample_ms": 60.0, "gather_ms": 0.0, "convert_ms": 0.0},
    "wall_ms": 1100.0,
    "first_wait_ms": 100.0,
    "train_ms": 500.0,
    "ranks": 2,
    "peak_private_bytes": 400 << 20,
}


def test_a_plan_is_read_again_and_stands_beside_the_report(tmp_path: Path) -> None:
    plan, file = Plan.of(measured_run(), MACHINE), tmp_path / "plan.json"
    file.write_text(json.dumps(plan.to_json()))
    assert read_plan(file) == plan
    forecast, figures = read_plan(file).beside(REPORT)
    assert (forecast.layout.way, forecast.layout.samplers, forecast.layout.trainers) == ("factored", 1, 2)
    named = {figure.name: figure for figure in figures}
    assert named["step"].actual == 100.0
    assert named["epoch"].actual == 10.0
    assert named["sampling"].predicted == pytest.approx(3.0)  # of 512 seeds
    assert "gathering" not in named  # nothing came of it that could be compared
    assert named["a trainer's memory"].predicted == (300 + 50) << 20
    assert str(named["sampling"]) == "sampling 3 ms, was 6 (-50%)"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 2),
        (("machine", "cores"), "4"),
        (("machine", "gpus"), None),
        (("measured", "works"), {}),
        (("measured", "works", "1024", "sample_ms"), -1.0),
        (("measured", "works", "1024", "sample_ms"), float("nan")),
        (("measured", "num_seeds"), 0),
        (("measured", "mine", "threads"), 10**15),
        (("measured", "mine", "way"), "other"),
        (("measured", "data", "num_nodes"), -5),
        (("measured", "more"), 1),
        (("measured", "slowdown"), {"1": "x"}),
        (("measured", "slowdown"), {"1": 10**400}),
        (("measured", "mine", "slots"), 0),
        (("measured", "cache", "ratios"), [0.1]),
        (("measured", "formats"), {"pyg": "x"}),
    ],
)
def test_a_file_that_is_no_plan_is_refused(path: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    values = json.loads(json.dumps(Plan.of(measured_run(), MACHINE).to_json()))
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    (tmp_path / "plan.json").write_text(json.dumps(values))
    with pytest.raises(PlanError, match="plan"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize(("drop_last", "num_steps"), [(False, 2.25), (True, 2)])
def test_the_last_step_takes_as_long_as_its_seeds(drop_last: bool, num_steps: float) -> None:
    measured = measured_run(num_seeds=2304, drop_last=drop_last)
    forecast = forecast_epoch(measured, measured.mine, MACHINE)
    first_ms = measured.work_of(measured.mine, MACHINE).making_core_ms
    assert forecast.epoch_s * 1e3 == pytest.approx(num_steps * forecast.step.step_ms + first_ms)


def test_layouts_with_more_trainers_than_seeds_are_left_out() -> None:
    layouts = {forecast.layout.trainers for forecast in forecasts_of(MACHINE, num_seeds=2)}
    assert layouts == {1, 2}
    assert {f.layout.trainers for f in forecasts_of(MACHINE, num_seeds=1500, drop_last=True)} == {1, 2, 4}
    assert {f.layout.trainers for f in forecasts_of(replace(MACHINE, machines=2), num_seeds=2)} == {1}


def test_a_step_of_all_seeds_is_an_epoch_whatever_the_batch_size() -> None:
    layout = RunLayout(batch_size=100_000, torch_threads=4)
    run = measured_run(num_seeds=1024, mine=layout)  # what was measured had no more seeds than there are
    forecast = forecast_epoch(run, layout, MACHINE)
    assert run.work_of(layout, MACHINE).train_work_ms == WORK.train_work_ms
    assert 1 <= forecast.epoch_s * 1e3 / forecast.step.step_ms <= 2


@pytest.mark.parametrize(("limit", "num_steps"), [(2, 2), (7, 7), (1000, 100), (0.25, 25), (1.0, 100)])
def test_an_epoch_has_no_more_steps_than_the_trainer_lets_it(limit: float, num_steps: int) -> None:
    run = measured_run(limit=limit)
    forecast = forecast_epoch(run, run.mine, MACHINE)
    assert forecast.epoch_s * 1e3 / forecast.step.step_ms == pytest.approx(num_steps, abs=1)
    assert run.num_steps(run.mine, MACHINE) == num_steps


def test_a_report_of_something_else_is_refused() -> None:
    plan = Plan.of(measured_run(), MACHINE)
    for report in ({}, REPORT | {"loader": {"num_batches": 0}}, REPORT | {"settings": None}):
        with pytest.raises(PlanError, match="where_the_time_went"):
            plan.beside(report)


def test_the_peak_of_private_memory_is_seen_and_forgotten() -> None:
    size = 96 << 20
    forget_peak()
    before = resident_memory()
    private_pages(size).close()
    assert resident_memory().peak_private - before.private == pytest.approx(size, rel=0.1)
    forget_peak()
    assert resident_memory().peak_private - before.private < size / 2
