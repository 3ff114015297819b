"""The posterior of ranges: exact probabilities on tiny domains, releases of least error, and their files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt import Config, parse_config, read_ranges_release, render_report, verify_release
from coco_opt import release as release_of
from coco_opt.errors import ProblemError
from coco_opt.files.folder import FileTable, parquet, read_columns
from coco_opt.files.regions import stored_regions
from coco_opt.posterior.chains import Criterion
from coco_opt.privacy import DiscreteGaussian, Epsilon, Geometric, NoiseDistribution, Rho, SeededNoise
from coco_opt.ranges import DomainTree, IntervalCounts, UniversalHistogram, Workload, measure_ranges
from coco_opt.ranges.estimating.posterior import sampler
from coco_opt.ranges.estimating.posterior.layout import BinaryTree, Layout
from coco_opt.ranges.estimating.posterior.prior import SplitComponents, SplitPrior
from coco_opt.ranges.estimating.posterior.release import mean_square, rounded_sums
from coco_opt.ranges.estimating.posterior.sampler import SamplerOptions, posterior_seconds, sample_counts
from coco_opt.ranges.kind import RANGES
from coco_opt.ranges.kind.intervals import DRAWS, INTERVALS
from coco_opt.releases.kind import Folder

MOST = 7  # counts that are enumerated


def draws_of(layout: Layout, prior: SplitPrior, draws: int, word: int) -> np.ndarray:
    """Return draws of the cells' counts under fixed weights."""
    from coco_opt.kernels import posterior_splits as kernels

    nodes, splits = layout.nodes, prior.splits()
    messages, scratch = layout.likelihood.copy(), np.zeros(512)
    assert kernels.upward(nodes, splits, layout.likelihood, messages, scratch) == -1
    counts, words = np.zeros(nodes.left.size, np.int64), np.array([word], np.uint64)
    out = np.empty((draws, layout.binary.leaves.size), np.int64)
    for row in out:
        kernels.draw(nodes, splits, messages, words, counts, scratch)
        row[:] = counts[layout.binary.leaves]
    return out


def enumerated(counts: IntervalCounts, layout: Layout, prior: SplitPrior) -> dict[tuple[int, ...], float]:
    """Return the posterior probability of every vector of cells' counts up to MOST, by their definition."""
    domain, tree = counts.domain, layout.binary.tree
    cells = np.array(list(product(range(MOST + 1), repeat=domain.cells)))
    units = np.eye(domain.cells, dtype=np.int64)
    intervals = cells @ np.array([domain.counts(unit) for unit in units])
    noise = counts.distribution if isinstance(counts.distribution, tuple) else (counts.distribution,)
    log = np.zeros(len(cells))
    for part, law in zip(domain.measured_parts, noise, strict=True):
        log += law.log_weight(intervals[:, part] - counts.values[part]).sum(axis=1)
    below = np.zeros((domain.cells, tree.nodes), np.int64)
    below[np.arange(domain.cells), layout.binary.leaves] = 1
    nodes = cells @ np.array([tree.sums(row) for row in below])
    weights, small = np.exp(log), prior.splits().small
    for node in np.flatnonzero(layout.nodes.left >= 0):
        weights *= small[layout.nodes.kind[node], nodes[:, node], nodes[:, layout.nodes.left[node]]]
    return dict(zip(map(tuple, cells.tolist()), weights / weights.sum(), strict=True))


@pytest.mark.parametrize(
    ("cells", "fan_out", "law"),
    [
        (3, 2, Geometric(Fraction(3, 4))),
        (3, None, DiscreteGaussian(Fraction(1))),
        (4, (2, 2), (Geometric(Fraction(1)), Geometric(Fraction(1)), DiscreteGaussian(Fraction(1)))),
        (5, 3, Geometric(Fraction(2, 3))),
    ],
)
def test_draws_have_the_posterior_probabilities(
    cells: int, fan_out: int | tuple[int, ...] | None, law: NoiseDistribution | tuple[NoiseDistribution, ...]
) -> None:
    shares = (Fraction(1, 3),) * 3 if isinstance(law, tuple) else None
    domain = DomainTree(cells, fan_out, shares=shares)
    rng = np.random.default_rng([cells, domain.height])
    truth = domain.counts(np.array([0, 2, 0, 1, 1][:cells]))
    counts = IntervalCounts(domain, truth + rng.integers(-1, 2, truth.size), law)
    layout = Layout.of(counts)
    prior = SplitPrior(SplitComponents.of(layout, 100))
    prior.weight[:] = rng.dirichlet(np.ones(prior.weight.shape[2]), prior.weight.shape[:2])
    exact = enumerated(counts, layout, prior)
    number = 20_000
    drawn, times = np.unique(draws_of(layout, prior, number, 8), axis=0, return_counts=True)
    seen = dict(zip(map(tuple, drawn.tolist()), times.tolist(), strict=True))
    assert sum(times for key, times in seen.items() if key not in exact) < 2e-3 * number
    likely = {key: probability for key, probability in exact.items() if probability > 2e-3}
    assert len(likely) > 6
    z = [(seen.get(key, 0) - number * p) / np.sqrt(number * p * (1 - p)) for key, p in likely.items()]
    assert np.abs(z).max() < 4.5
    assert np.square(z).mean() < 1.6


