"""How the two ends of a call prove to each other that they know the secret, which never travels.

The client's headers carry a number drawn at random and an HMAC of it, without which the call is turned away before
anything of it is read. The answer's headers carry an HMAC of the same number, by which the client knows the owner. And
since headers could be overheard, and sent again, the owner draws a number for each call, of which the client sends an
HMAC before its first request is read.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

from pyarrow import flight

NONCE_BYTES = 32
_HEADER = "gnnload-proof"
"""``NONCE HMAC`` of a call, and ``HMAC`` of its answer, in hexadecimal digits."""


class Doorman(flight.ServerMiddlewareFactory):
    """Turns calls without a proof away, before anything of them is read."""

    def __init__(self, secret: bytes, on_stranger: Callable[[str], object]) -> None:
        self._secret, self._on_stranger = secret, on_stranger

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> _Proven:
        nonce, _, proof = str(headers.get(_HEADER, [""])[0]).partition(" ")
        if len(nonce) != 2 * NONCE_BYTES or not is_proof(
            proof.encode(errors="replace"), self._secret, "connects", nonce.encode(errors="replace")
        ):
            self._on_stranger("a call was turned away: who made it does not know the secret")
            raise flight.FlightUnauthenticatedError("the secret is not known here")
        return _Proven(prove(self._secret, "listens", nonce.encode()).decode())


class _Proven(flight.ServerMiddleware):
    def __init__(self, proof: str) -> None:
        self._proof = proof

    def sending_headers(self) -> dict[str, str]:
        return {_HEADER: self._proof}


class Caller(flight.ClientMiddleware):
    """Proves a client's one call, and looks at what the owner proves."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._nonce = secret, b""
        self.has_met_owner = False

    def sending_headers(self) -> dict[str, str]:
        self._nonce, self.has_met_owner = secrets.token_hex(NONCE_BYTES).encode(), False
        return {_HEADER: f"{self._nonce.decode()} {prove(self._secret, 'connects', self._nonce).decode()}"}

    def received_headers(self, headers: dict[str, list[str]]) -> None:
        proof = str(headers.get(_HEADER, [""])[0]).encode(errors="replace")
        # They come twice, before the answer and behind it: what was proved once stays so.
        self.has_met_owner |= is_proof(proof, self._secret, "listens", self._nonce)


class Callers(flight.ClientMiddlewareFactory):
    """Gives a client's one call its :class:`Caller`."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def start_call(self, info: flight.CallInfo) -> Caller:
        return self._caller


def prove(secret: bytes, role: str, nonce: bytes) -> bytes:
    """Returns the HMAC of a number, in hexadecimal digits, by who has a role."""
    # The role keeps an end from being given its own words back.
    return hmac.digest(secret, f"gnnload flight {role} ".encode() + nonce, "sha256").hex().encode()


def is_proof(proof: bytes, secret: bytes, role: str, nonce: bytes) -> bool:
    """Whether these bytes are what :func:`prove` returns."""
    # Bytes, since of strings compare_digest takes ASCII alone.
    return hmac.compare_digest(proof, prove(secret, role, nonce))
