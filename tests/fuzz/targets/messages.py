"""Messages between ranks (pipeline/queue/wire.py): what any process of the same user could send."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.slab import EDGES, NODES, ROWS, SEEDS, Axis, Column, Header
from lightning_gnnload.errors import DeviceShareError, QueueProtocolError
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.ops import HopLayout, SampleLayout
from lightning_gnnload.ops.cuda.launch.shared_memory import MemoryHandle
from lightning_gnnload.pipeline.payload import Payload, Timing
from lightning_gnnload.pipeline.queue import sealed, wire
from lightning_gnnload.pipeline.queue.failure import Failure
from lightning_gnnload.pipeline.queue.streams import Stream, StreamSpec, TrainerPeer
from lightning_gnnload.pipeline.slots import Slot
from tests.fuzz.damage import damage_bytes, damage_json, odd_value

SLOT_BYTES = 4096


def receive(random: Random, folder: Path) -> None:
    """A message is one of ours, field by field, or refused with the descriptors that came along."""
    raw, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = wire.QueueChannel(other)
    num_fds = len(os.listdir("/proc/self/fd"))
    try:
        fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(random.choice([0, 0, 1, 3]))]
        socket.send_fds(raw, [_message(random)], fds)
        for fd in fds:
            os.close(fd)
        try:
            message, received = channel.receive()
            for fd in received:
                os.close(fd)
            _understand(random, message)
        except EOFError:
            pass
        # Fewer, where garbage of what ran before was collected meanwhile.
        assert len(os.listdir("/proc/self/fd")) <= num_fds, "descriptors are left open"
    finally:
        raw.close()
        channel.close()


def unseal(random: Random, folder: Path) -> None:
    """A sealed value is plain and lies within what came, or is refused."""
    value = {
        "weights": {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(5, dtype=torch.bfloat16), "none": torch.ones(0)},
        "lists": [1, 2.5, None, True, "ä", (1, {2, 3}), {4: b"bytes", (5, 6): Path("x")}, torch.float32],
        "arrays": [np.arange(3, dtype=np.int16), np.float64(2.5), torch.device("cpu")],
    }
    whole = sealed.seal(value).array.tobytes()
    length = int.from_bytes(whole[:8], "little")
    way = random.randrange(3)
    if way == 0:
        content = damage_bytes(random, whole)
    else:
        description = json.loads(whole[8 : 8 + length])
        for _ in range(way - 1 or random.choice([0, 1])):
            description = damage_json(random, description)
        said = json.dumps(description).encode()
        begin = -(-(8 + length) // 64) * 64
        content = (len(said).to_bytes(8, "little") + said).ljust(-(-(8 + len(said)) // 64) * 64, b"\0") + whole[begin:]
    file = MemoryFile.create("fuzz", len(content))
    file.array[:] = np.frombuffer(content, np.uint8)
    _use(sealed.unseal(file), len(content))


def _use(value: Any, num_bytes: int) -> None:
    assert (
        isinstance(
            value, dict | list | tuple | set | str | bytes | int | float | Path | torch.Tensor | np.generic | np.ndarray
        )
        or value is None
        or type(value) in (torch.dtype, torch.device)
    )
    if isinstance(value, torch.Tensor | np.ndarray):
        assert value.nbytes <= num_bytes
        repr(value.sum() if isinstance(value, np.ndarray) else value.clone())
    for part in (*value.keys(), *value.values()) if isinstance(value, dict) else value if type(value) is list else ():
        _use(part, num_bytes)


def _message(random: Random) -> bytes:
    kind = random.choice([*wire.KINDS, "batch", "batch"])
    payload = _payload()
    if random.randrange(3) == 0:
        payload["schema"] = json.dumps(damage_json(random, json.loads(payload["schema"])))
    values = {int: 5, float: 2.5, str: "ä\0\n", dict: payload, list: [[2, 9, 3], [4, 5, 1]], bool: True}
    message: Any = {"kind": kind, **{name: values[wanted] for name, wanted in wire.KINDS[kind].items()}}
    way = random.randrange(10)
    if way == 0:
        return random.randbytes(random.choice([0, 1, 2, 10, 200]))
    if way < 6:
        for _ in range(random.choice([1, 1, 2])):
            message = damage_json(random, message)
    elif way == 6:
        message = odd_value(random)
    data = json.dumps(message).encode(random.choice(["utf-8", "utf-8", "utf-16", "utf-32"]))
    return damage_bytes(random, data) if way in (7, 8) else data


def _payload() -> dict[str, Any]:
    layout = SampleLayout(5, (HopLayout(2, 3, 4, 3008, 3072, 3136), HopLayout(3, 5, 6, 2944, 2880, 2752)), 64, 2688)
    some, of_type, times, ends = Axis("node", part=0), Axis("edge", part=1), Axis("row", part=0), Axis("row", part=1)
    columns = (
        Column(NODES, "x", "float32", width=(3,)),
        Column(NODES, "tables", "int8", "age", (1,)),
        Column(some, "positions", "int64"),
        Column(some, "tables", "float16", "paper", (2,)),
        Column(EDGES, "x", "float32", width=(2,)),
        Column(of_type, "positions", "int64"),
        Column(of_type, "tables", "int64", "when"),
        Column(SEEDS, "y", "int64"),
        Column(ROWS, "y", "float32"),
        Column(times, "seed_columns", "int64", "time"),
        Column(ends, "seed_columns", "int64", "src"),
    )
    of_hops = {Axis("edge", hop, 1): 2 + hop for hop in range(2)}
    lengths = {NODES: 5, some: 3, EDGES: 10, of_type: 5, ROWS: 2, times: 2, ends: 4, **of_hops}
    header, _ = Header.place(layout, 2, 2, 3, columns, lengths)
    return Payload(header, Timing(1, "t", 9.5, 0.5, 0.25, 0.5)).to_json()


def _understand(random: Random, message: wire.Message) -> None:
    """What the receiver makes of it."""
    kind = message["kind"]
    assert message.keys() == {"kind", *wire.KINDS[kind]}
    assert all(type(message[name]) is wanted for name, wanted in wire.KINDS[kind].items())
    if kind == "batch":
        payload = Payload.from_json(message["payload"])
        slot = Slot(SLOT_BYTES)
        batch = payload.view(slot.buffer())
        assert payload.header.end <= SLOT_BYTES, "a device's slot is copied so far"
        copied = torch.frombuffer(slot.buffer(), dtype=torch.uint8)[: payload.header.end].clone()
        with suppress(QueueProtocolError):  # numbers that lie across two of a device's
            assert torch.equal(payload.view(copied).nodes, batch.nodes)
        with suppress(DeviceShareError):
            MemoryHandle.from_values(message["memory_handle"])
        assert batch.seeds.numel() <= batch.nodes.numel() <= SLOT_BYTES
        named = (*batch.tables.values(), *batch.positions.values())
        of_edges = (tensor for block in batch.blocks for tensor in (block.indices, block.edge_ids, block.x))
        for tensor in (batch.nodes, batch.x, batch.y, *named, *of_edges):
            if tensor is not None:
                tensor.clone()
        slot.close()
    elif kind == "open":
        StreamSpec(**{name: message[name] for name in StreamSpec.__dataclass_fields__})
    elif kind == "deal":
        trainer = TrainerPeer(channel=None, index=0, rank=0)  # type: ignore[arg-type]
        stream = Stream(trainer, 0, StreamSpec("train", 0, 0, 0, 2, 9))
        stream.add(message["steps"])
        assert all(2 <= step < 9 for step in stream.steps)
    elif kind == "failed":
        assert str(Failure.from_message(message).error())
