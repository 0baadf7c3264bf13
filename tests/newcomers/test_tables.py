"""A newcomer with two Parquet files: predictions by their own ids, by the README's two commands and one YAML file."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
[RUN_YAML] = re.findall(r"^```yaml\n# run.yaml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^(gnnload (?:fit|predict) [^#\n]*)", README, re.MULTILINE)
TOPICS = np.array(["graphs", "vision", "language"])
NUM_PAPERS = 1500


def write_tables(folder: Path) -> dict[str, str]:
    """Papers cite those of their own topic, which nothing else tells; a fifth of the topics is missing. Returns these
    by the papers' ids."""
    generator = np.random.default_rng(0)
    topic = generator.integers(0, 3, NUM_PAPERS)
    doi = np.array([f"10.{generator.integers(1000, 9999)}/p-{k}" for k in range(NUM_PAPERS)])
    known = generator.random(NUM_PAPERS) < 0.8
    venue = np.where(generator.random(NUM_PAPERS) < 0.4, topic, generator.integers(0, 3, NUM_PAPERS))
    papers = {
        "doi": doi,
        "pages": generator.normal(12, 3, NUM_PAPERS),
        "venue": [f"venue {k}" for k in venue],
        "topic": [TOPICS[k] if is_known else None for k, is_known in zip(topic, known, strict=True)],
    }
    parquet.write_table(pa.table(papers), folder / "papers.parquet")
    by_topic = [np.flatnonzero(topic == k) for k in range(3)]
    citing = generator.integers(0, NUM_PAPERS, 8 * NUM_PAPERS)
    cited = np.array([generator.choice(by_topic[topic[k]]) for k in citing])
    parquet.write_table(pa.table({"citing": doi[citing], "cited": doi[cited]}), folder / "citations.parquet")
    return dict(zip(doi[~known], TOPICS[topic[~known]], strict=True))


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
    found = parquet.read_table(tmp_path / "predictions.parquet").to_pydict()
    with capsys.disabled():
        lines = len(RUN_YAML.splitlines())
        print(f"\n{len(COMMANDS)} commands, {lines} lines of YAML, {time.monotonic() - begin:.0f} s: {list(found)}")
    assert sorted(found["doi"]) == sorted(topic_of)  # each paper without a topic once
    right = np.mean([topic_of[doi] == name for doi, name in zip(found["doi"], found["class"], strict=True)])
    assert right > 0.8, right  # a third by chance; 0.6 by the venue alone
