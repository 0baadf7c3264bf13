"""``python -m tests.benchmarks.features``: what caches and tiers of features win and cost, in one run, as a page."""

from __future__ import annotations

import sys

from tests.benchmarks import parts

PARTS = {
    "cached_gather": "Gathering through a cache",
    "cache_policies": "Which rows to cache: GNNLab's twelve cases",
    "fifo": "Caches that evict, and the order of seeds",
    "reuse": "Rows of the last mini-batch",
    "cache_memory": "Memory of a shared cache",
    "disk": "A table of three times the memory",
    "preaggregated": "First layers aggregated beforehand",
    "packing": "Packed mini-batches",
    "safety": "What leases and checksums cost",
}

if __name__ == "__main__":
    sys.exit(parts.run("features", PARTS, sys.argv[1:]))
