"""Two small Parquet files, as one may have them: papers with a DOI, and which paper cites which.

Run: ``python examples/tables/make_tables.py`` writes papers.parquet and cites.parquet beside this file. Papers mostly
cite those of their own field, so that a model learns more from neighbours than from the paper alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

FIELDS = ("art", "biology", "mathematics")
NUM_PAPERS, NUM_CITES = 600, 4000
SHARE_OWN_FIELD = 0.8


def make_tables(folder: Path, *, num_papers: int = NUM_PAPERS, num_cites: int = NUM_CITES) -> None:
    """Writes both files. One paper in ten has no field yet: these are to be predicted."""
    rng = np.random.default_rng(0)
    dois = np.array([f"10.1000/{number:05d}" for number in rng.permutation(num_papers)])
    field = rng.integers(0, len(FIELDS), num_papers)
    pages = rng.poisson(8 + 4 * field).astype(np.float64)
    known = [None if rng.random() < 0.1 else FIELDS[each] for each in field]
    table = {"doi": dois, "title": [f"On subject {number}" for number in rng.integers(0, 999, num_papers)]}
    parquet.write_table(pa.table({**table, "pages": pages, "field": known}), folder / "papers.parquet")

    citing = rng.integers(0, num_papers, num_cites)
    cited = rng.integers(0, num_papers, num_cites)
    members = [np.flatnonzero(field == each) for each in range(len(FIELDS))]
    for place in np.flatnonzero(rng.random(num_cites) < SHARE_OWN_FIELD):
        cited[place] = rng.choice(members[field[citing[place]]])
    parquet.write_table(pa.table({"citing": dois[citing], "cited": dois[cited]}), folder / "cites.parquet")


if __name__ == "__main__":
    make_tables(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
