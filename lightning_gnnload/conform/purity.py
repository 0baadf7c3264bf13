"""A mini-batch is a pure function of (graph, settings, seed, epoch, step, seeds): what that means for a sampler.

Each property looks at several cases. The first line of its docstring says what holds, the rest what to look at
where it does not.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from lightning_gnnload.conform.case import Case, CaseError, PropertyViolation, excerpt, expect, expect_same, on
from lightning_gnnload.conform.graphs import part_around
from lightning_gnnload.conform.rows import edges_of_row
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.errors import GnnLoadError, GraphDataError, SeedError
from lightning_gnnload.host.threads import Threads
from lightning_gnnload.sample.base import Sampler

_NUM_THREADS = 4


def same_key_same_batch(sampler: Sampler, cases: Sequence[Case]) -> None:
    """the same call gives the same batch, after any others

    A generator that moves on between calls fails here: draw by draw_words(key, hop, nodes, count).
    """
    once = [case.sample(sampler) for case in cases]
    # In reverse, so that a generator with a state is at another place for every case.
    for case, batch in reversed(list(zip(cases, once, strict=True))):
        with on(case):
            expect_same(batch, case.sample(sampler), "when asked for again, after other batches")


def copies_agree(sampler: Sampler, cases: Sequence[Case]) -> None:
    """a fresh copy of the sampler gives the same batch at once: a run resumes at any (epoch, step)

    A sampler holds settings alone. Other ranks get copies, and make a lost batch again.
    """
    for case in cases:
        with on(case):
            expect_same(case.sample(sampler), case.sample(copy.deepcopy(sampler)), "from a fresh copy of the sampler")


def generators_do_not_matter(sampler: Sampler, cases: Sequence[Case]) -> None:
    """the global generators of Python, NumPy and torch neither matter nor move

    torch.manual_seed must not change a batch, nor a batch the model's dropout.
    """
    with _restore_generators():
        for case in cases:
            with on(case):
                batch = case.sample(sampler)
                _seed_generators(1)
                before = _generator_states()
                expect_same(batch, case.sample(sampler), "after the global generators were seeded")
                expect(_generator_states() == before, "global generators as they were", "one that was drawn from")


def threads_agree(sampler: Sampler, cases: Sequence[Case]) -> None:
    """threads that sample at once, in different orders, get the batches of one thread

    Scratch memory belongs to one thread, or to one call; nothing is kept on the sampler between calls.
    """
    alone = [case.sample(sampler) for case in cases]

    def sample_from(start: int) -> dict[int, MiniBatch]:
        order = [(start + number) % len(cases) for number in range(len(cases))]
        return {number: cases[number].sample(sampler) for number in order}

    starts = range(0, len(cases), max(len(cases) // _NUM_THREADS, 1))
    with Threads(_NUM_THREADS, "gnnload-conform") as pool:
        together = list(pool.map(sample_from, starts))
    for batches in together:
        for number, batch in batches.items():
            with on(cases[number]):
                expect_same(alone[number], batch, "beside other threads")


def key_matters(sampler: Sampler, cases: Sequence[Case]) -> None:
    """another seed, epoch or step draws other neighbours; rows of their own draw by their number in place of the step

    All three belong in the key of every draw; the seed has 64 bits.
    """
    changes = {
        "seed": {"seed": 1},
        "the seed's high half": {"seed": 2**32},
        "epoch": {"epoch": 1},
        "step": {"step": 1},
    }
    if not cases[-1].promise.random:
        return
    if cases[-1].rows_for(sampler).sharing == "disjoint":
        del changes["step"]
    for name, change in changes.items():
        # In any case: where a graph leaves no choice, all keys draw alike.
        if not any(_differs(sampler, case, change) for case in cases):
            with on(cases[-1]):
                raise PropertyViolation(
                    f"another batch for another {name}", "the same batch, here and in all other cases"
                )


def company_does_not_matter(sampler: Sampler, cases: Sequence[Case]) -> None:
    """a destination draws the same neighbours whatever the other seeds are

    The key of a draw names the node, not its place in the batch.
    """
    for case in cases:
        if case.promise.alone and len(case.seeds) > 1:
            with on(case):
                batch = case.sample(sampler)
                # Few and in reverse, so that their places in the batch change as well.
                few_positions = [len(case.seeds) - 1, 0]
                few = case.at(few_positions).sample(sampler)
                for at, position in enumerate(few_positions):
                    mine, theirs = _neighbors_of(batch, position), _neighbors_of(few, at)
                    actual = f"{excerpt(theirs)} in other company"
                    expect(
                        torch.equal(mine, theirs), f"neighbours {excerpt(mine)} of seed {case.seeds[position]}", actual
                    )


def a_row_alone(sampler: Sampler, cases: Sequence[Case]) -> None:
    """a row with nodes of its own draws the same edges alone, among others, among them in reverse, and at any step

    Draw by Queries.name, the row's number, and neither by the step nor by a place in the batch.
    """
    for case in cases:
        last = len(case.seeds) - 1
        if last >= 0 and case.rows_for(sampler).sharing == "disjoint":
            with on(case):
                batch, reverse = case.sample(sampler), case.at(range(last, -1, -1)).sample(sampler)
                later = replace(case.key, step=case.key.step + 1)
                for position in sorted({0, last // 2, last}):
                    alone = case.at([position]).sample(sampler, later)
                    mine = edges_of_row(batch, position)
                    for when, theirs in (
                        ("in reverse", edges_of_row(reverse, last - position)),
                        ("alone, a step later", edges_of_row(alone, 0)),
                    ):
                        is_equal = all(map(np.array_equal, mine, theirs))
                        expect(is_equal, f"edges {_text(mine)} of row {position}", f"{_text(theirs)} {when}")


def parts_agree(sampler: Sampler, cases: Sequence[Case]) -> None:
    """a part of the graph that holds as many hops as the sampler reads gives the same batch

    The key of a draw names the node as the whole graph does: draw_words(key, hop, graph.names_of(nodes), count).
    Sampler.reach says how many hops are read; None is not tried.
    """
    for case in cases:
        if sampler.reach is not None:
            with on(case):
                part = replace(case, graph=part_around(case.graph, case.seeds, sampler.reach))
                expect_same(case.sample(sampler), part.sample(sampler), f"from a part of {sampler.reach} hops")


def bad_seeds_are_refused(sampler: Sampler, cases: Sequence[Case]) -> None:
    """seeds that are no nodes, or that repeat, raise SeedError and do no harm

    ArenaBuilder checks them.
    """
    for case in cases:
        with on(case):
            num_nodes, twice = case.graph.num_nodes, [0, 0]
            # Rows of their own may be of one node.
            repeated = [] if case.rows_for(sampler).sharing == "disjoint" else [twice]
            for seeds in ([num_nodes], [-1], [2**62], *repeated):
                _expect_seed_error(sampler, case, np.array(seeds))
            expect_same(case.sample(sampler), case.sample(sampler), "after bad seeds")


SamplerProperty = Callable[[Sampler, Sequence[Case]], None]
PURITY_PROPERTIES: tuple[SamplerProperty, ...] = (
    same_key_same_batch,
    copies_agree,
    generators_do_not_matter,
    threads_agree,
    key_matters,
    company_does_not_matter,
    a_row_alone,
    parts_agree,
    bad_seeds_are_refused,
)


def _differs(sampler: Sampler, case: Case, change: dict[str, int]) -> bool:
    changed = replace(case.key, **{name: getattr(case.key, name) + by for name, by in change.items()})
    first, second = case.sample(sampler), case.sample(sampler, changed)
    try:
        expect_same(first, replace(second, epoch=first.epoch, step=first.step), "")
    except PropertyViolation:
        return True
    return False


def _neighbors_of(batch: MiniBatch, position: int) -> torch.Tensor:
    block = batch.blocks[-1]
    return batch.nodes[block.indices[block.indptr[position] : block.indptr[position + 1]].long()]


def _text(hops: Sequence[np.ndarray]) -> str:
    return ", then ".join(" ".join(f"{src} -> {dst}" for dst, src in edges.T[:8]) for edges in hops)


def _expect_seed_error(sampler: Sampler, case: Case, seeds: np.ndarray) -> None:
    expected = f"SeedError for seeds {excerpt(seeds)}"
    times = None if case.times is None else case.times[:1].repeat(len(seeds))
    try:
        replace(case, seeds=seeds, times=times, names=None).sample(sampler)
    except CaseError as error:
        cause = error.__cause__
        if isinstance(cause, SeedError | GraphDataError):  # the latter of rows with times, which are a table's
            return
        if isinstance(cause, GnnLoadError):
            raise PropertyViolation(expected, repr(cause)) from cause
        raise
    raise PropertyViolation(expected, "a batch")


@contextmanager
def _restore_generators() -> Iterator[None]:
    python, legacy, torches = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
        torch.set_rng_state(torches)


def _seed_generators(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _generator_states() -> tuple[object, ...]:
    legacy = [np.asarray(part).tobytes() for part in np.random.get_state()]
    return random.getstate(), legacy, torch.get_rng_state().numpy().tobytes()
