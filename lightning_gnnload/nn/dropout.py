"""Dropout: torch's, by draws that cost next to nothing on a CPU, and that a resumed run repeats."""

# Annotations are evaluated here, as torch.jit.script reads those of methods that it leaves to Python.
import itertools
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from lightning_gnnload.errors import DropoutError
from lightning_gnnload.nn.keys import MaskKeys
from lightning_gnnload.ops.dropout import DropoutKey, drop, drop_by_bits, num_bit_bytes, threshold_of

_layers: "WeakValueDictionary[int, Dropout]" = WeakValueDictionary()
"""The layers of this process by number, by which compiled code names them."""
_numbers = itertools.count()


class Dropout(nn.Dropout):  # so that what looks for dropout in a model finds it
    """``torch.nn.Dropout``, whose mask is a pure function of the step and of where an element stands.

    Where torch draws an element's bit in 14 ns on processors other than Intel's, this draws 16 bits, and drops, in 0.4
    ns, by Philox in vectors; large tensors with torch's number of threads. The same elements are dropped for any number
    of threads, on a CPU and a GPU, and in a run that is resumed in mid-epoch, since no generator has a state. Rows of
    several ranks are different rows: the rank is part of the key.

    The step is the Trainer's, with a :class:`.GraphDataModule` or :class:`.Accelerate`; :func:`.set_step` tells it in a
    loop by hand. Without either, a call's key is drawn from torch's generator.

    Takes float32, float64, float16 and bfloat16 of any shape, on any device; gradients of gradients, autocast,
    activation checkpoints, ``torch.compile`` and copies of the model work as with torch's. ``p`` is rounded to a
    multiple of 1/65536, and what is kept is divided by the rounded ``1 - p``, so that the mean stays. What is dropped
    is 0, where torch gives NaN for NaN and infinity. The layer has no state: ``state_dict`` says nothing of it.

    Args:
        p: the probability that an element is dropped, in [0, 1].
        inplace: write to the input.
        relu: apply relu before, in evaluation too, for no time; the backward pass then needs a bit an element.

    Raises:
        DropoutError: ``p`` is no probability; or in use, a dtype or layout that it does not take.

    Example:
        >>> layer = Dropout(0.5, relu=True)
        >>> sorted(set(layer(torch.ones(100)).tolist())), layer.eval()(torch.tensor([-1.0, 1.0])).tolist()
        ([0.0, 2.0], [0.0, 1.0])
    """

    def __init__(self, p: float = 0.5, inplace: bool = False, *, relu: bool = False) -> None:
        nn.Module.__init__(self)  # torch's own has another error
        if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
            raise DropoutError(f"Dropout: p is {p!r}, but a probability in [0, 1] is needed.")
        self.p, self.inplace, self.relu = p, inplace, relu
        self._begin()

    def _begin(self) -> None:
        self.keys = MaskKeys()
        self._number = next(_numbers)
        _layers[self._number] = self

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return _relu(x, self.inplace) if self.relu else x
        return self._drop(x)

    @torch.jit.unused
    def _drop(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            out, _ = torch.ops.lightning_gnnload.dropout(x, self.p, self.relu, self._number)
            return x.copy_(out) if self.inplace else out
        threshold, key = threshold_of(self.p), self.keys.next()
        if self.p == 1:
            return _zeros(x, self.inplace)
        if self.relu:
            return _ReluDropout.apply(x, threshold, key, self.inplace)
        return _Dropout.apply(x, threshold, key, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}" + (", relu=True" if self.relu else "")

    def __getstate__(self) -> dict[str, Any]:
        # A copy follows no Trainer, and counts for itself.
        return {name: value for name, value in vars(self).items() if name not in ("keys", "_number")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin()


def _relu(x: Tensor, in_place: bool) -> Tensor:
    return torch.relu_(x) if in_place else torch.relu(x)


def _zeros(x: Tensor, in_place: bool) -> Tensor:
    # Not a product with 0, which NaN and infinity would survive.
    return x.masked_fill_(_all(x), 0) if in_place else x.masked_fill(_all(x), 0)


def _all(x: Tensor) -> Tensor:
    return torch.ones((), dtype=torch.bool, device=x.device)


def _dropped(x: Tensor, threshold: int, key: DropoutKey, relu: bool, in_place: bool) -> tuple[Tensor, Tensor | None]:
    """``x`` after relu, if asked for, and dropout; and the bits of what is left, with relu."""
    source = x.contiguous()
    out = source if in_place else torch.empty_like(source)
    bits = drop(source, out, threshold, key, relu, with_bits=relu)
    if in_place and source is not x:
        return x.copy_(out), bits
    return out, bits


class _Dropout(torch.autograd.Function):
    """Dropout by key: the backward pass draws the mask again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int, key: DropoutKey, in_place: bool) -> Tensor:
        ctx.law = threshold, key
        if in_place:
            ctx.mark_dirty(x)
        return _dropped(x, threshold, key, False, in_place)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        threshold, key = ctx.law
        if torch.is_grad_enabled():  # for gradients of gradients alone, as recording takes longer than a small layer
            return _Dropout.apply(grad, threshold, key, False), None, None, None
        return _dropped(grad, threshold, key, relu=False, in_place=False)[0], None, None, None


class _ReluDropout(torch.autograd.Function):
    """Relu and dropout: the backward pass knows by a bit an element what passed both."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int, key: DropoutKey, in_place: bool) -> Tensor:
        if in_place:
            ctx.mark_dirty(x)
        out, bits = _dropped(x, threshold, key, True, in_place)
        ctx.threshold = threshold
        ctx.save_for_backward(bits)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        by_bits = _ByBits.apply if torch.is_grad_enabled() else _passed
        return by_bits(grad, ctx.threshold, *ctx.saved_tensors), None, None, None


class _ByBits(torch.autograd.Function):
    """Passes what bits say, times the scale: the gradient of dropout, and its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int, bits: Tensor) -> Tensor:
        ctx.threshold = threshold
        ctx.save_for_backward(bits)
        return _passed(x, threshold, bits)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _ByBits.apply(grad, ctx.threshold, *ctx.saved_tensors), None, None


def _passed(x: Tensor, threshold: int, bits: Tensor) -> Tensor:
    source = x.contiguous()
    out = torch.empty_like(source)
    drop_by_bits(source, out, threshold, bits)
    return out


# What compiled code calls: operators that torch.compile does not look into, and neither repeats nor leaves out.
# They cost more than the functions above, so nothing else calls them.

_tags = [torch.Tag.nondeterministic_seeded]
if hasattr(torch.Tag, "cudagraph_unsafe"):
    _tags.append(torch.Tag.cudagraph_unsafe)  # its key is computed on the host
_library = torch.library.Library("lightning_gnnload", "DEF")
_library.define("dropout(Tensor x, float p, bool relu, int layer) -> (Tensor, Tensor)", tags=tuple(_tags))
_library.define("drop_by_bits(Tensor x, float p, Tensor bits) -> Tensor")


def _compiled(x: Tensor, p: float, relu: bool, layer: int) -> tuple[Tensor, Tensor]:
    source = x.contiguous()
    if layer not in _layers:
        raise DropoutError(
            "compiled code calls a dropout layer of another process, or one that is gone. Compile the model where it "
            "trains; to export it, put it in evaluation first."
        )
    out, threshold, key = torch.empty_like(source), threshold_of(p), _layers[layer].keys.next()
    if p == 1:
        return out.zero_(), x.new_zeros(num_bit_bytes(x), dtype=torch.uint8)
    bits = drop(source, out, threshold, key, relu, with_bits=True)
    assert bits is not None
    return out, bits


def _compiled_by_bits(x: Tensor, p: float, bits: Tensor) -> Tensor:
    return torch.zeros_like(x) if p == 1 else _passed(x, threshold_of(p), bits)


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.p, _, _ = inputs
    ctx.save_for_backward(output[1])


def _compiled_backward(ctx: Any, grad: Tensor, _: Tensor) -> Any:
    return torch.ops.lightning_gnnload.drop_by_bits(grad, ctx.p, *ctx.saved_tensors), None, None, None


def _fake(x: Tensor, p: float, relu: bool, layer: int) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    return out, x.new_empty(num_bit_bytes(x), dtype=torch.uint8)


_library.impl("dropout", _compiled, "CompositeExplicitAutograd")
_library.impl("drop_by_bits", _compiled_by_bits, "CompositeExplicitAutograd")
if hasattr(torch.library, "register_autograd"):
    torch.library.register_fake("lightning_gnnload::dropout", _fake, lib=_library)
    torch.library.register_fake(
        "lightning_gnnload::drop_by_bits", lambda x, p, bits: _fake(x, p, False, 0)[0], lib=_library
    )
    torch.library.register_autograd(
        "lightning_gnnload::dropout", _compiled_backward, setup_context=_setup_context, lib=_library
    )
else:  # torch before 2.4: compiled code is left for the layer, and entered again
    Dropout._drop = torch.compiler.disable(Dropout._drop)  # type: ignore[method-assign]
