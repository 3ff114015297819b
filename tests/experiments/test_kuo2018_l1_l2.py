"""L1 against L2: both read the same noise, and tiny cases whose answers are known."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.kuo2018 import l1_l2, l1_l2_duels, l1_l2_tables
from coco_experiments.kuo2018.cases import Case, small_cases
from coco_experiments.kuo2018.l1_l2 import HC, HC_GAUSSIAN, HG, Plan, duels_of
from coco_experiments.kuo2018.l1_l2_duels import ALONE, BOTTOM_UP, CONVEX, JOINT, MATCHING, STEPS, duel, measured
from coco_experiments.kuo2018.l1_l2_tables import P1, P2, UNDECIDED, Duel, critical_margin
from coco_experiments.outcome import Outcome

from coco_opt.groups import GroupsMeasurements
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import DiscreteGaussian, Epsilon, Measurement
from coco_opt.problem import Problem
from coco_opt.solution import Solution
from coco_opt.solver import Solver
from coco_opt.solving import solve
from tests.experiments.recorder import Recorder
from tests.groups.helpers import Told
from tests.groups.helpers import measured as measured_of

ONE = Fraction(1)


def _one_region(sizes: list[int], counts: list[int], max_size: int) -> Case:
    values, runs = np.array(sizes, np.int64), np.array(counts, np.int64)
    groups = np.array([runs.sum()], np.int64)
    hierarchy = Hierarchy(np.array([-1], np.int64), ("nation",))
    counted = PrivateCounts(hierarchy, groups, np.array([0, values.size], np.int64), values, runs, 0, 0)
    return Case.of("tiny", counted, max_size)


def _measured(case: Case, values: list[int]) -> Measurement:
    """Return a measurement whose noisy cumulative counts are the values."""
    source = Told({"nation": values})
    return measured_of(case.hierarchy, case.truth, max_size=case.max_size, source=source)


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome, Recorder]:
    folder, recorder = tmp_path_factory.mktemp("l1_l2"), Recorder()
    return folder, l1_l2.run(small=True, out=folder, reporter=recorder), recorder


def test_small_run_writes_its_files_and_shows_its_tables(small_run: tuple[Path, Outcome, Recorder]) -> None:
    folder, outcome, recorder = small_run
    assert outcome.ok
    assert sorted(outcome.files) == sorted(folder.glob("kuo2018/*"))
    assert {path.suffix for path in outcome.files} == {".csv", ".png", ".pdf"}
    assert recorder.tables == list(outcome.tables[1:])
    with (folder / "kuo2018" / "l1_l2.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(outcome.tables[0].rows)
    assert {row["step"] for row in rows} == set(STEPS)
    assert {(row["estimator"], row["noise"]) for row in rows} == {(a.estimator, a.noise) for a in l1_l2.ARENAS}


def test_small_run_finds_p1_whole_and_p2_fractional(small_run: tuple[Path, Outcome, Recorder]) -> None:
    rows = [row for row in small_run[1].tables[0].records() if row["step"] == ALONE]
    assert {row["% integer, p = 1"] for row in rows} == {100.0}
    assert all(0.0 < float(row["% integer, p = 2"] or 0) < 90.0 for row in rows)
    # Rounding costs p = 1 nothing, for nothing is rounded.
    assert all(row["error before rounding, p = 1"] == pytest.approx(row[P1]) for row in rows)


def test_verdicts_count_every_level_and_epsilon_once(small_run: tuple[Path, Outcome, Recorder]) -> None:
    full, verdicts = small_run[1].tables[:2]
    counted = sum(int(row[name] or 0) for row in verdicts.records() for name in (P1, P2, UNDECIDED))
    assert counted == len(full.rows)


@pytest.mark.parametrize("arena", l1_l2.ARENAS, ids=lambda arena: f"{arena.query}-{arena.noise}")
def test_both_losses_read_the_same_answer(arena: l1_l2.Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    case = small_cases(20)[0]
    seen: dict[str, list[Problem[np.ndarray, np.ndarray]]] = {}

    def spy(problem: Problem[np.ndarray, np.ndarray], solver: str | Solver) -> Solution[np.ndarray]:
        seen.setdefault(problem.kind, []).append(problem)
        return solve(problem, solver)

    monkeypatch.setattr(l1_l2_duels, "solve", spy)
    noisy = measured(case, arena.query, arena.cost, ONE, 7)
    duel(case, noisy, [ALONE, MATCHING])
    answers = GroupsMeasurements(noisy)
    assert set(seen) == {"isotonic_l1", "isotonic_l2"}
    assert len(seen["isotonic_l1"]) == len(seen["isotonic_l2"]) == case.hierarchy.regions
    for region, (one, two) in enumerate(zip(seen["isotonic_l1"], seen["isotonic_l2"], strict=True)):
        assert np.array_equal(one.y, answers[region].values)  # type: ignore[attr-defined]
        assert np.array_equal(two.y, answers[region].values)  # type: ignore[attr-defined]


def test_gaussian_noise_has_the_nominal_variance_of_geometric_noise() -> None:
    case = small_cases(20)[0]
    geometric, gaussian = (
        GroupsMeasurements(measured(case, "cumulative", arena.cost, Fraction(3, 2), 1)).distribution(0)
        for arena in (HC, HC_GAUSSIAN)
    )
    assert geometric.nominal_variance == gaussian.nominal_variance == 8  # a third of 3/2 a level: 2 / (1/2)^2
    assert isinstance(gaussian, DiscreteGaussian)


def test_a_seed_repeats_and_another_differs() -> None:
    case = small_cases(20)[0]
    first, again, other = (measured(case, "cumulative", Epsilon, ONE, seed).answers[0].values for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_without_noise_to_speak_of_both_losses_are_exact() -> None:
    case = small_cases(20)[0]
    for arena in (HC, HG):
        for one in duels_of(case, Plan(2, 2, 2, 1, 1), arena, Fraction(300)):
            assert one.errors[0] == one.errors[1] == (0.0,) * len(one.errors[0])
            assert (one.margin, one.winner, one.ratio) == (
                0.0 if len(one.errors[0]) > 1 else None,
                UNDECIDED,
                None,
            )


def test_known_fits_of_one_region() -> None:
    # Hc = (5, 5, 5, 5), noise (0, 3, -1, -1). p = 2 pools (8, 4, 4) to 16/3, above 5. For p = 1 the median of those,
    # 4, lies below 5: all four cells are pooled, any value in 4..5 is best, and the upper fit is 5.
    case = _one_region([0, 4], [5, 4], 4)
    sides = duel(case, _measured(case, [5, 8, 4, 4]), [ALONE])[ALONE]
    one, two = sides["l1"], sides["l2"]
    fits = one.fits[0], two.fits[0]
    assert fits[0] is not None
    assert fits[1] is not None
    assert (fits[0].objective, fits[0].integer_share, fits[0].runs) == (5.0, 100.0, 1.0)
    assert fits[1].objective == pytest.approx(2 * (4 / 3) ** 2 + (8 / 3) ** 2)
    assert (fits[1].integer_share, fits[1].runs) == (25.0, 2.0)
    assert two.fractional == pytest.approx((1.0,))
    assert (one.errors, two.errors) == ((0.0,), (0.0,))  # 16/3 is rounded to the truth


def test_programs_report_one_fit_and_errors_at_every_level() -> None:
    case = small_cases(20)[0]
    found = duel(case, measured(case, "cumulative", Epsilon, ONE, 1), STEPS)
    losses: tuple[Loss, ...] = ("l1", "l2")
    for loss in losses:
        joint, convex, summed = (found[step][loss] for step in (JOINT, CONVEX, BOTTOM_UP))
        assert joint.fractional is not None
        assert len(joint.fractional) == len(joint.errors) == case.levels
        assert [fit is None for fit in joint.fits] == [False, True, True]
        assert convex.fits[0] is not None
        assert convex.fits[0].integer_share == 100.0  # the program is solved in whole numbers
        assert (convex.fractional, summed.fits) == (None, (None,) * 3)
        assert summed.errors[-1] == found[ALONE][loss].errors[-1]


def test_whole_share_counts_values_near_whole_numbers() -> None:
    assert l1_l2_duels.integer_share(np.array([1.0, 2.5, 3.0 + 1e-9, 4.0 - 1e-3])) == 50.0
    assert l1_l2_duels.integer_share(np.array([1.0, 2.5, 3.0 + 1e-9, 4.0 - 1e-3]), 1e-2) == 75.0
    assert l1_l2_duels.integer_share(np.array([1, 2])) == 100.0
    assert l1_l2_duels.integer_share(np.array([])) == 100.0


def _duel(one: tuple[float, ...], two: tuple[float, ...]) -> Duel:
    return Duel("d", "Hc", "geometric", ONE, ALONE, 0, (one, two))


def test_margin_is_that_of_the_pairs_not_of_the_means() -> None:
    # Errors vary by hundreds between seeds, the losses by ten on each: the pairs decide.
    clear = _duel((100.0, 300.0, 500.0, 700.0), (110.0, 311.0, 509.0, 710.0))
    assert clear.margin == pytest.approx(10.0 / (np.std([10, 11, 9, 10], ddof=1) / 2))
    assert clear.winner == P1
    assert clear.ratio == pytest.approx(1640 / 1600)
    assert _duel(*reversed(clear.errors)).winner == P2
    assert _duel((1.0, 3.0), (3.0, 1.0)).winner == UNDECIDED
    assert _duel((1.0,), (9.0,)).winner == UNDECIDED  # one run decides nothing
    assert _duel((1.0, 2.0), (3.0, 4.0)).margin == np.inf


def test_few_runs_need_a_larger_margin() -> None:
    assert critical_margin(2) == pytest.approx(12.706, abs=1e-3)
    assert critical_margin(10) == pytest.approx(2.262, abs=1e-3)


def test_a_mean_far_from_its_reference_fails_the_run() -> None:
    near = Duel("Hawaiian", "Hc", l1_l2.GEOMETRIC, ONE, ALONE, 0, ((256.0,) * 10, (291.0,) * 10))
    far = Duel("Hawaiian", "Hc", l1_l2.GEOMETRIC, ONE, ALONE, 0, ((256.0,) * 10, (356.0,) * 10))
    assert l1_l2.failures_in([near]) == ()
    (failure,) = l1_l2.failures_in([far])
    assert failure.startswith("Hawaiian, l2: 5.75 combined")


def test_seconds_add_up_levels_and_take_the_median_of_runs() -> None:
    fits = tuple(l1_l2_duels.Fit(1.0, 100.0, 100.0, 3.0, seconds, 2 * seconds) for seconds in (1.0, 5.0, 2.0))
    duels = [
        Duel("d", "Hc", "geometric", ONE, ALONE, level, ((1.0,) * 3, (1.0,) * 3), None, (fits, fits))
        for level in range(2)
    ]
    (row,) = l1_l2_tables.seconds_table(duels).records()
    assert (row["kernel, p = 1"], row["certified, p = 2"], row["kernel, p = 2 / p = 1"]) == (4.0, 8.0, 1.0)
