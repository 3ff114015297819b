"""Draw the figures of the user guide as small SVG files: ``python docs/guide_figures.py [NAME ...]``.

All data are simulated from fixed seeds. Lines and letters are grey on a transparent ground, so that one file can be
read on a light and on a dark page. ``FIGURES`` at the end lists what is drawn; without names all of them are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

import coco_opt as co
from coco_opt.ranges import Workload, optimised_tree
from coco_opt.report.style import COLOURS, PAGE, plain, styled

FOLDER = Path(__file__).parent / "pictures" / "guide"
_GREY, _GRID = "#7a7a7a", "#7a7a7a44"
_BLUE, _ORANGE, _GREEN, _PINK = "#3b8fd1", *COLOURS[1:4]  # the palette's blue is too dark for a dark page
_SEEDS = range(5)
_HOUSEHOLDS = (0.04, 0.28, 0.33, 0.15, 0.12, 0.05, 0.02, 0.01)  # the share of each size from 0


@contextmanager
def _saved(name: str, panels: int = 1, height: float = 2.6) -> Iterator[NDArray[Any]]:
    """Give axes to draw on, and write them as ``name``.svg: real text, no date, so equal numbers give equal files."""
    colours = {f"{part}.color": _GREY for part in ("text", "xtick", "ytick")}
    settings: Any = {**colours, "axes.edgecolor": _GREY, "axes.labelcolor": _GREY, "svg.hashsalt": name}
    with styled(), mpl.rc_context(settings):
        figure, axes = plt.subplots(1, panels, figsize=(PAGE, height), layout="constrained", squeeze=False)
        yield axes[0]
        for axis in axes[0]:
            axis.grid(visible=True, color=_GRID, linewidth=0.6)
            axis.set_axisbelow(True)
        figure.savefig(FOLDER / f"{name}.svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)


def noise() -> None:
    """Draw the distributions of geometric and of discrete Gaussian noise."""
    k = np.arange(-8, 9)
    with _saved("noise") as (axis,):
        for scale, colour in ((1.0, _BLUE), (2.0, _ORANGE)):
            ratio = np.exp(-1 / scale)
            mass = (1 - ratio) / (1 + ratio) * ratio ** abs(k)
            axis.plot(k, mass, "o-", color=colour, markersize=4, label=f"geometric, epsilon = {1 / scale:g}")
        gauss = np.exp(-(k**2) / 2.0)
        axis.plot(k, gauss / gauss.sum(), "s--", color=_GREEN, markersize=4, label="discrete Gaussian, rho = 1/2")
        axis.set(xlabel="noise added to one count", ylabel="probability")
        axis.legend()


def estimate() -> None:
    """Draw true, noisy and estimated cumulative counts of one region."""
    generator = np.random.default_rng(4)
    sizes = np.arange(20)
    truth = np.cumsum(generator.multinomial(60, np.exp(-sizes / 4) / np.exp(-sizes / 4).sum()))
    noisy = truth + generator.geometric(1 - np.exp(-1 / 3), 20) - generator.geometric(1 - np.exp(-1 / 3), 20)
    fit = co.solve(co.IsotonicL1(noisy, lower=0, upper=60)).value
    with _saved("estimate") as (axis,):
        axis.step(sizes, truth, where="mid", color=_GREY, label="true counts (secret)")
        axis.plot(sizes, noisy, "o", color=_ORANGE, markersize=4, label="noisy measurements")
        axis.step(sizes, fit, where="mid", color=_BLUE, label="estimate: nearest nondecreasing integers")
        axis.set(xlabel="size", ylabel="groups of at most this size", xticks=sizes[::2])
        axis.legend()


def _nation(seed: int, households: int = 150) -> tuple[co.Hierarchy, list[co.CountOfCounts]]:
    """Return a simulated nation of 4 states with 6 counties each, and the histogram of every region."""
    generator = np.random.default_rng(seed)
    tree = co.Hierarchy.from_paths([("nation", f"state {s}", f"county {c}") for s in range(4) for c in range(6)])
    shares = np.array([*_HOUSEHOLDS, *np.full(32, 1e-3)])
    dense = generator.multinomial(households, shares / shares.sum(), size=24)
    histograms = [co.CountOfCounts.from_dense(row) for row in tree.aggregate(dense)]
    return tree, histograms


def _measured(seed: int, budget: tuple[str, str, str]) -> tuple[list[co.CountOfCounts], co.Measurement]:
    """Return a nation's true histograms and their noisy cumulative counts, for a budget by level."""
    tree, truth = _nation(seed)
    return truth, co.measure_hierarchy(
        truth,
        tree,
        [histogram.groups for histogram in truth],
        queries=["cumulative"] * 3,
        costs=co.Epsilon(Fraction(1)).shared(budget),
        max_size=40,
        neighbours="add_remove",
        source=co.SeededNoise(seed),
    )


