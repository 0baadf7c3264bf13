"""How much of the package runs for one training step of a trainer whose mini-batches samplers make."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.integration.scripts import launch
from tests.trace import Call, Trace

MOST_CALLS = 290  # some 250, and what comes in while it waits

pytestmark = pytest.mark.matrix


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="comprehensions are no calls there")
def test_a_trainers_step_takes_no_more_calls(tmp_path: Path) -> None:
    launch.run(Path(__file__).parent / "scripts" / "traced.py", folder=tmp_path, num_devices=3, timeout_s=200)
    trace = Trace()
    trace.calls = [Call(*call) for call in json.loads((tmp_path / "trace.json").read_text())]
    assert 50 < trace.figures["calls"] <= MOST_CALLS, "\n".join(f"{call.file} {call.function}" for call in trace.calls)
