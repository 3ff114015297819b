"""Groups estimated by every executor: the same histograms, certificates and errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_opt.groups.estimating.subtrees as subtrees
from coco_opt import GroupsResult, Measurement, SolverChoices, read_measurement, write_measurement
from coco_opt.errors import SolverError
from coco_opt.execution import Executor, Threads, open_executor
from coco_opt.groups import GroupsMethod, estimate_groups
from coco_opt.histograms import CountOfCounts, Hierarchy, sum_of_leaves
from tests.execution.tasks import ByFiles, Killing
from tests.groups.helpers import measured


def measurement(seed: int, query: str = "cumulative") -> Measurement:
    """Return noisy answers of four levels, whose regions have unlike numbers of children."""
    rng = np.random.default_rng(seed)
    paths = [
        ("n", f"a{a}", f"b{a}{b}", f"c{a}{b}{c}") for a in range(3) for b in range(1 + a) for c in range(1 + 3 * b)
    ]
    hierarchy = Hierarchy.from_paths(paths)
    leaves = [CountOfCounts.from_ranks(rng.integers(0, 30, int(rng.integers(0, 60)))) for _ in paths]
    return measured(hierarchy, sum_of_leaves(hierarchy, leaves), query, seed=seed, max_size=40)


def same(a: GroupsResult, b: GroupsResult) -> bool:
    counted = [
        [(row.problem, row.solver, row.solves, row.gap, row.relative_gap, row.violation) for row in one.certificates]
        for one in (a, b)
    ]
    pairs = zip(a.histograms, b.histograms, strict=True)
    return counted[0] == counted[1] and all(
        x.sizes.tobytes() == y.sizes.tobytes() and x.counts.tobytes() == y.counts.tobytes() for x, y in pairs
    )


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["cumulative", "ranks", "sizes"]),
    st.sampled_from(["matching", "bottom_up", "none"]),
    st.integers(1, 5),
    st.sampled_from([1, 2, 8, 32]),
)
def test_workers_executors_and_cuts_change_nothing(
    seed: int, query: str, consistency: str, workers: int, least: int
) -> None:
    noisy, method = measurement(seed, query), GroupsMethod(("l1", "l2", "l1", "l2"), consistency=consistency)  # type: ignore[arg-type]
    once = estimate_groups(noisy, method)
    with pytest.MonkeyPatch.context() as patch, ByFiles(workers) as files:
        patch.setattr(subtrees, "LEAST_SUBTREES", least)
        for executor in (Threads(workers), files):
            assert same(once, estimate_groups(noisy, method, executor=executor))


@pytest.fixture(scope="module", params=["processes", "dask"])
def workers(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with open_executor(request.param, 2) as executor:
        yield executor


def test_processes_and_dask_read_the_sealed_file_and_survive_a_kill(
    workers: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subtrees, "LEAST_SUBTREES", 4)
    monkeypatch.setattr("coco_opt.files.packed_file.DENSE", 0)  # so that answers stay in their file
    noisy, method = measurement(1), GroupsMethod(consistency="matching")
    write_measurement(tmp_path / "sealed", noisy, private=True)
    sealed, _ = read_measurement(tmp_path / "sealed")
    killing, told = Killing(workers, tmp_path, maps=2), []  # type: ignore[var-annotated]
    found = estimate_groups(sealed, method, executor=killing, progress=lambda *done: told.append(done))  # type: ignore[arg-type]
    assert killing.mark.exists()
    assert same(estimate_groups(noisy, method), found)
    assert told[-1] == (noisy.hierarchy.regions,) * 2
    assert told == sorted(told)


def test_a_solver_that_fails_elsewhere_says_so_here(tmp_path: Path) -> None:
    noisy, method = measurement(2), GroupsMethod(consistency="matching")
    from coco_solvers.generic.osqp import OSQP

    solvers = SolverChoices({"isotonic_l1": OSQP(max_iter=1)}, fallback=False)
    with ByFiles(2) as executor, pytest.raises(SolverError, match="osqp on isotonic_l1") as caught:
        estimate_groups(noisy, method, solvers, executor=executor)
    assert caught.value.solution is not None
