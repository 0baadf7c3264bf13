"""The arithmetic of the epoch benchmark's report; what it measures is not tested here."""

import pytest

from tests.benchmarks.epochs import table, verdict


def result(seconds: float, wait: float, steps: int = 20) -> dict[str, float]:
    return {
        "seconds": seconds,
        "wait": wait,
        "step": seconds - wait - 0.1,
        "steps": steps,
        "loss": 1,
        "torch_threads": 1,
    }


RESULTS = {"factored": result(2.0, 0.2), "ddp": result(4.0, 0.4), "auto": result(1.0, 0.5, steps=10)}


def test_times_are_scaled_to_a_whole_epoch_and_shares_add_up() -> None:
    rows = [line.split(" | ") for line in table(RESULTS, num_steps=40).splitlines()[2:]]
    assert [row[1:3] for row in rows] == [["4.00", "1.00"], ["8.00", "2.00"], ["4.00", "1.00"]]
    for row in rows:
        assert sum(float(cell.rstrip("%")) for cell in row[3:6]) == pytest.approx(100, abs=0.2)
    assert rows[0][3] == "10.0%"


def test_a_loss_is_called_one() -> None:
    against_ddp, against_auto, *_ = verdict({**RESULTS, "auto": result(1.5, 0.5)}).splitlines()
    assert "100.0 ms a step won (50.0%)" in against_ddp
    assert "25.0 ms a step lost (33.3%)" in against_auto
    assert "of which 15.0 ms of waiting" in against_auto
