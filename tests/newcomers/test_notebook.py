"""A newcomer opens a notebook and runs its cells from the top: examples/first_hour.ipynb, by nbconvert.

The kernel is this test's own interpreter, and all that Jupyter keeps lies in the test's folder.
"""

import json
import sys
import time
from pathlib import Path

import pytest

from tests.integration.scripts import launch
from tests.runif import RunIf

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_hour.ipynb"
MOST_S = 170
pytestmark = pytest.mark.timeout(MOST_S + 10)


@pytest.fixture
def jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a kernel of this interpreter."""
    kernel = tmp_path / "jupyter" / "kernels" / "newcomer"
    kernel.mkdir(parents=True)
    start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": start, "display_name": "newcomer", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONPATH", str(launch.ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return "newcomer"


@RunIf(extras=["pyg", "tables"])
def test_cells_train_draw_and_predict(tmp_path: Path, jupyter: str, capsys: pytest.CaptureFixture[str]) -> None:
    nbformat = pytest.importorskip("nbformat", reason="pip install nbconvert ipykernel")
    preprocessors = pytest.importorskip("nbconvert.preprocessors", reason="pip install nbconvert ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code), "outputs are not to be committed"

    began = time.perf_counter()
    executor = preprocessors.ExecutePreprocessor(timeout=MOST_S, kernel_name=jupyter)
    executor.preprocess(notebook, {"metadata": {"path": str(tmp_path)}})
    took_s = time.perf_counter() - began

    shown = [output.get("data", {}) for cell in code for output in cell.outputs]
    assert sum("image/png" in data for data in shown) == 2, "figures: of the accuracy, and of where the time went"
    assert any("Where the time went" in data.get("text/plain", "") for data in shown)
    printed = "".join(output["text"] for cell in code for output in cell.outputs if output.get("name") == "stdout")
    assert "libssl3: libs, with a probability of" in printed  # which two epochs suffice for
    assert "classes: graphs, language, vision" in printed  # of tables
    assert "8 mini-batches; the first: Data(" in printed  # by PyG's names
    assert "loss of the last mini-batch: " in printed  # of a module of one's own
    num_lines = sum(len(cell.source.splitlines()) for cell in code)
    with capsys.disabled():
        print(f"\nnotebook: {took_s:.0f} s, {len(code)} cells of code, {num_lines} lines")
