"""make test-dgl: what it changes in an example, and what it takes for the same metrics."""

from __future__ import annotations

import pytest

from tests.dgl_suite.__main__ import compare, page
from tests.dgl_suite.examples import changed, with_our_imports


def test_only_imports_are_changed() -> None:
    source = (
        "import dgl\nimport dgl.nn as dglnn\nfrom dgl.dataloading import (\n    DataLoader,\n)\ndgl.dataloading.X\n"
    )
    ours, count = with_our_imports(source)
    assert count == 2
    assert ours.splitlines()[:3] == [
        "import lightning_gnnload.dgl as dgl",
        "import dgl.nn as dglnn",
        "from lightning_gnnload.dgl import (",
    ]
    assert with_our_imports(source.replace("dgl.dataloading.X", "dgl.graph"))[1] == 1
    with pytest.raises(ValueError, match="mend"):
        changed(source, (("no such text", ""),))


def test_a_difference_counts_only_beyond_chance() -> None:
    theirs = [0.50, 0.52, 0.51, 0.49, 0.50, 0.53, 0.48, 0.51]
    noise = [0.01, -0.01, 0.02, -0.02, 0.01, -0.01, 0.005, -0.005]
    assert compare([value + wave for value, wave in zip(theirs, noise, strict=True)], theirs)[2]
    assert not compare([value + wave - 0.05 for value, wave in zip(theirs, noise, strict=True)], theirs)[2]
    assert "| labor |" in page([["labor", "test F1", "0.5", "0.5", "0", "1"]], False)
