"""Ways to owners: by the scheme of an address, the front that serves there, and the connection to it."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from lightning_gnnload.errors import AddressError, MissingExtraError
from lightning_gnnload.owners.address import GRPC, GRPC_TLS, TCP, TLS, Address
from lightning_gnnload.owners.connection import Connection
from lightning_gnnload.owners.front import Front
from lightning_gnnload.owners.owner import Owner
from lightning_gnnload.owners.tcp import TcpConnection, TcpFront

AUTHORITY_FILE = "GNNLOAD_AUTHORITY_FILE"
"""The environment variable of the PEM file that vouches for owners' certificates; without it, the system's files do."""


class Certificate(NamedTuple):
    """Names the PEM files of an owner's certificate and of its key."""

    file: Path
    key: Path


def open_front(
    owner: Owner,
    address: Address,
    secret: bytes,
    certificate: Certificate | None = None,
    on_stranger: Callable[[str], object] = lambda why: None,
) -> Front:
    """Serves an owner at an address, until the front is closed.

    Args:
        owner: who answers.
        address: whose scheme says how; port 0: any that is free.
        secret: as :func:`.find_secret` returns it.
        certificate: for ``tls://`` and ``grpc+tls://``.
        on_stranger: is told of who was turned away, and why; for a log.

    Raises:
        AddressError: nobody can listen there, or the certificate is missing, broken or of no use.
        MissingExtraError: the address is for Arrow Flight, which is not installed.
    """
    is_encrypted = address.scheme in (TLS, GRPC_TLS)
    if is_encrypted and certificate is None:
        raise AddressError(
            f"{address} needs a certificate of this machine and its key, PEM files: gnnload own --certificate FILE "
            "--key FILE."
        )
    if certificate is not None and not is_encrypted:
        raise AddressError(
            f"{address} is served without TLS, but a certificate is named. Listen at tls://HOST:PORT or "
            "grpc+tls://HOST:PORT, or name no certificate."
        )
    context = contents = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(*certificate)
            contents = (certificate.file.read_bytes(), certificate.key.read_bytes())
        except OSError as error:
            raise AddressError(
                f"the certificate {certificate.file} and the key {certificate.key} cannot be used: {error}. Give PEM "
                "files, of which one is the other's key."
            ) from error
    if address.scheme in (TCP, TLS):
        return TcpFront(owner, address.host, address.port, secret, tls=context, on_stranger=on_stranger)
    with _explain_missing():
        from lightning_gnnload.owners.flight.front import FlightFront
    return FlightFront(owner, address.host, address.port, secret, certificate=contents, on_stranger=on_stranger)


def open_connection(address: Address, secret: bytes, connect_s: float, deadline_s: float) -> Connection:
    """Connects to an owner; over TLS, only to one for whose certificate ``GNNLOAD_AUTHORITY_FILE`` vouches, or the
    system's own authorities.

    Raises:
        StrangerError: the owner has another secret.
        AddressError: the authority's file cannot be read.
        MissingExtraError: the address is for Arrow Flight, which is not installed.
        OSError: no owner listens there, or it is late, or nobody vouches for it.
    """
    authority = os.environ.get(AUTHORITY_FILE) if address.scheme in (TLS, GRPC_TLS) else None
    try:
        if address.scheme == GRPC or address.scheme == GRPC_TLS:
            content = Path(authority).read_bytes() if authority else None
        else:
            context = ssl.create_default_context(cafile=authority or None) if address.scheme == TLS else None
    except OSError as error:
        raise AddressError(f"{AUTHORITY_FILE}={authority} cannot be read: {error}. Name a PEM file.") from error
    if address.scheme in (TCP, TLS):
        return TcpConnection(address, secret, connect_s, deadline_s, context)
    with _explain_missing():
        from lightning_gnnload.owners.flight.connection import FlightConnection
    return FlightConnection(address, secret, connect_s, deadline_s, content)


@contextmanager
def _explain_missing() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise MissingExtraError("pyarrow", "flight", "An address that begins with grpc", error) from error
