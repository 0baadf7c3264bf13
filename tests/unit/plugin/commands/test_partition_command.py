"""``gnnload partition``: what it writes and prints, and what it says of arguments that cannot work."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import Graph, GraphData, GraphFolder, load_partition, save_graph_data
from lightning_gnnload.partition.quality import Quality
from lightning_gnnload.partition.selfreliant import SelfReliant
from lightning_gnnload.plugin.commands import partition as partition_command
from lightning_gnnload.plugin.commands.fit import GraphCLI
from tests.runif import RunIf
from tests.unit.toy import toy_data

CONFIG = """
trainer: {max_epochs: 3, strategy: no_such_strategy}
model: {class_path: no.such.Model}
data:
  data: {class_path: Synthetic, init_args: {kind: web, num_nodes: 400, num_edges: 2400, num_features: 4, root: ROOT}}
  sampler: {class_path: LaborSampler, init_args: {fanouts: [3, 2, 2]}}
  batch_size: 20
  partition: not/made/yet
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Of data; importing the command line makes class names short."""
    assert GraphCLI
    save_graph_data(toy_data(val=np.arange(150, 200)), tmp_path / "data")
    return str(tmp_path / "data")


def run(*arguments: str) -> int:
    return partition_command.main(list(arguments))


def test_a_folder_of_data_becomes_parts_with_table_figure_and_report(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "parts"
    arguments = ["--parts", "3", "--out", str(out), "--sampler", "NeighborSampler", "--sampler.fanouts", "[3, 2]"]
    assert run(folder, *arguments, "--phases", "train", "val", "--data.batch_size", "10", "--cache-ratio", "0.2") == 0
    printed = capsys.readouterr().out
    assert "3 parts by self-reliant, hops=2, of Graph(num_nodes=300" in printed
    partition = load_partition(out, verify=True)
    assert partition.hops == 2
    assert partition.x is not None
    assert [len(part.seeds["val"]) for part in partition.parts] == [16, 17, 17]
    written = json.loads((out / "quality.json").read_text())
    quality = Quality.from_json(written["quality"])
    assert written["sampler"].startswith("NeighborSampler([3, 2]")
    assert quality.held_nodes == [part.graph.num_nodes for part in partition.parts]
    assert quality.sampled is not None
    assert quality.sampled.num_batches == 12  # 33 or 34 seeds a part, and 10 a batch
    assert quality.caches is not None
    assert quality.caches.ratio == 0.2
    assert min(quality.caches.by_part) > 0.2  # more than chance
    assert Quality.from_json(partition.report) == quality.with_samples(None, None)
    assert (out / "quality.png").read_bytes().startswith(b"\x89PNG")
    assert run("report", str(out)) == 0
    again = capsys.readouterr().out
    assert again.strip() == printed.partition("Written: ")[0].strip()


def test_a_configuration_of_fit_names_data_and_sampler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its sampler reads three hops, and so do the parts."""
    assert GraphCLI
    config, out = tmp_path / "config.yaml", tmp_path / "parts"
    config.write_text(CONFIG.replace("ROOT", str(tmp_path / "root")))
    assert run("--config", str(config), "--parts", "2", "--out", str(out), "--quick", "--no-features") == 0
    partition = load_partition(out)
    assert (partition.hops, partition.num_nodes, partition.x) == (3, 400, None)
    assert "Cache of" not in capsys.readouterr().out
    assert run("report", str(out)) == 0


def test_disjoint_parts_have_no_depth(folder: str, tmp_path: Path) -> None:
    out = tmp_path / "parts"
    sampler = ["--sampler", "LayerSampler", "--sampler.budgets", "[20]", "--sampler.method", "fastgcn"]
    assert run(folder, "--parts", "2", "--hops", "0", "--out", str(out), "--quick", *sampler) == 0
    assert not load_partition(out).is_self_reliant


@RunIf(extras="partition")
def test_settings_of_a_method_follow_its_name(folder: str, tmp_path: Path) -> None:
    out = tmp_path / "parts"
    arguments = ["--parts", "2", "--out", str(out), "--quick", "--method", "metis", "--method.tolerance", "0.25"]
    assert run(folder, *arguments) == 0
    assert load_partition(out).settings["tolerance"] == 0.25


