"""Buckets of sizes and the posterior under audit: releases keep their claim, planted faults of buckets are caught."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt.audit import audit_release, lower_bound, measured_scores, released_runs, witness
from coco_opt.audit.rows import TOGETHER
from coco_opt.privacy import NEIGHBOURS, Exact, Neighbours
from coco_opt.privacy.composition import DELTAS
from tests.audit.helpers import AnySubject, half_the_sensitivity, sources, with_queries
from tests.audit.kinds import PURE, RHO, Audited, audited

SECTION = '[groups]\nmax_size = 6\nbucket_edges = [0, 1, 3]\nconsistency = "posterior"'


def case_of(folder: Path, neighbours: Neighbours = "add_remove", privacy: str = PURE) -> Audited:
    return audited("groups", folder, f'{privacy}\nneighbours = "{neighbours}"', section=SECTION)


def bound(subject: AnySubject, case: Audited, draws: int = 40_000) -> float:
    found = measured_scores(witness(subject, case.pair), draws, sources(90))
    return lower_bound(*found, delta=subject.failure).epsilon


def of_shared_cells(subject: AnySubject) -> AnySubject:
    """Return a subject whose middle bucket counts the cells of the last one too."""

    def exact(table: Any) -> Iterable[Exact]:
        for part in subject.exact(table):
            if part.query.exact:
                yield part
                continue
            values = part.values.reshape(-1, 3).copy()
            values[:, 1] += values[:, 2]
            yield replace(part, values=values.reshape(part.values.shape))

    return replace(subject, exact=exact)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("privacy", [PURE, RHO], ids=["epsilon", "rho"])
def test_buckets_lose_no_more_than_they_claim(privacy: str, neighbours: Neighbours, tmp_path: Path) -> None:
    case = case_of(tmp_path, neighbours, privacy)
    assert 0.1 < bound(case.subject, case) <= float(case.subject.epsilon())


def test_half_the_sensitivity_of_buckets_is_caught(tmp_path: Path) -> None:
    case = case_of(tmp_path, "replace")
    faulty = with_queries(case.subject, half_the_sensitivity)
    assert bound(faulty, case) > 1.0
    assert TOGETHER in {row.what for row in audit_release(faulty, case.pair, sources(7), draws=40_000, runs=0).violated}


def test_buckets_that_share_a_cell_are_caught(tmp_path: Path) -> None:
    case = case_of(tmp_path)
    first, second = (
        np.concatenate([part.values.ravel() for part in case.subject.exact(table)])
        for table in (case.pair.first, case.pair.second)
    )
    assert np.abs(first - second).sum() == len(case.subject.measurement_plan.queries)
    assert bound(of_shared_cells(case.subject), case) > 1.0


POSTERIOR = (
    'query = "cumulative"',
    'query = "ranks"',
    "bucket_growth = 0.5",
    "bucket_edges = [0, 1, 3]",
    "rank_above = 3",
)


@pytest.mark.parametrize("measurement_plan", POSTERIOR)
@pytest.mark.parametrize("privacy", [PURE, RHO], ids=["epsilon", "rho"])
def test_questions_of_the_posterior_lose_what_is_claimed_and_half_their_sensitivity_is_seen(
    privacy: str, measurement_plan: str, tmp_path: Path
) -> None:
    section = f'[groups]\nmax_size = 6\n{measurement_plan}\nconsistency = "posterior"'
    case = audited("groups", tmp_path, f'{privacy}\nneighbours = "replace"', section=section)
    honest = audit_release(case.subject, case.pair, sources(7), draws=2, runs=0)
    assert honest.lost.amount <= honest.claimed.amount
    assert honest.violated == ()
    found = audit_release(with_queries(case.subject, half_the_sensitivity), case.pair, sources(7), draws=2, runs=0)
    # The loss of the pair is exact: no draw is needed to see that it is above the claim.
    assert found.lost.amount > found.claimed.amount
    assert TOGETHER in {row.what for row in found.violated}


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [PURE, RHO], ids=["epsilon", "rho"])
def test_releases_by_the_posterior_lose_at_most_epsilon(privacy: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, privacy=privacy)
    runs = released_runs(case.subject, case.pair, 150, sources(11))
    claim = case.subject.claim()
    for delta in (Fraction(0), *DELTAS) if privacy == PURE else DELTAS:
        found = lower_bound(*runs.scores, delta=float(delta)).epsilon
        assert 0.0 <= found <= float(claim.guarantee(delta or None)[0])
