"""A Trainer whose batches are made on a device sees the batches and losses of one whose batches the host makes."""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback, Trainer, seed_everything

from lightning_gnnload import (
    DiskFeatureStore,
    FeatureCache,
    Graph,
    GraphData,
    GraphDataModule,
    NeighborSampler,
    Sampler,
    ShadowSampler,
    save_features,
)
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.data.tables import NodeTable
from lightning_gnnload.errors import (
    CacheConfigError,
    CudaUnavailableError,
    DeviceMemoryError,
    KernelCompileError,
    LoaderConfigError,
    SeedError,
)
from lightning_gnnload.ops.cuda.launch import open_device as opening
from lightning_gnnload.ops.cuda.launch import runtime
from lightning_gnnload.plugin.module.device_tables import DeviceTables
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.plugin.module.trainer_device import why_not_gathered
from tests import guards
from tests.integration.learnable import quiet_trainer
from tests.integration.scripts.toy import Recorder, toy_data, toy_module
from tests.unit.toy import toy_source

from .emulated import EmulatedDevice
from .fake_runtime import FakeRuntime

NUM_STEPS = 20


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """What every trainer's device is opened as."""
    device = EmulatedDevice()
    monkeypatch.setattr(opening, "open_device", lambda of: device)
    return device


def fit(module: GraphDataModule, epochs: int = 2, ckpt_path: Path | None = None, **settings: Any) -> list[list[Any]]:
    seed_everything(3, verbose=False)
    model = Recorder()
    quiet_trainer(max_epochs=epochs, num_sanity_val_steps=1, **settings).fit(model, module, ckpt_path=ckpt_path)
    return model.seen


def test_a_fit_sees_the_same_batches_and_losses(opened: EmulatedDevice) -> None:
    on_host, launches = fit(toy_module()), opened.num_launches
    assert not launches
    on_device = fit(toy_module(sampling_device="cuda"))
    assert on_device == on_host
    assert {seen[0] for seen in on_device} == {"sanity", "train", "val"}
    assert opened.num_launches > 0
    assert not guards.our_threads()


