"""accelerate: swaps what makes a model's steps slow for what does the same in less time, and says what it did."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from types import CodeType

import torch
from torch import nn

from lightning_gnnload.errors import DropoutError
from lightning_gnnload.nn.dropout import Dropout

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_OTHER_LAWS = (nn.AlphaDropout, nn.FeatureAlphaDropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_TORCHS = (nn.Dropout, *_OTHER_LAWS)
_CALLS = "calls torch.nn.functional.dropout; call a lightning_gnnload.Dropout there"
_FRESH = (nn.Linear, nn.LayerNorm, nn.BatchNorm1d)  # whose output nobody else has, and no gradient needs


@dataclass
class AccelerationReport:
    """What :func:`accelerate` did with the dropout of a model, by the names of modules; printed, a line each.

    Example:
        >>> print(accelerate(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(), nn.Dropout1d()), fuse_relu=True))
        1 dropout layer swapped, 1 with the relu before it
          2: Dropout(p=0.5, inplace=False, relu=True)
        unchanged:
          3: Dropout1d drops by another law
    """

    swapped: dict[str, Dropout] = field(default_factory=dict)  # what stands there now
    unchanged: dict[str, str] = field(default_factory=dict)  # why
    already: list[str] = field(default_factory=list)  # no longer torch's

    def __str__(self) -> str:
        lines = [f"{len(self.swapped)} dropout layer{'' if len(self.swapped) == 1 else 's'} swapped"]
        if num_fused := sum(layer.relu for layer in self.swapped.values()):
            lines[0] += f", {num_fused} with the relu before it"
        if self.already:
            lines[0] += f"; {len(self.already)} fast already"
        lines += [f"  {name}: {layer}" for name, layer in self.swapped.items()]
        lines += ["unchanged:"] * bool(self.unchanged) + [f"  {name}: {why}" for name, why in self.unchanged.items()]
        return "\n".join(lines)


def accelerate(model: nn.Module, *, fuse_relu: bool = False) -> AccelerationReport:
    """Swaps torch's dropout in a model, in place, for :class:`.Dropout`, which takes a thirtieth of its time on most
    CPUs.

    Modules of any library are swapped, such as PyG's and DGL's layers have. The names of parameters stay: checkpoints
    from before and after load into each other. A model that is swapped already stays as it is. What is left stays
    torch's own, and the report says why: dropout of another law, subclasses, modules with hooks or attributes of their
    own, calls of ``torch.nn.functional.dropout``, and a relu that is ``inplace`` where others could see its input.

    bfloat16 is a setting of the Trainer: ``precision="bf16-mixed"``, or :class:`.Accelerate`.

    Args:
        model: any module, also one that is wrapped for several ranks.
        fuse_relu: swap an ``nn.ReLU`` directly before it in an ``nn.Sequential``, too, whose place an ``nn.Identity``
            takes; that saves a few per cent more. Only for models that run such sequences whole: ``model[:2](x)``, or
            a loop over the layers that keeps what each gives, would see what comes before the relu.

    Returns:
        What was swapped, and what was left.

    Raises:
        DropoutError: it is no module.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.3))
        >>> accelerate(model).swapped
        {'2': Dropout(p=0.3, inplace=False)}
    """
    if not isinstance(model, nn.Module):
        raise DropoutError(f"accelerate() takes a torch.nn.Module, whose dropout it swaps, not {model!r:.100}.")
    report = AccelerationReport()
    replaced: dict[nn.Module, Dropout] = {}  # a module that stands in several places is one module afterwards, too
    for prefix, parent in list(model.named_modules()):
        report.unchanged |= {f"{prefix}.{name}()".strip("."): _CALLS for name in _methods_that_call(parent)}
        children = list(parent._modules.items())
        for index, (name, child) in enumerate(children):
            path = f"{prefix}.{name}".strip(".")
            if isinstance(child, Dropout):
                report.already.append(path)
            elif isinstance(child, _TORCHS) and (reason := _reason_to_leave(parent, child)) is not None:
                report.unchanged[path] = reason
            elif isinstance(child, nn.Dropout):
                relu = _relu_before(parent, children, index) if fuse_relu else None
                if relu is not None:
                    parent._modules[relu] = nn.Identity().train(child.training)
                    layer = Dropout(child.p, relu=True)
                else:
                    layer = replaced.setdefault(child, Dropout(child.p, child.inplace))
                parent._modules[name] = report.swapped[path] = layer.train(child.training)
    if isinstance(model, _TORCHS) and not isinstance(model, Dropout):
        report.unchanged["the model"] = "it is a dropout itself: make a lightning_gnnload.Dropout in its place"
    return report


def _reason_to_leave(parent: nn.Module, module: nn.Module) -> str | None:
    if isinstance(module, _OTHER_LAWS):
        return f"{type(module).__name__} drops by another law"
    if type(module) is not nn.Dropout:
        return f"{type(module).__name__} is a class of its own, which may do more"
    if _has_hooks(module):
        return "it has hooks"
    if names := ", ".join(sorted(vars(module).keys() - vars(nn.Dropout()).keys())):  # such as another forward
        return f"it has attributes of its own: {names}"
    p: object = module.p  # torch takes tensors, too, and looks at numbers in use alone
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
        return f"its p is {p!r:.100}, not a number in [0, 1]"
    if isinstance(parent, torch.jit.ScriptModule):
        return "it is part of compiled TorchScript"
    return None


def _has_hooks(module: nn.Module) -> bool:
    return any(getattr(module, name, None) for name in _HOOKS)


def _relu_before(parent: nn.Module, children: list[tuple[str, nn.Module | None]], index: int) -> str | None:
    """The name of the relu whose output goes to the dropout at ``index``, and nowhere else."""
    if type(parent).forward is not nn.Sequential.forward or "forward" in vars(parent) or index == 0:
        return None
    name, relu = children[index - 1]
    if type(relu) is not nn.ReLU or _has_hooks(relu) or vars(relu).keys() - vars(nn.ReLU()).keys():
        return None
    before = children[index - 2][1] if index > 1 else None
    # In place, it also changes what others may have of its input.
    is_alone = not relu.inplace or (type(before) in _FRESH and not _has_hooks(before))  # type: ignore[arg-type]
    return name if is_alone else None


def _methods_that_call(module: nn.Module) -> Iterator[str]:
    """Names the methods of a module's class, and of classes that it derives from, which call torch's function."""
    if getattr(module, "dropout", None) == 0:
        return
    for cls in type(module).__mro__:
        for name, method in vars(cls).items() if not cls.__module__.startswith("torch.nn.") else ():
            if inspect.isfunction(method) and _calls_function(method.__code__):
                yield name


def _calls_function(code: CodeType) -> bool:
    names = [instruction.argval for instruction in dis.get_instructions(code)]
    return any(name == "dropout" and before in ("F", "functional", "torch") for before, name in pairwise(names))
