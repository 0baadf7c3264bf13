"""Labels of each form: what is predicted, which metrics are logged, and what the baseline has, against plain NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from lightning_gnnload import SAGE, Graph, GraphData, GraphDataModule, NeighborSampler
from lightning_gnnload.errors import GraphDataError, LoaderConfigError
from lightning_gnnload.models.targets import target_of, target_sizes

N, TRAIN, TEST = 60, range(33), range(33, 60)
Rows = np.ndarray


def data_of(y: Any, **settings: Any) -> GraphData:
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(rng.integers(N, size=200), rng.integers(N, size=200), N)
    x = rng.normal(size=(N, 4)).astype(np.float32)
    return GraphData(graph, x, y, train=TRAIN, val=TEST, test=TEST, **settings)


def module_of(data: GraphData, batch_size: int = 8) -> GraphDataModule:
    return GraphDataModule(data, NeighborSampler([3]), batch_size=batch_size, num_threads=0, predict="test")


def trainer(root: Path, epochs: int = 0) -> pl.Trainer:
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    return pl.Trainer(accelerator="cpu", max_epochs=epochs, default_root_dir=root, limit_val_batches=0, **quiet)


def auroc(score: Rows, y: Rows) -> float:
    pairs = score[y == 1][:, None] - score[y == 0][None]
    return float((pairs > 0).mean() + (pairs == 0).mean() / 2)


def average_precision(score: Rows, y: Rows) -> float:
    """Of equal scores, all rows come at once."""
    total, recall = 0.0, 0.0
    for threshold in sorted(set(score.tolist()), reverse=True):
        chosen = score >= threshold
        further = (y[chosen] == 1).sum() / (y == 1).sum()
        total, recall = total + (further - recall) * (y[chosen] == 1).mean(), further
    return float(total)


def f1(predicted: Rows, y: Rows) -> float:
    hits = (predicted & y).sum()
    return float(2 * hits / max(predicted.sum() + y.sum(), 1))


def r2(predicted: Rows, y: Rows) -> float:
    return float(np.mean(1 - ((predicted - y) ** 2).sum(0) / ((y - y.mean(0)) ** 2).sum(0)))


def of_classes(p: Rows, y: Rows) -> dict[str, float]:
    classes = [k for k in range(3) if (y == k).any() or (p.argmax(1) == k).any()]
    return {"accuracy": (p.argmax(1) == y).mean(), "f1": np.mean([f1(p.argmax(1) == k, y == k) for k in classes])}


def of_two(p: Rows, y: Rows) -> dict[str, float]:
    named = {"auroc": auroc(p[:, 1], y), "average_precision": average_precision(p[:, 1], y)}
    return {"accuracy": (p.argmax(1) == y).mean(), **named}


def of_labels(p: Rows, y: Rows) -> dict[str, float]:
    """The last label is nobody's in test: it counts in no mean."""
    columns = [k for k in range(y.shape[1]) if y[:, k].any()]
    return {
        "auroc": np.mean([auroc(p[:, k], y[:, k]) for k in columns if not y[:, k].all()]),
        "f1": np.mean([f1(p[:, k] >= 0.5, y[:, k] == 1) for k in columns]),
    }


def of_numbers(p: Rows, y: Rows) -> dict[str, float]:
    return {"error": np.abs(p - y).mean(), "r2": r2(p, y)}


def labels(form: str) -> Any:
    rng = np.random.default_rng(1)
    if form == "labels":
        y = rng.random((N, 4)) < [0.5, 0.2, 0.8, 0.3]
        y[33:, 3] = False
        return y
    number = 1e6 + rng.normal(size=(N, 3)).astype(np.float32) * [1, 50, 1000]
    of_form = {
        "classes": rng.integers(0, 3, N) % 3,
        "two classes": (rng.random(N) < 0.3).astype(np.int64),
        "number": number[:, 1].astype(np.float32),
        "numbers": number.astype(np.float32),
    }
    return of_form[form]


FORMS: dict[str, Callable[[Rows, Rows], dict[str, float]]] = {
    "classes": of_classes,
    "two classes": of_two,
    "labels": of_labels,
    "number": of_numbers,
    "numbers": of_numbers,
}


