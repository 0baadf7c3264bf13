"""Sampler: the base class of sampling algorithms, and the scratch memory that their calls share."""

from __future__ import annotations

import re
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lightning_gnnload.data.arrays import as_ids
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.checksums import array_settings, checksum_of, describe_settings
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import CudaUnavailableError, SamplerConfigError, SeedError
from lightning_gnnload.host.pages import buffer_memory
from lightning_gnnload.ops import ArenaTooSmall, Draw, DrawKey, SampleLayout, SamplerInput, Workspace
from lightning_gnnload.ops.dispatch import MAX_STAMP_NODES
from lightning_gnnload.sample.naming import local_seeds, name_batch
from lightning_gnnload.sample.seeds.rows import NodeSeeds
from lightning_gnnload.settings import keywords_of, refuse_unknown, takes_any

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.sampling.sample import DeviceSample
    from lightning_gnnload.ops.cuda.sampling.topology import Topology
    from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
    from lightning_gnnload.sample.group.group import SamplingGroup

Paradigm = Literal["push", "pull"]
"""How ranks that hold a part each sample together: tasks are pushed to the lists' owners, or lists are pulled."""
LayBatch = Callable[..., SampleLayout]
"""Lays a mini-batch into an arena: ``(seeds, key, arena) -> layout``, seeds and nodes by their new ids. Of a sampler
that heeds queries, those of the seeds come last."""

# Batches need not fit at first: draw_here at least doubles what is too small, and the thread keeps it.
_FIRST_ARENA_BYTES = 1 << 20
# Scratch memory is a thread's, not a sampler's: any threads may share a sampler without a lock.
_threads = threading.local()


_IN_MODULE = "GraphDataModule({}=...)"
_ELSEWHERE = {
    "num_neighbors": "fanouts=[15, 10]",
    "fan_out": "fanouts=[15, 10]",
    "disjoint": "sharing='disjoint'",
    "input_nodes": "GraphData(..., train=ids)",
    "shuffle": "GraphDataModule(order=...)",
    "num_workers": "GraphDataModule(num_threads=...)",
    **{name: _IN_MODULE.format(name) for name in ("batch_size", "seed", "drop_last", "order", "num_threads", "cache")},
}
"""Settings of other libraries' samplers and loaders, and what says the same here."""


