"""Figures beside the H200's: scaled by what bounds them, and why one is slower."""

from __future__ import annotations

import pytest

from lightning_gnnload.plugin.device_report import figures
from lightning_gnnload.plugin.device_report.figures import H200, Figure
from lightning_gnnload.plugin.device_report.verdicts import BOUND, HOST_BOUND, Verdict, reasons, verdicts

SMALL = figures.batch_name(1024, (10, 25))
SMALL_KERNELS = figures.kernels_name(1024, (10, 25))
READS = figures.CEILINGS["reads"]


def judged(**values: float) -> dict[str, Verdict]:
    names = {"copy": figures.COPY, "bus": figures.BUS, "reads": READS, "rows": figures.ROWS}
    names |= {"random": figures.ROWS_ON_BUS, "batch": SMALL, "kernels": SMALL_KERNELS}
    made = [Figure(names[name], value, H200[names[name]].unit) for name, value in values.items()]
    return dict(zip(values, verdicts(made), strict=True))


def test_the_h200_is_what_the_h200_was() -> None:
    made = verdicts([Figure(name, reference.value, reference.unit) for name, reference in H200.items()])
    for verdict in made:
        assert verdict.answer == ("as expected" if H200[verdict.figure.name].bound_by else "not judged")
        assert verdict.ratio in (1.0, None)


def test_half_the_memory_moves_half_the_rows() -> None:
    rows = judged(copy=2079 / 2, rows=1612 / 2)["rows"]
    assert (rows.expected, rows.ratio, rows.answer) == (806, 1.0, "as expected")
    assert judged(copy=2079, rows=1612 / 2)["rows"].answer == "slower"
    assert judged(copy=2079 / 2, rows=1612)["rows"].answer == "faster"


def test_less_is_better_in_milliseconds() -> None:
    kernels = judged(reads=20, kernels=0.152)["kernels"]  # half the reads, twice the time
    assert (kernels.expected, kernels.answer) == (0.152, "as expected")
    assert judged(reads=40, kernels=0.152)["kernels"].answer == "slower"


@pytest.mark.parametrize(("factor", "answer"), [(0.99, "as expected"), (1.01, "slower")])
def test_bounds_of_devices_and_of_hosts(factor: float, answer: str) -> None:
    assert judged(bus=55, random=20 / (BOUND * factor))["random"].answer == answer
    assert judged(batch=0.59 * HOST_BOUND * factor)["batch"].answer == answer  # whatever the ceilings are


def test_nothing_is_judged_without_its_ceiling_or_the_h200s_figure() -> None:
    rows = judged(rows=1612)["rows"]
    assert (rows.h200, rows.expected, rows.answer) == (1612, None, "not judged")
    (unknown,) = verdicts([Figure("something new", 3, "ms")])
    assert (unknown.h200, unknown.answer) == (None, "not judged")
    assert unknown.values == {
        "name": "something new",
        "value": 3,
        "unit": "ms",
        "about": "",
        "h200": None,
        "expected": None,
        "ratio": None,
        "answer": "not judged",
    }


def test_a_batch_that_waits_for_the_host_is_told() -> None:
    (line,) = reasons(list(judged(batch=0.59, kernels=0.076).values()), {})
    assert line.startswith("A mini-batch of 1,024 seeds, [10, 25], takes 0.59 ms, its kernels 0.076. The host takes")
    assert not list(reasons(list(judged(batch=0.12, kernels=0.076).values()), {}))


def test_a_slow_figure_says_what_was_expected() -> None:
    (line,) = reasons(list(judged(bus=27.5, random=5).values()), {})
    assert "5 GB/s, where 10 were expected of the H200's 20. Reads of single rows" in line


@pytest.mark.parametrize(
    ("bus", "now", "said"),
    [(55, 16, None), (26, 16, "26 GB/s, where PCIe 5 x16 could move 63"), (13, 4, "x16, of whose lanes 4 are in use,")],
)
def test_a_bus_that_moves_less_than_it_could_is_told(bus: float, now: int, said: str | None) -> None:
    smi = {"pcie.link.gen.max": "5", "pcie.link.width.max": "16", "pcie.link.width.current": str(now)}
    lines = list(reasons(list(judged(bus=bus).values()), {"nvidia-smi": smi}))
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]


def test_memory_that_moves_less_than_it_could_is_told() -> None:
    clocks = {"attributes": {"memory bus bits": 5120, "memory clock kHz": 2_619_000}}  # 3,352 GB/s
    assert not list(reasons(list(judged(copy=1400).values()), clocks))
    (line,) = reasons(list(judged(copy=1000).values()), clocks)
    assert "reads and writes 2,000 GB/s, where its memory could move 3,352" in line


@pytest.mark.parametrize("device", [{}, {"nvidia-smi": {"error": "none"}, "attributes": {"memory bus bits": "[N/A]"}}])
def test_what_could_not_be_asked_tells_nothing(device: dict) -> None:
    assert not list(reasons(list(judged(copy=1, bus=1).values()), device))
