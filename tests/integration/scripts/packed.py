"""Two epochs of a table in a file: ``packed.py FOLDER [PROCS]`` prints a checksum and whether rows came packed.

With PROCS, of a control group, the process joins it before it imports anything large, and packs the mini-batches.
"""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path

NUM_NODES, WIDTH = 320_000, 1536


def main(folder: Path, packs: bool) -> None:
    import numpy as np
    import torch

    from lightning_gnnload import Graph, GraphData, GraphDataModule, MemoryFeatureStore, NeighborSampler, Packing

    ends = np.random.default_rng(0).integers(NUM_NODES, size=(2, 2 * NUM_NODES))
    rows = np.memmap(folder / "x.bin", np.float32, "r").reshape(NUM_NODES, WIDTH)
    data = GraphData(
        Graph.from_coo(*ends, num_nodes=NUM_NODES),
        MemoryFeatureStore(torch.from_numpy(rows)),
        train=torch.arange(0, NUM_NODES, 80),
    )
    packing = Packing(folder / "packed", memory="64MB", room="4GB", window=32, always=True) if packs else None
    module = GraphDataModule(data, NeighborSampler([2, 2]), batch_size=128, num_threads=1, packing=packing)
    checksum = 0
    for _ in range(2):
        loader = module.train_dataloader()
        for batch in loader:
            for array in (batch.nodes, batch.x):
                checksum = zlib.crc32(array.numpy(), checksum)
    print(checksum, "packed" in {tier for tier, *_ in loader.stats.reads})
    module.teardown("fit")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(str(os.getpid()))
    main(Path(sys.argv[1]), packs=len(sys.argv) > 2)