class Sampler(ABC):
    """A sampler is an algorithm and its settings. It holds no state: a mini-batch is a pure function of the arguments.

    ``num_layers`` and ``draw`` are all that a sampler must have. The rest of what others ask of it, it may
    declare: parts ask for ``reach``, devices for ``draw_on`` and ``needs_host``, caches for ``presence``, ranks
    that sample together for ``collective``. Who needs what a sampler does not declare refuses it, and says so.

    Example:
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> graph = Graph.from_coo([1, 2, 3], [0, 0, 0])
        >>> first, second = (NeighborSampler([2]).sample(graph, [0], seed=7) for _ in range(2))
        >>> first.nodes.equal(second.nodes)
        True
    """

    def __new__(cls, *_: Any, **settings: Any) -> Sampler:
        # Before Python's own error, which tells neither the nearest name nor what says the same here.
        if not takes_any(cls.__init__):
            refuse_unknown(cls.__name__, settings, keywords_of(cls.__init__), _ELSEWHERE)
        return super().__new__(cls)

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        old = vars(cls).get("sample_into")
        if old is not None and "draw" not in vars(cls):
            warnings.warn(
                f"{cls.__name__}.sample_into(graph, seeds, key, arena) still works. Define draw(graph, draw, memory): "
                "draw.seeds and draw.key are what seeds and key were.",
                DeprecationWarning,
                stacklevel=2,
            )
            cls.draw = lambda self, graph, draw, memory: old(self, graph, draw.seeds, draw.key, memory)  # type: ignore[method-assign]

    expand: Literal["all", "new"] = "all"
    """Which nodes draw at a hop: every node seen so far, or only those that the last hop found."""
    is_expand_open: bool = False
    """Whether nobody chose ``expand``, so that a batch format may."""

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """Returns the number of blocks in a mini-batch."""

    @property
    def reach(self) -> int | None:
        """Returns how many hops of in-neighbours it reads from a seed: a part of a graph has to hold as many.

        None where that is not declared, or where it reads the whole graph; parts then do not serve it.
        """
        return None

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Returns which of ``edge_ids``, ``edge_weight`` and ``edge_type`` its blocks hold; None where not declared."""
        return None

    def columns_of(self, graph: Graph) -> tuple[str, ...] | None:
        """Returns :attr:`columns` of blocks from this graph, or a part of it, whose types may bring ``edge_type``."""
        return self.columns

    @property
    def reads_times(self) -> bool:
        """Whether it draws by ``Graph.edge_time`` also where nobody asks by time."""
        return False

    @property
    def weighting(self) -> Literal["never", "optional", "always"]:
        """Returns whether it draws by ``Graph.edge_weight``: never, where a graph has weights, or always (it must)."""
        return "never"

    @property
    def description(self) -> str:
        """Its settings, as its ``repr`` shows them, and checksums of arrays among the arguments of its constructor that
        it keeps under their names; the same in all ranks and runs."""
        arrays = {} if type(self).__repr__ is Sampler.__repr__ else array_settings(self)
        checksums = "".join(f", {name} {checksum_of([array]):08x}" for name, array in arrays.items())
        return re.sub(r" at 0x[0-9a-f]+", "", repr(self)) + checksums

    def __repr__(self) -> str:
        return describe_settings(self)

    def fingerprint_of(self, graph: Graph) -> str:
        """Returns the fingerprint of the graph that it draws from, where it is given ``graph``: the whole one's."""
        return graph.fingerprint

    @property
    def heeds(self) -> frozenset[str]:
        """Returns what it heeds of the queries of seeds: ``"times"``; ``"rows"``, which have nodes of their own; and
        ``"exclusion"`` of edges."""
        return frozenset()

    @abstractmethod
    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        """Samples one mini-batch straight into ``memory``.

        Args:
            graph: N nodes. A part of another graph is one like any other: ids are its own, but for draws, which are
                made in the name of :meth:`.Graph.names_of`.
            draw: what is asked for. There are queries only of a kind that it :attr:`heeds`.
            memory: writable uint8 ``[bytes]``, aligned to 64 bytes.

        Raises:
            ArenaTooSmall: sample again into a larger memory; the batch will be the same.
            SeedError: a seed is not a node, or repeats.
        """

    def sample(
        self,
        graph: Graph,
        seeds: Any,
        seed: int = 0,
        epoch: int = 0,
        step: int = 0,
        *,
        times: Any = None,
        rows: Any = None,
    ) -> MiniBatch:
        """Samples one mini-batch into memory of its own, without features.

        From a part of a graph, ids of nodes and edges are those of the whole graph, given and returned; and so is the
        batch, for the same seeds and key.

        Args:
            graph: N nodes.
            seeds: distinct node ids ``[S]``: tensor, array or list. Repeats are welcome where they share no nodes.
            seed: the random seed of the run.
            epoch: the epoch.
            step: the global optimizer step in the epoch.
            times: of the seeds, int, float or datetime64 ``[S]``; None: each node's own, in a graph with times.
            rows: numbers by which seeds that share no nodes draw, ``[S]``; None: the seeds' ids.

        Raises:
            SeedError: a seed is not a node, or repeats.
            PartReachError: the graph is a part that does not hold as many hops of the seeds as :attr:`reach` says.
        """
        if not isinstance(graph, Graph):
            raise SamplerConfigError(
                f"{type(self).__name__}.sample: a {type(graph).__name__} is given; a Graph is needed, such as "
                f"data.graph."
            )
        ids, key = as_ids(seeds, name="seeds"), DrawKey(seed, epoch, step)
        for name, argument in (("times", times), ("rows", rows)):
            if argument is not None and len(argument) != len(ids):
                raise SeedError(f"{name} has {len(argument)} entries for {len(ids)} seeds; one each is needed.")
        may_repeat = graph.clock is not None or getattr(self, "sharing", None) == "disjoint"
        local = local_seeds(graph, ids, self.reach, self, may_repeat=may_repeat)
        # Samplers check their seeds, but times are looked up before.
        is_timed = times is not None or graph.clock is not None
        if is_timed and len(bad := np.flatnonzero((local < 0) | (local >= graph.num_nodes))):
            raise SeedError(
                f"seeds[{bad[0]}] is {ids[bad[0]]}, which is not a node; ids must lie in [0, {graph.num_nodes})."
            )
        nodes = NodeSeeds(graph, self, local if times is None else SeedTable(local, time=times))
        draw = nodes.ask(nodes.rows, key, names=ids if rows is None else as_ids(rows, name="rows")).draw
        arena, layout = draw_here(self, graph, draw)
        name_batch(graph, layout, arena)
        # The arena is this thread's for the next batch; what was sampled is a fraction of it.
        return MiniBatch.view(arena, layout, len(ids), epoch=epoch, step=step).clone()

    def check_graph(self, graph: Graph) -> None:  # noqa: B027  most have nothing to say
        """Warns of a graph, or refuses it, as the settings say. A device that draws for the sampler calls it first.

        Raises:
            SamplerConfigError: it is refused.
        """

    def presence(self, graph: Graph, seeds: np.ndarray) -> np.ndarray | None:
        """Computes how likely each node is in a mini-batch, float64 ``[N]``, by the law of the draws, without sampling.

        Args:
            graph: N nodes.
            seeds: the chance of each node to be a seed, float64 ``[N]``.

        Returns:
            None where the law is not known.
        """
        return None

    def draw_on(self, workspace: DeviceWorkspace, topology: Topology, draw: Draw) -> DeviceSample:
        """Draws exactly what :meth:`draw` draws, by a device's kernels; see :class:`.DeviceSampler`.

        Args:
            workspace: has a hash table where there are several queries.
            topology: the graph on the device.
            draw: as for :meth:`draw`.

        Raises:
            CudaUnavailableError: no kernels draw so.
        """
        raise CudaUnavailableError(
            f"{type(self).__name__} has no kernels for a device; sampling_device='cpu' draws it."
        )

    def check_draw(self, topology: Topology, draw: Draw) -> None:  # noqa: B027  most have nothing to check
        """Checks of a mini-batch what kernels do not. A device calls it before each, also where it launches again what
        :meth:`draw_on` has launched before.

        Raises:
            SeedError: a seed is none that it can draw for.
        """

    def needs_host(self, graph: Graph) -> str | None:
        """Returns why this graph's mini-batches are drawn on the host although there is :meth:`draw_on`; None: they
        need not be."""
        return None

    def collective(self, group: SamplingGroup, paradigm: Paradigm) -> LayBatch:
        """Returns how ranks that hold a part each make its mini-batches together. Every one of them calls it.

        Where each node draws for itself, ``return lay_hops(self, group, node_wise(self, group, paradigm))``, of
        :mod:`.hops`, does it, with :meth:`hop_settings`.

        Raises:
            SamplerConfigError: the graph lacks what it draws by, or no part of it is enough.
        """
        raise SamplerConfigError(f"{self} cannot be sampled collectively.")

    def hop_settings(self, hop: int) -> dict[str, Any]:
        """Returns the arguments, as JSON values, of a sampler of one hop alone, by which the owner of lists draws."""
        raise SamplerConfigError(f"{self} does not say how one of its hops is drawn: it needs hop_settings.")

    @classmethod
    def of_hop(cls, settings: Mapping[str, Any], graph: Graph) -> Sampler:
        """Makes the sampler that :meth:`hop_settings` describes, for a part of the graph."""
        return cls(**settings)

    @classmethod
    def declares(cls, name: str) -> bool:
        """Returns whether the class itself defines this method: an inherited one need not draw as the class does."""
        return name in vars(cls)