def groups() -> None:
    """Draw the errors of the methods for groups, by level."""
    even = ("1/3", "1/3", "1/3")
    plans = {"bottom_up": ("0", "0", "1"), "matching": even, "joint": even, "posterior": even}
    errors = {method: np.zeros(3) for method in plans}
    for method, budget in plans.items():
        for seed in _SEEDS:
            truth, measurement = _measured(seed, budget)
            result = co.estimate_groups(measurement, co.GroupsMethod(consistency=method))  # type: ignore[arg-type]
            distances = [co.emd(a, b) for a, b in zip(result.histograms, truth, strict=True)]
            means = [np.mean(distances[slice(*bounds)]) for bounds in ((0, 1), (1, 5), (5, 29))]
            errors[method] += np.array(means) / len(_SEEDS)
    with _saved("groups") as (axis,):
        _by_level(axis, errors, ("nation", "4 states", "24 counties"), "persons to add or remove, mean")


def _by_level(axis: Axes, errors: dict[str, NDArray[np.float64]], levels: tuple[str, ...], label: str) -> None:
    """Draw one group of bars for each level, and one bar for each method in it."""
    width = 0.8 / len(errors)
    for place, (method, values) in enumerate(errors.items()):
        middle = np.arange(len(levels)) + (place - (len(errors) - 1) / 2) * width
        bars = axis.bar(middle, values, width * 0.92, color=(_BLUE, _ORANGE, _GREEN, _PINK)[place])
        bars.set_label(method)
        axis.bar_label(bars, [f"{value:,.3g}" for value in values], color=_GREY, fontsize=7)
    axis.set(ylabel=label, xticks=range(len(levels)), xticklabels=levels)
    axis.legend(ncols=len(errors), loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _people(seed: int) -> co.TableCounts:
    """Return simulated persons by sex and age in 24 counties of 4 states."""
    generator = np.random.default_rng(seed)
    tree, _ = _nation(seed)
    schema = co.Schema({"sex": ["female", "male"], "age": ["0-19", "20-39", "40-59", "60-79", "80+"]})
    means = np.array([24, 27, 25, 17, 5] * 2) * generator.gamma(2.0, 0.5, size=(24, 1))
    return co.TableCounts.from_counts(tree, schema, generator.poisson(means).tolist())


def tables() -> None:
    """Draw the errors of the estimations of tables, by level."""
    errors = {method: np.zeros(3) for method in ("bottom_up", "classic", "full")}
    for seed in _SEEDS:
        people = _people(seed)
        truth = np.concatenate([people.level_tables(level) for level in range(3)])
        strategy = co.Strategy.uniform(co.parse_queries(["total", "sex * age"], people.schema))
        for method, total in errors.items():
            parts = (0, 0, 0, 0, 1, 1) if method == "bottom_up" else (1,) * 6  # two queries at each of three levels
            costs = co.Epsilon(Fraction(1)).shared([Fraction(part, sum(parts)) for part in parts])
            plan = co.TablePlan(strategy.queries, (costs[:2], costs[2:4], costs[4:]))
            measurement = co.measure_tables(people, plan, source=co.SeededNoise(seed))
            result = co.estimate_tables(measurement, co.TopdownMethod(method))  # type: ignore[arg-type]
            distances = abs(np.array([result[path] for path in people.hierarchy.paths]) - truth).mean(axis=1)
            total += np.array([distances[:1].mean(), distances[1:5].mean(), distances[5:].mean()]) / len(_SEEDS)
    with _saved("tables") as (axis,):
        _by_level(axis, errors, ("nation", "4 states", "24 counties"), "error of a cell in persons, mean")


def ranges() -> None:
    """Draw the standard error of a range by its length, with and without a tree."""
    lengths = np.unique(np.geomspace(1, 1024, 60).astype(np.int64))
    cost = co.Epsilon(Fraction(1))
    best = optimised_tree(Workload.of(1024), cost, nonnegative=True)
    with _saved("ranges") as (axis,):
        for fan_out, shares, label, style in (
            (None, None, "cells alone", {"color": _ORANGE}),
            (2, None, "binary tree", {"color": _GREEN}),
            (16, None, "tree of fan-out 16", {"color": _BLUE}),
            (best.fan_out, best.shares, "optimised tree", {"color": _PINK, "linestyle": "--"}),
        ):
            noisy = co.measure_ranges([3] * 1024, cost, fan_out=fan_out, shares=shares, source=co.SeededNoise(1))
            histogram = co.UniversalHistogram.fit(noisy, "consistent")
            starts = (1024 - lengths) // 2
            answers = histogram.ranges(starts, starts + lengths)
            axis.plot(lengths, answers.standard_error, label=label, **style)
        axis.set(xscale="log", xlabel="length of the range, of 1,024 cells", ylabel="standard error, entities", ylim=0)
        plain(axis.xaxis)
        axis.legend()


def intervals() -> None:
    """Draw the intervals of one county's counts, and the truth."""
    truth, measurement = _measured(1, ("1/3", "1/3", "1/3"))
    result = co.estimate_groups(measurement, co.GroupsMethod(consistency="posterior", intervals=0.9))
    ends = result.intervals_of("nation/state 1/county 1")
    sizes = np.arange(13)
    estimates = result["nation/state 1/county 1"].to_dense(40)[:13]
    true = truth[result.hierarchy.index("nation/state 1/county 1")].to_dense(40)[:13]
    with _saved("intervals") as (axis,):
        axis.vlines(
            sizes,
            ends.groups_lower[:13],
            ends.groups_upper[:13],
            color=_BLUE,
            linewidth=5,
            alpha=0.4,
            label="interval of 90 %",
        )
        axis.plot(sizes, estimates, "_", color=_BLUE, markersize=11, label="released table")
        axis.plot(sizes, true, "o", color=_ORANGE, markersize=3.5, label="truth (secret)")
        axis.set(xlabel="size", ylabel="groups of this size", xticks=sizes)
        axis.legend()


def neighbours() -> None:
    """Draw what neighbouring data sets do to a noisy count, and what an observer can learn by epsilon."""
    k = np.arange(2, 20)
    with _saved("neighbours", 2) as (left, right):
        for true, colour, shift in ((10, _BLUE, -0.2), (11, _ORANGE, 0.2)):
            mass = np.tanh(0.5) * np.exp(-abs(k - true))
            left.bar(k + shift, mass, 0.38, color=colour, label=f"true count {true}")
        left.set(xlabel="noisy count at epsilon = 1", ylabel="probability", xticks=k[::2])
        left.legend()
        epsilon = np.linspace(0, 5, 101)
        for prior, colour in ((0.5, _BLUE), (0.1, _GREEN), (0.01, _PINK)):
            odds = prior / (1 - prior) * np.exp(epsilon)
            right.plot(epsilon, odds / (1 + odds), color=colour, label=f"{prior:.0%} before")
        right.set(xlabel="epsilon", ylabel="largest certainty afterwards", ylim=(0, 1))
        right.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0)


def losses() -> None:
    """Draw the fits of both losses to the same noisy counts."""
    noisy = [3, 1, 4, 1, 5, 9, 2, 6, 5, 12, 9, 11]
    places = np.arange(len(noisy))
    with _saved("losses") as (axis,):
        axis.plot(places, noisy, "o", color=_GREY, markersize=4, label="noisy counts")
        fits = {"absolute values (IsotonicL1)": co.solve(co.IsotonicL1(noisy)).value}
        fits["squares (IsotonicL2)"] = co.solve(co.IsotonicL2(noisy)).value
        for (label, fit), colour in zip(fits.items(), (_BLUE, _ORANGE), strict=True):
            axis.step(places, fit, where="mid", color=colour, label=label)
        axis.set(xlabel="position", ylabel="count", xticks=places)
        axis.legend()


FIGURES: tuple[Callable[[], None], ...] = (
    noise,
    estimate,
    groups,
    tables,
    ranges,
    intervals,
    neighbours,
    losses,
)


def main(names: list[str]) -> None:
    """Draw the named figures, or all of them."""
    mpl.use("svg")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for figure in FIGURES:
        if not names or figure.__name__ in names:
            figure()


if __name__ == "__main__":
    main(sys.argv[1:])
