"""Fetching an archive: over a connection that names its server, of the length that was announced, with its checksum."""

from __future__ import annotations

import hashlib
import shutil
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from lightning_gnnload.errors import DatasetError
from lightning_gnnload.host.progress import progress

_TIMEOUT_S = 30  # without a byte
_CHUNK_BYTES = 1 << 20
MOST_INFLATED = 1032  # bytes that deflate packs into one, at the very most


class _NoPlainRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https alone: after one to http, anyone on the way could answer."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not newurl.startswith("https:"):
            raise DatasetError(
                f"{req.full_url} leads to {newurl}, which is not encrypted, so that anyone on the way could change "
                f"what comes. It is not followed."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(url: str, file: Path, sha256: str | None = None) -> str:
    """Downloads a file, with a bar on stderr, and returns its SHA-256; raises DatasetError where it ended early, has
    not the checksum ``sha256``, or an ``https:`` address leads to a plain one."""
    handlers = [_NoPlainRedirects] if url.startswith("https:") else []
    digest, num_bytes = hashlib.sha256(), 0
    with urllib.request.build_opener(*handlers).open(url, timeout=_TIMEOUT_S) as reply, open(file, "xb") as out:
        length = reply.headers.get("Content-Length")
        with progress(f"Downloading {file.name}", None if length is None else int(length)) as advance:
            while chunk := reply.read(_CHUNK_BYTES):
                out.write(chunk)
                digest.update(chunk)
                num_bytes += len(chunk)
                advance(len(chunk))
    if length is not None and num_bytes != int(length):
        raise DatasetError(f"{url} ended after {num_bytes} of {length} bytes. Fetch it again.")
    checksum = digest.hexdigest()
    if sha256 is not None and checksum != sha256.lower():
        raise DatasetError(
            f"{url} gave a file with SHA-256 {checksum}, but {sha256} was asked for. It was not unpacked: it is "
            f"another release, or not what it claims to be."
        )
    return checksum


def unpack(archive: Path, target: Path, folder: str) -> None:
    """Unpacks a zip archive whose files all lie in one folder, to ``target / folder``; raises DatasetError where it
    holds files elsewhere, or claims to hold more than can be in it, or than the disk has room for."""
    with zipfile.ZipFile(archive) as packed:
        num_bytes = sum(member.file_size for member in packed.infolist())
        for member in packed.infolist():
            if member.filename.split("/")[0] != folder or ".." in member.filename.split("/") or "\\" in member.filename:
                raise DatasetError(f"{archive.name} holds {member.filename!r}, which is not in the folder {folder!r}.")
        # A zip bomb ends here, before it fills the disk.
        most = min(MOST_INFLATED * archive.stat().st_size, shutil.disk_usage(target).free)
        if num_bytes > most:
            raise DatasetError(
                f"{archive.name} claims to hold {num_bytes:,} bytes, but at most {most:,} can be in it and have room "
                "on the disk. Make room, or fetch it again."
            )
        packed.extractall(target)
