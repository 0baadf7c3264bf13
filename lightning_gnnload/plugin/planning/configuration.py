"""Writes the configuration of a planned layout: the user's own, with the settings of ranks, threads and cache."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_gnnload.pipeline.forecast.work import RunLayout

_SETTINGS = ("samplers", "trainers", "sampler_threads", "switching", "queue_depth")
"""What is said of a strategy."""
_MONITORS = ("PipelineMonitor", "LoaderMonitor")


def planned_configuration(
    configuration: Mapping[str, Any], mine: RunLayout, layout: RunLayout, *, plan_file: Path, num_nodes: int = 1
) -> tuple[dict[str, Any], list[str]]:
    """Returns the configuration with the settings of ``layout`` instead of those of ``mine``, and the changes in words;
    all else stays. A monitor is told of the plan, so that a run shows what was predicted beside what came of it."""
    written: dict[str, Any] = copy.deepcopy(dict(configuration))
    changes: list[str] = []
    trainer, data = written.setdefault("trainer", {}), written.setdefault("data", {})

    def change(section: dict[str, Any], name: str, key: str, value: Any) -> None:
        if section.get(key) != value:
            changes.append(f"{name}.{key}: {_in_words(value)}" + (f" (was {_in_words(section.get(key))})"))
            section[key] = value

    if layout.ranks != mine.ranks or layout.way != mine.way or layout.samplers != mine.samplers:
        change(trainer, "trainer", "devices", layout.ranks)
    strategy = _strategy(trainer.get("strategy"), layout) if layout != mine else None
    if strategy is not None:
        change(trainer, "trainer", "strategy", strategy)
    if num_nodes > 1:
        change(trainer, "trainer", "num_nodes", num_nodes)
    if layout.batch_size != mine.batch_size:
        change(data, "data", "batch_size", layout.batch_size)
    if layout.way in ("auto", "ddp") and layout != mine:
        change(data, "data", "num_threads", layout.threads)
    if layout.cache != mine.cache:
        change(data, "data", "cache", {"policy": "presample", "ratio": layout.cache} if layout.cache else None)
    trainer["callbacks"] = _with_monitor(trainer.get("callbacks"), plan_file)
    return written, changes


def as_yaml_file(configuration: Mapping[str, Any], changes: list[str], source: str) -> str:
    """Returns the text of the file, which begins with what was changed."""
    import yaml

    lines = [f"Planned from {source}. Changed:", *(f"  {line}" for line in changes or ["nothing"])]
    lines = [f"# {' '.join(line.splitlines())}" for line in lines]  # what stands behind a line break is a setting
    return "\n".join(lines) + "\n" + yaml.safe_dump(dict(configuration), sort_keys=False)


def _strategy(present: Any, layout: RunLayout) -> Any:
    """The setting of the strategy; None where the present one is right."""
    name = present if isinstance(present, str) else present.get("class_path", "") if present else "auto"
    if layout.way == "auto":
        return "auto" if name not in ("auto", "factored") and "Factored" not in name else _lone(present, name)
    if layout.way == "ddp":
        return None if "ddp" in name.lower() else "ddp"
    settings = present.get("init_args") or {} if isinstance(present, dict) and "Factored" in name else {}
    settings = {key: value for key, value in settings.items() if key != "trainers"}
    path = name if "Factored" in name else "lightning_gnnload.FactoredStrategy"
    if layout.alternates:
        turns = {"samplers": 1, "sampler_threads": layout.threads, "switching": True, "queue_depth": layout.slots}
        return {"class_path": path, "init_args": {**settings, **turns}}
    chosen = {"samplers": layout.samplers, "sampler_threads": layout.threads, "switching": _switching(settings, layout)}
    return {"class_path": path, "init_args": {**settings, **chosen}}


def _lone(present: Any, name: str) -> Any:
    return None if present is None or name == "auto" else "auto"


def _switching(settings: Mapping[str, Any], layout: RunLayout) -> bool | int:
    """As it was, where that is a number of updates that suits the layout, too."""
    before = settings.get("switching", False)
    return before if bool(before) == layout.switching else layout.switching


def _with_monitor(callbacks: Any, plan_file: Path) -> list[Any]:
    entries = callbacks if isinstance(callbacks, list) else [] if callbacks is None else [callbacks]
    for number, entry in enumerate(entries):
        if isinstance(entry, dict) and str(entry.get("class_path", "")).rpartition(".")[2] in _MONITORS:
            settings = {**(entry.get("init_args") or {}), "plan": str(plan_file)}
            return [*entries[:number], {**entry, "init_args": settings}, *entries[number + 1 :]]
    settings = {"figure": False, "trace": False, "plan": str(plan_file)}
    return [*entries, {"class_path": "lightning_gnnload.PipelineMonitor", "init_args": settings}]


def _in_words(value: Any) -> str:
    if isinstance(value, dict) and "class_path" in value:
        settings = value.get("init_args") or {}
        listed = ", ".join(f"{key}={settings[key]}" for key in _SETTINGS if key in settings)
        return f"{value['class_path'].rpartition('.')[2]}({listed})"
    return "not set" if value is None else str(value)
