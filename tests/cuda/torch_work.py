"""What torch itself does with an emulated device's memory: work of the current stream, as that of kernels is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .streams import Streams

# What makes the host wait for the current stream, as it reads what the device has computed.
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique", "_unique2")


class TorchWork(TorchDispatchMode):
    """Notes each operation of the calling thread on tensors that the device has allocated, and whose results are its
    own, too."""

    def __init__(self, streams: Streams) -> None:
        super().__init__()
        self._streams = streams

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        reads, writes = _memory(func, args, kwargs)
        if any(map(self._streams.knows, (*reads, *writes))):
            self._note(func.overloadpacket.__name__, reads, writes, list(_tensors(result)))
        return result

    def _note(
        self, name: str, reads: list[torch.Tensor], writes: list[torch.Tensor], results: list[torch.Tensor]
    ) -> None:
        if name == "record_stream":
            return
        given = {tensor.untyped_storage()._cdata for tensor in (*reads, *writes)}
        made = [result for result in results if result.untyped_storage()._cdata not in given and result.numel()]
        if results and not made and not writes:
            return  # a view
        for tensor in made:
            self._streams.allocate(tensor)
        known = self._streams.knows
        self._streams.work(name, list(filter(known, reads)), [*filter(known, writes), *made])
        if name in WAITS:
            self._streams.wait_on_host(self._streams.moment())


def _memory(func: Any, args: tuple, kwargs: dict) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Tensors that an operation reads, and those that it writes."""
    reads: list[torch.Tensor] = []
    writes: list[torch.Tensor] = []
    for number, argument in enumerate(func._schema.arguments):
        value = kwargs.get(argument.name) if number >= len(args) else args[number]
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        (writes if is_written else reads).extend(_tensors(value))
    return reads, writes


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
