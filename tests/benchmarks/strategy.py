"""``python -m tests.benchmarks.strategy``: what the strategy's parts win and cost, in one run, as a page."""

from __future__ import annotations

import sys

from tests.benchmarks import parts

PARTS = {
    "jitter": "Bounded staleness: late steps hidden",
    "jitter_learning": "Bounded staleness: what is learned",
    "switching": "Dynamic switching: idle samplers train",
    "transport": "The queue beside a loader in process",
    "unequal": "Samplers of unequal speed",
    "resources": "Cores and threads by measured stages",
    "pacing": "A queue's depth that follows the waits",
    "epochs": "Epochs beside DDP and DGL",
    "monitoring": "What PipelineMonitor costs",
    "plan": "Plans: predicted beside actual",
}

if __name__ == "__main__":
    sys.exit(parts.run("strategy", PARTS, sys.argv[1:]))
