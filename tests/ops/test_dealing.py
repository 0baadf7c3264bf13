"""Seeds dealt out by what they have in common, and open nodes settled: kernels against their oracle."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload.errors import GnnLoadError, PartitionError, SeedError
from lightning_gnnload.ops import DealtSeeds, coo_to_csc, deal_seeds, settle_nodes, vote_nodes
from tests import oracle

RING = np.arange(7), np.roll(np.arange(6), 1)  # the one in-neighbour of a node is the one before


def shares(num_seeds, num_parts):
    return np.diff(num_seeds * np.arange(num_parts + 1) // num_parts)


def random_graph(rng, num_nodes, num_edges, dtype):
    """Half of the edges within neighbourhoods of ids, so that overlaps differ."""
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    near = rng.random(num_edges) < 0.5
    src[near] = np.clip(dst[near] + rng.integers(-3, 4, near.sum()), 0, num_nodes - 1)
    return coo_to_csc(src.astype(dtype), dst.astype(dtype), num_nodes)[:2]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("overlap", ["seeds", "nodes"])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_a_stream_equals_the_oracle(dtype, hops, overlap):
    rng = np.random.default_rng(hops)
    overlapped = False
    for num_nodes in (1, 2, 63, 64, 65, 200):
        for num_parts in (1, 2, 5, 64):
            graph = random_graph(rng, num_nodes, int(rng.choice([0, 0.5, 1.5, 4]) * num_nodes), dtype)
            seeds = rng.permutation(num_nodes)[: rng.integers(1, num_nodes + 1)]
            weights = {"overlap_weight": int(rng.choice([0, 1, 3, 65535])), "smoothing": int(rng.choice([0, 0, 2]))}
            score = {"hops": hops, "overlap": overlap, **weights}
            dealt = DealtSeeds.none_of(num_nodes, num_parts)
            wanted_parts = [(set(), set()) for _ in range(num_parts)]
            for phase in np.split(seeds, [len(seeds) // 2]):
                dealt.num_seeds[:] = 0
                quotas = shares(len(phase), num_parts)
                wanted = oracle.deal_seeds(*graph, phase, quotas, wanted_parts, **score)
                done = 0
                while done < len(phase):  # in slices of a few edges, as a long stream comes
                    count = deal_seeds(*graph, phase[done:], quotas, dealt, max_edges=num_nodes, **score)
                    assert 1 <= count <= len(phase) - done
                    done += count
                assert dealt.part[phase].tolist() == wanted
                assert dealt.num_seeds.tolist() == quotas.tolist()
            others = np.setdiff1d(np.arange(num_nodes), seeds)
            assert (dealt.part[others] == -1).all()
            assert not dealt.scratch.any()
            for index, (_, nodes) in enumerate(wanted_parts):
                assert dealt.num_nodes[index] == len(nodes)
                held = np.unpackbits(dealt.node_bits[index].view(np.uint8), count=num_nodes, bitorder="little")
                assert set(np.flatnonzero(held).tolist()) == nodes
            overlapped |= num_parts > 1 and dealt.num_nodes.sum() > num_nodes
    assert overlapped


def test_ties_go_to_the_smallest_part_then_to_the_first():
    # Seeds 1, 3, 5 of a ring, one hop: no overlap. After 1 (part 0), parts 1 and 2 are empty: 3 goes to 1, 5 to 2.
    dealt = DealtSeeds.none_of(6, 3)
    assert deal_seeds(*RING, np.array([1, 3, 5]), np.array([1, 1, 1]), dealt, hops=1) == 3
    assert dealt.part.tolist() == [-1, 0, -1, 1, -1, 2]
    # 2 has the seed 1 in common with part 0, which has room.
    dealt = DealtSeeds.none_of(6, 3)
    deal_seeds(*RING, np.array([1, 4, 2]), np.array([2, 1, 1]), dealt, hops=1)
    assert dealt.part.tolist() == [-1, 0, 0, -1, 1, -1]
    # 0 is no seed of part 0, but a node that it holds: where these count, it draws 0.
    for overlap, wanted in (("seeds", 2), ("nodes", 0)):
        dealt = DealtSeeds.none_of(6, 3)
        deal_seeds(*RING, np.array([1, 4, 0]), np.array([2, 1, 1]), dealt, hops=1, overlap=overlap)
        assert dealt.part.tolist() == [wanted, 0, -1, -1, 1, -1]
    # Without room there, it is a tie of zeros again.
    dealt = DealtSeeds.none_of(6, 3)
    deal_seeds(*RING, np.array([1, 4, 2]), np.array([1, 1, 1]), dealt, hops=1)
    assert dealt.part.tolist() == [-1, 0, 2, -1, 1, -1]


def test_scores_beyond_64_bits_are_exact():
    """Of 100,000 seeds alone, 50,000 a part, the last seed has many in common with part 0 and one with part 1."""
    num_alone, quotas = 100_000, np.array([50_001, 149_999])
    room, num_nodes = quotas.sum() - 2 * 50_000, num_alone // 2
    # The least likeness to part 0 at which (likeness * room * num_nodes) is beyond 64 bits: what is left is small.
    likeness = -(-(2**64) // int(room * num_nodes))
    common, smoothing = divmod(likeness, 65535)
    indices = np.append(2 * np.arange(common), 1)
    indptr = np.zeros(2 * num_alone + 1, np.int64)
    indptr[num_alone + 1 :] = len(indices)
    dealt = DealtSeeds.none_of(2 * num_alone, 2)
    score = {"hops": 1, "overlap_weight": 65535, "smoothing": smoothing}
    deal_seeds(indptr, indices, np.arange(num_alone + 1), quotas, dealt, **score)
    assert dealt.num_seeds.tolist() == [50_001, 50_000]


def test_wrong_arguments_of_a_stream():
    def deal(seeds=(1, 2), quotas=(1, 1), dealt=None, **settings):
        dealt = DealtSeeds.none_of(6, 2) if dealt is None else dealt
        return deal_seeds(*RING, np.array(seeds), np.array(quotas), dealt, **{"hops": 1} | settings)

    for bad in (-1, 6, 2**40):
        with pytest.raises(SeedError, match=rf"seeds\[1\] is {bad}, but the graph has 6 nodes"):
            deal(seeds=(1, bad))
    with pytest.raises(SeedError, match=r"seeds\[1\] is 1, which is in part 0 already"):
        deal(seeds=(1, 1))
    full = DealtSeeds.none_of(6, 2)
    with pytest.raises(SeedError, match=r"seeds\[2\] is 3, but every part has its quota"):
        deal(seeds=(1, 2, 3), dealt=full)
    assert not full.scratch.any()
    for quotas in ((-1, 2), (7, 0), (2**62, 1)):
        with pytest.raises(PartitionError, match="quotas span"):
            deal(quotas=quotas)
    with pytest.raises(PartitionError, match="3 entries for 2 parts"):
        deal(quotas=(1, 1, 1))
    with pytest.raises(PartitionError, match="of 5 nodes, but this one has 6"):
        deal(dealt=DealtSeeds.none_of(5, 2))
    for name, bad in (("hops", 0), ("overlap_weight", -1), ("smoothing", 2**16), ("max_edges", 0)):
        with pytest.raises(PartitionError, match=f"{name} is {bad}"):
            deal(**{name: bad})
    for num_parts in (0, 65):
        with pytest.raises(PartitionError, match=rf"num_parts is {num_parts}, but must lie in \[1, 64\]"):
            DealtSeeds.none_of(6, num_parts)
    with pytest.raises(GnnLoadError, match='overlap is \'edges\', but must be "seeds" or "nodes"'):
        deal(overlap="edges")
    assert deal(seeds=np.empty(0, np.int64)) == 0


def random_holders(rng, num_nodes):
    """With bits of parts that are none, and nodes that no part holds."""
    held = rng.integers(0, 2**64, num_nodes, np.uint64) & rng.integers(0, 2**64, num_nodes, np.uint64)
    held[rng.random(num_nodes) < 0.2] = 0
    return held


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_votes_equal_the_oracle(dtype):
    rng = np.random.default_rng(0)
    num_moved = 0
    for num_nodes in (0, 1, 2, 200):
        for num_parts in (1, 2, 7, 64):
            graph = random_graph(rng, num_nodes, 6 * num_nodes, dtype)  # with loops and repeats
            part = rng.integers(-1, num_parts, num_nodes).astype(np.int32)
            is_open = (part < 0) | (rng.random(num_nodes) < 0.3)
            for held in (random_holders(rng, num_nodes), None):
                for capacity in (0, num_nodes // num_parts, num_nodes):
                    wanted = oracle.vote_nodes(*graph, part, is_open, held, num_parts, capacity=capacity)
                    voted = part.copy()
                    middle = num_nodes // 3
                    for begin, end in ((0, middle), (middle, None)):
                        given = {"capacity": capacity, "begin": begin, "end": end}
                        vote_nodes(*graph, voted, is_open, held, num_parts, **given)
                    np.testing.assert_array_equal(voted, wanted)
                    num_moved += (voted != part).sum()
    assert num_moved > 1000


def test_wrong_arguments_of_votes():
    part, is_open = np.array([0, -1, 1, -1, 0, 0], np.int32), np.ones(6, np.bool_)

    def vote(part=part, is_open=is_open, held=None, num_parts=2, **given):
        vote_nodes(*RING, part, is_open, held, num_parts, **{"capacity": 6} | given)

    for bad in (-2, 2, 2**31 - 1):
        with pytest.raises(PartitionError, match="part spans"):
            vote(part=np.array([0, bad, 0, 0, 0, 0], np.int32))
    with pytest.raises(PartitionError, match="part has 5 entries and is_open 6, but the graph has 6 nodes"):
        vote(part=part[:5].copy())
    with pytest.raises(PartitionError, match="is_open 7"):
        vote(is_open=np.ones(7, np.bool_))
    with pytest.raises(PartitionError, match="masks has 2 entries"):
        vote(held=np.zeros(2, np.uint64))
    for name, bad in (("end", 7), ("begin", -1), ("begin", 7), ("capacity", -1), ("num_parts", 65)):
        with pytest.raises(PartitionError, match=f"{name} is {bad}, but must lie in"):
            vote(**{name: bad})
    twice = np.zeros(12, np.int32)
    with pytest.raises(GnnLoadError, match="part and masks share memory"):
        vote(part=twice[:6], held=twice.view(np.uint64))
    part.flags.writeable = False
    with pytest.raises(PartitionError, match="part is read-only"):
        vote()


def test_settling_equals_the_oracle():
    rng = np.random.default_rng(0)
    for num_nodes in (0, 1, 500):
        for num_parts in (1, 2, 7, 64):
            part = rng.integers(-1, num_parts, num_nodes).astype(np.int32)
            held = random_holders(rng, num_nodes)
            for masks in (held, held & np.uint64(5), None):
                given = part.copy()
                settled = settle_nodes(given, masks, num_parts)
                np.testing.assert_array_equal(settled, oracle.settle_nodes(part, masks, num_parts))
                np.testing.assert_array_equal(given, part)


def test_wrong_arguments_of_settling():
    part = np.array([0, -1, 1], np.int32)
    for bad in (-2, 2, 2**31 - 1):
        with pytest.raises(PartitionError, match="part spans"):
            settle_nodes(np.array([0, bad], np.int32), None, 2)
    with pytest.raises(PartitionError, match="masks has 2 entries, but part has 3"):
        settle_nodes(part, np.zeros(2, np.uint64), 2)
    with pytest.raises(PartitionError, match="num_parts is 65"):
        settle_nodes(part, None, 65)
    with pytest.raises(GnnLoadError, match="dtype int64"):
        settle_nodes(part, np.zeros(3, np.int64), 2)
