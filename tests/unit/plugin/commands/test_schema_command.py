"""gnnload schema --run: configurations that work pass, and mistakes do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lightning_gnnload.plugin.commands import schema

jsonschema = pytest.importorskip("jsonschema")
CONFIGS = Path(__file__).parents[4] / "examples" / "configs"
RUN = "model: {class_path: SAGE}\ndata: {data: {class_path: Tables, init_args: {folder: g, %s}}}\n"


def test_configurations_pass_and_mistakes_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert schema.main(["--run"]) == 0
    whole = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(whole)
    check = jsonschema.Draft202012Validator(whole)
    for name in ("debian_sage", "debian_gcn", "purchases", "debian_links"):
        check.validate(yaml.safe_load((CONFIGS / f"{name}.yaml").read_text()))
    check.validate(yaml.safe_load(RUN % "nodes: {a: {from: a.csv, id: i}}"))
    for wrong in (RUN % "nodes: {a: {from: a.csv, idd: i}}", RUN % "foldr: g", "trainer: {max_epoch: 3}", "modle: {}"):
        assert not check.is_valid(yaml.safe_load(wrong)), wrong
