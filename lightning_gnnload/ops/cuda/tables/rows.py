"""How kernels move rows: of any size and dtype, at any address, on the device or in mapped memory of the host."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ....errors import GnnLoadError
from ..launch.device import Device, Mapped

MOVE_THREADS = 256  # of a block that moves rows or sums (kernels/common/cuda)
_WARPS = MOVE_THREADS // 32
_BLOCKS_A_PROCESSOR = 8
# Moved by a warp at a time: enough to hide the look-up of rows, and little enough to share out small batches.
_WARP_BYTES = 4096
# A warp counts the vectors of 32 rows in 32 bits, and a vector may be a single byte.
_MAX_ROW_BYTES = 1 << 26
_FORMATS = {
    None: "lg::AsBytes",
    torch.float32: "lg::Float32",
    torch.float16: "lg::Float16",
    torch.bfloat16: "lg::BFloat16",
}
_VECTORS = {16: "uint4", 8: "uint2", 4: "uint32_t", 2: "uint16_t", 1: "uint8_t"}

Table = torch.Tensor | Mapped


def blocks_on_bus(device: Device) -> int:
    """Returns how many blocks read the host's memory: one a processor, which keeps the line full, and leaves room for
    others (an H200)."""
    return device.num_processors


def scan_tiles(count: int) -> int:
    """Returns the number of tiles of a sum over so many items (kernels/common/cuda/scan.h)."""
    return max(-(-count // MOVE_THREADS), 1)


def scan_blocks(device: Device, tiles: int) -> int:
    """Returns the number of blocks that share the tiles of a sum."""
    return min(tiles, device.num_processors * _BLOCKS_A_PROCESSOR)


class RowCodes(NamedTuple):
    """Rows of 8-bit codes, decoded as they are gathered: ``code * scale + offset``, as :func:`.ops.gather_quantized`
    does it, bit for bit. Kernels take the columns as ``Columns`` (``kernels/gather_quantized/row_codes.h``)."""

    scale: torch.Tensor | None = None  # float32 [F], on the device
    offset: torch.Tensor | None = None
    dtype: torch.dtype | None = None  # of the decoded rows: float32, float16 or bfloat16; None: rows stay as they are

    @property
    def format(self) -> str:
        """The format of what is written, in kernels."""
        return _FORMATS[self.dtype]

    @property
    def itemsize(self) -> int:
        """The bytes that are written for each that is read."""
        return 1 if self.dtype is None else self.dtype.itemsize


AS_BYTES = RowCodes()


class MoveShape(NamedTuple):
    """How rows are moved: ``MoveShape`` of ``kernels/common/cuda/move_rows.h``, and its launch."""

    vector: str  # type of the parts of a row
    row_vectors: int  # parts of a row
    rows_a_warp: int  # at a time
    blocks: int  # of the launch


def move_shape(
    device: Device, count: int, row_bytes: int, *sources: int, to: int, codes: RowCodes = AS_BYTES
) -> MoveShape:
    """Chooses how ``count`` rows of ``row_bytes`` are moved from addresses of ``sources`` to ``to`` and on: by the
    widest vectors whose size divides a row and all of them."""
    if row_bytes >= _MAX_ROW_BYTES:
        raise GnnLoadError(f"rows have {row_bytes} bytes, but rows below {_MAX_ROW_BYTES} bytes are needed.")
    # Vector loads must be aligned to their width, or the kernel faults; one odd address makes all of them narrow. What
    # is written of codes is several times as wide.
    vector = min(alignment_of(row_bytes, *sources), max(alignment_of(to) // codes.itemsize, 1), max(_VECTORS))
    if codes.dtype is not None:
        vector = 4 if vector >= 4 else 1  # four codes at a time fill 16 bytes
    # Each lane looks one row up, so 32 at most.
    rows_a_warp = min(max(_WARP_BYTES // row_bytes, 1), 32)
    blocks = min(-(-count // (rows_a_warp * _WARPS)), device.num_processors * _BLOCKS_A_PROCESSOR)
    return MoveShape(_VECTORS[vector], row_bytes // vector, rows_a_warp, blocks)


def alignment_of(*numbers: int) -> int:
    """Returns the largest power of two up to 256 that divides all numbers."""
    joined = 256
    for number in numbers:
        joined |= number
    return joined & -joined


def as_bytes_of(table: Table) -> torch.Tensor | int:
    """Views rows of any dtype as bytes, as kernels take them."""
    return table.address if isinstance(table, Mapped) else table.reshape(-1).view(torch.uint8)


def address_of(table: Table) -> int:
    """Returns what a kernel takes as the address of a table."""
    return table.address if isinstance(table, Mapped) else table.data_ptr()


def shape_of(table: Table) -> torch.Size:
    """Returns the shape of a table, wherever it lies."""
    return (table.tensor if isinstance(table, Mapped) else table).shape


def row_bytes_of(rows: torch.Tensor) -> int:
    """Returns the bytes of one row."""
    if rows.ndim not in (1, 2) or not rows.is_contiguous():
        raise GnnLoadError(f"rows are {form_of(rows)}, but must be contiguous, of one or two dimensions.")
    return rows.element_size() * (rows.shape[1] if rows.ndim == 2 else 1)


def check_tensor(name: str, numbers: torch.Tensor, dtype: torch.dtype, ndim: int) -> None:
    """Raises GnnLoadError where a tensor has another dtype or number of dimensions, or gaps."""
    if numbers.dtype != dtype or numbers.ndim != ndim or not numbers.is_contiguous():
        raise GnnLoadError(f"{name} is {form_of(numbers)}, but contiguous {dtype} of {ndim} dimension(s) is needed.")


def form_of(rows: torch.Tensor) -> str:
    """Returns the dtype and shape of rows, for messages."""
    return f"{rows.dtype} of shape {list(rows.shape)}"
