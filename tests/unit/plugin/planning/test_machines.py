"""More machines in ``gnnload plan``: what arguments ask for, the table, and the figure."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from rich.console import Console

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.cluster import Cluster
from lightning_gnnload.pipeline.forecast.machine import Machine, machine_of
from lightning_gnnload.pipeline.forecast.plan import Plan
from lightning_gnnload.pipeline.forecast.scaling import forecast_machines
from lightning_gnnload.plugin.planning.machines import (
    add_cluster_arguments,
    cluster_of,
    counts_up_to,
    draw_machines,
    machines_headline,
    machines_table,
    rate_gb_s,
    with_gpus,
)
from tests.unit.pipeline.forecast.runs import measured_run

HERE = Machine(cores=6, memory_gib=64, network_gb_s=3.0, is_here=True)


def asked(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_cluster_arguments(parser)
    return parser.parse_args(arguments)


def test_arguments_describe_machines() -> None:
    options = asked("--machines", "8", "--link", "100Gb", "--latency-us", "20", "--owners", "4", "--hot", "0.1")
    cluster = cluster_of(options, HERE)
    assert (cluster.machines, cluster.link_gb_s, cluster.latency_ms, cluster.hot) == (8, 12.5, 0.02, 0.1)
    assert (cluster.placement, cluster.owners, cluster.owner_cores) == ("owners", 4, 6)
    plain = cluster_of(asked("--machines", "2"), HERE)
    assert (plain.placement, plain.link_gb_s) == ("replicated", 3.0)
    assert cluster_of(asked(), machine_of({"cores": 1, "memory_gib": 1, "machines": 5})).machines == 5
    with pytest.raises(PlanError, match="owners is 0; a whole number from 1"):
        cluster_of(asked("--placement", "owners"), HERE)


def test_gpus_and_their_step_replace_what_is_guessed() -> None:
    machine = with_gpus(asked("--gpus", "2", "--step-ms", "7"), HERE)
    assert (len(machine.gpus), machine.gpus[0].name, machine.is_here) == (2, "H100", False)
    measured = measured_run()
    work = measured.work_of(measured.mine, machine)
    assert (work.train_device_ms, work.train_work_ms) == (7.0, 0.0)
    assert with_gpus(asked(), HERE) == HERE
    with pytest.raises(PlanError, match="give --gpus"):
        with_gpus(asked("--step-ms", "7"), HERE)
    with pytest.raises(PlanError, match="1 to 64 are needed"):
        with_gpus(asked("--gpus", "0"), HERE)


@pytest.mark.parametrize("text", ["fast", "100", "0Gb", "-1Gb", "100Tb"])
def test_rates_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is needed"):
        rate_gb_s(text)


def test_rates_are_of_bits_or_of_bytes() -> None:
    assert [rate_gb_s(text) for text in ("8Gb", "8Gbit/s", "500Mbps", "2 GB/s")] == pytest.approx([1, 1, 0.0625, 2])
    assert counts_up_to(20) == [1, 2, 3, 4, 5, 6, 7, 8, 16, 20]


def test_the_table_and_the_figure_say_what_limits(tmp_path: Path) -> None:
    measured = measured_run()
    plan = Plan.of(measured, Machine(cores=4, memory_gib=64, machines=4))
    cluster = Cluster(machines=4, placement="collective", link_gb_s=0.1)
    forecasts = forecast_machines(measured, plan.recommended.layout, plan.machine, cluster, [1, 2, 4])
    console = Console(width=120, record=True, file=(tmp_path / "log").open("w"))
    console.print(machines_table(forecasts, plan.recommended.layout))
    text = console.export_text()
    assert [line.split()[0] for line in text.splitlines()[2:5]] == ["1", "2", "4"]
    assert "network" in text
    assert machines_headline(forecasts).endswith("limited by the network's links, which are full")
    draw_machines(forecasts, plan, tmp_path / "machines.png")
    assert (tmp_path / "machines.png").read_bytes().startswith(b"\x89PNG")
