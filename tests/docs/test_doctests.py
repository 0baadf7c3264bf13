"""The examples in the docstrings of the package and of its oracle, module by module."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
from pathlib import Path

import pytest

import lightning_gnnload
from lightning_gnnload.errors import LightningCompatibilityError
from tests import oracle
from tests.runif import EXTRA_MODULES

# Not __path__: an editable install puts the folder of the compiled kernels first there.
PACKAGE = Path(lightning_gnnload.__file__).parent
ORACLE = Path(oracle.__file__).parent
MODULES = sorted(
    ".".join([name, *path.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__")
    for name, folder in (("lightning_gnnload", PACKAGE), (oracle.__name__, ORACLE))
    for path in folder.rglob("*.py")
)
MISSING = [module for module in EXTRA_MODULES.values() if importlib.util.find_spec(module) is None]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report: list[str] = []
    try:
        module = importlib.import_module(name)
    except LightningCompatibilityError as error:  # what is for Ray follows lightning, this process perhaps the other
        pytest.skip(str(error))
    for test in doctest.DocTestFinder().find(module):
        if not any(f"import {module}" in test.docstring for module in MISSING if test.docstring):
            runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
