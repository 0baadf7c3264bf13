"""UserIds: the user's own ids of nodes, numbers or texts, beside the numbers of nodes in a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import GraphDataError


class UserIds:
    """The user's own ids of the nodes of one type, by their number within the type.

    Texts are kept as one run of UTF-8 bytes, so that a file of them can be mapped, and a hundred million cost no more
    than their characters.

    Args:
        values: int64 ``[N]``; or, of texts, their UTF-8 bytes one after another, uint8 ``[B]``.
        offsets: of texts, int64 ``[N + 1]``: text ``i`` has the bytes ``offsets[i]`` to ``offsets[i + 1] - 1``.
        column: the name of the user's column, which predictions are written under.

    Raises:
        GraphDataError: offsets that do not go from 0 to B.

    Example:
        >>> ids = UserIds.of(["ann", "bob", "cleo"], column="user_id")
        >>> ids, ids.take([2, 0]).tolist(), ids.rows_of(["bob"]).tolist()
        (UserIds(3 texts, column='user_id'), ['cleo', 'ann'], [1])
    """

    def __init__(self, values: np.ndarray, *, offsets: np.ndarray | None = None, column: str = "id") -> None:
        are_texts = offsets is not None
        if values.ndim != 1 or values.dtype != (np.uint8 if are_texts else np.int64):
            needed = "the bytes of texts, uint8 [B]" if are_texts else "int64 [N]"
            raise GraphDataError(f"user ids must be {needed}, but they are {values.dtype} {list(values.shape)}.")
        # Those between are checked where they are used, so that a mapped file is not read whole here.
        if offsets is not None and (
            offsets.ndim != 1
            or offsets.dtype != np.int64
            or not len(offsets)
            or (offsets[0], offsets[-1]) != (0, len(values))
        ):
            raise GraphDataError(f"offsets of user ids must be int64 [N + 1] and go from 0 to {len(values)}.")
        self.values, self.offsets, self.column = values, offsets, column

    @classmethod
    def of(cls, ids: Any, *, column: str = "id") -> UserIds:
        """Makes them of a list or an array of whole numbers or of texts.

        Raises:
            GraphDataError: something else among them, or one twice.
        """
        if isinstance(ids, UserIds):
            return ids
        ids = _id_list(ids)
        if not ids or type(ids[0]) is int:
            try:
                return cls(np.array(ids, np.int64), column=column)
            except OverflowError as error:
                raise GraphDataError(
                    f"user ids: whole numbers must fit in 64 bits ({error}). Give them as texts."
                ) from None
        # Texts of files and databases may have bytes that are no UTF-8, which come back as they were.
        coded = [value.encode("utf-8", "surrogateescape") for value in ids]
        offsets = np.concatenate([[0], np.cumsum(list(map(len, coded)), dtype=np.int64)]).astype(np.int64)
        return cls(np.frombuffer(b"".join(coded), np.uint8), offsets=offsets, column=column)

    @property
    def kind(self) -> Literal["integer", "text"]:
        return "integer" if self.offsets is None else "text"

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    def take(self, rows: Any) -> np.ndarray:
        """Returns the ids of nodes: int64 ``[B]``, or str in an object array ``[B]``.

        Raises:
            GraphDataError: a row that is not a node.

        Example:
            >>> UserIds.of([40, 10]).take([1]).tolist()
            [10]
        """
        if self.offsets is None:
            return self.values[self._checked(rows)]
        values, offsets = self.take_bytes(rows)
        raw = values.tobytes()
        texts = np.empty(len(offsets) - 1, object)
        for k in range(len(texts)):
            texts[k] = raw[offsets[k] : offsets[k + 1]].decode("utf-8", "surrogateescape")
        return texts

    def take_bytes(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns texts ``[B]`` as their bytes, and where each begins and ends in them, int64 ``[B + 1]``."""
        assert self.offsets is not None, "these are numbers"
        rows = self._checked(rows)
        first, after = self.offsets[rows], self.offsets[rows + 1]
        if len(rows) and (
            int(first.min()) < 0 or int((after - first).min()) < 0 or int(after.max()) > len(self.values)
        ):
            raise GraphDataError("offsets of user ids do not ascend: what holds them is damaged. Build it again.")
        offsets = np.concatenate([[0], np.cumsum(after - first)]).astype(np.int64)
        return self.values[np.repeat(first - offsets[:-1], after - first) + np.arange(offsets[-1])], offsets

    def rows_of(self, ids: Any) -> np.ndarray:
        """Returns the nodes that have these ids, int64 ``[B]``.

        Raises:
            GraphDataError: ids that no node has.
        """
        keys = list(ids)
        # Keys are Python's numbers and texts, to which NumPy's scalars are converted.
        rows = [
            self._row_of.get(key, -1) for key in (key.item() if isinstance(key, np.generic) else key for key in keys)
        ]
        if -1 in rows:
            raise GraphDataError(
                f"{rows.count(-1)} of {len(rows)} ids are unknown, the first is {keys[rows.index(-1)]!r}: no node "
                f"has it in the column {self.column!r}."
            )
        return np.array(rows, np.int64)

    @cached_property
    def _row_of(self) -> dict[Any, int]:
        return {key: row for row, key in enumerate(self.take(np.arange(len(self))).tolist())}

    def _checked(self, rows: Any) -> np.ndarray:
        rows = np.asarray(rows, np.int64)
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise GraphDataError(
                f"user ids: rows must lie in [0, {len(self)}), but go from {rows.min()} to {rows.max()}."
            )
        return rows

    def __repr__(self) -> str:
        unit = "texts" if self.offsets is not None else "numbers"
        return f"UserIds({len(self)} {unit}, column={self.column!r})"


def _id_list(ids: Any) -> Sequence[Any]:
    if hasattr(ids, "tolist"):  # an array, a tensor, or a data frame's column
        ids = ids.tolist()
    if not isinstance(ids, Sequence) or isinstance(ids, str):
        raise GraphDataError(f"user ids must be a list of texts or whole numbers, but a {type(ids).__name__} is given.")
    types = {type(value) for value in ids}
    if not types <= {int} and not types <= {str}:
        names = ", ".join(sorted(value_type.__name__ for value_type in types))
        raise GraphDataError(f"user ids must be all texts or all whole numbers, but there are {names}.")
    if len(set(ids)) != len(ids):
        raise GraphDataError(
            f"user ids: {Counter(ids).most_common(1)[0][0]!r} names several nodes; each needs an id of its own."
        )
    return ids


def named_ids(user_ids: Any, num_nodes: int, types: GraphTypes | None) -> dict[str, UserIds]:
    """Returns the user's ids by node type; those of a graph without types under ``""``."""
    if user_ids is None:
        return {}
    if types is None:
        sizes, user_ids = {"": num_nodes}, {"": user_ids}
    elif isinstance(user_ids, Mapping):
        sizes = dict(zip(types.node_types, types.num_nodes, strict=True))
    else:
        raise GraphDataError(f"user_ids must be a dict by node type, as the graph has the types {types.node_types}.")
    checked = {name: UserIds.of(ids) for name, ids in user_ids.items()}
    for name, ids in checked.items():
        if name not in sizes:
            raise GraphDataError(f"user_ids name the node type {name!r}, but the graph has {', '.join(sizes)}.")
        needed = sizes[name]
        if len(ids) != needed:
            type_note = f" of type {name!r}" if name else ""
            raise GraphDataError(f"user_ids has {len(ids)} ids for {needed} nodes{type_note}; one each is needed.")
    return checked
