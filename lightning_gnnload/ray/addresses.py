"""FactoredTorchConfig: Ray Train tells the ranks where to meet, and leaves it to the strategy to form their group."""

from __future__ import annotations

import os
import secrets
from typing import Any

from ray.train.backend import Backend
from ray.train.torch import TorchConfig

from lightning_gnnload.errors import LaunchError
from lightning_gnnload.ray.compat import get_address_and_port, set_rank_variables

_secret = ""
"""What the ranks of one start share, and nobody else; empty in a process that was not told where they meet."""


class FactoredTorchConfig(TorchConfig):
    """The ``torch_config`` of a TorchTrainer whose function uses RayFactoredStrategy.

    Ray's own TorchConfig forms a process group of all workers, samplers among them, at the port where the trainers
    would form theirs. This one tells each worker its rank and where rank 0 is, by the environment variables that
    torchrun sets; and a secret, made anew for each start, by which ranks of several machines and owners know each
    other. The backend and the time limit of the trainers' group are arguments of the strategy
    (``process_group_backend``, ``timeout``).

    Example:
        >>> from ray.train import ScalingConfig  # doctest: +SKIP
        >>> from ray.train.torch import TorchTrainer  # doctest: +SKIP
        >>> TorchTrainer(
        ...     train_function, torch_config=FactoredTorchConfig(), scaling_config=ScalingConfig(num_workers=3)
        ... ).fit()  # doctest: +SKIP
    """

    def __init__(self) -> None:
        super().__init__()

    @property
    def backend_cls(self) -> type[Backend]:
        return _AddressBackend


class _AddressBackend(Backend):
    """Tells addresses before the function starts, and after each restart, when rank 0 may have moved."""

    share_cuda_visible_devices = True  # as Ray's backend of torch does

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        address, port = worker_group.execute_single(0, get_address_and_port)
        worker_group.execute(_tell, address=address, port=port, secret=secrets.token_urlsafe(32))


def _tell(address: str, port: int, secret: str) -> None:
    global _secret
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
    set_rank_variables()
    _secret = secret


def ranks_secret() -> str:
    """Returns the secret of the ranks that Ray Train has started together. Raises LaunchError: it has not told this
    worker where they meet."""
    if not _secret:
        raise LaunchError(
            "RayFactoredStrategy forms the trainers' process group, without samplers, but Ray has formed one of all "
            "workers. Start them by TorchTrainer(..., torch_config=FactoredTorchConfig()), of lightning_gnnload.ray."
        )
    return _secret
