"""A newcomer with two Parquet files: predictions by their own ids, by the README's two commands and one YAML file."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.newcomers.papers import COMMANDS, RUN_YAML, share_right, write_tables


@pytest.mark.timeout(320)
def test_two_parquet_files_become_predictions_by_two_commands_and_one_yaml_file(tmp_path, capsys):
    topic_of = write_tables(tmp_path)
    (tmp_path / "run.yaml").write_text(RUN_YAML)
    # As in an environment where the package is installed, and nothing is known of this checkout.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "GNNLOAD"))}
    env["OMP_NUM_THREADS"] = "1"  # other tests run beside this one
    assert len(COMMANDS) == 2
    begin = time.monotonic()
    for command in COMMANDS:
        program, *arguments = command.split()
        done = subprocess.run(
            [Path(sys.executable).with_name(program), *arguments],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=150,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    with capsys.disabled():
        print(
            f"\n{len(COMMANDS)} commands, {len(RUN_YAML.splitlines())} lines of YAML, {time.monotonic() - begin:.0f} s"
        )
    assert share_right(tmp_path, topic_of) > 0.8
