"""The layer: torch's dropout in all that a training loop does with it, with masks that follow from the step."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightning_gnnload import Dropout, set_step
from lightning_gnnload.errors import DropoutError
from lightning_gnnload.nn import keys
from lightning_gnnload.ops.dropout import DropoutKey, keep_mask, threshold_of

Forward = Callable[[Tensor], Tensor]


def with_gradient(forward: Forward, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().clone().requires_grad_()
    out = forward(x)
    out.square().sum().backward()
    return out.detach(), x.grad


def at_step(layer: nn.Module, step: int, epoch: int = 0) -> Forward:
    def forward(x: Tensor) -> Tensor:
        set_step(layer, epoch, step)
        return layer(x)

    return forward


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def all_equal(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return all(map(torch.equal, one, other))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_output_and_gradient_are_those_of_the_mask(p: float, inplace: bool, relu: bool) -> None:
    """By torch's own relu and multiplication, where the key of (seed 0, epoch 2, step 5) keeps an element."""
    x, threshold = normal(40, 7), threshold_of(p)
    mask = keep_mask(x.numel(), threshold, DropoutKey.of(0, 2, 5, 0, 0, 0), x.device).view_as(x)
    scale = 0 if p == 1 else 65536 / (65536 - threshold)
    layer = Dropout(p, inplace, relu=relu)
    wanted = with_gradient(lambda x: (x.relu() if relu else x) * mask * scale, x)
    assert all_equal(with_gradient(lambda x: at_step(layer, 5, epoch=2)(x * 1), x), wanted)
    if inplace:
        given = x.clone()
        assert at_step(layer, 5, epoch=2)(given) is given
        columns = x.t().contiguous().t()  # of other strides
        assert at_step(layer, 5, epoch=2)(columns) is columns
        assert torch.equal(columns, given)


@pytest.mark.parametrize("relu", [False, True])
def test_gradients_of_gradients(relu: bool) -> None:
    forward = at_step(Dropout(0.4, relu=relu), 3)
    x = normal(20, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(forward, x)
    assert torch.autograd.gradgradcheck(forward, x)


def test_what_is_dropped_is_zero_whatever_it_was() -> None:
    x = torch.full((1000,), torch.nan)
    x[::2] = torch.inf
    out = at_step(Dropout(0.5), 0)(x)
    assert set(out.nan_to_num(-1, 1).sign().tolist()) == {-1, 0, 1}
    assert at_step(Dropout(1.0), 0)(x).eq(0).all()


def test_a_fused_relu_lets_its_output_be_changed() -> None:
    """As torch's dropout does, whose backward pass looks at its own mask: a residual in place is common."""
    layer, x = Dropout(0.5, relu=True), normal(50)
    wanted = with_gradient(at_step(layer, 1), x)[1]
    x.requires_grad_()
    out = at_step(layer, 1)(x)
    grad = 2 * out.detach()
    out += 1
    out.backward(grad)
    assert torch.equal(x.grad, wanted)


def test_evaluation_is_the_identity_but_for_the_relu() -> None:
    x = normal(5)
    assert Dropout(0.5).eval()(x) is x
    assert torch.equal(Dropout(0.5, relu=True).eval()(x), x.relu())
    assert not Dropout(0.5).state_dict()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0, 3), (), (2, 3, 4)])
def test_dtypes_and_shapes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    out, grad = with_gradient(at_step(Dropout(0.5), 0), torch.ones(shape, dtype=dtype))
    assert out.dtype == grad.dtype == dtype
    assert out.shape == grad.shape == shape
    assert torch.equal(2 * out * (out > 0) * 2, grad)


