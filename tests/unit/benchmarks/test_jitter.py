"""The jitter benchmark's own figures: what it asks for, and what the bound allows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.jitter import LATE_SHARE, MODES, NO_WAIT, bound_ms, durations_ms


@pytest.mark.parametrize("mode", MODES)
def test_each_trainer_is_late_in_its_share_of_the_steps(mode: str) -> None:
    durations = durations_ms(mode)
    late = (durations > MODES[mode].step_ms).mean(axis=1)
    assert late.tolist() == {"alone": [0, LATE_SHARE], "nobody": [0, 0]}.get(mode, [LATE_SHARE, LATE_SHARE])
    assert (durations == durations_ms(mode)).all()


@pytest.mark.parametrize("mode", MODES)
def test_the_bound_lies_between_waiting_in_each_step_and_waiting_in_none(mode: str) -> None:
    durations = durations_ms(mode)
    assert bound_ms(durations, 0) == pytest.approx(durations.max(axis=0).mean())
    assert bound_ms(durations, NO_WAIT) == pytest.approx(durations.mean(axis=1).max())
    found = [bound_ms(durations, k) for k in (0, 1, 2, 4, 8, 16, NO_WAIT)]
    assert found == sorted(found, reverse=True)


def test_one_step_of_slack_by_hand() -> None:
    """Trainer 0 is late in step 0, trainer 1 in step 1: the two latenesses pass at the same time."""
    durations = np.array([[45.0, 5.0, 5.0], [5.0, 45.0, 5.0]])
    assert bound_ms(durations, 0) * 3 == 45 + 45 + 5
    assert bound_ms(durations, 1) * 3 == 55
