"""Privacy loss distributions: above brute force and above outside accounting, and hardly more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from coco_opt.errors import ProblemError
from coco_opt.privacy import DiscreteGaussian, Epsilon, Geometric, LevelQuery, NoiseDistribution, Rho, Sensitivity
from coco_opt.privacy.accounting import delta_of_rho, rho_of_epsilon_delta
from coco_opt.privacy.composition import Composition, bought
from coco_opt.privacy.loss_distributions import LossDistribution, UncountableError, changes, composed, one_answer

ONE = Sensitivity(1, 1)


def distribution_masses(distribution: NoiseDistribution) -> np.ndarray:
    """Return the probabilities of all outcomes but those of about 1e-15 in all, from the definition."""
    reach = math.ceil((34 if isinstance(distribution, Geometric) else 9) * float(distribution.spread)) + 1
    k = np.arange(-reach, reach + 1)
    weights = np.exp(distribution.log_weight(k))
    if isinstance(distribution, Geometric):
        a = math.exp(-1 / float(distribution.scale))
        return np.asarray((1 - a) / (1 + a) * weights)
    return np.asarray(weights / weights.sum())


def exact_delta(parts: Sequence[tuple[NoiseDistribution, int]], epsilon: float) -> float:
    """Return sum over all outcomes of (P - e^epsilon Q)_+ for answers that neighbours change by whole numbers."""
    p = q = np.ones(1)
    for distribution, change in parts:
        masses = distribution_masses(distribution)
        moved = np.zeros_like(masses)
        moved[change:] = masses[: masses.size - change]
        p, q = np.multiply.outer(p, masses).ravel(), np.multiply.outer(q, moved).ravel()
    return math.fsum(np.maximum(p - math.exp(epsilon) * q, 0.0))


TINY: tuple[tuple[tuple[NoiseDistribution, int], ...], ...] = (
    ((Geometric(Fraction(3, 2)), 1),),
    ((Geometric(Fraction(5)), 3),),
    ((Geometric(Fraction(2)), 1), (Geometric(Fraction(3)), 2)),
    ((DiscreteGaussian(Fraction(1, 2)), 1),),
    ((DiscreteGaussian(Fraction(30)), 2),),
    ((DiscreteGaussian(Fraction(4)), 1), (DiscreteGaussian(Fraction(7, 3)), 1)),
    ((DiscreteGaussian(Fraction(9)), 1), (Geometric(Fraction(4)), 1)),
    ((DiscreteGaussian(Fraction(6)), 1),) * 3,
    ((Geometric(Fraction(1)), 1),) * 3,
)


@pytest.mark.parametrize(
    "parts", TINY, ids=lambda parts: " and ".join(f"{distribution} by {change}" for distribution, change in parts)
)
def test_delta_is_at_least_brute_force_and_hardly_more(parts: tuple[tuple[NoiseDistribution, int], ...]) -> None:
    found = composed([(distribution, Sensitivity(change, change * change)) for distribution, change in parts])
    most = sum(change / float(distribution.spread) for distribution, change in parts)
    single = all(change == 1 for _, change in parts)
    for epsilon in np.linspace(0, 0.9 * most, 7):
        exact = exact_delta(parts, float(epsilon))
        assert found.delta(float(epsilon)) >= exact * (1 - 1e-12) - 1e-14
        if single:
            assert found.delta(float(epsilon)) <= exact * 1.002 + 1e-13


@pytest.mark.parametrize("distribution", [Geometric(Fraction(3, 2)), DiscreteGaussian(Fraction(20))], ids=str)
def test_all_ways_to_change_answers_within_a_sensitivity_are_covered(distribution: NoiseDistribution) -> None:
    assert set(changes(Sensitivity(4, 4))) == {(1, 1, 1, 1), (2,)}
    assert set(changes(Sensitivity(3, 9))) == {(3,), (2, 1), (1, 1, 1)}
    found = composed([(distribution, Sensitivity(3, 9))])
    for shape in itertools.chain(changes(Sensitivity(3, 9)), [(1,), (2,), (1, 1)]):
        for epsilon in (0.0, 0.1, 0.3, 0.5):
            assert found.delta(epsilon) >= exact_delta([(distribution, change) for change in shape], epsilon) - 1e-13


@pytest.mark.parametrize("deviation", [5, 300, 4096, 70_000, 10**7])
@pytest.mark.parametrize("count", [1, 5])
def test_wide_gaussians_cost_what_the_continuous_one_does(deviation: int, count: int) -> None:
    """Balle and Wang 2018, theorem 8: delta of continuous noise, which the discrete law comes near to."""
    found = composed([(DiscreteGaussian(Fraction(deviation * deviation)), ONE)] * count)
    mu = math.sqrt(count) / deviation
    for place in (1.0, 3.0, 5.0):
        epsilon = place * mu
        exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert found.delta(epsilon) == pytest.approx(exact, rel=2e-3 if deviation > 5 else 0.1)
        if deviation > 300:
            assert found.delta(epsilon) > exact * (1 - 1e-6)


def test_far_tails_and_rounded_budgets_stay_above() -> None:
    found = one_answer(DiscreteGaussian(Fraction(50)), 1, 2.0**-10)
    assert found.masses.sum() + found.infinite >= 1
    assert found.infinite > 0
    third = Fraction(1, 3)
    assert found.delta(third) >= found.delta(math.nextafter(float(third), 1))
    deltas = [found.delta(epsilon) for epsilon in np.linspace(0, 3, 50)]
    assert all(low >= high > 0 for low, high in itertools.pairwise(deltas))
    assert found.delta(-50) == 1


def test_an_infinite_loss_is_part_of_delta() -> None:
    """Outcomes that only one of two neighbours can give are lost at every epsilon."""
    one = LossDistribution(0.5, 0, np.array([0.5, 0.25]), 0.25)
    assert one.delta(100) == 0.25
    assert (one + one).delta(100) >= 7 / 16
    assert one.times(3).delta(100) >= 37 / 64


def test_what_cannot_be_counted_is_said() -> None:
    with pytest.raises(UncountableError, match="too many"):
        changes(Sensitivity(200, 200))
    with pytest.raises(UncountableError, match="too many"):
        changes(Sensitivity(1000, 1000))
    with pytest.raises(UncountableError, match="5,000 answers"):
        composed([(DiscreteGaussian(Fraction(5)), ONE)] * 5000)
    with pytest.raises(ProblemError, match="no query has noise"):
        composed([])


def level_query(cost: Epsilon | Rho, sensitivity: Sensitivity = ONE, query: str = "q") -> LevelQuery:
    return LevelQuery(0, query, "answers", 3, sensitivity, cost)


def test_a_composition_takes_the_smaller_of_what_it_knows() -> None:
    pure = Composition.of([level_query(Epsilon(Fraction(1, 2)))] * 2)
    assert pure.epsilon(Fraction(1, 10**9)) <= 1
    assert pure.delta(Fraction(1)) == 0
    assert 0 < pure.delta(Fraction(9, 10)) < Fraction(1, 2)
    many = Composition.of([level_query(Epsilon(Fraction(1, 40)))] * 40)
    assert many.epsilon(Fraction(1, 10**6)) < Fraction(85, 100)
    rho = Composition.of([level_query(Rho(Fraction(1, 80)))] * 4)
    for delta, epsilon in rho.curve():
        assert rho.delta(epsilon) <= delta
        assert Fraction(4, 5) * rho.cost.epsilon(delta) < epsilon < rho.cost.epsilon(delta)
    unknown = Composition.of([level_query(Rho(Fraction(1, 20)), Sensitivity(1000, 1000))])
    assert unknown.loss is None
    assert unknown.epsilon(Fraction(1, 10**6)) == unknown.cost.epsilon(Fraction(1, 10**6))
    assert unknown.delta(Fraction(1)) == delta_of_rho(Fraction(1, 20), Fraction(1))


@pytest.mark.parametrize(("epsilon", "delta"), [("1", "1/1000000"), ("1/10", "1/1000000000"), ("8", "1/1000")])
@pytest.mark.parametrize("levels", [1, 3])
def test_a_pair_buys_the_most_that_its_questions_allow(epsilon: str, delta: str, levels: int) -> None:
    measurement_plan, failure = Fraction(epsilon), Fraction(delta)
    rho = bought(measurement_plan, failure, ((Fraction(1, levels), ONE),) * levels)
    assert rho > Fraction(21, 20) * rho_of_epsilon_delta(measurement_plan, failure)

    def at(amount: Fraction) -> Fraction:
        return Composition.of([level_query(Rho(amount / levels))] * levels).delta(measurement_plan)

    assert at(rho) <= failure < at(rho * Fraction(10_003, 10_000))
    assert len(str(rho.numerator)) <= 5 or rho.denominator % 10 == 0


def test_a_pair_buys_what_rho_implies_where_nothing_more_is_known() -> None:
    pair = Fraction(1), Fraction(1, 10**6)
    assert bought(*pair, ((Fraction(1), Sensitivity(1000, 1000)),)) == rho_of_epsilon_delta(*pair)
    with pytest.raises(ProblemError, match="sum to 1"):
        bought(*pair, ((Fraction(1, 2), ONE),))


def drawn_composition(rng: np.random.Generator) -> tuple[list[tuple[NoiseDistribution, int]], float]:
    """Return laws of random scales with how often each is used, and an epsilon of the range that matters."""
    kinds = int(rng.integers(1, 4))
    size = 10 ** rng.uniform(-1.5, 0.3)  # of the deviation of the whole loss
    counts = [int(rng.integers(1, 9)) for _ in range(kinds)]
    parts: list[tuple[NoiseDistribution, int]] = []
    for count in counts:
        own = size * rng.uniform(0.3, 1) / math.sqrt(count * kinds)
        if rng.random() < 0.5:
            parts.append((DiscreteGaussian(Fraction(max(0.3, 1 / own**2)).limit_denominator(1000)), count))
        else:
            parts.append((Geometric(Fraction(1 / min(own, 3)).limit_denominator(1000)), count))
    variance = sum(count / float(distribution.spread) ** 2 for distribution, count in parts)
    return parts, float(variance / 2 + rng.uniform(0.3, 4) * math.sqrt(variance))


@pytest.mark.parametrize("count", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_random_compositions_lie_between_outside_bounds(count: int) -> None:
    """Never below dp-accounting's optimistic delta, and at most 0.1 % above its pessimistic one."""
    outside = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="needs dp-accounting")
    rng, worst = np.random.default_rng(17), 0.0
    for _ in range(count):
        parts, epsilon = drawn_composition(rng)
        fine = min(1e-4, 0.01 / max(float(distribution.spread) for distribution, _ in parts))
        below, above = (
            peers(outside, parts, fine, pessimistic=side).get_delta_for_epsilon(epsilon) for side in (False, True)
        )
        found = composed([(distribution, ONE) for distribution, times in parts for _ in range(times)]).delta(epsilon)
        assert found >= below * (1 - 1e-9) - 1e-13, (parts, epsilon, below, found, above)
        if above > 1e-11:  # below, the other's Fourier transforms show
            worst = max(worst, found / above)
    assert worst <= 1.001


def peers(outside: object, parts: list[tuple[NoiseDistribution, int]], fine: float, *, pessimistic: bool):  # type: ignore[no-untyped-def]
    whole = None
    for distribution, count in parts:
        options = {"pessimistic_estimate": pessimistic, "value_discretization_interval": fine}
        if isinstance(distribution, Geometric):
            one = outside.from_discrete_laplace_mechanism(
                float(1 / distribution.scale), **options, use_connect_dots=pessimistic
            )  # type: ignore[attr-defined]
        else:
            deviation = math.sqrt(float(distribution.parameter))
            one = outside.from_discrete_gaussian_mechanism(deviation, **options, use_connect_dots=pessimistic)  # type: ignore[attr-defined]
        many = one.self_compose(count)
        whole = many if whole is None else whole.compose(many)
    return whole
