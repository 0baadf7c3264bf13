"""What a build has found in the tables, as JSON values and as text of at most 80 columns."""

from __future__ import annotations

import resource
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from lightning_gnnload.data.graphdata import PREDICT, SPLITS
from lightning_gnnload.errors import printable
from lightning_gnnload.ingest.features import unfitted_features
from lightning_gnnload.ingest.open_tables import OpenTables
from lightning_gnnload.ingest.source import Source

_WIDTH = 80
_NAMES = 18  # columns before what is said of a table
_MOST_HUBS = 3
_MOST_DEGREES = 1 << 16  # a greater degree counts as this for the median
_STRETCH_NODES = 1 << 20


class Report:
    """Collects figures of a build as JSON values: ``nodes``, ``edges`` and ``tasks`` by name; wall and processor
    ``seconds`` by stage; ``peak_memory_bytes``; ``notes``, sentences for the user."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"nodes": {}, "edges": {}, "tasks": {}, "notes": [], "seconds": {}}

    def add(self, section: str, name: str, figures: Mapping[str, Any]) -> None:
        self.values[section].setdefault(name, {}).update(figures)

    def note(self, sentence: str) -> None:
        """Adds what the user is to know."""
        self.values["notes"].append(sentence)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Counts the seconds of a block, all threads of this process among them."""
        wall, processor = time.perf_counter(), time.process_time()
        yield
        before = self.values["seconds"].get(name, {"wall": 0.0, "processor": 0.0})
        passed = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
        self.values["seconds"][name] = {key: round(before[key] + passed[key], 3) for key in before}

    def finish(self) -> dict[str, Any]:
        """Returns all values, with the memory of this process at its most."""
        self.values["peak_memory_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return self.values


def degree_figures(begins: np.ndarray, names: Any) -> dict[str, Any]:
    """Describes the degrees of nodes, whose lists begin at ``begins``, int64 ``[N + 1]``, and names those with the most
    by ``names``, as :meth:`.UserIds.take` does; of many nodes, a stretch at a time."""
    num_nodes = len(begins) - 1
    if num_nodes < 1:
        return {}
    num_of = np.zeros(_MOST_DEGREES + 1, np.int64)  # nodes of each degree, and of all greater ones
    hubs = np.empty((2, 0), np.int64)  # negative degrees, and rows: the order of hubs
    for begin in range(0, num_nodes, _STRETCH_NODES):
        counts = np.diff(begins[begin : begin + _STRETCH_NODES + 1])
        num_of += np.bincount(np.minimum(counts, _MOST_DEGREES), minlength=len(num_of))
        few = min(_MOST_HUBS, len(counts))
        best = np.flatnonzero(counts >= np.partition(counts, -few)[-few])
        hubs = np.concatenate([hubs, [-counts[best], best + begin]], axis=1)
        hubs = hubs[:, np.lexsort(hubs[::-1])][:, :_MOST_HUBS]
    middle = np.searchsorted(np.cumsum(num_of), [(num_nodes - 1) // 2, num_nodes // 2], side="right")
    most, rows = -hubs[0], hubs[1]
    return {
        "min": int(np.flatnonzero(num_of)[0]),
        "median": float(middle.mean()),
        "mean": float(begins[-1] - begins[0]) / num_nodes,
        "max": int(most[0]),
        "hubs": {str(name): int(count) for name, count in zip(names(rows), most, strict=True) if count},
    }


def as_text(values: Mapping[str, Any]) -> str:
    """Returns a report as lines of at most 80 columns."""
    lines: list[str] = []
    for name, figures in values["nodes"].items():
        lines += _entry(f"nodes {name}", _node_sentences(figures))
    for name, figures in values["edges"].items():
        lines += _entry(f"edges {name}", _edge_sentences(figures))
    for name, figures in values["tasks"].items():
        lines += _entry(f"task {name}", _task_sentences(figures))
    for sentence in values["notes"]:
        lines += _entry("note", [sentence])
    wall = {stage: seconds["wall"] for stage, seconds in values["seconds"].items()}
    if wall:
        stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in wall.items())
        lines += _entry("seconds", [f"{sum(wall.values()):.1f} in all: {stages}."])
    if "peak_memory_bytes" in values:
        lines += _entry("memory", [f"{values['peak_memory_bytes'] / 1e9:.2f} GB at most."])
    return "\n".join(lines)


def preview_text(tables: OpenTables) -> str:
    """Returns what a build would make of tables, by their columns."""
    lines: list[str] = []
    spec = tables.spec
    for name, nodes in spec.nodes.items():
        source = tables.nodes[name]
        ids = f"id {nodes.id}: {tables.id_type_of(name)} ({source.types[nodes.id]})."
        lines += _entry(f"nodes {name}", [ids, *_columns(source, nodes)])
    for name, edges in spec.edges.items():
        direction = f"{edges.src.node_type} ({edges.src.column}) to {edges.dst.node_type} ({edges.dst.column})"
        reverse = "".join(f", and back as {relation}" for relation in edges.relations(name)[1:])
        lines += _entry(f"edges {name}", [f"{direction}{reverse}.", *_columns(tables.edges[name], edges)])
    for name, task in spec.tasks.items():
        source, seeds = tables.tasks[name], " to ".join(f"{end.node_type} ({end.column})" for end in task.ends)
        label = [f"y {column} ({source.types[column]})." for column in task.y or ()]
        lines += _entry(f"task {name}", [f"seeds: {seeds}.", *label, *_columns(source, task)])
    return "\n".join(lines)


def _columns(source: Source, spec: Any) -> list[str]:
    sentences = [] if spec.time is None else [f"time {spec.time} ({source.types[spec.time]})."]
    features = unfitted_features(source, getattr(spec, "x", ()), timezone=spec.timezone)
    sentences += [f"{f.column} ({source.types[f.column]}) as {f.kind}." for f in features]
    used = {f.column for f in features} | {spec.time, getattr(spec, "id", None)}
    keys = (getattr(spec, name, None) for name in ("seed", "src", "dst"))
    used |= {key.column for key in keys if key is not None} | {getattr(spec, "weight", None)}
    rest = [column for column in source.types if column not in used]
    return sentences + ([f"Not used: {', '.join(rest)}."] if rest and not hasattr(spec, "split") else [])


def _entry(name: str, sentences: list[str]) -> list[str]:
    """Lays sentences out beside a name: each begins a line."""
    lines = [
        line
        for sentence in map(printable, sentences)  # names of tables and values come from files
        for line in textwrap.wrap(sentence, _WIDTH - _NAMES, subsequent_indent="  ")
    ]
    lines = lines or [""]
    if len(name) >= _NAMES:
        return [*textwrap.wrap(name, _WIDTH), *(" " * _NAMES + line for line in lines)]
    return [f"{name if not number else '':<{_NAMES}}{line}".rstrip() for number, line in enumerate(lines)]


def _node_sentences(figures: Mapping[str, Any]) -> list[str]:
    sentences = [
        f"{figures['rows']:,} rows{_except(figures, {'repeated': 'repeat an id and are left out'})}; ids: "
        f"{figures['ids']}."
    ]
    if figures.get("without_time"):
        sentences.append(f"{figures['without_time']:,} have no time: they are there from the beginning.")
    if "isolated" in figures:
        sentences.append(f"{figures['isolated']:,} have no edge at all.")
    if degree := figures.get("in_degree"):
        hubs = ", ".join(f"{name} {count:,}" for name, count in degree["hubs"].items())
        sentences.append(
            f"in-neighbours: {degree['min']:,} to {degree['max']:,}, median {degree['median']:,.0f}, mean "
            f"{degree['mean']:,.2f}{f'; most: {hubs}' if hubs else ''}."
        )
    return sentences + _feature_sentences(figures)


def _feature_sentences(figures: Mapping[str, Any]) -> list[str]:
    if "features" not in figures:
        return []
    fitted_on = f"fitted on {figures['fitted_on']}"
    sentences = [f"x: {figures['x_width']} numbers, {figures['num_codes']} categories; {fitted_on}."]
    for column, counts in figures["features"].items():
        facts = [f"{counts['values']:,} values"] if "values" in counts else []
        facts += [f"{counts[key]:,} {words}" for key, words in _FEATURE_WORDS.items() if counts.get(key)]
        if facts:
            sentences.append(f"{column}: {', '.join(facts)}.")
    return sentences


_FEATURE_WORDS = {"missing": "missing", "unknown": "unknown or rare"}


def _edge_sentences(figures: Mapping[str, Any]) -> list[str]:
    left_out = figures["rows"] - figures["kept"]
    losses = f", {figures['kept']:,} kept, {left_out:,} left out" if left_out else ""
    sentences = [f"{figures['rows']:,} rows{losses}."]
    facts = [f"{figures[key]:,} {words}" for key, words in _EDGE_WORDS.items() if figures.get(key)]
    if facts:
        sentences.append(f"{'; '.join(facts)}.")
    return sentences + _feature_sentences(figures)


_EDGE_WORDS = {
    "src_unknown": "with an unknown source",
    "src_null": "without a source",
    "dst_unknown": "with an unknown target",
    "dst_null": "without a target",
    "self_loops": "self loops",
    "repeats": "repeat an edge",
    "without_time": "without a time: they are there from the beginning",
    "src_later": "older than their source: they are there from its time on",
    "dst_later": "older than their target",
}


_TASK_WORDS = {
    "left_out": "without a label, which are in no split",
    "unlabelled": "without a label, which are to be predicted",
    "without_in_neighbours": "seeds without in-neighbours",
    "too_early": "seeds that see no edge with a time, as all of theirs are later",
}


def _task_sentences(figures: Mapping[str, Any]) -> list[str]:
    splits = [split for split in SPLITS if split in figures] + ([PREDICT] if figures[PREDICT] else [])
    sizes = ", ".join(f"{split} {figures[split]:,}" for split in splits)
    sentences = [f"{figures['rows']:,} rows{f': {sizes}' if sizes else ''}."]
    sentences += [f"There is nothing in {split}." for split in ("val", "test") if figures.get(split) == 0]
    if "as_of" in figures:
        sentences.append(f"To be predicted: all {figures['seeds']} as of {figures['as_of']}.")
    sentences += [f"{figures[key]:,} {words}." for key, words in _TASK_WORDS.items() if figures.get(key)]
    lost = {key: count for key, count in figures.items() if key.endswith(("_unknown", "_null", "_missing")) and count}
    sentences += [f"{count:,} {key.replace('_', ' ')}, left out." for key, count in lost.items()]
    for split in SPLITS:
        if labels := figures.get(f"{split}_labels"):
            sentences.append(f"y of {split}: {_label_shares(labels, figures[split])}.")
    return sentences


def _label_shares(labels: Mapping[str, Any], num_rows: int) -> str:
    """Describes classes by their shares, or numbers by what they span."""
    if labels.keys() == {"true"}:
        return ", ".join(f"{name} {value / num_rows:.1%}" for name, value in labels["true"].items())
    if labels.keys() == {"means"}:
        return ", ".join(f"mean {name} {value:.4g}" for name, value in labels["means"].items())
    if labels.keys() == {"min", "mean", "max"}:
        return ", ".join(f"{name} {value:.4g}" for name, value in labels.items())
    return ", ".join(f"{name} {value / num_rows:.1%}" for name, value in labels.items())


def _except(figures: Mapping[str, Any], words: Mapping[str, str]) -> str:
    return "".join(f", of which {figures[key]:,} {text}" for key, text in words.items() if figures.get(key))