def test_under_autocast_it_computes_in_what_comes() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Dropout(0.5, relu=True), nn.Linear(4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        out = model(normal(8, 4))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()


def test_steps_layers_calls_and_ranks_have_masks_of_their_own() -> None:
    model = nn.ModuleList([Dropout(0.5), nn.Sequential(nn.Linear(1, 1), Dropout(0.5))])
    x, places = torch.ones(256), []
    for seed, epoch, step, rank in ((0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)):
        set_step(model, epoch, step, seed=seed, rank=rank)
        for layer in (model[0], model[1][1]):
            places += [layer(x), layer(x)]  # two calls
    assert len({tuple(out.tolist()) for out in places}) == 20
    set_step(model, 0, 0)  # and nothing of what came between has a bearing
    assert all_equal((model[0](x), model[0](x), model[1][1](x)), (places[0], places[1], places[2]))


def test_without_a_step_masks_follow_torchs_generator() -> None:
    layer, x = Dropout(0.5), torch.ones(256)
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert torch.equal(Dropout(0.5)(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("follows_step", [False, True])
def test_activation_checkpoints_draw_the_same_masks_again(use_reentrant: bool, relu: bool, follows_step: bool) -> None:
    """Of a layer that is called three times in a step: segments are repeated last to first."""
    layer, linear = Dropout(0.5, relu=relu), nn.Linear(8, 8)

    def forward(x: Tensor, saves_memory: bool) -> Tensor:
        torch.manual_seed(5)
        if follows_step:
            set_step(layer, 1, 2)
        for _ in range(3):
            if saves_memory:
                x = checkpoint(lambda x: layer(linear(x)), x, use_reentrant=use_reentrant)
            else:
                x = layer(linear(x))
        if follows_step:
            set_step(layer, 1, 3)  # before the backward pass, as a loop with a queue of losses may
        return x

    x = normal(9, 8)
    assert all_equal(with_gradient(lambda x: forward(x, True), x), with_gradient(lambda x: forward(x, False), x))


def test_a_checkpoint_without_the_generators_state_is_refused() -> None:
    """Else, gradients would be of other masks than the loss."""
    layer, x = Dropout(0.5), normal(9).requires_grad_()
    set_step(layer, 0, 0)
    out = checkpoint(lambda x: layer(x).sin(), x, use_reentrant=False, preserve_rng_state=False)
    with pytest.raises(DropoutError, match="preserve_rng_state=True"):
        out.sum().backward()


def test_a_layer_that_is_called_without_end_in_a_step_keeps_its_last_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a loop that draws predictions, or that tells no step."""
    monkeypatch.setattr(keys, "MOST_CALLS", 3)
    layer, x = Dropout(0.5), normal(9).requires_grad_()
    set_step(layer, 0, 0)
    outs = [checkpoint(lambda x: layer(x).sin(), x, use_reentrant=False) for _ in range(6)]
    assert len(layer.keys._call_by_draw) == 3
    assert len({tuple(out.tolist()) for out in outs}) == 6
    set_step(layer, 0, 0)
    assert torch.equal(layer(x).sin(), outs[0]), "calls count from 0 in each step, and none is counted twice"
    set_step(layer, 0, 0)
    outs = [checkpoint(lambda x: layer(x).sin(), x, use_reentrant=False) for _ in range(4)]
    outs[3].sum().backward()
    with pytest.raises(DropoutError, match="none of its last 3 calls"):
        outs[0].sum().backward()


@pytest.mark.filterwarnings("ignore")  # torch's own, of its compiler
def test_compiled_models_draw_the_same_masks() -> None:
    """Whole graphs, compiled once for all steps, and with a checkpoint inside; the two passes apart from each other."""
    model = nn.Sequential(nn.Linear(8, 8), Dropout(0.5, relu=True), nn.Linear(8, 8), Dropout(0.3))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = normal(9, 8)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for step in range(3):
            wanted = with_gradient(at_step(model, step), x)
            set_step(model, 0, step)
            assert all_equal(with_gradient(compiled, x), wanted)

    def twice(x: Tensor) -> Tensor:
        return checkpoint(model, checkpoint(model, x, use_reentrant=False), use_reentrant=False)

    set_step(model, 0, 9)
    wanted = with_gradient(twice, x)
    set_step(model, 0, 9)
    assert all_equal(with_gradient(torch.compile(twice, backend="aot_eager"), x), wanted)
    torch._dynamo.reset()


def test_compiled_code_of_a_layer_that_is_gone_is_refused() -> None:
    with pytest.raises(DropoutError, match="another process"):
        torch.ops.lightning_gnnload.dropout(torch.ones(3), 0.5, False, 1 << 40)


def test_copies_count_for_themselves() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Dropout(0.25, relu=True))
    set_step(model, 3, 4)
    x = normal(500, 2)
    pickled = pickle.loads(pickle.dumps(model))  # noqa: S301  our own
    for other in (copy.deepcopy(model), pickled):
        set_step(model, 3, 4)
        first = model(x)
        torch.manual_seed(0)
        unbound = other(x)
        set_step(other, 3, 4)
        assert torch.equal(other(x), first)
        assert not torch.equal(unbound, first)
        assert repr(other[1]) == "Dropout(p=0.25, inplace=False, relu=True)"


def test_torchscript_evaluates() -> None:
    model = torch.jit.script(nn.Sequential(Dropout(0.5, relu=True)).eval())
    assert model(torch.tensor([-1.0, 1.0])).tolist() == [0, 1]


@pytest.mark.parametrize("p", [-0.1, 1.5, "0.5", True, float("nan")])
def test_no_probability(p: object) -> None:
    with pytest.raises(DropoutError, match="probability in"):
        Dropout(p)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epoch": -1}, "epoch is -1"),
        ({"step": 1 << 32}, "step is 4294967296"),
        ({"seed": 1 << 64}, "seed is"),
        ({"rank": 1 << 16}, "rank is 65536"),
        ({"step": 0.5}, "step is 0.5"),
    ],
)
def test_steps_that_are_none(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(DropoutError, match=message):
        set_step(Dropout(), **{"epoch": 0, "step": 0} | wrong)  # type: ignore[arg-type]


def test_a_model_whose_dropout_is_torchs_is_told_no_step() -> None:
    with pytest.raises(DropoutError, match=r"Call accelerate\(model\) once"):
        set_step(nn.Sequential(nn.Dropout()), 0, 0)
    set_step(nn.Sequential(nn.Linear(1, 1), nn.Dropout(0)), 0, 0)  # nothing is dropped there
    with pytest.raises(DropoutError, match=r"a torch\.nn\.Module is needed"):
        set_step([Dropout()], 0, 0)  # type: ignore[arg-type]


def test_integers_are_refused() -> None:
    with pytest.raises(DropoutError, match=r"torch.int64"):
        Dropout()(torch.ones(3, dtype=torch.int64))
