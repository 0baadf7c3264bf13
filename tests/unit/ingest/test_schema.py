"""The JSON Schema of graph.yaml has what the code that reads it has."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from lightning_gnnload.datasets.description import load_yaml
from lightning_gnnload.errors import GraphSpecError
from lightning_gnnload.ingest.schema import graph_schema
from lightning_gnnload.ingest.settings import fields_by_key
from lightning_gnnload.ingest.spec import BuildSpec, ColumnSpec, EdgeSpec, GraphSpec, NodeSpec, SplitSpec, TaskSpec

jsonschema = pytest.importorskip("jsonschema")
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "your_graph.md"
SOUND = "version: 1\nnodes: {a: {from: a.csv, id: i}}\nedges: {e: {from: e.csv, src: a.s, dst: a.d}}\n"


def test_every_key_that_is_read_is_there() -> None:
    schema = graph_schema()
    for cls in (BuildSpec, ColumnSpec, EdgeSpec, NodeSpec, SplitSpec, TaskSpec):
        properties = schema["$defs"][cls.__name__]["properties"]
        assert properties.keys() == fields_by_key(cls).keys()
        assert len(properties) == len(fields(cls))
        assert [key for key, about in properties.items() if "description" not in about] == []
    assert schema["properties"].keys() == fields_by_key(GraphSpec).keys()
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    "wrong",
    [
        "", "bild: {}", "build: {threads: 0}", "build: {memory: 4}", "tasks: {t: {seed: a.i, y: l}}",
        "tasks: {t: {seed: a, y: l, split: {share: [1, 0]}}}", "tasks: {t: {seed: a.i, split: {share: 1}}}",
        "build: {scratch: 3}", "tasks: {a__b: {seed: a.i, y: l, split: {share: [1, 0]}}}",
    ],
)  # fmt: skip
def test_it_refuses_what_the_code_refuses(wrong: str) -> None:
    values = load_yaml(SOUND + wrong)
    is_sound = jsonschema.Draft202012Validator(graph_schema()).is_valid(values)
    try:
        GraphSpec.of(values)
    except GraphSpecError:
        assert not is_sound
    else:
        assert is_sound


def test_the_guides_descriptions_pass() -> None:
    texts = re.findall(r'open\("graph\.yaml", "w"\)\.write\("""(.*?)"""\)', GUIDE.read_text(), re.DOTALL)
    assert texts
    for text in texts:
        jsonschema.Draft202012Validator(graph_schema()).validate(load_yaml(text))
