"""A fit by one trainer and two samplers, whose trainer writes the calls of one step to ``trace.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lightning_gnnload import SAGE, FactoredStrategy, GraphData, GraphDataModule, NeighborSampler
from lightning_gnnload.plugin.compat import pl
from tests.trace import Trace, homogeneous

STEP = 20  # the one that is looked at


class Traced(SAGE):
    """Traces a step, from the begin of one to the begin of the next."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if batch_idx == STEP:
            self.trace = Trace()
            self.running = self.trace.running()
            self.running.__enter__()
        elif batch_idx == STEP + 1:
            self.running.__exit__(None, None, None)
            Path("trace.json").write_text(json.dumps(self.trace.calls))


def main() -> None:
    data = GraphDataModule(GraphData.from_pyg(homogeneous()), NeighborSampler([10, 5]), batch_size=64)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    strategy = FactoredStrategy(samplers=2)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=3,
        strategy=strategy,
        max_epochs=1,
        limit_train_batches=STEP + 4,
        enable_progress_bar=False,
        **quiet,
    )
    trainer.fit(Traced(), data)


if __name__ == "__main__":
    main()