@pytest.mark.parametrize("form", FORMS)
def test_metrics_fit_the_labels_and_count_each_row_once(form: str, tmp_path: Path) -> None:
    """A mean over mini-batches, of which the last has three rows, a label that nobody has, or numbers in other units
    than the user's fail here."""
    pl.seed_everything(0, verbose=False)
    y = labels(form)
    module, run, model = module_of(data_of(y)), trainer(tmp_path, 2), SAGE(hidden=8, lr=0.01)
    run.fit(model, module)
    [result] = run.test(model, module, verbose=False)
    predicted = torch.cat(run.predict(model, module)).double().numpy()
    exact = np.asarray(y, np.float64) if "number" in form else np.asarray(y)
    test, train = exact[33:], exact[:33]
    if form in ("classes", "two classes"):
        constant = np.bincount(train, minlength=predicted.shape[1]) / len(train)
    else:
        constant = train.mean(0)
    wanted = {f"test_{name}": value for name, value in FORMS[form](predicted, test).items()}
    baseline = FORMS[form](np.broadcast_to(constant, predicted.shape), test)
    wanted |= {f"test_{name}_baseline": value for name, value in baseline.items()}
    assert result.keys() == wanted.keys()
    for name, value in wanted.items():
        assert result[name] == pytest.approx(value, rel=2e-3, abs=1e-5), name


@pytest.mark.parametrize("form", ["classes", "two classes"])
def test_rows_without_a_class_count_for_nothing(form: str, tmp_path: Path) -> None:
    """In torch -100 is no class; metrics cannot count it, and the mean of no losses is NaN."""
    pl.seed_everything(0, verbose=False)
    y, lacking = labels(form), np.r_[:16, 40:50]
    masked = np.where(np.isin(np.arange(N), lacking), -100, y)
    module, run, model = module_of(data_of(masked)), trainer(tmp_path, 1), SAGE(hidden=8)
    run.fit(model, module)
    [result] = run.test(model, module, verbose=False)
    others = data_of(y)
    others.test = np.setdiff1d(TEST, lacking)
    [wanted] = run.test(model, module_of(others), verbose=False)
    assert {name: value for name, value in result.items() if "baseline" not in name} == {
        name: pytest.approx(value) for name, value in wanted.items() if "baseline" not in name
    }
    no_label = torch.full((3,), -100)
    assert float(model.target.loss(torch.randn(3, model.target.num_outputs), no_label)) == 0


def test_one_label_by_itself_is_a_question_of_yes_or_no(tmp_path: Path) -> None:
    y = labels("labels")[:, :1]
    module, run, model = module_of(data_of(y)), trainer(tmp_path, 1), SAGE(hidden=8)
    run.fit(model, module)
    [result] = run.test(model, module, verbose=False)
    predicted = torch.cat(run.predict(model, module)).double().numpy()
    assert predicted.shape == (len(TEST), 1)
    assert result["test_auroc"] == pytest.approx(auroc(predicted[:, 0], y[33:, 0]), abs=1e-5)
    assert result["test_f1"] == pytest.approx(f1(predicted[:, 0] > 0.5, y[33:, 0]), abs=1e-5)


def test_numbers_far_from_zero_are_learned_in_their_units(tmp_path: Path) -> None:
    """Unscaled, a thousand steps of Adam would not bring outputs from 0 to a million."""
    pl.seed_everything(0, verbose=False)
    plain = data_of(None)
    y = torch.stack([1e6 + 100 * plain.x.rows[:, 0], 5 - 0.01 * plain.x.rows[:, 1]], dim=1)
    data = GraphData(plain.graph, plain.x, y, train=TRAIN, test=TEST)
    run, model = trainer(tmp_path, 60), SAGE(hidden=32, dropout=0.0, lr=0.02)
    run.fit(model, module_of(data))
    [result] = run.test(model, module_of(data), verbose=False)
    assert result["test_r2"] > 0.8
    run.save_checkpoint(tmp_path / "model.ckpt")
    loaded = SAGE.load_from_checkpoint(tmp_path / "model.ckpt")
    both = [torch.cat(trainer(tmp_path).predict(one, module_of(data))) for one in (model, loaded)]
    assert torch.equal(*both)


