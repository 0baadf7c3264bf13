"""README's first steps with tables: its files and commands, as they stand, make predictions of a newcomer's tables."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.newcomers.test_tables import write_tables

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
FILES = re.findall(r"^```yaml\n# (?P<name>\S+)\n(?P<text>.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^gnnload (?P<arguments>[^#\n]*)", README, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.timeout(170)
def test_the_readme_leads_from_tables_to_predictions(tmp_path: Path) -> None:
    topic_of = write_tables(tmp_path)
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "GNNLOAD"))}
    program = Path(sys.executable).with_name("gnnload")
    for arguments in COMMANDS:
        done = subprocess.run(
            [program, *arguments.split()], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=80
        )
        assert done.returncode == 0, f"gnnload {arguments}\n{done.stdout}\n{done.stderr}"
    assert [command.split()[0] for command in COMMANDS] == ["build", "fit", "predict"]
    assert sorted(parquet.read_table(tmp_path / "predictions.parquet")["doi"].to_pylist()) == sorted(topic_of)
