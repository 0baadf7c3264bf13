"""aggregate on a device: the CPU's sums and maxima, and their gradients, bit for bit; weights up to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from lightning_gnnload import Block, aggregate
from lightning_gnnload.models import GAT, GCN, SAGE
from lightning_gnnload.ops.cuda.aggregate import DeviceEdges, takes
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.plugin.compat import pl
from tests.integration.scripts.toy import toy_module
from tests.rings import mostly_matrix

from .emulated import EmulatedDevice

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HOW = ("sum", "mean", "max")


@pytest.fixture(autouse=True)
def _untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated device watches torch's operations by a mode, as a tracer does."""
    monkeypatch.setattr("lightning_gnnload.nn.aggregate._is_traced", lambda: False)


@contextmanager
def kernels_of(device: Device) -> Iterator[None]:
    """aggregate runs the device's kernels, on the emulated one, too, whose tensors are the CPU's."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lightning_gnnload.nn.aggregate.device_of", lambda _: device)
        yield
    if isinstance(device, EmulatedDevice):
        assert any(name.startswith("aggregate/") for name in device.launched)


def block_of(degrees: list[int], num_src: int, sources: torch.Tensor | None = None) -> Block:
    random = torch.Generator().manual_seed(len(degrees))
    indptr = torch.tensor([0, *torch.tensor(degrees, dtype=torch.int64).cumsum(0).tolist()], dtype=torch.int32)
    if sources is None:
        sources = torch.randint(0, max(num_src, 1), (int(indptr[-1]),), generator=random)
    return Block(indptr, sources.int(), len(degrees), num_src)


# Those of few sources repeat edges.
BLOCKS = {
    "sampled": block_of([3, 0, 5, 1, 0, 4, 2, 5], 30),
    "hubs": block_of([0, 70, 1, 9], 3),
    "one source": block_of([1] * 40, 2, torch.zeros(40)),
    "isolated": block_of([0, 0, 0], 5),
    "nothing": block_of([], 0),
    "no sources": block_of([0, 0], 0),
}


def numbers(shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """With equal ones, both zeros, and one NaN and infinity each where there is room."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).mul(4).round().div(4)
    x.view(-1)[3::7] *= -0.3
    if x.numel() > 40:
        x.view(-1)[[17, 38]] = torch.tensor([torch.nan, -torch.inf])
    return x.to(dtype)


def there(block: Block, device: Device) -> Block:
    to = device.torch_device
    return Block(block.indptr.to(to, copy=True), block.indices.to(to, copy=True), block.num_dst, block.num_src)


def bits_of(x: torch.Tensor) -> torch.Tensor:
    """By which -0 is not 0, while one NaN is as good as another."""
    return torch.where(x.isnan(), torch.nan, x).to(x.dtype).cpu().contiguous().view(-1).view(torch.uint8)


