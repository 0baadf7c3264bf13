"""Every error a user can meet.

Each message says what was given, what was needed and what to do next. All derive from :class:`GnnLoadError`,
and from the built-in class that fits best, so that ``except ValueError`` goes on working.
"""

from __future__ import annotations

from typing import Any


class GnnLoadError(Exception):
    """Base class of all errors of this package."""


class KernelsMissingError(GnnLoadError, ImportError):
    """The compiled CPU kernels are not installed or do not match this package."""


class MissingExtraError(GnnLoadError, ImportError):
    """An optional dependency is needed; the message names the extra that installs it."""

    def __init__(self, module: str, extra: str, purpose: str, cause: BaseException | None = None) -> None:
        reason = f" (importing it failed: {cause})" if cause is not None and cause.__cause__ is not None else ""
        super().__init__(
            f"{purpose} needs the Python package {module!r}, which cannot be imported{reason}. "
            f"Install it with: pip install 'lightning-gnnload[{extra}]'"
        )
        self.module, self.extra = module, extra


class CudaUnavailableError(GnnLoadError, RuntimeError):
    """A CUDA device was asked for, but there is none that works: no GPU, driver or CuPy, or one that is too old."""


class KernelCompileError(GnnLoadError, RuntimeError):
    """A CUDA kernel does not compile on this machine; the message carries the compiler's log."""


class DeviceMemoryError(GnnLoadError, MemoryError):
    """A device has less memory than is needed, even after what could shrink has shrunk."""


class CudaCallError(GnnLoadError, RuntimeError):
    """The CUDA runtime reports an error.

    Attributes:
        name: CUDA's for it, as ``"cudaErrorMemoryAllocation"``.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class DeviceShareError(GnnLoadError, RuntimeError):
    """Another process's memory on a device that cannot be opened here, or is not what its owner gave."""


class GraphFormatError(GnnLoadError, ValueError):
    """Arrays that do not describe a graph: wrong dtype, shape, order or range."""


class GraphDataError(GnnLoadError, ValueError):
    """Features, labels or node ids that do not fit their graph."""


class StoreFormatError(GnnLoadError, ValueError):
    """A folder that is not a graph store, or a broken one."""


class DatasetError(GnnLoadError, RuntimeError):
    """A dataset that is not there, cannot be fetched, or is not laid out as expected."""


class SamplerConfigError(GnnLoadError, ValueError):
    """Sampler settings that cannot work, alone or with the model or graph they meet."""


class SeedError(GnnLoadError, ValueError):
    """Seeds out of range, repeated, missing, or too few for the number of trainers."""


class LoaderConfigError(GnnLoadError, ValueError):
    """Data module settings that cannot work: batch size, threads, formats."""


class PartitionError(GnnLoadError, ValueError):
    """A partition that cannot be made, read or used so: its settings, its folder, or the number of its parts."""


class PartitionMismatchError(PartitionError):
    """Parts that were made of another graph."""


class PartReachError(PartitionError):
    """Nodes whose neighbourhood a part does not hold as deep as a sampler looks."""


class ExchangeError(GnnLoadError, RuntimeError):
    """Ranks that sample together, and cannot: one of them is gone, or speaks of another partition."""


class CacheConfigError(GnnLoadError, ValueError):
    """Settings of a feature cache that cannot work: an unknown policy, a ratio above 1, hotness that is no number."""


class CacheTooSmallError(GnnLoadError, ValueError):
    """A cache that may take some memory, but less than one row needs."""


class CacheShareError(GnnLoadError, RuntimeError):
    """Ranks of a machine that could not share a cache or a table: one was late, died, or had other rows."""


class CacheDisagreementError(CacheShareError):
    """Ranks of a machine with other settings of a cache, or other rows to cache: mini-batches would depend on who made
    them."""


class FeatureFileError(GnnLoadError, OSError):
    """A file of feature rows that is missing, of another size, cut off while in use, or for which there is no room."""


class CheckpointError(GnnLoadError, ValueError):
    """A checkpoint of mid-epoch that this run cannot go on from, because its steps have other seeds."""


class RoleConfigError(GnnLoadError, ValueError):
    """Numbers of samplers and trainers that the devices cannot carry, or options that exclude each other."""


class LaunchError(GnnLoadError, ValueError):
    """Processes that were not started as the Trainer's settings say, or not told of each other."""


class LightningCompatibilityError(GnnLoadError, ImportError):
    """The installed Lightning lacks a name that the strategy relies on."""


class SlotMemoryError(GnnLoadError, MemoryError):
    """A mini-batch needs more memory than the machine gives."""


class QueueProtocolError(GnnLoadError, RuntimeError):
    """A message between ranks that is malformed, or comes from a process that has no right to send it."""


class PeerError(GnnLoadError, RuntimeError):
    """Base class: another rank of this job failed, died or stalled.

    Attributes:
        failure: which rank, in which stage, and why, as it is told from rank to rank; None where nobody was told.
    """

    failure: Any = None


class SamplerFailedError(PeerError):
    """A sampler rank raised; the message carries its rank, stage and traceback."""


class SamplerDiedError(PeerError):
    """A sampler rank vanished without a word (killed, out of memory, crashed)."""


class TrainerFailedError(PeerError):
    """A trainer rank raised; seen by the samplers and by the other trainers."""


class TrainerDiedError(PeerError):
    """A trainer rank vanished without a word."""


class QueueStalledError(PeerError):
    """All peers live, but no mini-batch came within the time limit."""


class OutcomeError(GnnLoadError, RuntimeError):
    """A sampler cannot hold what training came to: it has not heard it, or its module is not built as the trainers'."""


class StalenessError(GnnLoadError, RuntimeError):
    """Delayed gradients that cannot be applied alike in all trainers."""


class SwitchingError(GnnLoadError, RuntimeError):
    """A mini-batch that a sampler cannot train; the trainers hear of it in a warning."""


class ConformanceError(GnnLoadError, AssertionError):
    """A sampler breaks its contract, or does not draw by the law that it promises."""
