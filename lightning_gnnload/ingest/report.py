"""What a build has found in the tables, as JSON values and as text of at most 80 columns."""

from __future__ import annotations

import resource
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from lightning_gnnload.errors import printable
from lightning_gnnload.ingest.features import check_columns
from lightning_gnnload.ingest.opened import OpenTables
from lightning_gnnload.ingest.source import Source

_WIDTH = 80
_NAMES = 18
"""Columns before what is said of a table."""
_MOST_HUBS = 3
_MOST_DEGREES = 1 << 16
"""Degrees that are told apart for the median; a greater one counts as this."""
_STRETCH_NODES = 1 << 20


class Report:
    """Collects figures of a build by section and name.

    Attributes:
        values: JSON values: ``nodes``, ``edges`` and ``tasks`` by name; ``seconds`` by stage, wall and processor;
            ``peak_memory_bytes``; ``notes``, sentences.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"nodes": {}, "edges": {}, "tasks": {}, "notes": [], "seconds": {}}

    def add(self, section: str, name: str, figures: Mapping[str, Any]) -> None:
        """Adds figures about one table."""
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


def degrees(begins: np.ndarray, names: Any) -> dict[str, Any]:
    """Describes the degrees of nodes, and names those with the most; of many nodes, a stretch at a time.

    Args:
        begins: int64 ``[N + 1]``: where the list of each node begins, and the last ends.
        names: gives the user's ids of rows, as :meth:`.UserIds.take` does.
    """
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
    for name, found in values["nodes"].items():
        lines += _entry(f"nodes {name}", _of_nodes(found))
    for name, found in values["edges"].items():
        lines += _entry(f"edges {name}", _of_edges(found))
    for name, found in values["tasks"].items():
        lines += _entry(f"task {name}", _of_task(found))
    for sentence in values["notes"]:
        lines += _entry("note", [sentence])
    seconds = ", ".join(f"{stage} {each['wall']:.1f}" for stage, each in values["seconds"].items())
    if seconds:
        total = sum(each["wall"] for each in values["seconds"].values())
        lines += _entry("seconds", [f"{total:.1f} in all: {seconds}."])
    if "peak_memory_bytes" in values:
        lines += _entry("memory", [f"{values['peak_memory_bytes'] / 1e9:.2f} GB at most."])
    return "\n".join(lines)


def described(tables: OpenTables) -> str:
    """Returns what a build would make of tables, by their columns."""
    lines: list[str] = []
    spec = tables.spec
    for name, nodes in spec.nodes.items():
        source, kind = tables.nodes[name], tables.kind_of(name)
        lines += _entry(
            f"nodes {name}", [f"id {nodes.id}: {kind} ({source.types[nodes.id]}).", *_columns(source, nodes)]
        )
    for name, edges in spec.edges.items():
        ends = f"{edges.src.node_type} ({edges.src.column}) to {edges.dst.node_type} ({edges.dst.column})"
        reverse = "".join(f", and back as {relation}" for relation in edges.relations(name)[1:])
        lines += _entry(f"edges {name}", [f"{ends}{reverse}.", *_columns(tables.edges[name], edges)])
    for name, task in spec.tasks.items():
        source, seeds = tables.tasks[name], " to ".join(f"{end.node_type} ({end.column})" for end in task.ends)
        label = [] if task.y is None else [f"y {task.y} ({source.types[task.y]})."]
        lines += _entry(f"task {name}", [f"seeds: {seeds}.", *label, *_columns(source, task)])
    return "\n".join(lines)


def _columns(source: Source, spec: Any) -> list[str]:
    said = [] if spec.time is None else [f"time {spec.time} ({source.types[spec.time]})."]
    features = check_columns(source, getattr(spec, "x", ()), timezone=spec.timezone)
    said += [f"{each.column} ({source.types[each.column]}) as {each.kind}." for each in features]
    used = {each.column for each in features} | {spec.time, getattr(spec, "id", None), getattr(spec, "y", None)}
    ends = (getattr(spec, end, None) for end in ("seed", "src", "dst"))
    used |= {end.column for end in ends if end is not None} | {getattr(spec, "weight", None)}
    rest = [column for column in source.types if column not in used]
    return said + ([f"Not used: {', '.join(rest)}."] if rest and not hasattr(spec, "split") else [])


def _entry(name: str, sentences: list[str]) -> list[str]:
    """Lays sentences out beside a name: each begins a line."""
    sentences = [printable(each) for each in sentences]
    lines = [line for each in sentences for line in textwrap.wrap(each, _WIDTH - _NAMES, subsequent_indent="  ")]
    lines = lines or [""]
    if len(name) >= _NAMES:
        return [*textwrap.wrap(name, _WIDTH), *(" " * _NAMES + line for line in lines)]
    return [f"{name if not place else '':<{_NAMES}}{line}".rstrip() for place, line in enumerate(lines)]


def _of_nodes(found: Mapping[str, Any]) -> list[str]:
    said = [
        f"{found['rows']:,} rows{_except(found, {'repeated': 'repeat an id and are left out'})}; ids: {found['ids']}."
    ]
    if found.get("without_time"):
        said.append(f"{found['without_time']:,} have no time: they are there from the beginning.")
    if "isolated" in found:
        said.append(f"{found['isolated']:,} have no edge at all.")
    if degree := found.get("in_degree"):
        hubs = ", ".join(f"{name} {count:,}" for name, count in degree["hubs"].items())
        said.append(
            f"in-neighbours: {degree['min']:,} to {degree['max']:,}, median {degree['median']:,.0f}, mean "
            f"{degree['mean']:,.2f}{f'; most: {hubs}' if hubs else ''}."
        )
    return said + _of_features(found)


def _of_features(found: Mapping[str, Any]) -> list[str]:
    if "features" not in found:
        return []
    said = [f"x: {found['x_width']} numbers, {found['num_codes']} categories; fitted on {found['fitted_on']}."]
    for column, each in found["features"].items():
        facts = [f"{each['values']:,} values"] if "values" in each else []
        facts += [f"{each[key]:,} {told}" for key, told in _FEATURE_WORDS.items() if each.get(key)]
        if facts:
            said.append(f"{column}: {', '.join(facts)}.")
    return said


_FEATURE_WORDS = {"missing": "missing", "unknown": "unknown or rare"}


def _of_edges(found: Mapping[str, Any]) -> list[str]:
    left_out = found["rows"] - found["kept"]
    said = [f"{found['rows']:,} rows" + (f", {found['kept']:,} kept, {left_out:,} left out." if left_out else ".")]
    facts = [f"{found[key]:,} {told}" for key, told in _EDGE_WORDS.items() if found.get(key)]
    if facts:
        said.append(f"{'; '.join(facts)}.")
    return said + _of_features(found)


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


def _of_task(found: Mapping[str, Any]) -> list[str]:
    sizes = ", ".join(f"{split} {found[split]:,}" for split in ("train", "val", "test"))
    said = [f"{found['rows']:,} rows: {sizes}."]
    said += [f"There is nothing in {split}." for split in ("val", "test") if not found[split]]
    if found.get("without_label"):
        said.append(f"{found['without_label']:,} without a label, which are in no split.")
    if found.get("without_in_neighbours"):
        said.append(f"{found['without_in_neighbours']:,} seeds without in-neighbours.")
    if found.get("too_early"):
        said.append(f"{found['too_early']:,} seeds that see no edge with a time, as all of theirs are later.")
    lost = {key: count for key, count in found.items() if key.endswith(("_unknown", "_null", "_missing")) and count}
    said += [f"{count:,} {key.replace('_', ' ')}, left out." for key, count in lost.items()]
    for split in ("train", "val", "test"):
        if labels := found.get(f"{split}_labels"):
            is_numbers = labels.keys() == {"min", "mean", "max"}
            each = ", ".join(
                f"{name} {value:.4g}" if is_numbers else f"{name} {value / found[split]:.1%}"
                for name, value in labels.items()
            )
            said.append(f"y of {split}: {each}.")
    return said


def _except(found: Mapping[str, Any], words: Mapping[str, str]) -> str:
    return "".join(f", of which {found[key]:,} {told}" for key, told in words.items() if found.get(key))
