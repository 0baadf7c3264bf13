"""Every error a user can meet.

Each message says what was given, what was needed and what to do next. All derive from :class:`GnnLoadError`,
and from the built-in class that fits best, so that ``except ValueError`` goes on working.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dis import opname
from typing import Any

_HIDDEN = {*range(32), *range(127, 160), *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF}
# What may stand between a line of the user's and this package.
_LIBRARIES = {"lightning_gnnload", "lightning", "pytorch_lightning", "lightning_fabric", "jsonargparse"}
_LIBRARIES |= {"torch", "torch_geometric", "dgl", "contextlib", "functools"}
_SPELLED = {code: repr(chr(code))[1:-1] for code in _HIDDEN - {ord("\n"), ord("\t")}}


def printable(text: str) -> str:
    """Spells out control characters, other than newlines and tabs, and marks that hide or reorder text in a terminal.
    Names and values of tables may contain any.

    Example:
        >>> print(printable("a\x1b[2Jb"))
        a\\x1b[2Jb
    """
    return text.translate(_SPELLED)


def warn(text: str) -> None:
    """Warns at the line of the user's program that led here, however deep: the first that is not of a library.

    Lightning wraps the constructors of loaders, so the depth of that line is not known beforehand.

    Example:
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warn("'adj_t' is not read.")
        >>> str(caught[0].message)
        "'adj_t' is not read."
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    warnings.warn(printable(text), stacklevel=level)


class GnnLoadError(Exception):
    """Base class of all errors of this package."""

    def __str__(self) -> str:
        return printable(super().__str__())

    def __reduce__(self) -> Any:
        """Makes it anew in another process without its constructor, which may take other arguments than ``args``."""
        return _remade, (type(self), self.args, vars(self))


def _remade(error_class: type[GnnLoadError], arguments: tuple[Any, ...], values: dict[str, Any]) -> GnnLoadError:
    error = error_class.__new__(error_class, *arguments)
    vars(error).update(values)
    return error


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


class NotHereError(GnnLoadError, ImportError):
    """An imported name of another library has no counterpart here; the message says what does the same."""


class NoAttributeError(GnnLoadError, AttributeError):
    """A :class:`NotHereError` of a module's attribute; an AttributeError, so that ``hasattr`` is False."""


def not_here(message: str) -> NotHereError | NoAttributeError:
    """Returns the error that the caller, a module's ``__getattr__``, raises for a name that the module lacks: of an
    import, or of an attribute."""
    # To an import, Python tells nothing of an AttributeError's words; hasattr() and getattr() go by its class.
    asker = sys._getframe(2)
    is_import = opname[asker.f_code.co_code[asker.f_lasti]] == "IMPORT_FROM"
    return (NotHereError if is_import else NoAttributeError)(message)


class CudaUnavailableError(GnnLoadError, RuntimeError):
    """A CUDA device is needed, but none works: no GPU, driver or CuPy, or one that is too old."""


class KernelCompileError(GnnLoadError, RuntimeError):
    """A CUDA kernel does not compile on this machine; the message carries the compiler's log."""


class DeviceMemoryError(GnnLoadError, MemoryError):
    """A device has less memory than is needed, even after what could shrink has shrunk."""


class CudaCallError(GnnLoadError, RuntimeError):
    """CUDA reports an error; ``name`` is its own: ``"cudaErrorMemoryAllocation"`` of the runtime,
    ``"CUDA_ERROR_OUT_OF_MEMORY"`` of the driver, or such."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class DeviceShareError(GnnLoadError, RuntimeError):
    """Another process's memory on a device cannot be opened here, or is not what its owner sent."""


class GraphFormatError(GnnLoadError, ValueError):
    """Arrays do not describe a graph: their dtype, shape, order or range is wrong."""


class GraphDataError(GnnLoadError, ValueError):
    """Features, labels or node ids do not fit their graph."""


class StaleTableError(GnnLoadError, ValueError):
    """A table was aggregated over a graph, or of rows, that have changed since."""


class StoreFormatError(GnnLoadError, ValueError):
    """A folder is not a graph store, or is a broken one."""


class DatasetError(GnnLoadError, RuntimeError):
    """A dataset is not there, cannot be fetched, or is not laid out as expected."""


class GraphSpecError(GnnLoadError, ValueError):
    """A graph.yaml is wrong by itself: keys that are unknown or missing, values that are none; a line for each.

    ``faults`` are these one by one, ``where`` is the place of a single one, as ``edges.buys.src``, and ``readable``
    what could be read in spite of them.
    """

    where = ""
    readable: Any = None
    faults: tuple[GraphSpecError, ...] = ()


class TableError(GnnLoadError, ValueError):
    """A table that a graph is built from cannot be read, or does not contain what graph.yaml says."""


class SamplerConfigError(GnnLoadError, ValueError):
    """Sampler settings cannot work, alone or with the model or graph they meet."""


class SamplerUnsupportedError(SamplerConfigError, NotImplementedError):
    """Settings that could mean something together, but that neither PyG's sampler has nor ours."""


class SeedError(GnnLoadError, ValueError):
    """Seeds are out of range, repeated, missing, or too few for the number of trainers."""


class LoaderConfigError(GnnLoadError, ValueError):
    """Data module settings cannot work: batch size, threads, formats."""


class UnknownSettingError(LoaderConfigError, TypeError):
    """A data module, a sampler or a strategy has no setting of that name."""


class DataDisagreementError(GnnLoadError):
    """Ranks of a job have loaded different data: mini-batches would depend on who made them."""


class PartitionError(GnnLoadError, ValueError):
    """A partition cannot be made, read or used: its settings, its folder or the number of its parts is at fault."""


class PartitionMismatchError(PartitionError):
    """The parts were made of another graph."""


class PartReachError(PartitionError):
    """A part contains fewer hops around its nodes than a sampler reads."""


class RemoteListsError(GnnLoadError, RuntimeError):
    """A graph's adjacency lists are asked for in a process that does not have them: they lie with owners."""


class ExchangeError(GnnLoadError, RuntimeError):
    """Ranks cannot sample together: one of them is gone, or uses another partition."""


class OwnerLostError(ExchangeError):
    """No owner of a part is left that answers: all are gone, frozen, or have other parts."""


class CacheConfigError(GnnLoadError, ValueError):
    """Settings of a feature cache cannot work: an unknown policy, a ratio above 1, hotness that is no number."""


class CacheTooSmallError(GnnLoadError, ValueError):
    """A cache may take some memory, but less than one row needs."""


class CacheShareError(GnnLoadError, RuntimeError):
    """Ranks of a machine cannot share a cache or a table: one was late, died, or had other rows."""


class CacheDisagreementError(CacheShareError):
    """Ranks of a machine differ in a cache's settings, or in the rows to cache: mini-batches would depend on who made
    them."""


class PackingConfigError(GnnLoadError, ValueError):
    """Settings of packed mini-batches cannot work, alone or with those of the data module they meet."""


class PackingMismatchError(GnnLoadError, ValueError):
    """A folder has packed mini-batches of another run: other data, seeds, sampler, batch size or ranks."""


class OutputError(GnnLoadError, ValueError):
    """Results cannot be written as rows of a file: its suffix, its place, or what was to be written is at fault."""


class InferenceError(GnnLoadError, RuntimeError):
    """A model cannot be run layer by layer over all nodes, or would give other results than on its own mini-batches."""


class AggregationError(GnnLoadError, ValueError):
    """Rows, weights or an operation do not fit the block whose neighbours are to be aggregated."""


class DropoutError(GnnLoadError, ValueError):
    """A dropout layer gets a probability, a tensor or a step that it cannot take, or cannot tell which mask it drew."""


class FeatureFileError(GnnLoadError, OSError):
    """A file of feature rows is missing, of another size, cut off while in use, or there is no room for it."""


class CheckpointError(GnnLoadError, ValueError):
    """This run cannot go on from a checkpoint of mid-epoch, because its steps have other seeds."""


class RoleConfigError(GnnLoadError, ValueError):
    """The devices cannot carry these numbers of samplers and trainers, or options exclude each other."""


class PlanError(GnnLoadError, ValueError):
    """A machine's description, a plan's file or their figures cannot be, or a run cannot be planned for."""


class LaunchError(GnnLoadError, ValueError):
    """Processes were not started as the Trainer's settings say, or do not know each other."""


class StrangerError(GnnLoadError, RuntimeError):
    """A process of another user has connected to a rank, or one that does not know the secret of a job."""


class FrameError(GnnLoadError, ConnectionError):
    """What came over a connection is not what both ends agreed on."""


class AddressError(GnnLoadError, ValueError):
    """An address of an owner cannot be read, cannot be listened at, or may not."""


class SecretError(GnnLoadError, ValueError):
    """There is no secret by which owners and their clients know each other, or others can read it."""


class LightningCompatibilityError(GnnLoadError, ImportError):
    """The installed Lightning lacks a name that the strategy relies on, or resumes wrongly."""


class SlotMemoryError(GnnLoadError, MemoryError):
    """A mini-batch needs more memory than the machine gives."""


class QueueProtocolError(GnnLoadError, RuntimeError):
    """A message between ranks is malformed, or comes from a process that has no right to send it."""


class ThreadLimitError(GnnLoadError, RuntimeError):
    """The system lets this process start no further thread."""


class ForkError(GnnLoadError, RuntimeError):
    """A forked process uses objects on which threads, connections or devices of its parent work."""


class PeerError(GnnLoadError, RuntimeError):
    """Another rank of this job failed, died or stalled: the base class of the errors that say which."""

    # A pipeline.failure.Failure: which rank, in which stage, and why; None where no rank reported it.
    failure: Any = None


class SamplerFailedError(PeerError):
    """A sampler rank raised; the message carries its rank, stage and traceback."""


class SamplerDiedError(PeerError):
    """A sampler rank ended without a message (killed, out of memory, crashed)."""


class TrainerFailedError(PeerError):
    """A trainer rank raised; seen by the samplers and by the other trainers."""


class TrainerDiedError(PeerError):
    """A trainer rank ended without a message."""


class QueueStalledError(PeerError):
    """All peers are alive, but no mini-batch came within the time limit."""


class OutcomeError(GnnLoadError, RuntimeError):
    """A sampler cannot apply the outcome of training: it got none, or its module is not built as the trainers'."""


class StalenessError(GnnLoadError, RuntimeError):
    """Delayed gradients cannot be applied alike in all trainers."""


class SwitchingError(GnnLoadError, RuntimeError):
    """A sampler cannot train a mini-batch; the trainers hear of it in a warning."""


class ConformanceError(GnnLoadError, AssertionError):
    """A sampler breaks its contract, or does not draw by the law that it promises."""


@contextmanager
def naming(subject: str) -> Iterator[None]:
    """Begins the texts of errors about data and settings with what they are about, as ``"val: ..."``.

    Example:
        >>> with naming("val"):
        ...     raise SeedError("there are no seeds.")
        Traceback (most recent call last):
        lightning_gnnload.errors.SeedError: val: there are no seeds.
    """
    try:
        yield
    except (GraphDataError, LoaderConfigError, SamplerConfigError, SeedError) as error:
        if not str(error).startswith(f"{subject}: "):
            error.args = (f"{subject}: {error}",)
        raise
