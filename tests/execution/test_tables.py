"""Tables estimated by every executor: the same tables, relaxed regions, cuts, certificates and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import coco_opt.execution.executor as batching
import coco_opt.topdown.estimating.splitting.level as levels
from coco_opt import Hierarchy, Measurement, Schema, TopdownMethod, estimate_tables, read_measurement, write_measurement
from coco_opt.execution import Executor, Threads, open_executor
from coco_opt.topdown import RegionBounds, TableMeasurements, TablesResult, parse_query
from coco_opt.topdown.estimating.linear.query_trees import linear_stage
from coco_opt.topdown.estimating.recursion import Checkpoint
from tests.execution.tasks import ByFiles, Killing, Splits
from tests.topdown.estimation import measured

SCHEMA = Schema({"race": ["a", "b"], "age": ["minor", "adult"]})


def tree(rng: np.random.Generator) -> tuple[Hierarchy, np.ndarray]:
    paths = [
        ("n", f"s{s}", f"s{s}c{c}", f"s{s}c{c}b{b}")
        for s in range(3)
        for c in range(int(rng.integers(1, 5)))
        for b in range(int(rng.integers(1, 5)))
    ]
    return Hierarchy.from_paths(paths), rng.poisson(rng.gamma(0.5, 4.0, (len(paths), SCHEMA.size))).astype(np.int64)


TREE = tree(np.random.default_rng(4))


def plain(seed: int) -> Measurement:
    hierarchy, leaves = tree(np.random.default_rng(seed))
    return measured(seed, hierarchy, SCHEMA, leaves, ["total", "race", "detail"], 2)


def bound(seed: int) -> Measurement:
    """Return a measurement whose facts of two overlapping queries cut and relax regions."""
    rng = np.random.default_rng(seed)
    hierarchy, leaves = tree(rng)
    tables, constraints = hierarchy.aggregate(leaves), []
    for text, level in (("race", 3), ("age", 3), ("race", 2), ("age", 1)):
        query, regions = parse_query(text, SCHEMA), hierarchy.level_range(level)
        true = query.operator.apply(tables[regions.start : regions.stop])
        spare = rng.integers(0, 2, true.shape)
        constraints.append(
            RegionBounds(query, level, np.maximum(true - spare, 0), true + rng.integers(0, 2, true.shape))
        )
    return measured(seed, hierarchy, SCHEMA, leaves, ["detail"], 1, [("total", 1)], constraints)


def same(a: TablesResult, b: TablesResult) -> bool:
    figures = [
        (
            one.relaxed,
            one.uncertified_gap,
            one.implied,
            [(row.problem, row.solver, row.solves, row.gap, row.violation, row.fallbacks) for row in one.certificates],
            [(table.offsets.tolist(), table.cells.tolist(), table.counts.tolist()) for table in one.tables],
        )
        for one in (a, b)
    ]
    return figures[0] == figures[1]


def cuts_of(done: Checkpoint) -> list[tuple[int, list[int], int]]:
    return [(region, cut.weights.tolist(), cut.upper) for region, cut in done.cuts]


CASES: dict[str, tuple[Callable[[int], Measurement], TopdownMethod]] = {
    "full": (plain, TopdownMethod("full")),
    "nearest": (plain, TopdownMethod("classic", rounding="nearest")),
    "bottom up": (plain, TopdownMethod("bottom_up")),
    "relaxed": (bound, TopdownMethod("classic", implied="bounds")),
    "cuts": (bound, TopdownMethod("classic", implied="cuts")),
    "minimal schema": (bound, TopdownMethod("classic", implied="minimal_schema")),
}


@pytest.mark.parametrize("case", CASES)
def test_workers_and_executors_change_nothing(case: str) -> None:
    made, method = CASES[case]
    relaxed = cuts = 0
    for seed in range(2):
        noisy, done = made(seed), list[Checkpoint]()
        once = estimate_tables(noisy, method, after_level=done.append)
        relaxed, cuts = relaxed + len(once.relaxed), cuts + once.implied.cuts
        for workers in (2, 5):
            with ByFiles(workers) as files:
                for executor in (Threads(workers), files):
                    again, told = list[Checkpoint](), list[tuple[int, int]]()
                    found = estimate_tables(
                        noisy,
                        method,
                        executor=executor,
                        after_level=again.append,
                        progress=lambda *at, told=told: told.append(at),  # type: ignore[misc]
                    )
                    assert same(once, found)
                    assert [cuts_of(one) for one in again] == [cuts_of(one) for one in done]
                    assert told[-1] == (noisy.hierarchy.regions,) * 2
    assert (relaxed > 0, cuts > 0) == (case == "relaxed", case == "cuts")


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "LEAST_PARENTS", 1)
    monkeypatch.setattr(batching, "_LEAST_NUMBERS", 8)


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("together", [False, True])
def test_answers_that_stay_in_their_file_give_the_same_tables(
    together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coco_opt.files.packed_file.DENSE", 0)
    noisy = [plain(4), measured(5, TREE[0], SCHEMA, TREE[1], ["race", "age"], 1)] if together else [plain(4)]
    kept = []
    for number, one in enumerate(noisy):
        write_measurement(tmp_path / f"{number}", one, private=True)
        kept.append(read_measurement(tmp_path / f"{number}")[0])
    held, sealed = (replace(first, also=tuple(also)) for first, *also in (noisy, kept))
    assert not any(isinstance(one.stored, np.ndarray) for one in sealed.answers)
    with ByFiles(3) as files:
        assert same(estimate_tables(held), estimate_tables(sealed, executor=files))


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("seed", range(4))
def test_the_linear_stage_is_the_same_however_levels_are_cut(seed: int) -> None:
    answers = TableMeasurements.of(plain(seed))
    stages = [linear_stage(answers, workers) for workers in (1, 2, 50)]
    for trees in zip(*(stage.trees for stage in stages), strict=True):
        for level in range(4):
            z = [tree.z[level] for tree in trees]
            for other in z[1:]:
                np.testing.assert_array_equal(z[0], other)


KILLS = {
    "a level's splits": (plain, TopdownMethod("full"), 2, Splits(2)),
    "the last level's splits": (bound, TopdownMethod("classic", implied="cuts"), 3, Splits(1 + 3)),
}


@pytest.fixture(scope="module")
def workers(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with open_executor(request.param, 2) as executor:
        yield executor


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize(
    ("workers", "kill"),
    [*(("processes", kill) for kill in KILLS), ("dask", "a level's splits")],
    indirect=["workers"],
)
def test_processes_and_dask_read_the_sealed_file_and_survive_a_kill(
    workers: Executor, kill: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coco_opt.files.packed_file.DENSE", 0)  # so that answers stay in their file
    made, method, maps, chosen = KILLS[kill]
    noisy = made(1)
    write_measurement(tmp_path / "sealed", noisy, private=True)
    sealed, _ = read_measurement(tmp_path / "sealed")
    killing: Executor = Killing(workers, tmp_path, maps, chosen)  # type: ignore[assignment]
    found = estimate_tables(sealed, method, executor=killing)
    assert (tmp_path / "killed").exists()
    assert same(estimate_tables(noisy, method), found)
