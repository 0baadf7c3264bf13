import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lightning_gnnload.data.plan import StepPlan
from lightning_gnnload.errors import SeedError

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
        if not is_last or drop_last:
            assert set(sizes) == {batch_size}
        else:  # it grew by less than a 32nd, or by less than one seed a rank
            assert sum(sizes) < num_ranks * (batch_size + max(batch_size / 32, 1))
        weights = [plan.weight(step, rank) for rank in range(num_ranks)]
        assert sum(weights) == pytest.approx(num_ranks)
        for weight, size in zip(weights, sizes, strict=True):  # each seed counts the same
            assert weight / size == pytest.approx(num_ranks / sum(sizes))
        assert max(abs(weight - 1) for weight in weights) < 1 / min(sizes)
        assert is_last or set(weights) == {1.0}
    dropped = num_seeds - end
    assert dropped == (num_seeds % plan.global_batch_size if drop_last else 0)


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 9))
def test_a_kept_rest_is_a_step_wherever_each_rank_has_a_seed_of_it(num_seeds, batch_size, num_ranks) -> None:
    assume(num_seeds >= num_ranks)
    plan = StepPlan(num_seeds, batch_size, num_ranks, keep_rest=True)
    full, rest = divmod(num_seeds, batch_size * num_ranks)
    assert plan.num_steps == max(full + (rest >= num_ranks), 1)
    parts = [part for step in slices(plan) for part in step]
    assert all(begin < end for begin, end in parts)
    assert [begin for begin, _ in parts[1:]] == [end for _, end in parts[:-1]]
    assert (parts[0][0], parts[-1][1]) == (0, num_seeds)


@pytest.mark.parametrize(
    ("num_seeds", "batch_size", "num_steps", "last"),
    [
        (4096, 1024, 1, [1024] * 4),
        (4097, 1024, 1, [1024, 1024, 1024, 1025]),
        (4096 + 127, 1024, 1, [1055, 1056, 1056, 1056]),  # 127 seeds are less than a 32nd of 4096
        (4096 + 128, 1024, 2, [32] * 4),
        (100, 1024, 1, [25] * 4),  # there is no step before
        (4, 1024, 1, [1] * 4),
        (43, 10, 1, [10, 11, 11, 11]),  # a 32nd and more, but three seeds cannot be shared by four
        (44, 10, 2, [1] * 4),
    ],
)
def test_a_small_rest_joins_the_step_before(num_seeds: int, batch_size: int, num_steps: int, last: list[int]) -> None:
    plan = StepPlan(num_seeds, batch_size, 4)
    assert plan.num_steps == num_steps
    assert sorted(end - begin for begin, end in slices(plan)[-1]) == last


@given(st.integers(16, 20_000), st.integers(11, 64).map(lambda times: 48 * times), st.booleans())
def test_global_steps_do_not_depend_on_the_number_of_ranks(num_seeds: int, global_batch: int, drop_last: bool) -> None:
    # Of 16 ranks, each has 33 seeds and more.
    assume(not drop_last or num_seeds >= global_batch)
    plans = [StepPlan(num_seeds, global_batch // ranks, ranks, drop_last) for ranks in (1, 2, 3, 4, 8, 16)]
    steps = [[plan.step(step) for step in range(plan.num_steps)] for plan in plans]
    assert steps == [steps[0]] * len(steps)


@given(st.integers(4, 400), st.sampled_from([4, 8, 20]))
def test_below_32_seeds_a_rank_they_may_at_the_last_step(num_seeds: int, global_batch: int) -> None:
    plans = [StepPlan(num_seeds, global_batch // ranks, ranks) for ranks in (1, 2, 4)]
    steps = [[plan.step(step) for step in range(plan.num_steps)] for plan in plans]
    if 0 < num_seeds % global_batch < 4 and num_seeds > global_batch:
        steps = [each[: num_seeds // global_batch - 1] for each in steps]
    assert steps == [steps[0]] * len(steps)


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