@pytest.mark.parametrize("share", [0.5, 0.67])
def test_splits_of_large_counts_are_close_to_those_of_small_ones(share: float) -> None:
    """Where counts pass from tables to distribution functions, the mean and the variance of a split stay."""
    from coco_opt.kernels import posterior_splits as kernels

    cells = 3 if share > 0.6 else 2
    layout = Layout.of(IntervalCounts(DomainTree(cells, cells), np.full(cells + 1, 200), Geometric(Fraction(100))))
    prior = SplitPrior(SplitComponents.of(layout, 10_000))
    assert layout.nodes.share[0] == share
    count = kernels.SMALL
    for component in range(2, prior.weight.shape[2]):
        prior.weight[:] = np.arange(prior.weight.shape[2]) == component
        splits = prior.splits()
        table = prior.fixed.small[layout.shape[0], component, count - 1, :count]
        mean = table @ np.arange(count) / (count - 1)
        variance = table @ (np.arange(count) / (count - 1) - mean) ** 2
        cuts = np.arange(-0.5, count + 1)
        t = [kernels.warped(cut, count, layout.nodes.share[0]) for cut in cuts]
        masses = np.diff(np.interp(t, splits.knots, splits.cumulative[layout.nodes.kind[0], 0]))
        parts = np.arange(count + 1) / count
        own = masses @ parts
        assert masses.sum() == pytest.approx(1.0)
        assert own == pytest.approx(mean, abs=0.03)
        assert masses @ (parts - own) ** 2 == pytest.approx(variance, rel=0.25)


@pytest.mark.parametrize(("cells", "fan_out"), [(1, 2), (2, 2), (9, 2), (45, (5, 3, 3)), (17, 16), (30, None)])
def test_binary_trees_hold_every_interval(cells: int, fan_out: int | tuple[int, ...] | None) -> None:
    domain = DomainTree(cells, fan_out)
    binary = BinaryTree.of(domain.tree.first_child)
    children = np.diff(binary.tree.first_child)
    assert set(children.tolist()) <= {0, 2}
    assert binary.tree.nodes == 2 * cells - 1
    counts = np.arange(1, cells + 1)
    nodes = np.zeros(binary.tree.nodes, np.int64)
    nodes[binary.leaves] = counts
    assert (binary.tree.sums(nodes)[binary.of_interval] == domain.counts(counts)).all()


