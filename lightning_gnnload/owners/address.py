"""Addresses of owners, and the secret that owners and their clients share."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from lightning_gnnload.errors import OwnerConfigError

SECRET_FILE, SECRET = "GNNLOAD_SECRET_FILE", "GNNLOAD_SECRET"
"""The environment variables that name the secret's file, or hold the secret."""
_FEWEST_BYTES = 16
SCHEMES = ("tcp", "grpc", "grpc+tls")


class Address(NamedTuple):
    """Where an owner listens, and how it is talked to: ``"tcp"``, ``"grpc"`` or ``"grpc+tls"``.

    Example:
        >>> Address.parse("10.0.0.2:7500")
        Address(scheme='tcp', host='10.0.0.2', port=7500)
        >>> str(Address.parse("grpc://[::1]:7500"))
        'grpc://[::1]:7500'
    """

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads ``[SCHEME://]HOST:PORT``. Raises OwnerConfigError: it is none."""
        scheme, _, rest = text.rpartition("://")
        host, _, port = rest.rpartition(":")
        scheme, host = scheme or "tcp", host.removeprefix("[").removesuffix("]")
        if scheme not in SCHEMES or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise OwnerConfigError(
                f"{text!r} is no address of an owner. Give HOST:PORT, as `gnnload own` prints it, or grpc://HOST:PORT."
            )
        return cls(scheme, host, int(port))

    @property
    def place(self) -> str:
        """``HOST:PORT``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.place if self.scheme == "tcp" else f"{self.scheme}://{self.place}"


def find_secret(file: str | os.PathLike[str] | None = None) -> bytes | None:
    """Returns the secret that a file holds, this one or the environment's, or the environment itself; None where
    nothing names one.

    Raises:
        OwnerConfigError: the file cannot be read, others than its owner can read it, or the secret is short.
    """
    file = file or os.environ.get(SECRET_FILE)
    if file is not None:
        return _read(Path(file))
    text = os.environ.get(SECRET)
    return None if text is None else _checked(text.strip().encode(), SECRET)


def make_secret(file: str | os.PathLike[str]) -> bytes:
    """Writes a new secret to a file that only this user can read, and returns it. Raises OwnerConfigError: it cannot be
    written, or is there."""
    secret = os.urandom(32).hex().encode()
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(secret + b"\n")
    except OSError as error:
        raise OwnerConfigError(f"the secret cannot be written to {file}: {error.strerror}.") from error
    return secret


def _read(file: Path) -> bytes:
    try:
        with open(file, "rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            secret = opened.read(4096).strip()
    except OSError as error:
        raise OwnerConfigError(f"the secret's file {file} cannot be read: {error.strerror}.") from error
    if stat.S_ISREG(mode) and mode & 0o077:
        raise OwnerConfigError(
            f"{file} holds a secret, but users other than its owner can read or write it (mode {mode & 0o777:o}). "
            f"Run chmod 600 {file}, and make another secret if they may have."
        )
    return _checked(secret, str(file))


def _checked(secret: bytes, where: str) -> bytes:
    if len(secret) < _FEWEST_BYTES:
        raise OwnerConfigError(
            f"the secret in {where} has {len(secret)} bytes, but at least {_FEWEST_BYTES} are needed. Make one by "
            "`openssl rand -hex 32`, or let `gnnload own` write it."
        )
    return secret
