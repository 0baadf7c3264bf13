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
"""Runs instead of a convolution: of its number among the calls of a forward pass, its own forward and its arguments."""


class Rows(NamedTuple):
    """Shape and dtype of one of the rows that a call gives for nodes of one type."""

    row_shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass
class Call:
    """A call of a convolution in a forward pass.

    ``gives`` are its rows by node type, ``""`` in a graph without types; ``is_typed`` says that it returns a dict of
    them. ``layer`` is whose block its arguments have; equal ``edges`` mean equal edges and weights.
    """

    number: int
    name: str
    module: nn.Module
    gives: dict[str, Rows]
    is_typed: bool
    layer: int
    edges: tuple[int, ...]


def _leaves(arguments: Any) -> Iterator[Any]:
    """Yields what lists, tuples and dicts hold, at any depth."""
    if isinstance(arguments, dict):
        arguments = list(arguments.values())
    if isinstance(arguments, list | tuple):
        for argument in arguments:
            yield from _leaves(argument)
    else:
        yield arguments


def edges_in(arguments: Any) -> list[Any]:
    """Returns those of a module's arguments that say which nodes edges join: blocks, graphs of DGL, tensors ``[2, E]``,
    sparse matrices."""
    return [leaf for leaf in _leaves(arguments) if _joins_nodes(leaf)]


def _joins_nodes(leaf: Any) -> bool:
    if isinstance(leaf, torch.Tensor):
        is_pairs = leaf.ndim == 2 and leaf.shape[0] == 2 and leaf.dtype in (torch.int64, torch.int32)
        return is_pairs or leaf.layout is not torch.strided
    return isinstance(leaf, Block) or hasattr(leaf, "canonical_etypes") or type(leaf).__name__ == "SparseTensor"


def _row_addresses(arguments: Any) -> set[int]:
    """Returns the addresses of the floating rows among a module's arguments."""
    tensors = [leaf for leaf in _leaves(arguments) if isinstance(leaf, torch.Tensor)]
    return {rows.data_ptr() for rows in tensors if rows.is_floating_point() and rows.layout is torch.strided}


@dataclass
class _CallTree:
    """A call of a module with edges among its arguments, and such calls within it."""

    name: str
    rows: set[int]
    within: list[_CallTree] = field(default_factory=list)

    def convolutions(self) -> set[str]:
        """Returns the modules that lead over one hop: those without calls within, or with calls side by side."""
        names = set[str]().union(*(call.convolutions() for call in self.within))
        # Side by side, as a module for each edge type: all get the very rows that this one got, not each other's.
        side_by_side = len(self.within) > 1 and all(
            call.name in names and call.rows <= self.rows for call in self.within
        )
        return {self.name} if self.name and (not self.within or side_by_side) else names


def find_convolutions(model: nn.Module, run: Callable[[], Any]) -> tuple[str, ...]:
    """Returns the names of a model's convolutions: of the modules with edges among their arguments in a forward pass,
    ``run`` over a small mini-batch, those that lead over one hop."""
    top = _CallTree("", set())
    stack = [top]

    def enter(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            arguments = [*args, *kwargs.values()]
            call = stack[-1]
            if edges_in(arguments):
                call = _CallTree(name, _row_addresses(arguments))
                stack[-1].within.append(call)
            stack.append(call)  # each call is popped as it ends, with edges or without

        return hook

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                hooks.callback(module.register_forward_pre_hook(enter(name), with_kwargs=True).remove)
                hooks.callback(module.register_forward_hook(lambda *_: stack.pop() and None).remove)
        run()
    names = top.convolutions()
    return tuple(name for name, _ in model.named_modules() if name in names)


class Interrupted(BaseException):  # an Exception might be caught by a model, and is printed by torch.fx
    """Ends a forward pass behind the convolution at hand, as the rest of it is not needed."""


@contextmanager
def intercept(modules: Mapping[str, nn.Module], answer: Answer) -> Iterator[list[str]]:
    """Runs ``answer`` instead of these modules' forward; yields the names of those called so far, in order."""
    called: list[str] = []

    def replaced(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            called.append(name)
            return answer(len(called) - 1, real, args, kwargs)

        return forward

    with ExitStack() as restored:
        for name, module in modules.items():
            # Set on the instance, before the class's: what a script has set there itself comes back afterwards.
            instance_forward = module.__dict__.get("forward")

            def restore(module: nn.Module = module, instance_forward: Any = instance_forward) -> None:
                if instance_forward is None:
                    del module.__dict__["forward"]
                else:
                    module.__dict__["forward"] = instance_forward

            # forward, not __call__: hooks of users and of Lightning still run.
            module.__dict__["forward"] = replaced(name, module.forward)
            restored.callback(restore)
        yield called


def rows_by_type(output: Any, source: str, node_type: str = "") -> dict[str, torch.Tensor]:
    """Returns the rows of a module's output by node type, of a tensor as those of ``node_type``; raises InferenceError
    for anything else."""
    rows = output if isinstance(output, dict) else {node_type: output}
    for name, tensor in rows.items():
        if not isinstance(tensor, torch.Tensor) or tensor.ndim < 1 or not isinstance(name, str):
            raise InferenceError(
                f"{source} returned {type(tensor).__name__}, but a tensor with a row for each node is needed, or a "
                "dict of such by node type. Return no attention weights or lists beside them."
            )
    return dict(rows)
