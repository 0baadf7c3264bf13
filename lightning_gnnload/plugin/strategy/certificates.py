"""Certificates of samplers that serve other machines, by which what they send is encrypted.

No authority is asked: a sampler says in the job's store which certificate it has, and the key by which both ends prove
to know the user's secret is derived from that, too. Who changes the store, or stands between the machines with a
certificate of its own or none, has another key than the sampler.

Source: RFC 5929, section 4 (the certificate as what binds a channel).
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import NamedTuple

from lightning_gnnload.errors import AddressError, QueueProtocolError

CERTIFICATE_FILE, KEY_FILE = "GNNLOAD_CERTIFICATE_FILE", "GNNLOAD_KEY_FILE"
"""The environment variables of the PEM files of the certificate, and of its key."""
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_MOST_BYTES = 1 << 16


class ServedCertificate(NamedTuple):
    """What a sampler serves with, and the certificate as the trainers are told it, PEM."""

    context: ssl.SSLContext
    text: str


def is_wanted() -> bool:
    """Whether this machine's environment names a certificate, so that nothing is to be sent in the clear."""
    return bool(os.environ.get(CERTIFICATE_FILE))


def load_certificate() -> ServedCertificate | None:
    """Loads what the environment names; None where it names nothing. AddressError: it cannot be used."""
    file, key = os.environ.get(CERTIFICATE_FILE), os.environ.get(KEY_FILE)
    if not file and not key:
        return None
    if not file or not key:
        raise AddressError(f"{CERTIFICATE_FILE} and {KEY_FILE} go together: name the PEM files of both, or neither.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(file, key)
        text = _first(Path(file).read_text(errors="replace"))
    except (OSError, ValueError) as error:
        raise AddressError(
            f"{CERTIFICATE_FILE}={file} and {KEY_FILE}={key} cannot be used: {error}. Give PEM files of a certificate "
            "and of its key."
        ) from error
    return ServedCertificate(context, text)


def trusting(text: str) -> ssl.SSLContext:
    """Returns what connects to who has this certificate, and to nobody else. QueueProtocolError: it is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # it is known whole, so that the name in it says nothing more
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # one that an authority has signed, too, without that
    try:
        context.load_verify_locations(cadata=_first(text))
    except (ssl.SSLError, ValueError) as error:
        raise QueueProtocolError(f"the job's store says {text!r:.200}, which is no certificate: {error}") from error
    return context


def _first(text: str) -> str:
    """The first certificate of a file, which is the holder's. Raises ValueError: there is none."""
    begin = text[:_MOST_BYTES].index(_BEGIN)
    return text[begin : text.index(_END, begin, begin + _MOST_BYTES) + len(_END)]