class SaveAndStop(Callback):
    """In mid-epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == NUM_STEPS + 6:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


@pytest.mark.parametrize(("first", "second"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_run_goes_on_in_mid_epoch_on_the_other_side(
    opened: EmulatedDevice, tmp_path: Path, first: str, second: str
) -> None:
    saved = tmp_path / "cut.ckpt"
    fit(toy_module(sampling_device=first), callbacks=[SaveAndStop(saved)], limit_val_batches=0)
    resumed = fit(toy_module(sampling_device=second), ckpt_path=saved, limit_val_batches=0)
    whole = fit(toy_module(sampling_device="cpu"), limit_val_batches=0)
    assert [seen[3:] for seen in resumed] == [seen[3:] for seen in whole[NUM_STEPS + 6 :]]


def test_evaluation_and_prediction_by_themselves(opened: EmulatedDevice) -> None:
    seen = []
    for place in ("cpu", "cuda"):
        seed_everything(3, verbose=False)
        model, module, trainer = Recorder(), toy_module(sampling_device=place), quiet_trainer()
        trainer.validate(model, module, verbose=False)
        trainer.test(model, module, verbose=False)
        predicted = trainer.predict(model, module)
        assert predicted is not None
        seen.append((model.seen, [part.tolist() for part in predicted]))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("batch_format", ["pyg", "dgl"])
def test_other_formats_are_the_same(opened: EmulatedDevice, batch_format: str) -> None:
    pytest.importorskip({"pyg": "torch_geometric", "dgl": "dgl"}[batch_format])
    loaders = [
        GraphDataModule(
            toy_data(), NeighborSampler([4, 3], expand="new"), batch_size=64, batch_format=batch_format, **settings
        ).train_dataloader()
        for settings in ({"sampling_device": "cpu"}, {"sampling_device": "cuda"})
    ]
    for there, here in zip(*loaders, strict=True):
        if batch_format == "pyg":
            assert there.to_dict().keys() == here.to_dict().keys()
            for name, value in there.to_dict().items():
                same = torch.equal(value, here[name]) if isinstance(value, torch.Tensor) else value == here[name]
                assert same, name
            continue
        for mine, other in zip(here[2], there[2], strict=True):
            for frame in ("srcdata", "dstdata", "edata"):
                for name, value in getattr(other, frame).items():
                    assert torch.equal(value, getattr(mine, frame)[name]), name
            assert all(torch.equal(a, b) for a, b in zip(mine.edges(), other.edges(), strict=True))
    assert opened.num_launches > 0


class BoomError(Exception):
    pass


class Raise(Callback):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == 3:
            raise self.error


@pytest.mark.parametrize("error", [BoomError(), KeyboardInterrupt()])
def test_a_fit_that_ends_early_leaves_no_thread_and_no_memory(opened: EmulatedDevice, error: BaseException) -> None:
    free = opened.free_bytes()
    with pytest.raises((BoomError, KeyboardInterrupt, SystemExit)):
        fit(toy_module(sampling_device="cuda"), callbacks=[Raise(error)])
    assert not guards.our_threads()
    assert opened.free_bytes() > free - (1 << 20)


def test_a_sampling_thread_that_fails_ends_the_fit_by_its_own_error(
    opened: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = EmulatedDevice.launch

    def fails(device: EmulatedDevice, *args: Any, **kwargs: Any) -> None:
        if device.num_launches > 100:
            raise KernelCompileError("no kernel any more")
        launch(device, *args, **kwargs)

    monkeypatch.setattr(EmulatedDevice, "launch", fails)
    with pytest.raises(KernelCompileError, match="no kernel any more"):
        fit(toy_module(sampling_device="cuda"), limit_val_batches=0)
    assert not guards.our_threads()


def test_a_seed_that_is_no_node_is_the_same_error(opened: EmulatedDevice) -> None:
    texts = []
    for place in ("cpu", "cuda"):
        module = toy_module(sampling_device=place)
        module.data.train[7] = -1
        with pytest.raises(SeedError) as caught:
            list(module.train_dataloader())
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


# What cannot be: an error with "cuda", one message and the host with "auto".


def on_gpu(module: GraphDataModule) -> GraphDataModule:
    """As if its Trainer computed on a GPU."""
    module._trainer = SimpleNamespace(
        strategy=SimpleNamespace(root_device=torch.device("cuda")),
        world_size=1,
        global_rank=0,
        is_global_zero=True,
        current_epoch=0,
        num_devices=1,
        overfit_batches=0,
        state=SimpleNamespace(status=None),
        progress_bar_callback=None,
    )
    return module


def test_auto_without_a_gpu_is_the_host_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        fit(toy_module(), epochs=1, limit_train_batches=2, limit_val_batches=1)
    assert "sampled" not in caplog.text


def test_auto_with_a_gpu_samples_there(opened: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    module = on_gpu(toy_module(num_threads=1))
    loader = _unpinned(module)
    assert len(list(loader)) == NUM_STEPS
    assert opened.num_launches > 0


def test_auto_says_once_why_it_cannot(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuses(of: torch.device) -> None:
        raise CudaUnavailableError("CuPy is not installed.")

    monkeypatch.setattr(opening, "open_device", refuses)
    module = on_gpu(toy_module())
    for _ in range(2):
        assert len(list(_unpinned(module))) == NUM_STEPS
    assert caplog.text.count("made on the CPU: CuPy is not installed.") == 1


def test_cuda_without_a_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # also where there is one
    module = toy_module(sampling_device="cuda")
    with pytest.raises(CudaUnavailableError):
        next(iter(module.train_dataloader()))
    with pytest.raises(CudaUnavailableError, match="the Trainer computes on cpu"):
        fit(toy_module(sampling_device="cuda"), limit_val_batches=0)


def test_a_dgl_without_cuda_makes_its_blocks_on_the_host(
    opened: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dgl = pytest.importorskip("dgl")
    made, module = dgl.create_block, on_gpu(toy_module(batch_format="dgl"))

    def refuses(graph: Any, **options: Any) -> Any:
        if options["num_src_nodes"] == 1:
            raise dgl.DGLError("Check failed:\nDevice API cuda is not enabled.")
        return made(graph, **options)

    monkeypatch.setattr(dgl, "create_block", refuses)
    assert len(list(_unpinned(module))) == NUM_STEPS
    assert "makes no blocks on cpu (Device API cuda is not enabled.)" in caplog.text
    assert not opened.num_launches


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(LoaderConfigError, match="sampling_device='gpu' is not known"):
        toy_module(sampling_device="gpu")


# Caches on the device.


def cached(device: str, **settings: Any) -> FeatureCache:
    return FeatureCache("degree", ratio=0.2, device=device, **settings)


@pytest.mark.parametrize("sampler", [NeighborSampler([4, 3]), ShadowSampler([4, 3], num_layers=2)], ids=repr)
def test_a_cache_on_the_device_changes_no_loss(opened: EmulatedDevice, sampler: Sampler) -> None:
    """Nor does it where the host draws, as no device can draw like LABOR."""
    seen = []
    for place in ("cpu", "cuda"):
        module = GraphDataModule(toy_data(), sampler, 16, seed=5, cache=cached(place), sampling_device="cpu")
        if place == "cuda" and isinstance(sampler, NeighborSampler):
            module = GraphDataModule(toy_data(), sampler, 16, seed=5, cache=cached(place), sampling_device="cuda")
        seed_everything(3, verbose=False)
        model, trainer = Recorder(), quiet_trainer(max_epochs=1, limit_val_batches=0)  # whose reads would count as well
        trainer.fit(model, module)
        seen.append(model.seen)
        loader = trainer.train_dataloader
        assert loader is not None
        tiers = {read.tier: read.rows for read in loader.stats.reads}
        assert tiers["cache"] > 0
        assert sum(tiers.values()) == loader.stats.num_nodes
    assert seen[0] == seen[1]
    assert opened.num_launches > 0
    assert not guards.our_threads()


def test_features_that_stay_on_the_host_are_the_same(opened: EmulatedDevice, caplog: pytest.LogCaptureFixture) -> None:
    levels = [cached("auto"), FeatureCache("fifo", ratio=0.2)]
    fits = [
        fit(GraphDataModule(toy_data(), NeighborSampler([4, 3]), 16, cache=levels, sampling_device=place), epochs=1)
        for place in ("cpu", "cuda")
    ]
    assert fits[0] == fits[1]
    assert caplog.text.count("are gathered on the host: of several caches on a device each has a limit") == 1


def test_levels_on_the_device_change_no_loss(opened: EmulatedDevice, caplog: pytest.LogCaptureFixture) -> None:
    levels = [cached("auto"), cached("auto")]
    fits = []
    for place in ("cpu", "cuda"):
        module = GraphDataModule(toy_data(), NeighborSampler([4, 3]), 16, cache=levels, sampling_device=place)
        fits.append(fit(module, epochs=1))
    assert fits[0] == fits[1]
    assert "gathered on the host" not in caplog.text


@pytest.mark.parametrize("near", [cached("auto"), FeatureCache("fifo", ratio=0.2)], ids=repr)
def test_a_cache_of_the_host_behind_the_devices(opened: EmulatedDevice, tmp_path: Path, near: FeatureCache) -> None:
    """Of rows on a disk: what either level has is not read there."""
    data = toy_data()
    save_features(data.x.rows, tmp_path / "x", progress=False)
    fits, read = [], {}
    for behind in ([], [FeatureCache("s3fifo", ratio=0.5, device="cpu")]):
        with closing(DiskFeatureStore(tmp_path / "x")) as disk:
            stored = toy_data()
            stored.put("x", disk)
            module = GraphDataModule(
                stored, NeighborSampler([4, 3]), 16, seed=5, cache=[near, *behind], sampling_device="cuda"
            )
            seed_everything(3, verbose=False)
            model, trainer = Recorder(), quiet_trainer(max_epochs=1, limit_val_batches=0)
            trainer.fit(model, module)
            fits.append(model.seen)
            tiers = {each.tier: each.rows for each in trainer.train_dataloader.stats.reads}
            assert tiers["cache"] > 0
            assert ("cache 2" in tiers) == bool(behind)
            read[len(behind)] = tiers["disk"]
    assert fits[0] == fits[1]
    assert read[1] < 0.7 * read[0]
    assert not guards.our_threads()


def test_a_cache_of_the_host_is_left_out_behind_rows_in_memory(
    opened: EmulatedDevice, caplog: pytest.LogCaptureFixture
) -> None:
    levels = [cached("auto"), FeatureCache("fifo", ratio=0.5, device="cpu")]
    fits = [
        fit(GraphDataModule(toy_data(), NeighborSampler([4, 3]), 16, cache=each, sampling_device="cuda"), epochs=1)
        for each in (levels, levels[0])
    ]
    assert fits[0] == fits[1]
    assert caplog.text.count("behind the device's is left out") == 1


@pytest.mark.parametrize(
    ("behind", "reason"),
    [
        ([FeatureCache("degree", ratio=0.1, device="cpu")], "has to evict"),
        ([FeatureCache("belady", ratio=0.1, device="cpu")], "without a look ahead"),
        ([FeatureCache("fifo", ratio=0.1, device="cpu"), cached("auto")], "there is none on the device"),
    ],
)
def test_levels_that_cannot_lie_behind_the_devices(
    opened: EmulatedDevice, caplog: pytest.LogCaptureFixture, behind: list[FeatureCache], reason: str
) -> None:
    levels = [cached("auto"), *behind]
    fit(GraphDataModule(toy_data(), NeighborSampler([4, 3]), 16, cache=levels, sampling_device="cuda"), epochs=1)
    assert caplog.text.count(reason) == 1


def test_caches_that_have_to_lie_on_the_device_and_cannot_are_refused_there(opened: EmulatedDevice) -> None:
    levels = [FeatureCache("fifo", ratio=0.2, device="cuda"), FeatureCache("s3fifo", ratio=0.2)]
    module = GraphDataModule(toy_data(), NeighborSampler([4, 3]), 16, cache=levels, sampling_device="cuda")
    with pytest.raises(CacheConfigError, match="of several caches on a device each has a limit, and none evicts"):
        fit(module, epochs=1)


def test_ranks_that_share_a_cache_go_to_their_devices_together_or_not_at_all(
    opened: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two ranks as two threads; the second one's device is out of order."""
    membership = [Membership(f"test-{uuid.uuid4().hex}", index, 2, timeout_s=20) for index in range(2)]
    membership = [replace(each, name=membership[0].name) for each in membership]
    rank = threading.local()
    monkeypatch.setattr(GatherGroup, "of", lambda _: SimpleNamespace(membership=lambda _: membership[rank.index]))

    def open_device(of: torch.device) -> EmulatedDevice:
        if rank.index == 1:
            raise CudaUnavailableError("CuPy is not installed.")
        return opened

    monkeypatch.setattr(opening, "open_device", open_device)

    def batches(index: int) -> Any:
        rank.index = index
        module = on_gpu(GraphDataModule(toy_data(), NeighborSampler([4, 3]), 16, cache=cached("auto")))
        source = module.source("train")
        return [module._sampling.batches(module, source, lambda batch: batch) for _ in range(2)]

    with ThreadPoolExecutor(2) as ranks:
        assert list(ranks.map(batches, range(2), timeout=60)) == [[None, None]] * 2
    assert "rank 1 of this machine cannot use its device: CuPy is not installed." in caplog.text


