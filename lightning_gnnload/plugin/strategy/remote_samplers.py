"""Remote samplers: how machines that only sample and the trainers of others find each other, and who may connect.

A sampler listens at a free port of the interface that leads to MASTER_ADDR, and writes where, and by which certificate,
into the job's store. Nobody need trust that store, which anyone can read and write who reaches it: both ends prove to
know a secret, the job's or the user's, before anything else is said, and it never leaves the process.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from contextlib import suppress
from datetime import timedelta

from torch.distributed import DistError

from lightning_gnnload.errors import QueueProtocolError, RoleConfigError
from lightning_gnnload.host.heartbeat import Patience
from lightning_gnnload.host.tcp import is_loopback
from lightning_gnnload.owners.address import find_secret
from lightning_gnnload.pipeline.queue.remote import (
    NO_REMOTE,
    RemoteChannel,
    RemoteListener,
    RemoteSamplers,
    connect_to_remote,
)
from lightning_gnnload.plugin.job import Job
from lightning_gnnload.plugin.strategy.certificates import (
    CERTIFICATE_FILE,
    KEY_FILE,
    is_wanted,
    load_certificate,
    trusting,
)
from lightning_gnnload.plugin.strategy.rendezvous import LOOPBACK, address_towards, launch_store, layout

_NONCE_BYTES = 16
_FIELDS = ("address", "nonce", "layout", "certificate")


def listen_to_machines(job: Job) -> RemoteListener:
    """Opens the port of a sampler that serves other machines, and says where in the job's store.

    Raises SecretError: there is no secret. AddressError: the certificate cannot be used. LaunchError: no way leads to
    MASTER_ADDR. TrainerDiedError: rank 0 did not open the store in time.
    """
    context, certificate = load_certificate() or (None, "")
    nonce = secrets.token_hex(_NONCE_BYTES)
    key = _key(job, nonce, certificate)
    address, port = job.environment.main_address, job.environment.main_port
    listener = RemoteListener(LOOPBACK if is_loopback(address) else address_towards(address, port), key, context)
    try:
        patience = Patience(job.connect_timeout_s, job.setup_timeout_s, lambda: False)
        store = launch_store(job, timedelta(seconds=job.connect_timeout_s), patience)
        where = {"address": listener.address, "nonce": nonce, "layout": layout(job.roles), "certificate": certificate}
        store.set(_entry(job.global_rank), json.dumps(where))
    except BaseException:
        listener.close()
        raise
    return listener


def remote_samplers(job: Job, timeout: timedelta | None) -> RemoteSamplers:
    """The samplers of other machines, as the job's store names them to a trainer; ``timeout`` is the store's."""
    if not job.roles.sampler_nodes:
        return NO_REMOTE
    _key(job, "", "")  # without a secret, nobody need be waited for
    store = launch_store(job, timeout)

    def connect(rank: int) -> RemoteChannel | None:
        entry = _entry(rank)
        with suppress(DistError):  # the store ends with rank 0, and nobody connects any more then
            if store.check([entry]):
                return _connect(rank, store.get(entry), job)
        return None

    return RemoteSamplers(job.roles.remote_samplers, job.roles.num_devices, connect)


def _connect(rank: int, entry: bytes, job: Job) -> RemoteChannel:
    try:
        where = json.loads(entry)
        (host, port), nonce, theirs, certificate = (where[name] for name in _FIELDS)
        sound = type(host) is type(nonce) is type(certificate) is str and type(port) is int and 0 < port < 1 << 16
    except (ValueError, TypeError, KeyError):
        sound = False
    if not sound:
        raise QueueProtocolError(f"the job's store says {entry!r:.200} of sampler rank {rank}, which is no address")
    if theirs != layout(job.roles):
        raise RoleConfigError(
            f"the machines of this job differ: this one has {layout(job.roles)}, that of sampler rank {rank} has "
            f"{theirs!r:.200}. Start the same command on all."
        )
    if is_wanted() and not certificate:
        raise RoleConfigError(
            f"{CERTIFICATE_FILE} is set here, but not on the machine of sampler rank {rank}, which would send in the "
            f"clear. Set it, and {KEY_FILE}, on all machines that only sample; or on none."
        )
    return connect_to_remote(host, port, _key(job, nonce, certificate), trusting(certificate) if certificate else None)


def _key(job: Job, nonce: str, certificate: str) -> bytes:
    """The key of one sampler's connections, from the job's secret or the user's; by each certificate another."""
    return hmac.digest(find_secret(job.queue_secret), json.dumps(["queue", nonce, certificate]).encode(), "sha256")


def _entry(rank: int) -> str:
    # torchrun's store outlives a restart of the ranks, which listen elsewhere then.
    return f"samplers/{rank}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
