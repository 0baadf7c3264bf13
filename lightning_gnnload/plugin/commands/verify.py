"""``gnnload verify``: reads a folder of graph, features or parts, and compares it with its checksums."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lightning_gnnload.errors import GnnLoadError, StoreFormatError
from lightning_gnnload.host.progress import progress
from lightning_gnnload.plugin.commands.arguments import Parser
from lightning_gnnload.storage.damage import check_folder
from lightning_gnnload.storage.manifest import CHECKSUM, MANIFEST
from lightning_gnnload.storage.open_folder import OpenFolder

_EPILOG = """
Every byte is read once. Damage is named by file, array and stretch, of 16 MiB each; folders that were written before
stretches had checksums name the array alone. The exit status is 0 if all is as it was written, 1 if something is not,
and 2 if FOLDER is none of this package.
"""


def main(arguments: Sequence[str]) -> int:
    """Compares a folder with its checksums; returns the exit code."""
    parser = Parser("gnnload verify", description=__doc__, epilog=_EPILOG)
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="of a graph, features or a partition, as gnnload build, save_graph_data and others write them",
    )
    options = parser.parse_args(arguments)
    console = Console()
    try:
        with OpenFolder(options.folder) as folder:
            return _verify(folder, console)
    except GnnLoadError as error:
        console.print(f"gnnload verify: {type(error).__name__}: {error}", markup=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        console.print("gnnload verify: interrupted; what is printed above was checked.")
        return 130


def _verify(folder: OpenFolder, console: Console) -> int:
    num_arrays = num_damaged = num_bytes = 0
    with progress(f"Reading {folder.path}", _size_bytes(folder)) as advance:
        for finding in check_folder(folder, advance):
            # Files of one version beside checksums of another look like damage.
            if finding.error is not None and folder.is_replaced:
                raise StoreFormatError(f"{folder.path} was replaced while it was read. Verify it again.")
            num_arrays, num_bytes = num_arrays + 1, num_bytes + finding.size_bytes
            num_damaged += finding.error is not None
            result_text = "sound" if finding.error is None else f"DAMAGED: {finding.error}"
            file = finding.file.relative_to(folder.path)
            console.print(
                f"{file}, {finding.size_bytes:,} bytes: {result_text}", markup=False, highlight=False, soft_wrap=True
            )
    if CHECKSUM not in json.loads(folder.manifest_bytes):
        console.print(f"{MANIFEST} has no checksum of its own, as of old: what it says could not be compared.")
    result = f"{num_damaged} of them damaged" if num_damaged else "all as they were written"
    console.print(f"{folder.path}: {num_arrays} arrays, {num_bytes:,} bytes, {result}.", markup=False, soft_wrap=True)
    return 1 if num_damaged else 0


def _size_bytes(folder: OpenFolder) -> int:
    """The bytes to read, as far as the files are sound."""
    total = 0
    for name in folder.manifest["arrays"]:
        try:
            total += folder.array(name).size_bytes
        except StoreFormatError:  # which the check says
            continue
    for name in folder.parts:
        try:
            with OpenFolder(name, folder) as part:
                total += _size_bytes(part)
        except StoreFormatError:
            continue
    return total
