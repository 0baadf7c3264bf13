"""Degrees are described a stretch at a time, as all at once would be."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.ingest import report


@pytest.mark.parametrize("num_nodes", [1, 2, 7, 100, 101])
@pytest.mark.parametrize("stretch", [1, 7, 1000])
def test_degrees_of_stretches_are_those_of_all(num_nodes, stretch, monkeypatch):
    monkeypatch.setattr(report, "_STRETCH_NODES", stretch)
    counts = np.random.default_rng(num_nodes).integers(0, 12, num_nodes)
    begins = 5 + np.concatenate([[0], np.cumsum(counts)])
    hubs = sorted(range(num_nodes), key=lambda row: (-counts[row], row))[:3]
    assert report.degree_figures(begins, lambda rows: rows.tolist()) == {
        "min": counts.min(),
        "median": np.median(counts),
        "mean": pytest.approx(counts.mean()),
        "max": counts.max(),
        "hubs": {str(hub): counts[hub] for hub in hubs if counts[hub]},
    }
