"""Settings that do not fit: what ``gnnload fit`` says of each, in a few lines."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from lightning_gnnload.plugin.commands import cli
from lightning_gnnload.plugin.commands.reasons import reason
from lightning_gnnload.plugin.compat import pl

CONFIG = """\
trainer: {accelerator: cpu, devices: 1, logger: false}
model:
  class_path: lightning_gnnload.plugin.compat.pl.LightningModule
data:
  data: {class_path: Debian}
  sampler: {class_path: NeighborSampler, init_args: {fanouts: [5, 5]}}
"""
DATA, SAMPLER, DEVICES = (
    "{class_path: Debian}",
    "{class_path: NeighborSampler, init_args: {fanouts: [5, 5]}}",
    "devices: 1",
)
MODEL = "lightning_gnnload.plugin.compat.pl.LightningModule"
MISTAKES = {
    # what is written in the place of this, and what is said of it
    "NeighborSampler": [
        ("NeighbourSampler", "data.sampler: there is no class NeighbourSampler; did you mean NeighborSampl"),
        ("Sampling", "ShadowSampler"),
    ],
    "fanouts:": [
        ("fanout:", "data.sampler: NeighborSampler has no setting fanout; did you mean fanouts?"),
    ],
    "[5, 5]": [
        ('"15,10"', "Write it as a list: [15,10].\nfanouts: neighbours drawn per node, nearest hop first"),
        ("[5.5, 2]", "fanouts of NeighborSampler cannot be [5.5, 2]; needed for each: a whole number"),
    ],
    SAMPLER: [
        (
            "[15, 10]",
            "cannot be [15, 10]; needed: a class and its settings (Sampler); for example\n"
            "  class_path: NeighborSampler\n  init_args:\n    fanouts: [15, 10]",
        ),
        ("NeighborSampler", "data.sampler: NeighborSampler needs fanouts, which is not given."),
        ("{class_path: NeighborSampler, init_args: [5]}", "init_args are settings of NeighborSampler by their names"),
        ("{class_path: 5}", "class_path is the name of a class, which 5 is not."),
        ("{NeighborSampler: {fanouts: [5, 5]}}", "written by its name and settings:\n  class_path: NeighborSampler"),
        ("{class_path: Debian}", "data.sampler: Debian is no Sampler. There are: CollectiveSampler, "),
        ("{class_path: torch.nn.Linear}", "data.sampler: torch.nn.Linear is no Sampler."),
    ],
    "Debian": [
        ("Debain", "data.data: there is no class Debain; did you mean Debian?"),
    ],
    DATA: [
        (
            "{class_path: Debian, root: x}",
            "Debian are written below init_args:\n  class_path: Debian\n  init_args:\n    r",
        ),
        ("{num_nodes: 5}", "needed: text or a class and its settings (Dataset); for example\n  class_path: Debian"),
        (
            "{class_path: Synthetic, init_args: {num_nods: 5}}",
            "Synthetic has no setting num_nods; did you mean num_nodes?",
        ),
        (
            "{class_path: Synthetic, init_args: {num_nodes: x}}",
            "num_nodes of Synthetic cannot be x; needed: a whole num",
        ),
        ("{", "gnnload: --config run.yaml cannot be read: while parsing a flow mapping"),
        (
            "{class_path: Tables, init_args: {folder: g, nodes: {a: {from: a.csv, idd: x}}, edges: {}}}",
            "run.yaml:5: nodes.a: there is no key 'idd'; did you mean 'id'?",
        ),
        (
            "{class_path: EdgeListFile, init_args: {path: x, num_features: -1}}",
            "gnnload: run.yaml:5: data.data: EdgeListFile: num_features is -1",
        ),
    ],
    "  sampler:": [
        ("  batchsize: 5\n  sampler:", "data has no setting batchsize; did you mean batch_size?"),
        ("  batch_size: big\n  sampler:", "data.batch_size cannot be big; needed: a whole number.\nbatch_size: seeds"),
        ("  cache: {class_path: FeatureCache, init_args: {capcity: 5}}\n  sampler:", "did you mean capacity_"),
        ("  cache: true\n  sampler:", "data.cache cannot be True; needed: a list or 'auto' or a mapping or a cla"),
        (
            "  cache: 1GB\n  sampler:",
            "(FeatureCache); for example\n  class_path: FeatureCache\n  init_args:\n    ratio:",
        ),
        ("  cache: featurecache\n  sampler:", "there is no class featurecache; did you mean FeatureCache?"),
        ("  cache: NeighborSampler\n  sampler:", "data.cache: NeighborSampler is no FeatureCache."),
        ("  order: true\n  sampler:", "needed: text or a class and its settings (SeedOrder)"),
        ("  batch_size: [1]\n  sampler:", "data.batch_size cannot be [1]; needed: a whole number."),
        (
            f"  batch_size: {'9' * 5000}\n  sampler:",
            "gnnload: --config run.yaml cannot be read: a value is none: Exceeds the limit",
        ),
    ],
    CONFIG[CONFIG.index("data:") :].rstrip(): [
        ("data: 5", "data.data is not given; for example\n  class_path: Debian"),
    ],
    DEVICES: [
        ("devices: 1, max_epoch: 3", "trainer has no setting max_epoch; did you mean max_epochs?"),
        ("devices: 1, max_epochs: ten", "trainer.max_epochs cannot be ten; needed: a whole number or null."),
        ("devices: many", "the Trainer does not take its settings"),
        (
            "devices: 1, strategy: FactoredStratgy",
            "there is no strategy FactoredStratgy; did you mean FactoredStrategy?",
        ),
        ("devices: 1, strategy: {class_path: FactoredStrategy, init_args: {sampler: 1}}", "did you mean samplers?"),
        ("devices: 1, strategy: factored_strategy", "no strategy factored_strategy; did you mean FactoredStrategy?"),
        ("devices: 1, strategy: null", "there is no strategy null. There are: ddp, "),
        ("devices: 1, callbacks: true", "needed: a list or a class and its settings (Callback); for example\n  clas"),
        (
            "devices: 1, callbacks: [{PipelineMonitor: {}}]",
            "a class is written by its name and settings:\n  class_path: ",
        ),
        ("devices: 1, callbacks: [{class_path: PipelineMonitr}]", "did you mean PipelineMonitor?"),
        ("devices: 1, callbacks: [{class_path: ModelCheckpoint, init_args: {moniter: x}}]", "did you mean monitor?"),
        (
            "devices: 1, strategy: {class_path: FactoredStrategy, init_args: {staleness: -1}}",
            "gnnload: run.yaml:1: trainer.strategy: staleness=-1: a who",
        ),
    ],
    "accelerator: cpu": [
        ("accelerator: cuda", "This machine has "),
    ],
    "trainer: {accelerator: cpu, devices: 1, logger: false}": [
        ("trainer: 5", "trainer: settings by their names are needed"),
    ],
    "trainer:": [
        ("seed_everything: -1\ntrainer:", "seed_everything cannot be -1; needed: a whole number from 0 to 2**32"),
    ],
    "model:": [
        ("modle:", "there is no setting modle; did you mean model?"),
    ],
    MODEL: [
        ("mymodul.Net", "model: there is no module mymodul; did you mean mymodel?"),
        ("mymodel.Ned", "model: the module mymodel has no class Ned; did you mean Net?"),
        ("needy.Net", "model: importing needy fails: No module named 'not_installed'."),
        ("mymodel", "model: mymodel is a module: name the class, too, as mymodel.MyClass."),
        ("mymodel.Net, init_args: {widht: 5}", "model: Net has no setting widht; did you mean width?"),
        ("mymodel.Net, init_args: {width: many}", "model: width of Net cannot be many; needed: a whole number."),
        ("mymodel.Net", "model: Net needs width, which is not given."),
    ],
}


@pytest.mark.parametrize(
    ("written", "instead_of", "said"),
    [
        pytest.param(written, place, said, id=written[:40])
        for place, mistakes in MISTAKES.items()
        for written, said in mistakes
    ],
)
def test_a_setting_that_does_not_fit_is_told_in_few_lines(
    written: str,
    instead_of: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if written == "accelerator: cuda":
        monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    (tmp_path / "mymodel.py").write_text(
        "import pytorch_lightning as pl\n\n\nclass Net(pl.LightningModule):\n"
        "    def __init__(self, width: int) -> None:\n        super().__init__()\n"
    )
    (tmp_path / "needy.py").write_text("import not_installed\n")
    assert instead_of in CONFIG
    config = CONFIG.replace(instead_of, written, 1)
    if "init_args" in written and instead_of == MODEL:
        config = config.replace("class_path: mymodel", "{class_path: mymodel").replace("}\ndata:", "}}\ndata:")
    (tmp_path / "run.yaml").write_text(config)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["gnnload", "fit", "--config", "run.yaml"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr().err.removeprefix("Seed set to 0\n") + (
        ended.value.code if isinstance(ended.value.code, str) else ""
    )
    for module in ("mymodel", "needy"):
        sys.modules.pop(module, None)
    assert said in told
    assert len(told.splitlines()) <= 10
    assert ended.value.code not in (0, None)


@pytest.mark.parametrize(
    ("written", "arguments", "said"),
    [
        (
            "",
            "fit --config run.yaml",
            "--config run.yaml: settings by their names are needed, as data: and model:, but it",
        ),
        ("- a\n- b", "fit --config=run.yaml", "but it is ['a', 'b']"),
        ("a,b\n" * 10_000, "fit -c run.yaml", "--config run.yaml: settings by their names are needed"),
        (b"\x80", "fit --config run.yaml", "--config run.yaml cannot be read: 'utf-8' codec"),
        (CONFIG, "fit", "neither data.data nor model is given: give a configuration, --config FILE, or"),
        (CONFIG, "--config run.yaml fit", "settings stand behind the command: gnnload fit --config FILE"),
    ],
)
def test_what_is_no_configuration_is_told_by_its_name(
    written: str | bytes,
    arguments: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "run.yaml").write_bytes(written if isinstance(written, bytes) else written.encode())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gnnload", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr().err
    assert said in told
    assert len(told) < 400
    assert ended.value.code == 2


def test_a_configuration_in_another_folder_is_told_by_the_path_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parser is in the configuration's folder while it reads it, where its path would name nothing."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/run.yaml").write_text("data:\n  data: Debian\n  sampler: NeighbourSampler\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gnnload", "fit", "--config", "configs/run.yaml"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert capsys.readouterr().err.startswith("gnnload: configs/run.yaml:3: data.sampler: there is no class Neighbour")
    assert ended.value.code == 2


MANY = """\
trainer:
  max_epoch: 6
  callbacks: [{class_path: ModelCheckpoint, init_args: {filname: model}}, {class_path: EarlyStoping}]
