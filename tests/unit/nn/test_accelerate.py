"""accelerate: swaps what it knows, in any module, and names what it leaves."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_gnnload import Dropout, accelerate, set_step
from lightning_gnnload.errors import DropoutError
from tests.runif import RunIf


class Residual(nn.Module):
    """Dropout in a forward of its own, where no relu can be seen to go to it alone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.act, self.drop = nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.2, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.linear(x))
        return x + self.drop(x * 1)


class Functional(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)


class Doubled(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.3), Residual(), nn.Linear(4, 4), nn.ReLU())


def test_dropout_is_swapped_and_the_relu_before_it_in_a_sequence() -> None:
    model = network()
    keys, x = list(model.state_dict()), torch.randn(50, 4)
    wanted = model.eval()(x)
    report = accelerate(model.train(), fuse_relu=True)
    assert list(report.swapped) == ["2", "3.drop"]
    assert [(layer.p, layer.inplace, layer.relu) for layer in report.swapped.values()] == [
        (0.3, False, True),
        (0.2, True, False),
    ]
    assert isinstance(model[1], nn.Identity)
    assert isinstance(model[5], nn.ReLU)  # no dropout comes after it
    assert list(model.state_dict()) == keys
    assert torch.equal(model.eval()(x), wanted)
    assert not report.unchanged


def test_a_sequence_that_is_read_in_parts_gives_what_it_gave() -> None:
    model, x = network().eval(), torch.randn(20, 4)
    wanted = model[:2](x)
    accelerate(model)
    assert torch.equal(model[:2](x), wanted)


def test_checkpoints_from_before_and_after_load_into_each_other() -> None:
    plain, swapped = network(), network()
    accelerate(swapped, fuse_relu=True)
    plain.load_state_dict(swapped.state_dict())
    swapped.load_state_dict(plain.state_dict())


def test_once_is_enough() -> None:
    model = network()
    accelerate(model)
    modules = list(model.modules())
    report = accelerate(model)
    assert not report.swapped
    assert report.already == ["2", "3.drop"]
    assert all(now is before for now, before in zip(model.modules(), modules, strict=True))
    assert str(report) == "0 dropout layers swapped; 2 fast already"


def test_the_mode_stays() -> None:
    model = network()
    model[2].eval()  # as where a part is frozen
    accelerate(model, fuse_relu=True)
    assert [module.training for module in (model[1], model[2], model[3].drop)] == [False, False, True]


def test_what_stands_in_several_places_is_one_layer_still() -> None:
    drop, relu = nn.Dropout(), nn.ReLU()
    model = nn.ModuleDict({"a": nn.Sequential(nn.Linear(4, 4), relu, drop), "b": drop, "c": relu, "d": drop})
    accelerate(model, fuse_relu=True)
    assert model["b"] is model["d"]
    assert isinstance(model["b"], Dropout)
    assert model["c"] is relu
    x = torch.tensor([[-1.0, 1.0, 2.0, 3.0]])
    assert torch.equal(model.eval()["b"](x), x)  # no relu came there


@pytest.mark.parametrize(
    ("layers", "fuses"),
    [
        ([nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Dropout()], True),
        ([nn.Identity(), nn.ReLU(inplace=True), nn.Dropout()], False),  # somebody else may have the identity's output
        ([nn.ReLU(inplace=True), nn.Dropout()], False),
        ([nn.ReLU(), nn.Identity(), nn.Dropout()], False),
        ([nn.LeakyReLU(), nn.Dropout()], False),
        ([nn.ReLU6(), nn.Dropout()], False),
    ],
)
def test_relus_that_go_to_the_dropout_alone(layers: list[nn.Module], fuses: bool) -> None:
    (layer,) = accelerate(nn.Sequential(*layers), fuse_relu=True).swapped.values()
    assert layer.relu == fuses


def test_a_sequence_with_a_forward_of_its_own_keeps_its_relu() -> None:
    class Skips(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return self[0](x) + self[1](x)

    (layer,) = accelerate(Skips(nn.ReLU(), nn.Dropout()), fuse_relu=True).swapped.values()
    assert not layer.relu
    changed = nn.Sequential(nn.ReLU(), nn.Dropout())
    changed.forward = lambda x: changed[0](x)  # type: ignore[method-assign]
    (layer,) = accelerate(changed, fuse_relu=True).swapped.values()
    assert not layer.relu


def test_what_looks_for_dropout_finds_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    accelerate(model)
    for module in model.eval().modules():
        if isinstance(module, nn.Dropout):  # several predictions of one model, and schedules of p
            module.train()
            module.p = 1.0
    assert not model(torch.ones(2, 4)).any()
    model[1].p = 1.5
    with pytest.raises(DropoutError, match="probability in"):
        model(torch.ones(2, 4))


def test_what_is_left_and_why() -> None:
    watched, watched_relu = nn.Dropout(), nn.ReLU()
    watched.register_forward_hook(lambda *_: None)
    watched_relu.register_forward_hook(lambda *_: None)
    changed, of_tensor = nn.Dropout(), nn.Dropout(torch.tensor(0.5))  # type: ignore[arg-type]
    changed.forward = lambda x: x + 1  # type: ignore[method-assign]
    layers = OrderedDict(
        alpha=nn.AlphaDropout(),
        rows=nn.Dropout1d(),
        doubled=Doubled(),
        watched=watched,
        changed=changed,
        of_tensor=of_tensor,
        function=Functional(0.5),
        relu=watched_relu,
        plain=nn.Dropout(),
    )
    report = accelerate(nn.Sequential(layers), fuse_relu=True)
    assert str(report).splitlines() == [
        "1 dropout layer swapped",
        "  plain: Dropout(p=0.5, inplace=False)",
        "unchanged:",
        "  alpha: AlphaDropout drops by another law",
        "  rows: Dropout1d drops by another law",
        "  doubled: Doubled is a class of its own, which may do more",
        "  watched: it has hooks",
        "  changed: it has attributes of its own: forward",
        "  of_tensor: its p is tensor(0.5000), not a number in [0, 1]",
        "  function.forward(): calls torch.nn.functional.dropout; call a lightning_gnnload.Dropout there",
    ]
    assert list(accelerate(nn.Dropout()).unchanged) == ["the model"]
    with pytest.raises(DropoutError, match=r"takes a torch\.nn\.Module"):
        accelerate("SAGE")  # type: ignore[arg-type]


def test_parts_of_torchscript_are_left() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Dropout()))
    assert not accelerate(nn.Sequential(scripted)).swapped


@RunIf(extras="pyg")
def test_layers_of_pyg() -> None:
    from torch_geometric.nn import GAT, GraphSAGE

    edges, x = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), torch.randn(4, 8)
    model = GraphSAGE(8, 16, 2, 4, dropout=0.5)
    assert list(accelerate(model).swapped) == ["dropout"]
    set_step(model, 0, 0)
    first = model(x, edges)
    first.sum().backward()
    set_step(model, 0, 0)
    assert torch.equal(model(x, edges), first)
    report = accelerate(GAT(8, 16, 2, 4, dropout=0.5))
    assert list(report.unchanged) == ["convs.0.edge_update()", "convs.1.edge_update()"]  # of attention: a function


@RunIf(extras="dgl")
def test_layers_of_dgl() -> None:
    import dgl.nn.pytorch as dglnn

    report = accelerate(nn.ModuleList([dglnn.GATConv(4, 4, 2, 0.5, 0.5), dglnn.SAGEConv(4, 4, "mean", 0.5)]))
    assert list(report.swapped) == ["0.feat_drop", "0.attn_drop", "1.feat_drop"]
