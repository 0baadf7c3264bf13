"""A few malformed frames at each of an owner's fronts; ``python -m tests.fuzz.fronts`` sends 10^5."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import fronts
from tests.fuzz.fronts import Finding, Front
from tests.runif import RunIf

pytestmark = pytest.mark.timeout(120)
NUM_CASES = 1500


@pytest.mark.parametrize("scheme", ["tcp", pytest.param("grpc", marks=RunIf(extras="flight"))])
def test_malformed_frames_do_an_owner_no_harm(tmp_path: Path, scheme: str) -> None:
    with Front(tmp_path, scheme) as front:
        came = fronts.run(front, range(NUM_CASES), seed=1)
    assert sum(came.values()) == NUM_CASES
    assert len(came) == 3  # all that is tried was tried


def test_a_dead_owner_is_a_finding(tmp_path: Path) -> None:
    with Front(tmp_path, "tcp") as front:
        front.owner.process.kill()
        front.owner.process.wait()
        with pytest.raises(Finding, match="the owner ended with -9"):
            front.look()
