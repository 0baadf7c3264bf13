"""How much of the package, but for the model, runs for one training step of a trainer with samplers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.integration.scripts import launch
from tests.trace import Call, Trace

MOST_CALLS = 260  # some 230, and what comes in while it waits
MODEL = ("nn/", "ops/", "models/")

pytestmark = pytest.mark.matrix


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="comprehensions are no calls there")
def test_a_trainers_step_takes_no_more_calls(tmp_path: Path) -> None:
    launch.run(Path(__file__).parent / "scripts" / "traced.py", folder=tmp_path, num_devices=3, timeout_s=200)
    trace = Trace()
    calls = [Call(*call) for call in json.loads((tmp_path / "trace.json").read_text())]
    trace.calls = [call for call in calls if not call.file.startswith(MODEL)]
    assert 50 < trace.figures["calls"] <= MOST_CALLS, "\n".join(f"{call.file} {call.function}" for call in trace.calls)