class Relayed(Sampler):
    """A relayed sampler draws what another one draws, by its settings, but elsewhere: in a part, or on many ranks."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler

    # Written out, as Sampler has these itself: __getattr__ is asked only for what is missing.
    @property
    def num_layers(self) -> int:
        return self.sampler.num_layers

    @property
    def expand(self) -> Literal["all", "new"]:  # type: ignore[override]
        return self.sampler.expand

    @property
    def reach(self) -> int | None:
        return self.sampler.reach

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.sampler.columns

    def columns_of(self, graph: Graph) -> tuple[str, ...] | None:
        return self.sampler.columns_of(graph)

    @property
    def reads_times(self) -> bool:
        return self.sampler.reads_times

    @property
    def weighting(self) -> Literal["never", "optional", "always"]:
        return self.sampler.weighting

    @property
    def heeds(self) -> frozenset[str]:
        return frozenset()  # the whole graph's settings, but not its queries

    def needs_host(self, graph: Graph) -> str | None:
        return self.sampler.needs_host(graph)

    def __getattr__(self, name: str) -> Any:
        """Looks a setting up on the sampler that is relayed."""
        if name == "sampler":  # not there yet, while a copy is made
            raise AttributeError(name)
        return getattr(self.sampler, name)


def columns_that(**values: Any) -> tuple[str, ...]:
    """Returns the names of those columns that blocks hold.

    Example:
        >>> columns_that(edge_ids=False, edge_weight=True)
        ('edge_weight',)
    """
    return tuple(name for name, is_held in values.items() if is_held)


def draw_here(sampler: Sampler, graph: Graph, draw: Draw, *, aside: bool = False) -> tuple[np.ndarray, SampleLayout]:
    """Samples one mini-batch into this thread's arena, where it stays until the thread samples the next.

    Args:
        sampler: any.
        graph: as for :meth:`Sampler.draw`.
        draw: likewise.
        aside: use a second arena, as the first one is being filled with a mini-batch that needs this one.
    """
    arena = _thread_arena(0, aside)
    while True:
        try:
            return arena, sampler.draw(graph, draw, arena)
        except ArenaTooSmall as small:
            # needed_bytes tells of the part that failed alone; doubling bounds how often later parts fail in turn.
            arena = _thread_arena(max(2 * arena.nbytes, small.needed_bytes), aside)


def nodes_of(sampler: Sampler, graph: Graph, draw: Draw, *, aside: bool = False) -> np.ndarray:
    """Samples one mini-batch for its nodes alone, int64, seeds first: those whose features it gathers; ``aside`` as for
    :func:`draw_here`."""
    arena, layout = draw_here(sampler, graph, draw, aside=aside)
    return arena[: 8 * layout.num_nodes].view(np.int64).copy()


def thread_workspace(num_nodes: int) -> Workspace:
    """Returns this thread's scratch memory for graphs of up to this size; it is kept for the largest so far."""
    # Pairs of a query and a node are too many for a stamp each: their hash table is kept beside the nodes' stamps.
    name = "stamps" if num_nodes <= MAX_STAMP_NODES else "hashes"
    workspace: Workspace | None = getattr(_threads, name, None)
    if workspace is None or workspace.num_nodes < num_nodes:
        setattr(_threads, name, None)  # free the old table before the new one is allocated
        workspace = Workspace(num_nodes)
        setattr(_threads, name, workspace)
    return workspace


def sampler_input(graph: Graph, draw: Draw, memory: np.ndarray) -> SamplerInput:
    """Puts together what the sampling ops take, with this thread's scratch memory."""
    return SamplerInput.of(thread_workspace(graph.num_nodes), graph.adjacency, draw.seeds, draw.key, memory)


def _thread_arena(num_bytes: int, aside: bool) -> np.ndarray:
    """Returns this thread's arena, of at least so many bytes: memory that was touched before costs no page faults."""
    name = "aside" if aside else "arena"
    arena: np.ndarray | None = getattr(_threads, name, None)
    if arena is None or arena.nbytes < num_bytes:
        arena = np.frombuffer(buffer_memory(max(num_bytes, _FIRST_ARENA_BYTES)), np.uint8)
        setattr(_threads, name, arena)
    return arena
