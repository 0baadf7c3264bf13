import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lightning_gnnload.errors import SeedError
from lightning_gnnload.pipeline.plan import StepPlan

PLANS = st.tuples(st.integers(1, 500), st.integers(1, 40), st.integers(1, 9), st.booleans())


def slices(plan: StepPlan) -> list[list[tuple[int, int]]]:
    return [[plan.slice(step, rank) for rank in range(plan.num_ranks)] for step in range(plan.num_steps)]


@given(PLANS)
def test_steps_and_slices_cover_the_seeds_once(settings) -> None:
    num_seeds, batch_size, num_ranks, drop_last = settings
    assume(num_seeds >= (batch_size * num_ranks if drop_last else num_ranks))
    plan = StepPlan(num_seeds, batch_size, num_ranks, drop_last)
    end = 0
    for step, parts in enumerate(slices(plan)):
        assert plan.step(step) == (parts[0][0], parts[-1][1])
        sizes = []
        for begin, stop in parts:
            assert begin == end  # no gap, no overlap, in order
            end = stop
            sizes.append(stop - begin)
        # An empty slice would leave its rank without a collective; uneven ones make the others wait.
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1
        is_last = step == plan.num_steps - 1
        assert max(sizes) <= batch_size + (is_last and not drop_last)
        if not is_last or drop_last:
            assert set(sizes) == {batch_size}
    dropped = num_seeds - end
    assert dropped == (num_seeds % plan.global_batch_size if drop_last else 0)


@pytest.mark.parametrize(
    ("num_seeds", "num_steps", "last"),
    [
        (4096, 1, [1024] * 4),
        (4097, 1, [1024, 1024, 1024, 1025]),  # one seed cannot be shared by four
        (4099, 1, [1024, 1025, 1025, 1025]),
        (4100, 2, [1, 1, 1, 1]),
        (4, 1, [1] * 4),
    ],
)
def test_a_rest_too_small_to_share_joins_the_step_before(num_seeds: int, num_steps: int, last: list[int]) -> None:
    plan = StepPlan(num_seeds, 1024, 4)
    assert plan.num_steps == num_steps
    assert sorted(end - begin for begin, end in slices(plan)[-1]) == last


@given(st.integers(4, 400), st.sampled_from([4, 8, 20]))
def test_global_steps_do_not_depend_on_the_number_of_ranks(num_seeds: int, global_batch: int) -> None:
    # Except for a rest below four, which one rank can take as a step of its own and four cannot.
    assume(not 0 < num_seeds % global_batch < 4)
    by_ranks = []
    for ranks in (1, 2, 4):
        plan = StepPlan(num_seeds, global_batch // ranks, ranks)
        by_ranks.append([plan.step(step) for step in range(plan.num_steps)])
    assert by_ranks[0] == by_ranks[1] == by_ranks[2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((3, 10, 4), r"3 seeds cannot be shared by 4 trainers: at least 4"),
        ((0, 10, 1), r"0 seeds"),
        ((39, 10, 4, True), r"39 seeds.*at least 40.*4 x 10 with drop_last"),
    ],
)
def test_too_few_seeds(settings, message: str) -> None:
    with pytest.raises(SeedError, match=message):
        StepPlan(*settings)
