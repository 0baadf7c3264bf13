"""Columns of predictions by the user's own names: of classes, of labels, of the class that is the likeliest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

PREDICTION, CLASS = "prediction", "class"
_MOST_NAMED = 1000  # columns: a table with more is read by nobody


def named_predictions(
    columns: Mapping[str, Any], class_names: Sequence[str] | None, label_names: Sequence[str] | None
) -> dict[str, Any]:
    """Returns the columns of a table with ``prediction`` in named columns, where the data name what it has.

    Of classes there is ``p_NAME`` for each; a number has the name of its label, and several labels one each. Where a
    name is taken, ``p_`` gets further underscores, and a label ``predicted_`` before it. More than a thousand stay one
    column.

    Example:
        >>> import numpy as np
        >>> rows = {"user": np.array([7]), "prediction": np.array([[0.25, 0.75]])}
        >>> {name: rows.tolist() for name, rows in named_predictions(rows, ["no", "yes"], ["churned"]).items()}
        {'user': [7], 'p_no': [0.25], 'p_yes': [0.75]}
        >>> rows = {"spend": np.array([7]), "prediction": np.array([2.5])}
        >>> {name: rows.tolist() for name, rows in named_predictions(rows, None, ["spend"]).items()}
        {'spend': [7], 'predicted_spend': [2.5]}
    """
    scores = columns.get(PREDICTION)
    names = class_names or label_names
    if scores is None or names is None or len(names) > _MOST_NAMED:
        return dict(columns)
    matrix = scores.reshape(len(scores), 1) if scores.ndim == 1 and class_names is None else scores
    if matrix.ndim != 2 or matrix.shape[1] != len(names):
        return dict(columns)
    prefix = _prefix(names, columns.keys() - {PREDICTION}, "p_" if class_names else "")
    named: dict[str, Any] = {}
    for name, rows in columns.items():
        if name == PREDICTION:
            named |= {prefix + name_of: matrix[:, k] for k, name_of in enumerate(names)}
        else:
            named[name] = rows
    return named


def _prefix(names: Sequence[str], column_names: Collection[str], prefix: str) -> str:
    """Returns what stands before names, so that no column has one of them."""
    while any(prefix + name in column_names for name in names):
        prefix = f"{prefix}_" if prefix else "predicted_"
    return prefix
