"""``gnnload completion``: what bash completes, by the script itself."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from lightning_gnnload.plugin.commands import completion
from lightning_gnnload.plugin.commands.cli import COMMANDS

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="runs in bash")


@pytest.fixture(scope="module")
def script() -> str:
    before = sys.argv
    written = completion.script("bash")
    assert sys.argv is before
    return written


def completed(script: str, *words: str) -> list[str]:
    """What a press of the tab key offers after these words, the last of which is begun."""
    line = " ".join(f"'{word}'" for word in ("gnnload", *words))
    code = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _gnnload; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "--norc", "-eu", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_commands_options_and_classes_complete(script: str) -> None:
    assert {*completed(script, "")} == {*COMMANDS, "--help", "--version"}
    assert completed(script, "pre") == ["predict", "preaggregate"]
    assert completed(script, "fit", "--trainer.max_e") == ["--trainer.max_epochs"]
    assert completed(script, "fit", "--data.batch_s") == ["--data.batch_size"]
    assert "--data.sampler.fanouts" in completed(script, "fit", "--data.sampler.")
    assert completed(script, "fit", "--data.sampler", "Neigh") == ["NeighborSampler"]
    assert "PipelineMonitor" in completed(script, "fit", "--trainer.callbacks", "")
    assert completed(script, "doctor", "--") == ["--gpu", "--help", "--json", "--out"]
    # Commands that take a data module's settings, or all that fit takes, complete these, too.
    assert completed(script, "cache", "--data.batch_s") == ["--data.batch_size"]
    assert completed(script, "plan", "--trainer.max_e") == ["--trainer.max_epochs"]
    assert completed(script, "completion", "b") == ["bash"]
    assert completed(script, "build", "graph.y") == []  # bash completes files then
