"""One side of the comparison of :mod:`tests.pyg_suite.examples`: RelBench's example scripts, trained by one's loaders.

    python -m tests.pyg_suite.side SIDE RELBENCH_CHECKOUT REPORT --seeds 5 --epochs 5

Scripts run from their own text. On our side one import is exchanged in it; RelBench's own link loader gets our sampler
besides. What is no part of loading is given in: data sets that are made here, and texts embedded by a hash. Each run
adds a line of JSON to the report: its metrics, and what was found in its mini-batches. Runs that are in it are not
made again.

A side is ``pyg`` (PyG's loaders and pyg-lib), ``ours``, or one that must fare differently, so that a difference means
something: ``future`` (ours on a graph without times) and ``strangers`` (ours on a graph whose rows point to others'
rows). ``without`` is PyG's loaders with pyg-lib hidden.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SIDES = ("pyg", "ours", "future", "strangers", "without")
THEIR_IMPORT = "from torch_geometric.loader import NeighborLoader"
OUR_IMPORT = "from lightning_gnnload.pyg import NeighborLoader"
# Script, task -> the metric that is compared.
EXAMPLES = {
    ("gnn_entity", "user-churn"): "roc_auc",
    ("gnn_entity", "item-ltv"): "mae",
    ("gnn_recommendation", "user-item-purchase"): "link_prediction_map",
    ("idgnn_recommendation", "user-item-purchase"): "link_prediction_map",
}
# Database -> rows a mini-batch, of which RelBench's link loader makes none where fewer share a time; tasks left out.
DATABASES = {"fake": ("32", ()), "taste": ("64", ("item-ltv",))}
_OPTIONS = ["--channels", "32", "--num_neighbors", "8"]  # customers and products have more neighbours than that


def with_ours(source: str) -> str:
    """The script with our import in the place of PyG's.

    Raises:
        ValueError: it has no such line, or several.
    """
    lines = source.splitlines()
    if (count := lines.count(THEIR_IMPORT)) != 1:
        raise ValueError(
            f"the script has {count} lines {THEIR_IMPORT!r}, where one was needed. This is another release of "
            "RelBench: change THEIR_IMPORT in tests/pyg_suite/side.py."
        )
    return "\n".join(OUR_IMPORT if line == THEIR_IMPORT else line for line in lines) + "\n"


def faults_of(batch: Any) -> list[str]:
    """What is wrong with a mini-batch whose rows have a time: words of ``"shared"`` and ``"later"``.

    ``"shared"``: nodes of no row, an edge between two rows' nodes, or a node twice in a row's. ``"later"``: a node of
    a row's that is not there yet at the row's time.

    Args:
        batch: a ``HeteroData``. Its seeds' type has ``seed_time`` ``[B]``, each ``batch`` and ``n_id`` ``[N]``, some
            ``time``.
    """
    [until] = [store.seed_time for store in batch.node_stores if "seed_time" in store]
    if any("batch" not in store for store in batch.node_stores):
        return ["shared"]
    faults = set()
    for store in batch.node_stores:
        if len({*zip(store.batch.tolist(), store.n_id.tolist(), strict=True)}) < len(store.n_id):
            faults.add("shared")
        if "time" in store and (store.time > until[store.batch]).any():
            faults.add("later")
    for (src, _, dst), ends in batch.edge_index_dict.items():
        if (batch[src].batch[ends[0]] != batch[dst].batch[ends[1]]).any():
            faults.add("shared")
    return sorted(faults)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pyg_suite.side")
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--databases", nargs="*", choices=DATABASES, default=list(DATABASES))
    given = parser.parse_args(arguments)
    os.environ["GNNLOAD_STAND_IN"] = "pyg" if given.side == "pyg" else "ours"
    import tests.pyg_suite.without  # noqa: F401  # before anything imports pyg-lib

    folder = given.checkout.resolve() / "examples"
    sys.path[:0] = [str(folder), str(folder.parent)]
    _check_libraries(given.side)
    _give_what_is_no_loading(given.report.resolve().parent / "tasks")
    _put_loaders_in_place(given.side)
    found = _watch_batches()
    done = [json.loads(line) for line in given.report.read_text().splitlines()] if given.report.exists() else []
    for named in planned(given.databases, given.seeds, given.epochs):
        if any(named.items() <= line.items() for line in done):
            continue
        found.clear()
        start = time.monotonic()
        line = named | _metrics(folder / f"{named['script']}.py", given.side, named)
        line |= {"batches": dict(found), "seconds": round(time.monotonic() - start, 1)}
        with given.report.open("a") as report:
            print(json.dumps(line), file=report)
        print(given.side, json.dumps(line), flush=True)
    return 0


def planned(databases: Iterable[str], seeds: int, epochs: int) -> list[dict[str, Any]]:
    """What names each run."""
    return [
        {"database": database, "script": script, "task": task, "seed": seed, "epochs": epochs}
        for database in databases
        for script, task in EXAMPLES
        if task not in DATABASES[database][1]
        for seed in range(seeds)
    ]


def _metrics(path: Path, side: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """The metric of both splits after this run of the script, or why it could import no sampler."""
    source = path.read_text() if side in ("pyg", "without") else with_ours(path.read_text())
    options = ["--dataset", f"rel-{named['database']}", "--task", named["task"], "--seed", str(named["seed"])]
    options += ["--batch_size", DATABASES[named["database"]][0], "--epochs", str(named["epochs"]), *_OPTIONS]
    try:
        after = _run(path, source, options)
    except ImportError as error:
        return {"error": str(error)}
    metric = EXAMPLES[named["script"], named["task"]]
    return {split: float(after[f"{split}_metrics"][metric]) for split in ("val", "test")}


def _check_libraries(side: str) -> None:
    """Raises SystemExit: pyg-lib is hidden where it is needed, or the other way round; pandas 3."""
    import pandas
    import torch_geometric.typing

    if (side == "pyg") != torch_geometric.typing.WITH_PYG_LIB:
        raise SystemExit(
            f"side {side!r} runs {'with' if side == 'pyg' else 'without'} pyg-lib, but WITH_PYG_LIB is "
            f"{torch_geometric.typing.WITH_PYG_LIB} in {sys.executable}. Give --pyg-python an interpreter that has it."
        )
    if int(pandas.__version__.split(".")[0]) > 2:
        raise SystemExit(
            f"pandas {pandas.__version__} is in {sys.executable}: RelBench takes its microseconds for nanoseconds. "
            "pip install 'pandas<3'."
        )


def _give_what_is_no_loading(tasks: Path) -> None:
    """Data sets and tasks under names of RelBench's, no download, and texts embedded by their hashes.

    Args:
        tasks: folder of the tasks' tables, whose rows come in another order whenever they are made.
    """
    import relbench.datasets
    import relbench.tasks
    from relbench.tasks import amazon
    from torch_frame.testing.text_embedder import HashTextEmbedder

    for database, kind in _databases().items():
        relbench.datasets.register_dataset(f"rel-{database}", kind)
        for name, task in (
            ("user-churn", amazon.UserChurnTask),
            ("item-ltv", amazon.ItemLTVTask),
            ("user-item-purchase", amazon.UserItemPurchaseTask),
        ):
            relbench.tasks.register_task(f"rel-{database}", name, task, cache_dir=f"{tasks}/{database}/{name}")
    relbench.datasets.download_dataset = relbench.tasks.download_task = lambda *names: None
    embedder = types.ModuleType("text_embedder")
    embedder.GloveTextEmbedding = lambda device=None: HashTextEmbedder(8)  # type: ignore[attr-defined]
    sys.modules["text_embedder"] = embedder


def _databases() -> dict[str, Callable[..., Any]]:
    """RelBench's fake database, and one of its shape with something to learn; the same ones in all runs."""
    import numpy as np
    import pandas as pd
    from relbench.datasets.fake import FakeDataset

    class Fake(FakeDataset):  # type: ignore[misc]
        def __init__(self, cache_dir: str | None = None, **sizes: int) -> None:
            super().__init__(**sizes)

        def make_db(self) -> Any:
            with _drawn_apart():
                return super().make_db()

    class Taste(Fake):
        """Customers have favourites, and whether they come back lies in what they bought last, two hops away.

        After a cheap product a customer is back within 80 days, after a dear one not for 190. A window of the tasks
        is 91 days long, so that the last product's price decides who churns. Nine times in ten it is one of three
        favourites, a dear one and two cheap ones. Nothing in a customer's or a review's own row tells any of this.
        """

        days = 1200

        def __init__(self, cache_dir: str | None = None) -> None:
            super().__init__(num_customers=300, num_reviews=5000)  # more than there will be
            self.val_timestamp, self.test_timestamp = (
                pd.Timestamp(0) + pd.Timedelta(days=share * self.days) for share in (0.8, 0.9)
            )

        def make_db(self) -> Any:
            db, draw = super().make_db(), np.random.default_rng(0)
            cheap, dear = np.split(np.arange(self.num_products), [2 * self.num_products // 3])
            bought = []
            for customer in range(self.num_customers):
                favourites = draw.choice(cheap, 2, replace=False), draw.choice(dear, 1)
                day = draw.uniform(0, 225)
                while day < self.days:
                    is_dear = int(draw.random() < 0.3)
                    choice = favourites[is_dear] if draw.random() < 0.9 else (cheap, dear)[is_dear]
                    bought.append((day, customer, draw.choice(choice)))
                    day += draw.uniform(190, 260) if is_dear else draw.uniform(10, 80)
            days, buyers, products = zip(*sorted(bought), strict=True)
            review, product = db.table_dict["review"], db.table_dict["product"].df
            review.df = review.df.head(len(days)).assign(
                customer_id=[f"customer_id_{each}" for each in buyers],
                product_id=[f"product_id_{each}" for each in products],
                review_time=pd.Timestamp(0) + pd.to_timedelta(np.floor(np.array(days) * 24), unit="h"),
            )
            product["price"] = np.where(product.index < len(cheap), 0.2, 0.8) + 0.1 * draw.random(len(product))
            return db

    return {"fake": Fake, "taste": Taste}


@contextmanager
def _drawn_apart() -> Iterator[None]:
    """Draws inside are the same ones ever, and leave those outside as they would be."""
    import numpy as np

    before = random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(0)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def _put_loaders_in_place(side: str) -> None:
    """Ours, where the script's import and RelBench's link loader find them."""
    if side in ("pyg", "without"):
        return
    import relbench.modeling.loader

    import lightning_gnnload.pyg as ours

    if side != "ours":
        for name in ("NeighborLoader", "GnnloadSampler"):
            setattr(ours, name, _misled(getattr(ours, name), side))
    relbench.modeling.loader.NeighborSampler = ours.GnnloadSampler


def _misled(make: Callable[..., Any], side: str) -> Callable[..., Any]:
    """A loader or sampler of a graph that is not the one it was given."""
    import torch

    def make_of_another(data: Any, *args: Any, time_attr: str, **kwargs: Any) -> Any:
        data = copy.copy(data)
        if side == "future":
            for kind in data.node_types:
                if "time" in data[kind]:
                    data[kind].ever = torch.zeros_like(data[kind].time)
            return make(data, *args, time_attr="ever", **kwargs)
        draw = torch.Generator().manual_seed(0)
        for kind in data.edge_types:
            src, dst = data[kind].edge_index
            data[kind].edge_index = torch.stack([src[torch.randperm(len(src), generator=draw)], dst])
        return make(data, *args, time_attr=time_attr, **kwargs)

    return make_of_another


def _watch_batches() -> Counter[str]:
    """Counts mini-batches, their nodes and their faults, whenever a model is called."""
    from model import Model  # RelBench's examples/model.py

    found: Counter[str] = Counter()

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def look(self: Any, batch: Any, *args: Any) -> Any:
            found.update(["batches", *faults_of(batch)])
            found["nodes"] += sum(store.num_nodes for store in batch.node_stores)
            return call(self, batch, *args)

        return look

    Model.forward, Model.forward_dst_readout = watched(Model.forward), watched(Model.forward_dst_readout)
    return found


def _run(path: Path, source: str, options: list[str]) -> dict[str, Any]:
    """The script's names after it has run, as a program with these options."""
    import relbench.datasets
    import relbench.tasks

    relbench.datasets.get_dataset.cache_clear()
    relbench.tasks.get_task.cache_clear()
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    before = sys.argv
    with tempfile.TemporaryDirectory(prefix="gnnload-relbench-") as cache, Path(os.devnull).open("w") as nowhere:
        sys.argv = [str(path), *options, "--cache_dir", cache]
        out, sys.stdout = sys.stdout, nowhere
        try:
            exec(compile(source, str(path), "exec"), names)
        finally:
            sys.argv, sys.stdout = before, out
    return names


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
