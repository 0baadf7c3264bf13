"""What this folder uses of Ray beyond what Ray documents: when a new release breaks something, look here first.

Nothing here imports Lightning, which the processes of Ray that only drive a run do without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray

from lightning_gnnload.errors import LaunchError

OLDEST = 2, 51
"""The first with the second version of Ray Train by default."""

if tuple(map(int, ray.__version__.split(".")[:2])) < OLDEST:
    raise LaunchError(
        f"lightning_gnnload.ray needs Ray {OLDEST[0]}.{OLDEST[1]} or newer, but Ray {ray.__version__} is installed: "
        f"pip install -U 'lightning-gnnload[ray]', on all machines of the cluster."
    )

try:
    from ray.train._internal.utils import get_address_and_port as get_address_and_port
    from ray.train.torch.config import _set_torch_distributed_env_vars as set_rank_variables
    from ray.train.v2._internal.constants import is_v2_enabled
    from ray.train.v2._internal.execution import train_fn_utils
except ImportError as error:
    if "ray[train]" in str(error):  # Ray is here without what its extra brings
        raise
    raise LaunchError(
        f"Ray {ray.__version__} has changed what lightning_gnnload.ray relies on ({error}): install a newer "
        f"lightning-gnnload, or Ray 2.60, with which this one was tested."
    ) from error

__all__ = [
    "get_address_and_port",
    "is_worker",
    "replaced_functions",
    "set_rank_variables",
    "train_context",
    "train_functions",
]

if not is_v2_enabled():
    raise LaunchError(
        f"RAY_TRAIN_V2_ENABLED turns off the second version of Ray Train, which lightning_gnnload.ray needs and "
        f"Ray {ray.__version__} has: unset the variable, for the driver and the workers."
    )


def train_functions() -> Any:
    """What ``ray.train.report``, ``get_context`` and the like call in this worker. Raises LaunchError: it is none."""
    try:
        return train_fn_utils.get_train_fn_utils()
    except RuntimeError as error:
        raise LaunchError(
            "RayFactoredStrategy is made in the function that Ray Train runs in each worker: give that function to "
            "ray.train.torch.TorchTrainer, with torch_config=FactoredTorchConfig(). Elsewhere, use FactoredStrategy."
        ) from error


def train_context() -> Any:
    """What Ray Train tells a worker of its place. Raises LaunchError: this process is no worker of Ray Train."""
    return train_functions().get_context()


def is_worker() -> bool:
    """Whether this process is a worker of Ray Train."""
    try:
        train_functions()
    except LaunchError:
        return False
    return True


@contextmanager
def replaced_functions(replace: Callable[[Any], Any]) -> Iterator[None]:
    """Has ``ray.train.report`` and the like call what ``replace`` makes of Ray's functions, in this worker."""
    before = train_functions()
    train_fn_utils.set_train_fn_utils(replace(before))
    try:
        yield
    finally:
        train_fn_utils.set_train_fn_utils(before)
