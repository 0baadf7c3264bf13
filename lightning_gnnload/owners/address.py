"""Addresses of owners, and the secret by which owners and their clients know each other."""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lightning_gnnload.errors import AddressError, SecretError

SECRET, SECRET_FILE = "GNNLOAD_SECRET", "GNNLOAD_SECRET_FILE"
"""The environment variables of the secret, and of the file that it is in."""
TCP, TLS, GRPC, GRPC_TLS = SCHEMES = "tcp", "tls", "grpc", "grpc+tls"
_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z+]+)://)?(?P<host>\[[0-9a-fA-F:.%\w]+\]|[^\[\]:/\s]+):(?P<port>\d{1,5})")
_LEAST_CHARACTERS = 16
"""A shorter secret could be guessed by who has overheard a greeting."""


@dataclass(frozen=True)
class Address:
    """Where an owner listens: ``HOST:PORT``, ``tls://HOST:PORT``, or ``grpc://`` and ``grpc+tls://``.

    Example:
        >>> Address.parse("10.0.0.2:7500"), str(Address.parse("grpc://[::1]:7500"))
        (Address(scheme='tcp', host='10.0.0.2', port=7500), 'grpc://[::1]:7500')
    """

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads an address. AddressError: it is none."""
        fields = _ADDRESS.fullmatch(text.strip())
        scheme = fields["scheme"] or TCP if fields else ""
        if fields is None or scheme not in SCHEMES or int(fields["port"]) > 65535:
            raise AddressError(
                f"{text!r} is no address of an owner. Give HOST:PORT as gnnload own prints it, 10.0.0.2:7500 or "
                "[::1]:7500; tls://HOST:PORT; or grpc://HOST:PORT, grpc+tls://HOST:PORT for Arrow Flight."
            )
        return cls(scheme, fields["host"].strip("[]"), int(fields["port"]))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'' if self.scheme == TCP else self.scheme + '://'}{host}:{self.port}"


def find_secret(text: str | None = None) -> bytes:
    """Returns the secret: ``text``, of the file that GNNLOAD_SECRET_FILE names, of GNNLOAD_SECRET, or of the user's own
    file, which ``gnnload own`` makes where there is no other.

    Raises:
        SecretError: there is none, it is too short, or others can read its file.
    """
    if text is None and (named := os.environ.get(SECRET_FILE)):
        return read_secret(Path(named))
    if text is None and not (text := os.environ.get(SECRET)):
        if (file := own_secret_file()).exists():
            return read_secret(file)
        raise SecretError(
            f"there is no secret by which owners know who may ask. Set {SECRET_FILE} to a file of yours alone (mode "
            f"600) with the text that the owners were given, or {SECRET} to that text."
        )
    return _checked(text, "the secret")


def read_secret(file: Path, option: str = SECRET_FILE) -> bytes:
    """Reads a secret out of a file of this user's alone, which ``option`` has named. SecretError: it is missing, too
    short, or others' to read."""
    try:
        with open(file, "rb") as opened:
            mode, text = os.fstat(opened.fileno()).st_mode, opened.read(1 << 16)
    except OSError as error:
        raise SecretError(
            f"the secret cannot be read: {error}. Name by {option} a file of yours alone (mode 600), with the text "
            f"that all owners and trainers share: {_LEAST_CHARACTERS} characters or more."
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise SecretError(f"{file} has mode {stat.S_IMODE(mode):o}, so that others may read the secret. chmod 600 it.")
    return _checked(text.decode(errors="replace"), str(file))


def own_secret_file() -> Path:
    """Returns where the user's own secret lies if none is named: below ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    root = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(root) if os.path.isabs(root) else Path.home() / ".config") / "lightning_gnnload" / "secret"


def make_secret(file: Path) -> None:
    """Writes a new secret into a file that only this user can read; one that is there stays. Raises SecretError."""
    draft = file.with_name(f"{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(secrets.token_urlsafe(32) + "\n")
        try:
            # Whole or not at all: of two owners that start at once, both read what the first has linked.
            with suppress(FileExistsError):
                os.link(draft, file)
        finally:
            draft.unlink()
    except OSError as error:
        raise SecretError(f"no secret can be written: {error}. Name one by {SECRET_FILE} or {SECRET}.") from error


def _checked(text: str, name: str) -> bytes:
    secret = text.strip()
    if len(secret) < _LEAST_CHARACTERS:
        raise SecretError(
            f"{name} has {len(secret)} characters, but at least {_LEAST_CHARACTERS} are needed. Make one by "
            "python -c 'import secrets; print(secrets.token_urlsafe(32))'."
        )
    return secret.encode()
