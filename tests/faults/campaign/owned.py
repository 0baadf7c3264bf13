"""Samples from owners, and gathers rows from them, step by step; writes a line of JSON a step, and one at the end.

Arguments: folder of parts, file of addresses (a JSON list, read anew whenever an owner is looked for), file to write,
number of steps, seconds that each takes at least. The last line has the error of ours that ended it, if any.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload import CollectiveSampler, Graph, NeighborSampler, load_partition
from lightning_gnnload.errors import GnnLoadError
from tests.integration.scripts.toy import digest

BATCH_SIZE = 16
SAMPLER = NeighborSampler([5, 4, 3])
DEADLINE_S, PATIENCE_S = 1.0, 30.0


def digests(
    sampler: Any, graph: Graph | None, seeds: np.ndarray, gather: Callable[[torch.Tensor], Any]
) -> Iterator[str]:
    """Yields a digest of each step's mini-batch and rows, for ever."""
    for step in range(sys.maxsize):
        chosen = np.take(seeds, np.arange(step * BATCH_SIZE, (step + 1) * BATCH_SIZE), mode="wrap")
        batch = sampler.sample(graph, chosen, seed=5, epoch=0, step=step)
        arrays = [array for block in batch.blocks for array in (block.indptr, block.indices)]
        yield digest([batch.nodes, gather(batch.nodes), *arrays])


def main(folder: str, addresses: str, written: str, num_steps: str, pause_s: str) -> None:
    from lightning_gnnload.owners.client import Owners

    partition = load_partition(folder)
    with open(written, "a", buffering=1) as lines:
        end: dict[str, Any] = {"end": "ended"}
        try:
            with Owners.connect(
                partition,
                lambda: json.loads(Path(addresses).read_text()),
                deadline_s=DEADLINE_S,
                patience_s=PATIENCE_S,
            ) as owners:
                width = partition.parts[0].x.shape[1]  # type: ignore[union-attr]

                def gather(nodes: torch.Tensor) -> torch.Tensor:
                    out = np.empty((len(nodes), 4 * width), np.uint8)
                    owners.gather("x", nodes.numpy(), out)
                    return torch.from_numpy(out.view(np.float32))

                seeds = np.concatenate([part.seeds["train"] for part in partition.parts])
                for each, _ in zip(
                    digests(CollectiveSampler(SAMPLER, owners), None, seeds, gather), range(int(num_steps))
                ):
                    print(json.dumps({"digest": each, "at": time.monotonic()}), file=lines)
                    time.sleep(float(pause_s))
        except GnnLoadError as error:
            end = {"end": f"{type(error).__name__}: {error}"}
        print(json.dumps(end), file=lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
