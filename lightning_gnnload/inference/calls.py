"""The convolutions of a model: which of its modules they are, in which order they are called, and what they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from lightning_gnnload.data.block import Block
from lightning_gnnload.errors import InferenceError

Answer = Callable[[int, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""What takes the place of a convolution: its number among the calls of a forward pass, its own forward, what that is
given."""


class Rows(NamedTuple):
    """The rows that a call gives for nodes of one type.

    Attributes:
        row_shape: of one row.
        dtype: of the rows.
    """

    row_shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass
class Call:
    """A call of a convolution in a forward pass.

    Attributes:
        number: among these calls.
        name: of the module in the model.
        module: itself.
        gives: its rows by node type; ``""`` in a graph without types.
        of_types: it returns a dict by node type.
        layer: whose block it is given.
        edges: tells its edges and their weights from those of other calls.
    """

    number: int
    name: str
    module: nn.Module
    gives: dict[str, Rows]
    of_types: bool
    layer: int
    edges: tuple[int, ...]


def edges_in(given: Any) -> Iterator[Any]:
    """Yields what says of edges which nodes they join, in the arguments of a module: blocks, graphs of DGL, tensors
    ``[2, E]``, sparse matrices."""
    if isinstance(given, dict):
        given = list(given.values())
    if isinstance(given, list | tuple):
        for each in given:
            yield from edges_in(each)
    elif isinstance(given, torch.Tensor):
        is_pairs = given.ndim == 2 and given.shape[0] == 2 and given.dtype in (torch.int64, torch.int32)
        if is_pairs or given.layout is not torch.strided:
            yield given
    elif isinstance(given, Block) or hasattr(given, "canonical_etypes") or type(given).__name__ == "SparseTensor":
        yield given


def _rows_in(given: Any) -> Iterator[int]:
    """Yields the addresses of the floating rows among a module's arguments."""
    if isinstance(given, dict):
        given = list(given.values())
    if isinstance(given, list | tuple):
        for each in given:
            yield from _rows_in(each)
    elif isinstance(given, torch.Tensor) and given.is_floating_point() and given.layout is torch.strided:
        yield given.data_ptr()


@dataclass
class _Seen:
    """A call of a module that was given edges, and those calls within it."""

    name: str
    rows: set[int]
    within: list[_Seen] = field(default_factory=list)

    def convolutions(self) -> set[str]:
        """Returns the modules of one hop: those without others within, and those whose others stand side by side.

        They do where each is given the very rows that this one was given, as those of one edge type each are.
        """
        found = set[str]().union(*(each.convolutions() for each in self.within))
        side_by_side = len(self.within) > 1 and all(
            each.name in found and each.rows <= self.rows for each in self.within
        )
        return {self.name} if self.name and (not self.within or side_by_side) else found


def find_convolutions(model: nn.Module, run: Callable[[], Any]) -> tuple[str, ...]:
    """Returns the names of a model's convolutions: of the modules that are given edges in a forward pass, those that
    lead over one hop.

    Args:
        model: of which modules are looked at.
        run: a forward pass over a small mini-batch.
    """
    top = _Seen("", set())
    stack = [top]

    def enter(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = [*args, *kwargs.values()]
            is_conv = any(True for _ in edges_in(given))
            seen = _Seen(name, set(_rows_in(given)))
            if is_conv:
                stack[-1].within.append(seen)
            stack.append(seen if is_conv else stack[-1])

        return hook

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                hooks.callback(module.register_forward_pre_hook(enter(name), with_kwargs=True).remove)
                hooks.callback(module.register_forward_hook(lambda *_: stack.pop() and None).remove)
        run()
    found = top.convolutions()
    return tuple(name for name, _ in model.named_modules() if name in found)


class Interrupted(BaseException):  # an Exception might be caught by a model, and is printed by torch.fx
    """Ends a forward pass behind the convolution at hand, as the rest of it is not needed."""


@contextmanager
def in_place_of(modules: Mapping[str, nn.Module], answer: Answer) -> Iterator[list[str]]:
    """Lets ``answer`` take the place of these modules' forward; gives the names of those called so far, in order."""
    called: list[str] = []

    def replaced(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            called.append(name)
            return answer(len(called) - 1, real, args, kwargs)

        return forward

    with ExitStack() as restored:
        for name, module in modules.items():
            own = module.__dict__.get("forward")

            def restore(module: nn.Module = module, own: Any = own) -> None:
                if own is None:
                    del module.__dict__["forward"]
                else:
                    module.__dict__["forward"] = own

            module.__dict__["forward"] = replaced(name, module.forward)
            restored.callback(restore)
        yield called


def rows_of(given: Any, what: str, node_type: str = "") -> dict[str, torch.Tensor]:
    """Returns rows by node type; of a tensor, as those of ``node_type``.

    Raises:
        InferenceError: what a module returned is neither rows nor a dict of them by type.
    """
    rows = given if isinstance(given, dict) else {node_type: given}
    for name, each in rows.items():
        if not isinstance(each, torch.Tensor) or each.ndim < 1 or not isinstance(name, str):
            raise InferenceError(
                f"{what} returned {type(each).__name__}, but a tensor with a row for each node is needed, or a dict of "
                "such by node type. Return no attention weights or lists beside them."
            )
    return dict(rows)