@pytest.mark.parametrize("workload", ["ranges", "prefixes"])
def test_rounded_sums_are_the_best(workload: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        sums = np.concatenate([[0.0], np.cumsum(rng.choice([0.0, 0.3, 0.5, 1.7], 5) * rng.random(5))])
        own = Workload.of(5, workload)  # type: ignore[arg-type]
        ends = rounded_sums(sums, own)
        assert ends[0] == 0
        assert (np.diff(ends) >= 0).all()
        floors = np.floor(sums).astype(np.int64)
        possible = (floors[1:] + shift for shift in product((-1, 0, 1, 2), repeat=5))
        best = min(mean_square(np.concatenate([[0], each]) - sums, own) for each in possible)
        assert mean_square(ends - sums, own) == pytest.approx(best)


def test_a_list_of_cells_is_rounded_cell_by_cell() -> None:
    means = np.random.default_rng(5).random(40)
    sums = np.concatenate([[0.0], np.cumsum(means)])
    of_cells = Workload.of(40, (np.arange(40), np.arange(1, 41)))
    ends = rounded_sums(sums, of_cells)
    assert (np.diff(ends) >= 0).all()
    assert mean_square(ends - sums, of_cells) <= mean_square(rounded_sums(sums, Workload.of(40)) - sums, of_cells)


@pytest.mark.parametrize("cost", [Epsilon(Fraction(1)), Rho(Fraction(1, 20))], ids=str)
def test_the_posterior_errs_less_and_its_intervals_hold(cost: Epsilon | Rho) -> None:
    rng = np.random.default_rng(11)
    truth = np.where(np.arange(256) % 64 < 20, rng.poisson(15, 256), 0)
    inside, errors = [], []
    ends = np.sort(rng.integers(0, 257, (2, 300)), axis=0)
    exact = np.concatenate([[0], np.cumsum(truth)])
    expected = exact[ends[1]] - exact[ends[0]]
    for seed in (1,):
        measurement = measure_ranges(truth, cost, source=SeededNoise(seed), fan_out=4)
        fits = [UniversalHistogram.fit(measurement, name) for name in ("posterior", "nonnegative")]  # type: ignore[arg-type]
        errors.append([np.square(fit.ranges(*ends).estimate - expected).mean() for fit in fits])
        intervals = fits[0].intervals(*ends)
        estimate = fits[0].ranges(*ends).estimate
        assert ((intervals.lower <= estimate) & (estimate <= intervals.upper)).all()
        assert (fits[0].nodes == np.rint(fits[0].nodes)).all()
        assert (fits[0].cells >= 0).all()
        inside.append(np.mean((intervals.lower <= expected) & (expected <= intervals.upper)))
    posterior, nonnegative = np.mean(errors, axis=0)
    assert posterior < 0.8 * nonnegative
    assert 0.8 < np.mean(inside) <= 1.0


def test_draws_do_not_depend_on_threads() -> None:
    measurement = measure_ranges([5, 0, 0, 9, 1], Epsilon(Fraction(1, 2)), source=SeededNoise(2), fan_out=2)
    one, two = (UniversalHistogram.fit(measurement, "posterior", threads=threads) for threads in (1, 2))
    assert one.posterior is not None
    assert two.posterior is not None
    assert (one.posterior.sampled.cells == two.posterior.sampled.cells).all()
    assert one.posterior.sampled.converged


@pytest.mark.parametrize(("seconds", "attempts"), [(0.0, 2), (5.0, 3), (60.0, 6)])
def test_more_rounds_follow_where_time_allows(seconds: float, attempts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    options = SamplerOptions.within(seconds, 365)
    assert options.attempts == attempts
    assert attempts == 2 or posterior_seconds(365, attempts) <= seconds
    monkeypatch.setattr(sampler, "Criterion", lambda: Criterion(r_hat=0.0))  # no chains agree
    measurement = measure_ranges([5, 0, 0, 9, 1], Epsilon(Fraction(1, 2)), source=SeededNoise(2), fan_out=2)
    small = replace(options, most=4, draws=8)
    drawn = sample_counts(IntervalCounts.of(measurement), small)
    assert drawn.rounds == 8 + 4 * (2**attempts - 1)
    assert drawn.cells.shape[0] == small.most_draws(measurement.measurement_plan.parameters["cells"])
    assert (drawn.converged, drawn.counts_agree) == (False, False)


def test_almost_no_noise_gives_the_counts() -> None:
    counts = np.array([0, 30_000, 0, 0, 5, 2_000_000, 0, 10])
    measurement = measure_ranges(counts, Epsilon(Fraction(1000)), source=SeededNoise(0), fan_out=2)
    histogram = UniversalHistogram.fit(measurement, "posterior")
    assert (histogram.cells == counts).all()
    assert histogram.intervals([1], [6]).lower[0] == counts[1:6].sum()


def test_intervals_need_draws_and_a_coverage() -> None:
    measurement = measure_ranges([5, 0, 0, 9, 1], Epsilon(Fraction(1)), source=SeededNoise(2), fan_out=2)
    with pytest.raises(ProblemError, match="no draws"):
        UniversalHistogram.fit(measurement).intervals([0], [1])
    with pytest.raises(ProblemError, match="between 0 and 1"):
        UniversalHistogram.fit(measurement, "posterior").intervals([0], [1], 1.0)


TEXT = """
[data]
values = "visits.csv"
[privacy]
epsilon = "1"
noise = "seeded"
seed = 5
[ranges]
edges = [0, 10, 20, 30, 40, 50, 60, 70, 80, 100]
fan_out = 3
"""
POSTERIOR = 'estimator = "posterior"\nworkload = [[0, 20], [10, 100]]\n'


def config(folder: Path, more: str) -> Config:
    return parse_config(TEXT + more, folder, file="visits.toml")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("visits")
    values = np.random.default_rng(3).binomial(99, 0.4, 800)
    (folder / "visits.csv").write_text("\n".join(["value", *map(str, values)]) + "\n")
    return release_of(config(folder, POSTERIOR + "draws = 20\n"), page=render_report)


def test_a_release_verifies_and_its_intervals_are_read(made: Any) -> None:
    checks = {check.name: check for check in verify_release(made.folder)}
    assert all(check.passed for check in checks.values())
    assert {"intervals", "draws", "whole_numbers", "nonnegative", "children_sum_to_parents"} <= checks.keys()
    fitted = made.estimate.result.histogram
    table = read_columns(made.folder / INTERVALS, ("start", "stop", "lower", "upper")).to_pandas()
    assert len(table) == 13 + 2  # of the tree, and of the workload
    begin, end = fitted.domain.cells_of(table["start"]), np.searchsorted(fitted.domain.edges, table["stop"])
    spans = fitted.intervals(begin, end)
    assert (table["lower"] == spans.lower).all()
    assert (table["upper"] == spans.upper).all()
    assert len(made.estimate.intervals()) == len(table)
    read = read_ranges_release(made.folder)  # from draws: of any range
    own = read.intervals([2, 0], [5, 9], 0.5)
    assert (own.lower <= read.ranges([2, 0], [5, 9]).estimate).all()
    assert made.manifest["posterior"]["draws"] >= 192
    assert "90 % interval" in (made.folder / "report.html").read_text()


def test_without_draws_the_published_intervals_are_read(made: Any) -> None:
    (made.folder / DRAWS).rename(made.folder / "aside")
    try:
        read = read_ranges_release(made.folder)
        fitted = made.estimate.result.histogram
        assert read.intervals([0, 3], [2, 4]).lower.tolist() == fitted.intervals([0, 3], [2, 4]).lower.tolist()
        with pytest.raises(ProblemError, match="no interval of the cells 2:5"):
            read.intervals([2], [5])
        with pytest.raises(ProblemError, match=r"0.9 alone"):
            read.intervals([0], [1], 0.8)
    finally:
        (made.folder / "aside").rename(made.folder / DRAWS)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (INTERVALS, lambda table: table["lower"].__setitem__(4, 10_000), "released count"),
        (INTERVALS, lambda table: table["start"].__setitem__(0, 3), "no range of cells"),
        (INTERVALS, lambda table: [column.pop() for column in table.values()], "has no row"),
        (DRAWS, lambda table: table["count"].__setitem__(0, 0), "no count of a cell"),
        (DRAWS, lambda table: table["draw"].__setitem__(0, 99), "no count of a cell"),
        (DRAWS, lambda table: [column.append(column[-1]) for column in table.values()], "twice"),
    ],
)
def test_verification_finds_changed_files(
    made: Any, name: str, change: Callable[[dict[str, list[int]]], object], words: str
) -> None:
    content = (made.folder / name).read_bytes()
    columns = ("draw", "start", "stop", "count") if name == DRAWS else ("start", "stop", "lower", "upper")
    table = read_columns(made.folder / name, columns).to_pydict()
    change(table)
    try:
        (made.folder / name).write_bytes(parquet(FileTable.of(table, dict.fromkeys(columns, "int64"))))
        manifest = json.loads((made.folder / "manifest.json").read_text())
        regions = stored_regions(made.folder)
        failed = [check for check in RANGES.verify(Folder(made.folder, manifest, regions)) if not check.passed]
        assert [check.name for check in failed] == [name.partition(".")[0]]
        assert words in failed[0].detail
    finally:
        (made.folder / name).write_bytes(content)


@pytest.mark.parametrize(("cells", "time", "estimator"), [(4096, 600.0, "posterior"), (2**18, 5.0, "nonnegative")])
def test_an_automatic_estimator_takes_the_time_that_it_may(
    tmp_path: Path, cells: int, time: float, estimator: str
) -> None:
    text = TEXT.replace(
        "edges = [0, 10, 20, 30, 40, 50, 60, 70, 80, 100]\nfan_out = 3", f"cells = {cells}\nfan_out = 16"
    )
    written = parse_config(f'{text}estimator = "auto"\n[auto]\ntime = {time}\n', tmp_path, file="visits.toml")
    method = RANGES.method(written, RANGES.plan(written).measurement_plan)
    assert (method.estimator, method.coverage) == (estimator, 0.9 if estimator == "posterior" else 0.0)
