"""The audit of a toy release: what is compared, what rows there are, and every fault planted in it caught."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt.array_types import Ints
from coco_opt.audit import (
    CAVEAT,
    audit_release,
    lower_bound,
    released_runs,
    witness,
)
from coco_opt.audit.bounds import release_scores, score_places, scores
from coco_opt.audit.rows import DIRECT, TOGETHER
from coco_opt.audit.subject import recorded, sealed
from coco_opt.errors import ProblemError, VerificationError
from coco_opt.privacy import (
    NEIGHBOURS,
    DiscreteGaussian,
    Epsilon,
    Exact,
    Geometric,
    Measurement,
    MeasurementPlan,
    Neighbours,
    NoiseSource,
    Rho,
    SeededNoise,
)
from coco_opt.report.losses import plot_losses
from tests.audit.helpers import (
    TABLE,
    Couple,
    HalvedNoise,
    couple,
    half_the_sensitivity,
    sealed_by,
    sources,
    toy,
    with_queries,
)

ONE = Fraction(1)
MEASURED = ["measurement, nation (cells)", "measurement, state (cells)", TOGETHER]
RELEASED = ["release, nation", "release, state", DIRECT]
COSTS = (Epsilon(ONE), Rho(Fraction(1, 2)))


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_witness_is_where_the_exact_answers_differ(neighbours: Neighbours) -> None:
    found = witness(toy(neighbours=neighbours), couple(neighbours))
    cells = [(cell.query.level, cell.where, cell.second - cell.first) for cell in found]
    added = [(0, "all, answer 2", 1), (1, "all/north, answer 2", 1)]
    if neighbours == "replace":
        added = [(0, "all, answer 1", -1), *added, (1, "all/south, answer 1", -1)]
    assert cells == added
    assert sum(abs(change) for level, _, change in cells if level == 0) == found[0].query.sensitivity.l1  # type: ignore[union-attr]


def test_equal_tables_are_nothing_to_audit() -> None:
    with pytest.raises(ProblemError, match="nothing to audit"):
        witness(toy(), Couple(TABLE, TABLE.copy()))


def test_neighbours_whose_noise_has_unlike_names_are_refused() -> None:
    def exact(table: Ints) -> Iterator[Exact]:
        return (replace(part, label=f"{part.label} of {table.sum()}") for part in toy().exact(table))

    with pytest.raises(VerificationError, match="differ in queries"):
        witness(replace(toy(), exact=exact), couple())


@pytest.mark.parametrize("distribution", [Geometric(Fraction(2)), DiscreteGaussian(Fraction(2))])
def test_first_score_is_the_log_likelihood_ratio(distribution: Geometric | DiscreteGaussian) -> None:
    answers = np.arange(-5, 15, dtype=np.int64)
    found = scores(answers, 4, 6, distribution)
    assert found[:, 0] == pytest.approx(distribution.log_weight(answers - 6) - distribution.log_weight(answers - 4))
    assert found[:, 1] == pytest.approx((answers - 4) / float(distribution.spread))
    both = scores(answers[:, None], np.array([4, 4]), np.array([6, 3]), distribution)
    assert both[:, 0] == pytest.approx(found)
    assert both[:, 1, 1] == pytest.approx(-(answers - 4) / float(distribution.spread))


def test_a_rho_is_held_to_what_it_implies_at_its_delta() -> None:
    subject = toy(Rho(Fraction(1, 2)))
    assert subject.failure == 1e-6
    assert 4.75 < subject.epsilon() < 5
    stated = toy(Rho(Fraction(1, 2)), delta=Fraction(1, 100))
    assert stated.failure == 0.01
    assert 2 < stated.epsilon() < 3
    assert toy(delta=Fraction(1, 100)).failure == 0


@pytest.mark.parametrize("cost", COSTS, ids=str)
def test_noise_of_another_law_than_stated_is_caught(cost: Epsilon | Rho) -> None:
    halved = sealed_by(
        toy(cost), lambda measurement_plan, parts, source: sealed(measurement_plan, parts, HalvedNoise(source))
    )
    with pytest.raises(VerificationError, match="and the measurement states"):
        witness(halved, couple())


def test_an_answer_that_goes_round_its_noise_is_caught() -> None:
    def without(measurement_plan: MeasurementPlan, parts: Any, source: NoiseSource) -> Measurement:
        honest = sealed(measurement_plan, parts, source)
        last = replace(honest.answers[-1], stored=np.concatenate([part.values for part in parts[-2:]]))
        return replace(honest, answers=(*honest.answers[:-1], last))

    def altered(measurement_plan: MeasurementPlan, parts: Any, source: NoiseSource) -> Measurement:
        return sealed(measurement_plan, [*parts[:-1], replace(parts[-1], values=parts[-1].values + 1)], source)

    for seal in (without, altered):
        with pytest.raises(VerificationError, match="level 1 reach the sealed measurement by another way"):
            witness(sealed_by(toy(), seal), couple())


def test_noise_that_is_drawn_twice_or_for_nothing_is_caught() -> None:
    def twice(measurement_plan: MeasurementPlan, parts: Any, source: NoiseSource) -> Measurement:
        sealed(measurement_plan, parts, source)
        return sealed(measurement_plan, parts, source)

    def more(measurement_plan: MeasurementPlan, parts: Any, source: NoiseSource) -> Measurement:
        source.stream(ONE, measurement="cells", region="elsewhere").draw(3)
        return sealed(measurement_plan, parts, source)

    with pytest.raises(VerificationError, match="drawn twice"):
        witness(sealed_by(toy(), twice), couple())
    with pytest.raises(VerificationError, match="not measured"):
        recorded(sealed_by(toy(), more), TABLE)


def test_audit_has_a_row_for_everything() -> None:
    told: list[tuple[int, int]] = []
    found = audit_release(toy(), couple(), sources(5), draws=4_000, runs=40, progress=lambda *step: told.append(step))
    assert [row.what for row in found.rows] == [*MEASURED, *RELEASED]
    assert [row.claimed for row in found.rows] == [Fraction(1, 2)] * 2 + [ONE] * 4
    assert [row.estimate is not None for row in found.rows] == [False] * 3 + [True] * 2 + [False]
    assert [row.bound is not None for row in found.rows] == [True] * 3 + [False] * 2 + [True]
    assert all(CAVEAT in row.note for row in found.rows if row.estimate is not None)
    assert found.violated == ()
    assert told[-1] == (40, 40)
    assert set(found.losses) == {row.what for row in found.rows if row.estimate is not None}
    together = found.rows[2].bound
    assert together is not None
    assert 0.5 < together.epsilon <= 1.0
    json.dumps([row.as_dict() for row in found.rows], allow_nan=False)


def test_sides_share_no_noise() -> None:
    opened: list[int] = []

    def source(number: int) -> SeededNoise:
        opened.append(number)
        return SeededNoise(number)

    audit_release(toy(), couple(), source, draws=10, runs=3)
    assert opened == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]  # two levels' draws, then the releases, under other labels


def test_without_noise_the_release_is_exact_and_tells_everything() -> None:
    quiet = toy(Epsilon(Fraction(200)))
    runs = released_runs(quiet, couple(), 4, sources(1))
    assert [residuals.values.tolist() for residuals in runs.residuals.values()] == [[0.0], [0.0]]
    # Two regions differ, in one cell each: |d - d'| = 1 twice.
    assert runs.scores[0].tolist() == [[-2.0, 0.0]] * 4
    assert runs.scores[1].tolist() == [[2.0, 2.0]] * 4
    rows = [row for row in audit_release(quiet, couple(), sources(1), draws=10, runs=2).rows if row.note]
    assert [(row.estimate, row.note) for row in rows] == [(None, "all residuals are equal: no estimate")] * 2


def test_masked_places_have_no_residual_but_are_scored() -> None:
    def statistics(table: Any) -> dict[str, Any]:
        counts = dict(toy().statistics(table))
        if not isinstance(table, list):
            counts["state"] = np.ma.masked_greater(counts["state"], 3)
        return counts

    subject = replace(toy(), statistics=statistics)
    runs = released_runs(subject, couple(), 3, sources(2))
    assert {part: residuals.n for part, residuals in runs.residuals.items()} == {"nation": 9, "state": 12}
    places = score_places(subject.statistics(couple().first), subject.statistics(couple().second))
    assert [place.positions.tolist() for place in places] == [[2], [2]]
    assert release_scores(toy().statistics(couple().second), places).tolist() == [[2.0, 2.0]]


def test_released_counts_lose_no_more_than_they_claim_and_faults_show() -> None:
    honest, pair = toy(neighbours="replace"), couple("replace")
    faulty = with_queries(honest, half_the_sensitivity)
    bounds = [lower_bound(*released_runs(one, pair, 2_000, sources(4)).scores).epsilon for one in (honest, faulty)]
    assert 0.0 < bounds[0] <= 1.0 < bounds[1] <= 2.0


def _draws(distribution: Geometric, side: int) -> np.ndarray:
    """Return noisy answers on a count, int32, drawn in chunks so that memory is 4 bytes a draw."""
    stream = distribution.opened(SeededNoise(60 + side), measurement="audit", region="r")
    chunks = [stream.add_to(np.full(1_000_000, side, np.int64)) for _ in range(20)]
    return np.concatenate([chunk.astype(np.int32) for chunk in chunks])


@pytest.mark.slow
def test_one_percent_too_little_noise_is_caught_and_none_too_little_is_not() -> None:
    for scale, caught in ((Fraction(99, 100), True), (ONE, False)):
        distribution = Geometric(scale)
        sides = [_draws(distribution, side) for side in (0, 1)]
        assert (lower_bound(*sides).epsilon > 1.0) == caught


def test_plots_are_written_and_carry_no_date(tmp_path: Path) -> None:
    found = audit_release(toy(), couple(), sources(5), draws=10, runs=20)
    files = plot_losses(tmp_path / "deep" / "audit", found.losses, 1.0)
    assert [file.name for file in files] == ["audit.png", "audit.pdf"]
    before = [file.read_bytes() for file in files]
    assert before[0].startswith(b"\x89PNG")
    assert [file.read_bytes() for file in plot_losses(tmp_path / "audit", found.losses, 1.0)] == before
    assert all(file.stat().st_size > 1_000 for file in plot_losses(tmp_path / "nothing", {}, 1.0))
