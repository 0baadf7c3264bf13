"""The README's tables: papers and citations, the run that it describes, and the commands that it names.

Imports no test framework: ``scripts/first_steps.py`` uses it in environments that have none.
"""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
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


def share_right(folder: Path, topic_of: dict[str, str]) -> float:
    """The share of papers without a topic whose topic the predictions name; a third by chance, 0.6 by the venue alone.

    Raises AssertionError: they do not name each of these papers once."""
    rows = parquet.read_table(folder / "predictions.parquet").to_pydict()
    assert sorted(rows["doi"]) == sorted(topic_of)
    return float(np.mean([topic_of[doi] == name for doi, name in zip(rows["doi"], rows["class"], strict=True)]))
