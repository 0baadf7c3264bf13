"""DGL's examples that run: what is changed in each, and where its result is.

``IMPORTS`` is all that ours differ by. ``edits`` are the same on both sides: a machine without GPUs has other devices,
and a graph of 1,500 nodes needs neither 256 hidden units nor a thousand steps. A text that an example no longer has
fails the run.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FROM = re.compile(r"^from dgl\.dataloading import", re.MULTILINE), "from lightning_gnnload.dgl import"
_WHOLE = re.compile(r"^import dgl$", re.MULTILINE), "import lightning_gnnload.dgl as dgl"
IMPORTS = (_FROM, _WHOLE)
"""The second one where a program writes ``dgl.dataloading.DataLoader``."""


class Example(NamedTuple):
    """An example: its file in DGL's ``examples``, the program's options, edits, and the words before its result."""

    name: str
    path: str
    options: tuple[str, ...]
    edits: tuple[tuple[str, str], ...]
    result: str
    metric: str


_SMALL = (("model = SAGE(in_size, 256", "model = SAGE(in_size, 32"),)
_SHORT = (("batch_size=1024", "batch_size=256"), *_SMALL)
EXAMPLES = (
    Example(
        "node_classification",
        "pytorch/graphsage/node_classification.py",
        ("--mode", "cpu"),
        (*_SHORT, ("lr=1e-3", "lr=1e-2")),
        r"Test Accuracy ([\d.]+)",
        "test accuracy",
    ),
    Example(
        "link_pred",
        "pytorch/graphsage/link_pred.py",
        ("--mode", "cpu"),
        (*_SMALL, ("range(10)", "range(4)"), ("== 1000", "== 15"), ("lr=0.0005", "lr=0.005")),
        r"Test MRR ([\d.]+)",
        "test MRR",
    ),
    Example(
        "lightning",
        "pytorch/graphsage/lightning/node_classification.py",
        (),
        (
            ('"cuda"', '"cpu"'),
            ("use_uva=True", "use_uva=False"),
            ("use_ddp=True", "use_ddp=False"),
            ('accelerator="gpu"', 'accelerator="cpu"'),
            ("devices=[0, 1, 2, 3]", "devices=1"),
            ('strategy="ddp_spawn"', 'strategy="auto", enable_progress_bar=False'),
            ("4096, 12", "4096, 1"),
            ("[15, 10, 5], 1024", "[15, 10, 5], 256"),
            ("datamodule.in_feats, 256", "datamodule.in_feats, 32"),
            ("lr=0.001", "lr=0.01"),
            ("save_top_k=1", 'save_top_k=1, mode="max"'),  # or it keeps the worst epoch
        ),
        r"Test accuracy: tensor\(([\d.]+)",
        "test accuracy",
    ),
    Example(
        "rgcn-hetero",
        "pytorch/rgcn-hetero/entity_classify_mb.py",
        ("-d", "aifb", "--num_workers", "1", "--testing", "-e", "6"),
        (),
        r"Test Acc: ([\d.]+)",
        "test accuracy",
    ),
    Example(
        "labor",
        "pytorch/labor/train_lightning.py",
        (
            *("--gpu", "-1", "--dataset", "reddit", "--num-epochs", "6", "--num-hidden", "32", "--batch-size", "256"),
            *("--data-cpu", "--disable-checkpoint", "--undirected", "--lr", "0.01"),
        ),
        (("TensorBoardLogger", "CSVLogger"), ("logger=logger,", "logger=logger, enable_progress_bar=False,")),
        r"Test accuracy: ([\d.]+)",
        "test F1",
    ),
    Example(
        "multigpu",
        "multigpu/node_classification_sage.py",
        ("--mode", "benchmark", "--gpu", "0,1", "--num_epochs", "6"),
        (
            *_SHORT,
            ("torch.cuda.is_available()", "True"),
            ("    torch.cuda.set_device(device)\n", '    torch.set_num_threads(1)\n    device = torch.device("cpu")\n'),
            ('backend="nccl"', 'backend="gloo"'),
            ("device_ids=[device], output_device=device", ""),
            ("tcp://127.0.0.1:12345", "file://{os.getcwd()}/rendezvous"),
            ('init_method="', 'init_method=f"'),
            ("mp.spawn(", 'mp.start_processes(start_method="fork", fn='),
            ("lr=0.001", "lr=0.01"),
        ),
        r"Test accuracy ([\d.]+)",
        "test accuracy",
    ),
)


def changed(source: str, edits: tuple[tuple[str, str], ...]) -> str:
    """Returns a source with its edits; raises ValueError for a text that it does not have."""
    for old, new in edits:
        if old not in source:
            raise ValueError(f"DGL's example has no {old!r} any more; mend tests/dgl_suite/examples.py")
        source = source.replace(old, new)
    return source


def with_our_imports(source: str) -> tuple[str, int]:
    """Returns a source with our names in the place of DGL's, and how many lines differ."""
    ours = source
    for pattern, line in IMPORTS if "dgl.dataloading." in source else IMPORTS[:1]:
        ours = pattern.sub(line, ours)
    return ours, sum(a != b for a, b in zip(source.splitlines(), ours.splitlines(), strict=True))
