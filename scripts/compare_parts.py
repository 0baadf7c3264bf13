"""Training on parts beside training on the whole graph: how well a model learns, and how often caches serve (PaGraph,
TPDS'21, figures 21 and 17a).

    python scripts/compare_parts.py accuracy --figure docs/parts_accuracy.png
    python scripts/compare_parts.py hits --figure docs/parts_hits.png

Prints tables in Markdown. Needs pymetis.

Four trainers whose gradients are averaged are computed as one trainer with four times the batch, whose steps have the
same seeds: the mean over the step is the same, and so are the draws, which belong to nodes and steps.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from compare_orders import SAMPLER, Result, draw, measure, train

from lightning_gnnload import Debian, GraphData, Partition, Synthetic, load_partition, partition_graph
from lightning_gnnload.cache.policy import PartPolicy, hottest
from lightning_gnnload.cache.rules import policy_named
from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.data.orders.seeds import SeedOrder, Shuffled
from lightning_gnnload.drawing import COLORS, name_lines, new_figure, save_figure, tidy
from lightning_gnnload.sample.parts.sampler import PartSampler
from lightning_gnnload.sample.workload import Workload

NUM_TRAINERS = 4
NUMBERS_OF_PARTS = (1, 2, 4, 8)
BATCH_A_TRAINER = 256
CACHE_RATIO = 0.05
POLICIES = ("degree", "presample")
METHODS = ("self-reliant", "metis", "random")
COMMUNITIES = Synthetic(
    "web", num_nodes=200_000, num_edges=2_000_000, num_features=8, homophily=0.9, train_fraction=0.1
)


def parts_of(data: GraphData, num_parts: int, method: str, scratch: Path) -> Partition:
    folder = scratch / f"{data.num_nodes}-{method}-{num_parts}"
    if not folder.exists():
        partition_graph(data, folder, num_parts, method, hops=SAMPLER.num_layers, features=False, progress=False)
    return load_partition(folder)


def local(partition: Partition, num_ranks: int | None = None) -> LocalOrder:
    return LocalOrder([part.seeds["train"] for part in partition.parts], num_ranks=num_ranks)


def compare_accuracy(data: GraphData, epochs: int, seeds: list[int], scratch: Path, figure: Path | None) -> None:
    orders: dict[str, SeedOrder] = {
        "global": Shuffled(),
        "local to self-reliant parts": local(parts_of(data, NUM_TRAINERS, "self-reliant", scratch)),
        "local to random parts": local(parts_of(data, NUM_TRAINERS, "random", scratch)),
        "one trainer, steps of one of 4 METIS's parts": local(parts_of(data, NUM_TRAINERS, "metis", scratch), 1),
    }
    results: dict[str, Result] = {}
    for name, order in orders.items():
        results[name] = measure(order, data)
        for seed in seeds:
            train(order, data, epochs, seed, results[name])
    print("| shuffling | labels of a batch, from those of all | test accuracy | mean |")
    print("| --- | --- | --- | --- |")
    for name, result in results.items():
        accuracy = ", ".join(f"{value:.3f}" for value in result.test_accuracy)
        print(f"| {name} | {result.label_distance:.3f} | {accuracy} | {np.mean(result.test_accuracy):.3f} |")
    if figure:
        means = [np.mean(result.test_accuracy) for result in results.values()]
        title = f"Shuffled within parts, a model learns as much: test accuracies are within {np.ptp(means):.3f}"
        draw(results, title, figure)


def visits(workload: Workload, epoch: int) -> np.ndarray:
    """Mini-batches of each rank that gather each node, ``[K, N]``."""
    counts = np.zeros((workload.num_ranks, workload.graph.num_nodes), np.int32)
    for request in workload.requests(epoch):
        counts[request.rank, workload.nodes_of(request)] += 1
    return counts


def hit_rates(data: GraphData, num_parts: int, policy_name: str, scratch: Path) -> dict[str, float]:
    """Of the rows that K trainers gather in an epoch, the share that their caches serve."""
    room, policy = int(CACHE_RATIO * data.num_nodes), policy_named(policy_name, progress=False)

    def rate(counts: np.ndarray, hot: Callable[[int], np.ndarray]) -> float:
        return sum(int(counts[rank, hot(rank)].sum()) for rank in range(num_parts)) / int(counts.sum())

    whole = Workload(data.graph, SAMPLER, data.train, batch_size=BATCH_A_TRAINER, order=Shuffled(), num_ranks=num_parts)
    ranked, counts = policy.hotness(whole, 0), visits(whole, 0)
    rates = {
        "whole graph, replicated": rate(counts, lambda rank: hottest(ranked, data.num_nodes, room)),
        "whole graph, partitioned": rate(counts, lambda rank: hottest(ranked, data.num_nodes, num_parts * room)),
    }
    for method in METHODS:
        partition = parts_of(data, num_parts, method, scratch)
        parted = {"sampler": PartSampler(SAMPLER, partition), "order": local(partition)}
        workload = Workload(**{**whole.settings(), **parted})
        hot = [
            hottest(PartPolicy(policy, SAMPLER, partition, part, "train").hotness(workload, 0), data.num_nodes, room)
            for part in partition.parts
        ]
        rates[f"{method} parts"] = rate(visits(workload, 0), hot.__getitem__)
    return rates


def compare_hits(graphs: dict[str, GraphData], scratch: Path, figure: Path | None) -> None:
    found = {
        (name, policy): [hit_rates(data, number, policy, scratch) for number in NUMBERS_OF_PARTS]
        for name, data in graphs.items()
        for policy in POLICIES
    }
    for (name, policy), rates in found.items():
        print(f"\n{name}, policy {policy!r}\n")
        print(f"| caches | {' | '.join(f'{number} trainers' for number in NUMBERS_OF_PARTS)} |")
        print(f"| --- |{' --- |' * len(NUMBERS_OF_PARTS)}")
        for way in rates[0]:
            print(f"| {way} | {' | '.join(f'{100 * each[way]:.1f} %' for each in rates)} |")
    if figure:
        draw_hits({name: rates for (name, policy), rates in found.items() if policy == POLICIES[-1]}, figure)


def draw_hits(found: dict[str, list[dict[str, float]]], path: Path) -> None:
    """A panel a graph, a line each way to cache."""
    note = f"Each trainer has room for {100 * CACHE_RATIO:.0f} % of all rows, chosen by {POLICIES[-1]!r}."
    title = "More trainers serve more rows from caches where each holds other rows than the rest"
    figure = new_figure(title, 4.4, note)
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, (name, rates) in zip(panels, found.items(), strict=True):
        ends = []
        for way, color in zip(rates[0], COLORS, strict=False):
            shares = [100 * each[way] for each in rates]
            axes.plot(NUMBERS_OF_PARTS, shares, color=color, marker="o", markersize=4, linewidth=1.8, clip_on=False)
            ends.append((shares[-1], way, color))
        axes.set(xlabel="trainers, each with a part", xscale="log", xticks=NUMBERS_OF_PARTS, ylim=(0, 100))
        axes.set_xticks([], minor=True)
        axes.set_xticklabels(NUMBERS_OF_PARTS)
        axes.set_xlim(NUMBERS_OF_PARTS[0], NUMBERS_OF_PARTS[-1])
        tidy(axes, name)
        name_lines(axes, ends)
    panels[0].set_ylabel("rows served by the cache, %")
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("accuracy", "hits"))
    parser.add_argument("--epochs", type=int, default=15, help="of the study of accuracy")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the study of accuracy")
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    Debian().prepare()
    debian = Debian().load()
    with tempfile.TemporaryDirectory() as scratch:
        if args.study == "accuracy":
            compare_accuracy(debian, args.epochs, args.seeds, Path(scratch), args.figure)
        else:
            COMMUNITIES.prepare()
            compare_hits({"Debian": debian, "communities": COMMUNITIES.load()}, Path(scratch), args.figure)


if __name__ == "__main__":
    main()
