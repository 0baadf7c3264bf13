"""Samples from owners, and gathers rows from them, step by step; writes a line of JSON a step, and one at the end.

Arguments: folder of parts, file of addresses (a JSON list, read anew whenever an owner is looked for), file to write,
number of steps, seconds that each takes at least, seconds to look for an owner. The last line has the error of ours
that ended it, if any.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload import CollectiveSampler, Graph, NeighborSampler, load_partition
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.owners.client import Owners
from tests.integration.scripts.toy import NUM_FEATURES, NUM_NODES, digest

BATCH_SIZE = 16
SAMPLER = NeighborSampler([5, 4, 3])
DEADLINE_S = 1.0


def digests(sampler: Any, graph: Graph | None, gather: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[str]:
    """Yields a digest of each step's mini-batch and rows, for ever."""
    for step in itertools.count():
        seeds = np.arange(step * BATCH_SIZE, (step + 1) * BATCH_SIZE) % NUM_NODES
        batch = sampler.sample(graph, seeds, seed=5, epoch=0, step=step)
        arrays = [array for block in batch.blocks for array in (block.indptr, block.indices)]
        yield digest([batch.nodes, gather(batch.nodes), *arrays])


def main(folder: str, addresses: str, written: str, num_steps: str, pause_s: str, patience_s: str) -> None:
    partition = load_partition(folder)
    with open(written, "a", buffering=1) as lines:
        end = {"end": "ended"}
        try:
            owners = Owners.connect(
                partition,
                lambda: json.loads(Path(addresses).read_text()),
                deadline_s=DEADLINE_S,
                patience_s=float(patience_s),
            )

            def gather(nodes: torch.Tensor) -> torch.Tensor:
                out = np.empty((len(nodes), 4 * NUM_FEATURES), np.uint8)
                owners.gather("x", nodes.numpy(), out)
                return torch.from_numpy(out.view(np.float32))

            with closing(owners):
                batches = digests(CollectiveSampler(SAMPLER, owners), None, gather)
                for each in itertools.islice(batches, int(num_steps)):
                    print(json.dumps({"digest": each, "at": time.monotonic()}), file=lines)
                    time.sleep(float(pause_s))
        except GnnLoadError as error:
            end = {"end": f"{type(error).__name__}: {error}"}
        print(json.dumps(end), file=lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