def by_cpu(block: Block, x: torch.Tensor, how: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Its kernels; those of float16 are float32's, as sums on a device are, rounded once."""
    rows = (x.float() if x.dtype == torch.float16 else x).detach().requires_grad_()
    out = aggregate(block, rows, how)
    (of_rows,) = torch.autograd.grad(out, rows, grad.to(rows.dtype))
    return out.to(x.dtype), of_rows.to(x.dtype)


def check_equal(device: Device, block: Block, width: int, dtype: torch.dtype, how: Any) -> None:
    x, grad = numbers((block.num_src, width), dtype), numbers((block.num_dst, width), dtype)
    wanted, wanted_grad = by_cpu(block, x, how, grad)
    with kernels_of(device):
        rows = x.to(device.torch_device).requires_grad_()
        out = aggregate(there(block, device), rows, how)
        (of_rows,) = torch.autograd.grad(out, rows, grad.to(device.torch_device))
    assert torch.equal(bits_of(out), bits_of(wanted))
    assert torch.equal(bits_of(of_rows), bits_of(wanted_grad))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", HOW)
def test_equal_to_the_cpu(device: Device, dtype: torch.dtype, how: Any) -> None:
    for name, width in (("sampled", 5), ("hubs", 8), ("one source", 3), *((name, 4) for name in BLOCKS)):
        check_equal(device, BLOCKS[name], width, dtype, how)


# Threads of one column, of several, teams of 1 to 32 and rows of several tiles.
@pytest.mark.parametrize("width", mostly_matrix((1, 2, 6, 33, 50, 100, 132, 260, 1433, 4096), 1, 50, 260))
def test_rows_of_any_width(device: Device, width: int) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for how in HOW:
            check_equal(device, BLOCKS["sampled"], width, dtype, how)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_gradient_of_a_row_that_many_have_is_whole(device: Device, dtype: torch.dtype) -> None:
    """Above 2048 and 256, one more is nothing to these dtypes."""
    hub = there(block_of([1] * 4096, 1), device)
    x = torch.ones(1, 2, dtype=dtype, device=device.torch_device, requires_grad=True)
    for weights in (None, torch.ones(4096, device=device.torch_device)):
        with kernels_of(device):
            out = aggregate(hub, x, "sum", weights)
            (gradient,) = torch.autograd.grad(out, x, torch.ones_like(out))
        assert gradient.tolist() == [[4096, 4096]]


def test_equal_in_any_order_of_threads() -> None:
    block = BLOCKS["hubs"]
    results = []
    for seed, num_processors in ((0, 1), (5, 3)):
        random = torch.Generator().manual_seed(1)
        x = torch.randn(3, 70, generator=random).requires_grad_()
        weights = torch.rand(block.num_edges, generator=random).requires_grad_()
        device = EmulatedDevice(seed, num_processors)
        with kernels_of(device):
            out = aggregate(there(block, device), x, "mean", weights)
            results.append([out, *torch.autograd.grad(out.sin().sum(), (x, weights))])
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("how", ["sum", "mean"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_weights(device: Device, how: Any, dtype: torch.dtype) -> None:
    """Those of a CPU are embedding_bag's, which does not say in what order it adds: so up to the dtype's rounding."""
    block = BLOCKS["sampled"]
    random = torch.Generator().manual_seed(4)
    weights = torch.rand(block.num_edges, dtype=torch.float64, generator=random) - 0.2
    weights[:3] = torch.tensor([1.0, -1.0, 0.0])  # they sum to nothing
    x = torch.randn(block.num_src, 36, dtype=torch.float64, generator=random)
    grad = torch.randn(block.num_dst, 36, dtype=torch.float64, generator=random).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    leaves = x.to(dtype).to(wide).requires_grad_(), weights.to(wide).requires_grad_()
    wanted = aggregate(block, leaves[0], how, leaves[1])
    of_wanted = torch.autograd.grad(wanted, leaves, grad.to(wide))
    leaves = x.to(dtype).to(device.torch_device).requires_grad_(), leaves[1].detach().to(device.torch_device)
    leaves[1].requires_grad_()
    with kernels_of(device):
        out = aggregate(there(block, device), leaves[0], how, leaves[1])
        gradients = torch.autograd.grad(out, leaves, grad.to(device.torch_device))
    assert (out.dtype, gradients[0].dtype, gradients[1].dtype) == (dtype, dtype, wide)
    rounding = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2**-11, torch.bfloat16: 2**-8}[dtype]
    for ours, theirs in zip((out, *gradients), (wanted, *of_wanted), strict=True):
        size = theirs.abs().max().item()
        torch.testing.assert_close(ours.cpu().to(wide), theirs, rtol=rounding, atol=2e-6 * size)


@pytest.mark.parametrize(("how", "is_weighted"), [*((how, False) for how in HOW), ("sum", True), ("mean", True)])
def test_gradients_and_their_gradients(how: Any, is_weighted: bool) -> None:
    block = block_of([3, 0, 2], 4)
    random = torch.Generator().manual_seed(3)
    x = torch.randn(4, 3, dtype=torch.float64, generator=random).requires_grad_()
    weights = (torch.rand(5, dtype=torch.float64, generator=random) + 0.1).requires_grad_()
    leaves = (x, weights) if is_weighted else (x,)
    with kernels_of(EmulatedDevice()):
        assert torch.autograd.gradcheck(lambda *leaves: aggregate(block, leaves[0], how, *leaves[1:]), leaves)
        assert torch.autograd.gradgradcheck(lambda *leaves: aggregate(block, leaves[0], how, *leaves[1:]) ** 2, leaves)


@pytest.mark.parametrize("how", HOW)
def test_what_is_no_index_reads_no_memory_and_makes_nan(device: Device, how: Any) -> None:
    block = block_of([2, 1, 3], 6)
    x = torch.ones(6, 5, device=device.torch_device)
    for place, bad in ((0, 6), (2, -1), (5, 2**31 - 1)):
        damaged = there(block, device)
        damaged.indices[place] = bad
        with kernels_of(device):
            rows = x.clone().requires_grad_()
            out = aggregate(damaged, rows, how)
            (gradient,) = torch.autograd.grad(out, rows, torch.ones_like(out))
        dst = int(block.edge_dst()[place])
        assert out[dst].isnan().all()
        assert not torch.cat([out[:dst], out[dst + 1 :]]).isnan().any()
        assert gradient.isfinite().all()
    for place, bad in ((0, -1), (1, 2**31 - 1), (3, 7), (3, 5)):
        damaged = there(block, device)
        damaged.indptr[place] = bad
        with kernels_of(device):
            rows = x.clone().requires_grad_()
            out = aggregate(damaged, rows, how)
            assert out.isnan().any() or bad == 5  # edges that are nobody's
            torch.autograd.grad(out, rows, torch.ones_like(out))
    far = Block(block.indptr.long(), block.indices.long() + 2**32, block.num_dst, block.num_src)
    with kernels_of(device):
        assert aggregate(there(far, device), x, how).isnan().all()
        near = Block(block.indptr.long(), block.indices, block.num_dst, block.num_src)
        assert torch.equal(aggregate(there(near, device), x, how), aggregate(there(block, device), x, how))


def test_edges_are_sorted_once_a_block_and_anew_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts, sort = [], torch.sort
    monkeypatch.setattr(torch, "sort", lambda *args, **settings: sorts.append(args) or sort(*args, **settings))
    block = block_of([2, 1, 3], 6)
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()

    def gradient(how: Any) -> torch.Tensor:
        return torch.autograd.grad(aggregate(block, x, how).sin().sum(), x)[0]

    with kernels_of(EmulatedDevice()):
        with torch.no_grad():
            aggregate(block, x)
        assert not sorts
        for how in HOW:
            gradient(how)
        assert len(sorts) == 1
        block.indices[0] = (block.indices[0] + 1) % 6
        changed, source = gradient("mean"), int(block.indices[0])
        assert len(sorts) == 2
        out = aggregate(block, x, "sum")
        block.indices[0] = 0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
        block.indices[0] = source
        assert torch.equal(changed, gradient("mean"))
    assert torch.equal(changed, gradient("mean"))  # the CPU's


def test_rows_that_are_views_and_rows_behind_those_of_the_block(device: Device) -> None:
    block = BLOCKS["sampled"]
    x = torch.randn(16, block.num_src, generator=torch.Generator().manual_seed(1), device="cpu")
    at_odd_place = torch.cat([torch.zeros(1), x.t().reshape(-1)]).to(device.torch_device)[1:].view(-1, 16)
    further = torch.cat([at_odd_place, at_odd_place]).requires_grad_()
    there_block = there(block, device)
    for how in HOW:
        wanted = aggregate(block, x.t().contiguous(), how)
        with kernels_of(device):
            for rows in (x.to(device.torch_device).t(), at_odd_place, further):
                assert torch.equal(aggregate(there_block, rows, how).cpu(), wanted)
            out = aggregate(there_block, further, how)
            (gradient,) = torch.autograd.grad(out, further, torch.ones(16, device=out.device).expand_as(out))
        assert gradient[: block.num_src].any()
        assert not gradient[block.num_src :].any()


def test_other_dtypes_are_not_taken() -> None:
    assert not takes(torch.zeros(1, dtype=torch.float8_e5m2))
    edges = DeviceEdges(EmulatedDevice(), *(getattr(BLOCKS["hubs"], name) for name in ("indptr", "indices")), 3)
    assert edges.apart().by_source.starts.tolist() == list(range(81))


def trained(model: pl.LightningModule) -> torch.Tensor:
    torch.manual_seed(0)  # of the first weights
    silent = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(accelerator="cpu", max_epochs=1, limit_train_batches=4, limit_val_batches=1, **silent)
    trainer.fit(model, toy_module())
    return torch.cat([parameter.detach().view(-1) for parameter in model.parameters()])


@pytest.mark.matrix
@pytest.mark.parametrize("model", [SAGE, GCN, GAT])
def test_models_learn_the_same(model: Any) -> None:
    device = EmulatedDevice()
    wanted = trained(model(hidden=16, num_layers=2))
    with kernels_of(device):
        learned = trained(model(hidden=16, num_layers=2))
    assert {"aggregate/list_destinations"} <= device.launched
    if model is GAT:  # whose sums are weighted; Adam makes steps of what is next to nothing, too
        torch.testing.assert_close(learned, wanted, rtol=1e-3, atol=1e-3)
    else:
        assert torch.equal(learned, wanted)