model: {class_path: SAGE, init_args: {hiden: 3, lr: fast, dropout: 1e-1}}
data:
  data:
    class_path: Tables
    init_args:
      foldr: graph
      nodes:
        paper: {from: papers.parquet, idd: doi, x: [{column: venue, min_cout: 1}]}
      edges:
        cites: {from: cites.parquet, src: papr.citing, dst: paper.cited}
  sampler: {class_path: NeighborSampler, init_args: {fanout: [10, 10], replace: ja}}
  batch_size: many
  val_sampler: {class_path: NeighborSampler}
optimizer: {class_path: Adm}
sed_everything: 1
"""


def test_all_mistakes_of_a_configuration_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.yaml").write_text(MANY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["gnnload", "fit", "--config", "run.yaml"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == f"gnnload: {len(lines)} faults in the configuration"
    words = {  # of each mistake, with its line
        (2, "max_epochs?"), (3, "filename?"), (3, "EarlyStopping?"), (4, "hidden?"), (4, "lr of SAGE"), (9, "folder?"),
        (11, "'id'?"), (11, "'min_count'?"), (13, "'paper'?"), (14, "fanouts?"), (14, "replace of"), (15, "batch_size"),
        (16, "val_sampler"), (17, "Adam?"), (18, "seed_everything?"),
    }  # fmt: skip
    assert len(lines) == len(words)
    for line, word in words:
        assert any(told.startswith(f"run.yaml:{line}: ") and word in told for told in lines), (line, word)


def test_what_stands_on_the_command_line_is_told_as_what_stands_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parser looks for a file of that name first, and says so in further lines."""
    (tmp_path / "run.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["gnnload", "fit", "--config", "run.yaml", "--data.sampler", "NeighbourSampler"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = f"{capsys.readouterr().err}{ended.value.code}"
    assert "data.sampler: there is no class NeighbourSampler; did you mean NeighborSampler?" in told


def test_a_class_of_the_other_lightning_is_told_by_what_chooses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    (other,) = {"pytorch_lightning", "lightning.pytorch"} - {pl.__name__}
    module = ModuleType("elsewhere")
    module.Net = type("Net", (type("LightningModule", (), {"__module__": f"{other}.core.module"}),), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "elsewhere", module)
    message = f"""Parser key "model":
      Subtypes: [<class '{pl.__name__}.core.module.LightningModule'>, <class 'NoneType'>]
      Errors:
        - Import path elsewhere.Net does not correspond to a subclass of LightningModule"""
    told = reason(message) or ""
    assert told.startswith("model: elsewhere.Net is made for another Lightning than")
    assert "GNNLOAD_LIGHTNING=" in told


def test_a_message_of_another_kind_is_left_as_it_is() -> None:
    assert reason("unrecognized arguments: --x") is None
    assert reason('Parser key "config":\n  File does not exist: "a.yaml"') == 'config: File does not exist: "a.yaml"'
