"""``gnnload own``: serves parts of a graph, their lists and rows, to trainers on this machine or others."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from lightning_gnnload.errors import AddressError, GnnLoadError, PartitionError, SecretError, printable
from lightning_gnnload.host.tcp import is_loopback
from lightning_gnnload.owners.address import (
    GRPC,
    GRPC_TLS,
    SECRET,
    SECRET_FILE,
    Address,
    find_secret,
    make_secret,
    own_secret_file,
    read_secret,
)
from lightning_gnnload.owners.batch_owner import BatchOwner
from lightning_gnnload.owners.ways import AUTHORITY_FILE, Certificate, open_front
from lightning_gnnload.plugin.commands.arguments import Parser, report_failure
from lightning_gnnload.storage.partitions import load_partition

_EPILOG = f"""
FOLDER: a partition as gnnload partition ... --hops 0 writes it, of which the head and the folders of the parts to serve
suffice. Owners and trainers know each other by a secret: a file of your own by --secret-file or {SECRET_FILE}, copied
to all machines, or GNNLOAD_SECRET. On one machine none is needed: a secret of your own is made once. Trainers find
owners by GNNLOAD_OWNERS=HOST:PORT,HOST:PORT. What is sent is not encrypted: listen in a network that you trust, or
by TLS, --listen tls://HOST:PORT with --certificate and --key; trainers name who vouches for it by {AUTHORITY_FILE}.
--listen grpc://HOST:PORT serves by Arrow Flight (extra flight), grpc+tls:// by both.
"""
_WORDS_EACH_S = 10.0
"""Who is turned away is told of once in so long: strangers shall not fill a disk."""


def main(arguments: Sequence[str]) -> int:
    """Serves parts of a partition until it is told to end; returns the exit code."""
    parser = Parser("gnnload own", description=__doc__, epilog=_EPILOG)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of a partition")
    parser.add_argument("--parts", type=_parts, metavar="N,N", help="to serve; default all that are in the folder")
    parser.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="default a free port, for this machine alone"
    )
    parser.add_argument("--secret-file", type=Path, metavar="FILE", help="that only you can read")
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="PEM, for tls:// and grpc+tls://")
    parser.add_argument("--key", type=Path, metavar="FILE", help="of the certificate, PEM")
    parser.add_argument("--json", action="store_true", help="print what is served as a line of JSON")
    options = parser.parse_args(arguments)
    try:
        return _serve(options)
    except (GnnLoadError, KeyboardInterrupt) as error:
        return report_failure("gnnload own", error)


def _serve(options: argparse.Namespace) -> int:
    address = Address.parse(options.listen)
    if (options.certificate is None) != (options.key is None):
        raise AddressError("a certificate and its key go together: name both, by --certificate and --key.")
    certificate = Certificate(options.certificate, options.key) if options.certificate is not None else None
    partition = load_partition(options.folder)
    parts = options.parts if options.parts is not None else partition.parts_here
    if not parts:
        raise PartitionError(f"{options.folder} has none of its parts here: copy part-* of those to serve beside it.")
    secret = _secret(options.secret_file, address)
    owner = BatchOwner(partition, parts, secret)
    with open_front(owner, address, secret, certificate, _told()) as front:
        with suppress(KeyboardInterrupt):  # by SIGTERM and SIGHUP, too
            if options.json:
                print(json.dumps({"address": str(front.address), "parts": owner.parts}), flush=True)
            else:
                print(
                    f"Serving parts {', '.join(map(str, owner.parts))} of {partition!r} at {front.address}", flush=True
                )
            threading.Event().wait()
        front.close()
        if address.scheme in (GRPC, GRPC_TLS):
            _end_despite_threads()
    return 0


def _end_despite_threads() -> None:
    """Ends this process at once. Nobody can end a call of Arrow Flight whose client does not read, and Python's own end
    would wait for it, or for other threads of gRPC's."""
    for file in (sys.stdout, sys.stderr):
        with suppress(OSError):
            file.flush()
    os._exit(0)


def _secret(file: Path | None, address: Address) -> bytes:
    if file is not None:
        return read_secret(file, "--secret-file")
    if os.environ.get(SECRET_FILE) or os.environ.get(SECRET):
        return find_secret()
    if not is_loopback(address.host):
        raise SecretError(
            f"other machines can reach {address}, but no secret says who may ask. Write one into a file of yours alone "
            f"(mode 600), copy that to the trainers' machines, and name it by --secret-file or {SECRET_FILE}."
        )
    secret_file = own_secret_file()
    make_secret(secret_file)
    print(
        f"gnnload own: the secret is {secret_file}; trainers of this user on this machine find it there.",
        file=sys.stderr,
    )
    return read_secret(secret_file)


def _told() -> Callable[[str], None]:
    """Returns what tells of who was turned away."""
    last, lock = [-math.inf], threading.Lock()

    def tell(why: str) -> None:
        with lock:
            if time.monotonic() < last[0] + _WORDS_EACH_S:
                return
            last[0] = time.monotonic()
        with suppress(OSError):  # a log that is full, or that nobody reads any more, ends no service
            print(f"gnnload own: {printable(why)}", file=sys.stderr, flush=True)

    return tell


def _parts(text: str) -> list[int] | None:
    if text == "all":
        return None
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give numbers, 0,2, or all") from None
