"""What travels between scripts: it comes back as it was, or is refused at either end."""

import fcntl
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.pipeline.queue.sealed import NotPlainError, adopt_sealed, seal, unseal

DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64]
DTYPES += [torch.float8_e4m3fn, torch.uint16]


def there_and_back(value):
    file = seal(value)
    try:
        return unseal(file)
    finally:
        file.close()


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -(10**30), 0.1, float("inf"), "ä\ud800\0", b"\xff\0", Path("a/b"), torch.bfloat16),
        *([], [1, [2.5, None]], (1, "two"), {3, "a"}, {"a": {1: (2,), (3, 4): [5]}, None: False}),
        *(torch.device("cpu"), np.float64(1.5), np.int8(-3)),
    ],
)
def test_a_plain_value_comes_back_as_it_was(value) -> None:
    found = there_and_back([value])[0]
    assert found == value
    assert type(found) is type(value)


def test_nan_comes_back() -> None:
    assert np.isnan(there_and_back(float("nan")))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)], ids=str)
def test_a_tensor_comes_back_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    bits = torch.arange(num_bytes, dtype=torch.uint8).remainder(2)
    tensor = bits.view(dtype).reshape(shape)
    found = there_and_back({"t": tensor})["t"]
    assert (found.dtype, found.shape) == (dtype, tensor.shape)
    assert torch.equal(found.reshape(-1).view(torch.uint8), bits)


def test_strides_conjugates_and_gradients_do_not_matter() -> None:
    weight = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    lazily = torch.view_as_complex(torch.arange(4.0).view(2, 2)).conj()
    given = [weight.detach().t(), (weight * 2)[:, ::2], lazily, np.arange(6)[::-2], np.arange(4.0).reshape(2, 2).T]
    for before, after in zip(given, there_and_back(given), strict=True):
        assert (before == after).all()


def test_what_occurs_twice_is_sent_once_and_is_one_again() -> None:
    tensor = torch.ones(1000)
    file = seal([tensor, {"again": tensor}])
    first, second = unseal(file)
    assert first is second["again"]
    assert len(file.array) < 2 * tensor.nbytes


def test_tensors_can_be_written_to_and_nobody_else_sees_it() -> None:
    file = seal(torch.zeros(4))
    unseal(file).fill_(1)
    assert unseal(file).sum() == 0


class Meter(dict):
    """A subclass: it would come back as a dict."""


@pytest.mark.parametrize(
    "value",
    [
        *(object(), Meter(), [lambda: 0], {"a": {1: object()}}, torch.nn.Parameter(torch.ones(1)), range(3)),
        *(torch.eye(3).to_sparse(), torch.ones(2, device="meta"), np.array(["a"]), np.array([None])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_plain_is_refused(value) -> None:
    with pytest.raises(NotPlainError):
        seal([value])


def test_a_value_that_is_in_itself_is_refused() -> None:
    value: list = []
    value.append(value)
    with pytest.raises(NotPlainError, match="in itself"):
        seal(value)


def damaged(change) -> MemoryFile:
    """Two tensors of 64 bytes, with the description changed."""
    description = {"value": [{"tensor": 0}, {"tensor": 1}], "tensors": [["float32", [16], 0], ["int64", [8], 64]]}
    change(description)
    data = json.dumps(description).encode()
    file = MemoryFile.create("test", 512)
    file.array[: 8 + len(data)] = np.frombuffer(len(data).to_bytes(8, "little") + data, np.uint8)
    return file


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(value=[{"tensor": 2}]),
        lambda d: d.update(value=[{"tensor": -1}]),
        lambda d: d.update(value=[{"tensor": True}]),
        lambda d: d.update(value={"pickle": "x"}),
        lambda d: d.update(value={"tuple": [], "set": []}),
        lambda d: d.update(value={}),
        lambda d: d.update(value={"dict": [[[], 1]]}),
        lambda d: d.update(value={"dict": [[1]]}),
        lambda d: d.update(value={"bytes": "?"}),
        lambda d: d.update(value={"device": "moon"}),
        lambda d: d.update(extra=1),
        lambda d: d.pop("tensors"),
        lambda d: d["tensors"][1].__setitem__(2, 0),  # in the other
        lambda d: d["tensors"][1].__setitem__(2, 72),  # not aligned
        lambda d: d["tensors"][0].__setitem__(2, -64),
        lambda d: d["tensors"][1].__setitem__(2, 1 << 40),
        lambda d: d["tensors"][1].__setitem__(1, [1 << 62, 4]),
        lambda d: d["tensors"][1].__setitem__(1, [0, 1 << 80]),
        lambda d: d["tensors"][1].__setitem__(1, [-1, -8]),
        lambda d: d["tensors"][1].__setitem__(1, [8.0]),
        lambda d: d["tensors"][1].__setitem__(0, "object"),
        lambda d: d["tensors"][1].__setitem__(0, ["int64"]),
    ],
)
def test_a_malformed_description_is_an_error_of_ours(change) -> None:
    unseal(damaged(lambda d: None))
    with pytest.raises(QueueProtocolError, match="malformed value"):
        unseal(damaged(change))


@pytest.mark.parametrize("content", [b"", b"\0" * 7, b"\xff" * 64, (56).to_bytes(8, "little") + b"[" * 56])
def test_what_has_no_description_is_an_error_of_ours(content: bytes) -> None:
    file = MemoryFile.create("test", len(content))
    file.array[:] = np.frombuffer(content, np.uint8)
    with pytest.raises(QueueProtocolError, match="malformed value"):
        unseal(file)


def test_memory_that_could_still_change_its_size_is_refused_and_closed() -> None:
    fd = os.memfd_create("gnnload-test", os.MFD_ALLOW_SEALING)
    os.truncate(fd, 64)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with pytest.raises(QueueProtocolError, match="malformed value"):
        adopt_sealed(fd, 64)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