def test_weights_of_classes_and_labels() -> None:
    """Three of four are of class 0: balanced, both classes weigh the same in sum; class 2 has no row."""
    sizes = {"num_outputs": 3, "is_class": True}
    target = target_of(sizes)
    target.learn(torch.tensor([0, 0, 0, 1]), "balanced")
    torch.testing.assert_close(target.weights, torch.tensor([4 / 6, 2.0, 1.0]))
    logits, y = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 1])
    losses = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    torch.testing.assert_close(target.loss(logits, y), (losses * torch.tensor([4 / 6, 2.0])).sum() / (4 / 6 + 2))
    many = target_of({"num_outputs": 3, "is_class": False, "predicts": "labels"})
    with pytest.warns(UserWarning, match="no row of the train split has label 2"):
        many.learn(torch.tensor([[True, False, False]] + [[True, True, False]] * 3), "balanced")
    torch.testing.assert_close(many.weights, torch.tensor([1.0, 1 / 3, 1.0]))
    for weights in ([1.0, 2.0], [1.0, 0.0, 1.0], "even"):
        with pytest.raises(LoaderConfigError, match="a positive number for each of 3 classes"):
            target_of(sizes).learn(torch.tensor([0, 1]), weights)
    with pytest.raises(LoaderConfigError, match="labels are numbers, which have no classes"):
        target_of({"num_outputs": 1, "is_class": False}).learn(torch.tensor([0.5]), "balanced")


def test_metrics_are_chosen_by_name(tmp_path: Path) -> None:
    model = SAGE(hidden=4, metrics=["f1", "balanced_accuracy"])
    [result] = trainer(tmp_path).test(model, module_of(data_of(labels("two classes"))), verbose=False)
    assert {name for name in result if "baseline" not in name} == {"test_f1", "test_balanced_accuracy"}
    with pytest.raises(LoaderConfigError, match="'r2' does not fit a model that predicts two classes; accuracy, f1"):
        trainer(tmp_path).test(SAGE(metrics=["r2"]), module_of(data_of(labels("two classes"))))
    for names, words in ((["AUC"], "'AUC' is not known; give some of accuracy, f1,"), ("f1", "a list of names")):
        with pytest.raises(LoaderConfigError, match=words):
            SAGE(metrics=names)


def test_what_is_not_defined_is_nan_with_a_word(tmp_path: Path) -> None:
    one_class = np.where(np.arange(N) < 33, np.arange(N) % 2, 0)
    with pytest.warns(UserWarning, match="AUROC is not defined, .* NaN: there are no positive rows among 27"):
        [result] = trainer(tmp_path).test(SAGE(hidden=4), module_of(data_of(one_class)), verbose=False)
    assert np.isnan(result["test_auroc"])
    assert np.isnan(result["test_average_precision"])
    assert np.isfinite(result["test_accuracy"])
    nobody = np.zeros((N, 2), np.bool_)
    nobody[:33] = True
    with pytest.warns(UserWarning, match="no row has any label"):
        [result] = trainer(tmp_path).test(SAGE(hidden=4), module_of(data_of(nobody)), verbose=False)
    assert np.isnan(result["test_f1"])
    alone = data_of(labels("number"))
    alone.test = np.array([40])
    with pytest.warns(UserWarning, match="R2 is not defined, .* a variance needs two"):
        [result] = trainer(tmp_path).test(SAGE(hidden=4), module_of(alone), verbose=False)
    with pytest.warns(UserWarning, match="all 33 labels of the train split are of class 1"):
        trainer(tmp_path).test(SAGE(hidden=4), module_of(data_of(np.repeat([1, 0], [33, 27]))), verbose=False)


def test_labels_that_cannot_be_learned_are_refused() -> None:
    missing = labels("numbers")
    missing[[3, 5], 1] = np.nan
    for y, words in (
        (np.arange(2 * N).reshape(N, 2), r"labels are torch.int64 \[60, 2\]\. .* Give y.bool\(\)"),
        (missing, "2 of the 33 labels of the train split are NaN or infinite"),
        (np.where(np.arange(N) < 59, labels("classes"), -1), "1 of the 27 labels of the val split are no class, as -1"),
        (np.zeros(N, np.int64), "labels are of 1 class, so there is nothing to tell apart"),
    ):
        with pytest.raises(GraphDataError, match=words):
            target_sizes(data_of(y), "SAGE")
    elsewhere = labels("number")
    data = GraphData(data_of(elsewhere).graph, y=np.where(np.arange(N) == 0, np.nan, elsewhere), train=range(1, 20))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert target_sizes(data, "SAGE")["predicts"] == "number"  # node 0 is in no split