def test_ranks_whose_cache_does_not_open_in_one_of_them_all_go_without(
    opened: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"test-{uuid.uuid4().hex}"
    rank = threading.local()
    membership = [Membership(name, index, 2, timeout_s=20) for index in range(2)]
    monkeypatch.setattr(GatherGroup, "of", lambda _: SimpleNamespace(membership=lambda _: membership[rank.index]))
    closed: list[int] = []

    def open_rows(*_: Any) -> dict[str, Any]:
        if rank.index == 1:
            raise DeviceMemoryError("nothing is free")
        return {}

    monkeypatch.setattr(runtime, "runtime_of", lambda of: FakeRuntime())
    monkeypatch.setattr(DeviceTables, "open", open_rows)
    monkeypatch.setattr(DeviceTables, "close", lambda _: closed.append(rank.index))

    def batches(index: int) -> Any:
        rank.index = index
        module = on_gpu(GraphDataModule(toy_data(), NeighborSampler([4, 3]), 16, cache=cached("auto")))
        return module._sampling.batches(module, module.source("train"), lambda batch: batch)

    with ThreadPoolExecutor(2) as ranks:
        assert list(ranks.map(batches, range(2), timeout=60)) == [None, None]
    assert sorted(closed) == [0, 1]
    assert "rank 1 of this machine cannot use its device: nothing is free" in caplog.text


def test_a_cache_for_a_gpu_needs_one() -> None:
    module = GraphDataModule(toy_data(), NeighborSampler([4, 3]), 16, cache=cached("cuda"))
    with pytest.raises(CudaUnavailableError, match="the Trainer computes on cpu"):
        fit(module, limit_val_batches=0)


def test_a_cache_for_a_gpu_is_not_made_on_the_host(opened: EmulatedDevice, caplog: pytest.LogCaptureFixture) -> None:
    data = toy_data()
    graph = Graph.from_csc(data.graph.indptr, data.graph.indices)
    edged = GraphData(graph, data.x, data.y, data.train, edge_x=np.ones((graph.num_edges, 1), np.float32))
    sampler = NeighborSampler([2], edge_ids=True)
    module = on_gpu(GraphDataModule(edged, sampler, batch_size=16, cache={"x": cached("cuda")}))
    with pytest.raises(CacheConfigError, match=r"'x' must be on a device .* gathered on the host"):
        next(iter(_unpinned(module)))
    assert "tables of edges (edge_x)" in caplog.text


def test_what_only_the_host_can_make(opened: EmulatedDevice, caplog: pytest.LogCaptureFixture) -> None:
    data = toy_data()
    module = GraphDataModule(data, ShadowSampler([4, 3], num_layers=2), batch_size=16, sampling_device="cuda")
    with pytest.raises(LoaderConfigError, match="ShadowSampler has no kernels"):
        next(iter(module.train_dataloader()))
    module = on_gpu(GraphDataModule(data, ShadowSampler([4, 3], num_layers=2), batch_size=16))
    assert len(list(_unpinned(module))) == NUM_STEPS
    assert caplog.text.count("ShadowSampler has no kernels") == 1


def test_what_the_host_gathers_is_named() -> None:
    ends = np.random.default_rng(0).integers(0, 300, (2, 2400))
    graph, train = Graph.from_coo(*ends, num_nodes=300, keep_order=True), np.arange(100)
    plain = GraphData(graph, train=train)
    typed = GraphData(graph, train=train, tables={"paper": NodeTable(np.ones((9, 2), np.float32), 3)})
    edged = GraphData(graph, train=train, edge_x=np.ones((graph.num_edges, 1), np.float32))
    ids = NeighborSampler([2], edge_ids=True)
    assert why_not_gathered(toy_source(plain), "pyg") is None
    assert why_not_gathered(toy_source(plain, sampler=ids), "blocks") is None
    assert why_not_gathered(toy_source(typed), "blocks") is None
    assert "tables of edges (edge_x)" in str(why_not_gathered(toy_source(edged, sampler=ids), "blocks"))
    assert "edge ids of the graph as it was given" in str(why_not_gathered(toy_source(plain, sampler=ids), "pyg"))


def _unpinned(module: GraphDataModule) -> Any:
    """Its loader, on a machine that can page-lock nothing."""
    loader = module.train_dataloader()
    loader._slots.pinned = False
    return loader
