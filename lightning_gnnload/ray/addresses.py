"""FactoredTorchConfig: Ray Train tells the ranks where to meet, and leaves it to the strategy to form their group."""

from __future__ import annotations

import os
from typing import Any

from ray.train.backend import Backend
from ray.train.torch import TorchConfig

from lightning_gnnload.errors import LaunchError
from lightning_gnnload.ray.compat import get_address_and_port, set_rank_variables

_is_told = False
"""Whether this process is a worker that has been told its rank and rank 0's address."""


class FactoredTorchConfig(TorchConfig):
    """The ``torch_config`` of a TorchTrainer whose function uses RayFactoredStrategy.

    Ray's own TorchConfig forms a process group of all workers, samplers among them, at the port where the trainers
    would form theirs. This one tells each worker its rank and where rank 0 is, by the environment variables that
    torchrun sets. The backend and the time limit of the trainers' group are arguments of the strategy
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
        worker_group.execute(_tell, address=address, port=port)


def _tell(address: str, port: int) -> None:
    global _is_told
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
    set_rank_variables()
    _is_told = True


def check_told() -> None:
    """Raises LaunchError: Ray Train has not told this worker where the ranks meet."""
    if not _is_told:
        raise LaunchError(
            "RayFactoredStrategy forms the trainers' process group, without samplers, but Ray has formed one of all "
            "workers. Start them by TorchTrainer(..., torch_config=FactoredTorchConfig()), of lightning_gnnload.ray."
        )