def test_only_partitions_are_replaced(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [folder, "--parts", "2", "--hops", "1", "--quick", "--out"]
    assert run(*arguments, folder, "--overwrite") == 2
    assert "holds a graph folder, which a partition does not replace" in capsys.readouterr().out
    assert (Path(folder) / "indices.bin").exists()
    out = tmp_path / "parts"
    assert run(*arguments, str(out)) == 0
    assert run(*arguments, str(out)) == 2
    assert "overwrite=True (--overwrite) to replace it" in capsys.readouterr().out
    assert run(*arguments, str(out), "--overwrite", "--seed", "1") == 0
    assert load_partition(out).settings["seed"] == 1


@pytest.mark.parametrize("place", ["file", "file/parts", "data/x.bin"])
def test_a_place_that_cannot_be_written_is_told_before_the_work(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(GraphFolder, "load", lambda self: pytest.fail("the data were loaded"))
    assert run(folder, "--parts", "2", "--out", str(tmp_path / place), "--overwrite") == 2
    assert "is no folder" in capsys.readouterr().out


def test_a_data_set_that_is_none_is_told_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert partition_command.main(["OGB", "--data.data.name", "nothing", "--parts", "2"]) == 2
    assert "'nothing' cannot be used: there is no such data set. Choose one of" in capsys.readouterr().out


def test_an_interrupt_is_a_line_and_leaves_nothing(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: Any, **settings: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    before = sorted(file.name for file in tmp_path.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(SelfReliant, "assign", interrupted)
        assert run(folder, "--parts", "2", "--out", str(tmp_path / "parts")) == 130
    assert capsys.readouterr().out == "gnnload partition: interrupted; nothing was written.\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == before
    monkeypatch.setattr(partition_command, "count_sampled_cross_edges", interrupted)
    assert run(folder, "--parts", "2", "--out", str(tmp_path / "parts")) == 130
    assert "are whole" in capsys.readouterr().out
    assert load_partition(tmp_path / "parts", verify=True).num_parts == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --parts K"),
        (["Debian", "--part", "2"], "unknown: --part; did you mean --parts?\n"),
        (["--parts", "2"], "give DATA first"),
        (["--parts", "2", "Debian"], "unknown: Debian"),
        (["Debian", "--parts", "many"], "invalid int value: 'many'"),
        (["Debian", "--parts", "2", "--methods", "metis"], "unknown: --methods"),
        (["Debian", "--parts", "2", "--method", "kmeans"], "--method kmeans: give one of self-reliant, metis"),
        (["Debian", "--parts", "2", "--method", "no.such.Method"], "method: there is no module no"),
        (
            ["Debian", "--parts", "2", "--method.speed", "9"],
            "method: SelfReliant has no setting speed. There are: overlap, score_hops",
        ),
        (["Debian", "--parts", "2", "--phases", "all"], "invalid choice: 'all'"),
        (["Debian", "--parts", "2", "--cache-ratio", "2"], "a share above 0 and at most 1"),
        (["Debian", "--parts", "2", "--sampler", "NoSuchSampler"], "there is no such sampler. Give NeighborSampler"),
        (["Debian", "--parts", "2", "--data.batches", "3"], "data.batches"),
        (["NoSuchData", "--parts", "2"], "there is no such data set or folder. Give Debian"),
        (["no/such/folder", "--parts", "2"], "there is no such folder"),
        (["--config", "none.yaml", "--parts", "2"], "none.yaml"),
    ],
)
def test_bad_arguments_are_told_in_a_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert GraphCLI
    with pytest.raises(SystemExit) as ended:
        partition_command.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines(keepends=True)[-1]


SHALLOW = ["--sampler.fanouts", "[3, 2]", "--hops", "1"]
WHOLE = ["--sampler", "LayerSampler", "--sampler.budgets", "[20]", "--sampler.method", "fastgcn"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--parts", "0"], "num_parts is 0"),
        (["--parts", "101", "--hops", "0"], "101 parts cannot share 100 training nodes"),
        (["--parts", "65"], "num_parts is 65, but at most 64 parts can hold hops=2"),
        (["--parts", "2", "--hops", "-1"], "hops is -1"),
        (["--parts", "2", "--phases", "val"], 'with "train" among them'),
        (["--parts", "2", "--method", "metis", "--method.tolerance", "0"], "tolerance is 0.0; it must"),
        (["--parts", "2", *SHALLOW], "reads 2 hops, but --hops 1 asks for fewer"),
        (["--parts", "2", *WHOLE], "or --hops 0 for parts that are sampled together"),
    ],
)
def test_what_cannot_be_is_an_error_in_a_line(
    folder: str, arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--out", str(tmp_path / "parts"), *arguments) == 2
    assert said in capsys.readouterr().out.splitlines()[-1]
    assert not (tmp_path / "parts").exists()


def test_a_report_of_what_is_no_partition_is_refused(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", folder) == 2
    assert run("report", "/no/such/folder") == 2
    graph, nothing = capsys.readouterr().out.splitlines()
    assert "but not a partition" in graph
    assert "/no/such/folder is not a partition" in nothing
    assert all(line.endswith("or gnnload partition.") for line in (graph, nothing))


def test_a_report_finds_damage_when_asked(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "parts"
    assert run(folder, "--parts", "2", "--hops", "0", "--quick", "--out", str(out)) == 0
    assert run("report", str(out), "--verify") == 0
    file = out / "part-0001" / "indices.bin"
    content = bytearray(file.read_bytes())
    content[0] ^= 1  # another node, but a node
    file.write_bytes(content)
    assert run("report", str(out)) == 0
    assert run("report", str(out), "--verify") == 2
    assert str(file) in capsys.readouterr().out.splitlines()[-1]


def test_data_without_training_nodes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_graph_data(GraphData(Graph.from_coo([0], [1])), tmp_path / "data")
    assert run(str(tmp_path / "data"), "--parts", "1", "--out", str(tmp_path / "parts")) == 2
    assert "cannot share 0 training nodes" in capsys.readouterr().out
