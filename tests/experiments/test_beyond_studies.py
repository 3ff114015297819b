"""The studies beyond the papers on simulated data: paired ways, splits, adaptive buckets, relative entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from coco_experiments.beyond import (
    ablation,
    adaptive,
    auto,
    auto_tables,
    budgets,
    convex_relative,
    frontier,
    relative_entropy,
    stored_results,
    study,
    west_coast,
    which_method,
)
from coco_experiments.beyond.queries import cells, grown
from coco_experiments.beyond.relative_entropy import RelativeEntropy
from coco_experiments.beyond.stored_results import StoredResults
from coco_experiments.beyond.study import MATCHING, Finding, Result, Way
from coco_experiments.kuo2018.cases import Case
from coco_experiments.kuo2018.draws import Draws, errors_by_level
from coco_experiments.kuo2018.methods import jointly, leaves_only, matched
from coco_experiments.simulated import generated_counts

from coco_opt.groups.noisy_measurements import GroupsMeasurements
from tests.experiments.recorder import Recorder

MODULES = (ablation, adaptive, auto, budgets, convex_relative, frontier, west_coast, which_method)


@pytest.fixture
def case() -> Case:
    return Case.of("made for studies", generated_counts(2, 2, 60, 12, np.random.default_rng(8)), 15)


@pytest.fixture
def program(case: Case) -> RelativeEntropy:
    """Return a program of cells at the root and of buckets below."""
    answers = GroupsMeasurements(grown(case, (0.0, 0.5, 1.0))[0].measured(case, 3))
    tree = answers.hierarchy
    alike = np.repeat(answers.group_counts[tree.leaves.start :, None] / 16.0, 16, axis=1)
    return RelativeEntropy.of(answers, relative_entropy.learned(tree, alike, answers.group_counts))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
def test_small_runs_write_what_they_show(module: ModuleType, tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = module.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok, outcome.failures
    assert recorder.tables == list(outcome.tables)
    assert sorted(outcome.files) == sorted(tmp_path.glob("beyond/*"))
    errors = outcome.tables[0].records()
    assert all(float(str(row["measured"])) >= 0 for row in errors)
    assert len((tmp_path / f"{module.NAME}.csv").read_text().splitlines()) == len(errors) + 1


def test_ways_read_the_noise_that_the_papers_methods_read(case: Case) -> None:
    found = study.study("test", case, study.usual_ways(case), (5,), Recorder(), StoredResults())
    draws = Draws(case, 5)
    for result, method in zip(found, (matched(("Hc",) * 3), jointly("l1"), leaves_only("Hc")), strict=True):
        assert result.errors == [errors_by_level(case, method.run(draws, Fraction(1)))]


def test_a_study_that_was_stopped_goes_on_where_it_was(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(seeds: Sequence[int], found: StoredResults) -> list[Result]:
        return study.study("test", case, study.usual_ways(case), seeds, Recorder(), found)

    first = run((5,), study.stored_results_of(tmp_path))
    measurement_plan: list[int] = []
    estimated = study.estimated
    monkeypatch.setattr(study, "estimated", lambda *given: measurement_plan.append(1) or estimated(*given))
    both = run((5, 6), study.stored_results_of(tmp_path))
    assert len(measurement_plan) == 3  # the second seed alone
    assert [one.findings[:1] for one in both] == [one.findings for one in first]
    other = Case.of(case.name, generated_counts(2, 2, 60, 12, np.random.default_rng(9)), 15)
    study.study("test", other, study.usual_ways(case)[:1], (5,), Recorder(), study.stored_results_of(tmp_path))
    assert len(measurement_plan) == 4  # other data of that name
    monkeypatch.setattr(stored_results, "_digest_of_code", lambda: "changed")
    run((5,), study.stored_results_of(tmp_path))
    assert len(measurement_plan) == 7


def test_results_are_compared_within_their_setting_and_tables_that_do_not_add_up_are_told(case: Case) -> None:
    ways = [Way(MATCHING, "matching", cells(case), setting=setting) for setting in ("a", "b")]
    other = Way("bottom-up", "bottom_up", cells(case), setting="b")
    results = [Result(case, way) for way in (*ways, other, replace(other, setting=""))]
    of = study.reference_of(results, MATCHING)
    assert [of(one) for one in results] == [results[0], results[1], results[1], results[0]]
    results[0].findings.append(Finding.of(case, case.truth, 0.0))
    assert results[0].errors == [(0.0,) * 3]
    assert results[0].failures == []
    swapped = [case.truth[0], case.truth[2], case.truth[1], *case.truth[3:]]
    results[0].findings.append(Finding.of(case, swapped, 0.0))
    assert len(results[0].failures) == 2  # the root still adds up


def test_splits_spend_the_whole_budget_and_mirror_each_other() -> None:
    for levels in (3, 4):
        found = frontier.splits(levels)
        assert all(len(split) == levels and sum(split) == 1 for split in found)
        assert found[0] == found[2][::-1]
        assert [split[-1] for split in found] == sorted(split[-1] for split in found)


def test_balanced_buckets_hold_what_noise_hides() -> None:
    density = np.array([40.0, 9.0, 4.0, 2.0, 1.0, 0.5, 0.5, 0.2, 0.0, 0.0, 0.0, 0.0, 7.0])
    found = adaptive.balanced(density, 2.0)
    assert found.begin.tolist() == [0, 1, 2, 3, 4, 7]
    assert int(found.end[-1]) == 12
    held = [density[a:b].sum() for a, b in zip(found.begin, found.end, strict=True)]
    assert all(groups <= 2.0 or b - a == 1 for groups, a, b in zip(held, found.begin, found.end, strict=True))


def test_asking_twice_costs_what_asking_once_does(case: Case) -> None:
    first, second = adaptive.measured_twice(case, 0.5, 4)
    assert first.measurement_plan.cost.amount + second.measurement_plan.cost.amount == 1
    assert [level_query.level for level_query in first.measurement_plan.queries] == [0]
    assert [level_query.level for level_query in second.measurement_plan.queries] == [1, 2]


def test_prices_bound_the_program_from_below_and_rise_along_the_residual(program: RelativeEntropy) -> None:
    rng = np.random.default_rng(2)
    h = rng.exponential(size=program.prior.shape)
    h *= (program.groups / h.sum(axis=1))[:, None]
    for _ in range(20):
        prices = rng.uniform(-1.0, 1.0, program.bounds.size) * program.bounds
        best, bound = program.histograms(prices)
        assert best.sum(axis=1) == pytest.approx(program.groups)
        assert bound <= min(program.objective(h), program.objective(best))
        toward = rng.normal(size=prices.size)
        above, below = (program.histograms(prices + step * toward)[1] for step in (1e-5, -1e-5))
        assert (above - below) / 2e-5 == pytest.approx(float(program.residuals(best) @ toward), rel=1e-4, abs=1e-3)


def test_the_solved_program_is_certified_and_a_wrong_answer_is_not(program: RelativeEntropy) -> None:
    h, prices = relative_entropy.solved(program)
    objective, gap = program.certified(h, prices)
    assert h.sum(axis=1) == pytest.approx(program.groups)
    assert 0 <= gap + 1e-6 * objective <= 2e-5 * objective
    assert program.certified(np.roll(h, 1, axis=1), prices)[1] > 0.01 * objective
    assert program.certified(h, np.zeros_like(prices))[1] > 0.01 * objective
    assert program.certified(h, 10 * prices)[1] >= gap


def test_the_prior_keeps_the_groups_of_each_leaf_and_borrows_where_there_are_few(case: Case) -> None:
    tree, groups = case.hierarchy, case.counts.group_counts
    h = np.zeros((4, 16))
    h[:, 3] = groups[tree.leaves.start :]
    h[0] = 0.0
    h[0, 9] = groups[tree.leaves.start]
    prior = relative_entropy.learned(tree, h, groups)
    assert prior.sum(axis=1) == pytest.approx(groups[tree.leaves.start :], rel=0.01)
    assert prior[0, 9] > prior[0, 3] > relative_entropy.LEAST
    assert prior[1, 3] > prior[1, 9] > relative_entropy.LEAST


def test_made_hierarchies_have_the_groups_that_they_state() -> None:
    made = which_method.generated(3, 10)
    assert made.hierarchy.levels == 3
    assert len(made.hierarchy.leaves) == 16
    assert made.counts.group_counts.tolist() == [160, *[40] * 4, *[10] * 16]


def test_the_automatic_choice_is_compared_with_a_grid_of_forty_and_found_again_by_what_it_chose(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, grid = auto.entries_of(case), auto.grid_of(case, Fraction(1))
    assert len(set(entries)) == len(entries) >= 40
    assert {way.consistency for way in grid} == {"posterior", "joint", "matching", "bottom_up"}
    assert {(way.consistency, way.queries.growth, way.queries.split) for way in grid} <= set(entries)
    ways = auto.automatic_ways(Fraction(1), auto.AIMS)
    keys = {way.name: way.queries.resolved_key(case, 5, way.epsilon) for way in ways}
    assert keys["auto, root"] != keys["auto, leaves"]
    auto._chosen.cache_clear()
    monkeypatch.setattr(auto, "assumed_distributions", lambda _: {"all sizes alike": np.full(16, 1 / 16)})
    changed = ways[3].queries.resolved_key(case, 5, Fraction(1))
    assert ways[3].name == auto.NO_LOOK
    assert changed != keys[auto.NO_LOOK]
    auto._chosen.cache_clear()


def test_the_automatic_plan_of_tables_and_of_ranges_stands_beside_others(tmp_path: Path) -> None:
    outcome = auto_tables.run(small=True, out=tmp_path, reporter=Recorder())
    of_ranges, of_tables = (table.records() for table in outcome.tables)
    assert [row["auto"] for row in of_ranges].count("chosen") == 1
    assert [row["chosen / it"] for row in of_ranges if row["auto"]] == [1.0]
    assert of_tables[0]["plan"] == auto_tables.AUTO
    assert float(str(of_tables[0]["auto / it"])) == 1.0
    assert all(float(str(row["auto / it"])) < 1.0 for row in of_tables[1:])
    assert sorted(outcome.files) == sorted(tmp_path.glob("beyond/*"))
