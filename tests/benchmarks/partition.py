"""``python -m tests.benchmarks.partition``: what parts of graphs cost and save, in one run, as a page."""

from __future__ import annotations

import sys

from tests.benchmarks import parts

PARTS = {
    "partitioning": "Self-reliant parts: time, memory, replication",
    "cross_parts": "Disjoint parts: what sampling asks of others",
    "beside": "Samplers beside their parts",
    "block_growth": "BGL's partition, up to 1.6 G edges",
    "collective": "Collective sampling: tasks pushed, or lists pulled",
}

if __name__ == "__main__":
    sys.exit(parts.run("partition", PARTS, sys.argv[1:]))
