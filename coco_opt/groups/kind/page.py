"""The sections of a report on groups: how they were estimated, their errors, and their histograms.

The figures of a release of groups: histograms and the noisy measurements they were estimated from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from coco_opt.array_types import Flags, Ints
from coco_opt.estimators import estimator_row
from coco_opt.groups.estimating.estimate import GroupsResult
from coco_opt.groups.estimating.group_counts import with_group_counts
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.kind.intervals import measured_sizes
from coco_opt.groups.noisy_measurements import (
    GroupsMeasurements,
    RegionMeasurement,
    count_queries,
    has_private_counts,
    split_of,
)
from coco_opt.groups.queries import exact_answers
from coco_opt.histograms import CountOfCounts, errors_by_level
from coco_opt.privacy import Measurement
from coco_opt.releases.kind import Shown, Truth
from coco_opt.report.explorer import Explored, explorer_section
from coco_opt.report.html import GAP_NOTE, counted, guarantee_note, reading_section, shown_levels, table, unit_note
from coco_opt.report.plots import Band, Dots, Steps, error_figure, linear, panel, panels, signed, thin

_NOTES = (
    (
        "Released and noisy",
        "Orange points are what was measured: true counts plus noise, all that was ever taken from the private table. "
        "Blue points are the released integers, computed from the orange points alone. Sizes without groups are "
        "left out of the tables; a long axis shows a sample of its cells.",
    ),
    (
        "Noisy minus released",
        "Where the fit is good, points scatter around zero and two thirds or more lie in the grey band, one standard "
        "deviation of the noise. In a consistent release a region also agrees with its neighbours on the tree, "
        "so its differences can be larger than its own noise.",
    ),
    GAP_NOTE,
)
_ERROR_NOTE = (
    "Error",
    "The earth mover's distance between true and released histograms: how many people would have to be added to "
    "or removed from groups to turn one into the other; the mean over the regions of a level. It can be shown "
    "only for simulated data.",
)
_MOST_NAMED = 50  # regions that have not converged


def errors_of(measurement: Measurement, truth: Truth, result: GroupsResult) -> dict[str, list[float]]:
    """Return the mean earth mover's distance (entities) of a region at each level, by method."""
    exact, tree = truth.private.histograms(), measurement.hierarchy
    results = {"this release": result, **truth.others}
    return {name: errors_by_level(tree, estimate.histograms, exact).tolist() for name, estimate in results.items()}


def sections_of(shown: Shown) -> list[str]:
    """Return the sections as HTML; ``errors`` by method are empty where the truth is not known."""
    errors = {} if shown.truth is None else errors_of(shown.measurement, shown.truth, shown.result)
    measurements = GroupsMeasurements(with_group_counts(shown.measurement, counts=shown.result.group_counts))
    return [
        _summary(measurements),
        _method(measurements, shown.method),
        _level_gaps(shown),
        _posterior(shown),
        _errors(shown.measurement.measurement_plan.levels, errors),
        explorer_section(_explored(shown, measurements), _interval_words(shown)),
        _regions(shown, measurements),
        reading_section(
            (
                *_NOTES,
                _worse(shown, errors),
                *_unit_notes(shown),
                *([_ERROR_NOTE] if errors else []),
            )
        ),
    ]


def _worse(shown: Shown, errors: Mapping[str, Sequence[float]]) -> tuple[str, str]:
    """Return where the method is worse; for simulated data also the levels at which another method had less error."""
    released, *baselines = errors.items() if errors else [("", ())]
    levels = shown.measurement.measurement_plan.levels
    better = [
        f"{levels[level]} ({name} {error:,.0f} against {released_error:,.0f})"
        for level, released_error in enumerate(released[1])
        for error, name in sorted((baseline[level], name) for name, baseline in baselines)[:1]
        if error < released_error
    ]
    note = f" On these simulated data, at: {', '.join(better)}." if better else ""
    weakness = estimator_row("groups", shown.method.consistency).weakness or "This method comes from another package."
    return "Where another method does better", weakness + note


def _unit_notes(shown: Shown) -> list[tuple[str, str]]:
    """Return whom noise protects, and what is hidden of groups where their numbers are private."""
    measurement_plan = shown.measurement.measurement_plan
    notes = [unit_note(shown.measurement.cost, "entity"), guarantee_note(shown.measurement)]
    if not has_private_counts(measurement_plan):
        return notes
    noise = ", ".join(
        f"{measurement_plan.levels[query.level]}: {query.distribution}" for query in count_queries(measurement_plan)
    )
    text = (
        "They were measured too, then made integer, nonnegative and additive: the true numbers are not shown here. "
        f"Their noise: {noise}. Noise hides an entity together with a group that it alone is in, and whether an empty "
        "group exists. Hiding a group of s entities costs s times what the sizes cost, and once what the numbers cost. "
        "The regions are public."
    )
    return [*notes, ("Numbers of groups", text)]


def _summary(measurements: GroupsMeasurements) -> str:
    tree = measurements.hierarchy
    return (
        f"<p>Histograms of groups by size for {counted(tree.regions, 'region')} on {counted(tree.levels, 'level')}, "
        f"{escape(tree.names[0])} first; {int(measurements.group_counts[0]):,} groups in all.</p>"
    )


def _method(measurements: GroupsMeasurements, method: GroupsMethod) -> str:
    rows, by_posterior = [], method.consistency == "posterior"
    for level, name in enumerate(measurements.measurement.measurement_plan.levels):
        measured = level in measurements.measured_levels
        query, noise = (
            (_query(measurements, level), str(measurements.distribution(level))) if measured else ("not measured", "-")
        )
        rows.append((name, query, noise, *(() if by_posterior else (method.loss(level),))))
    matched = f", merging {method.merge}, variances by {method.variances}"
    rounded = "" if by_posterior else f", rounding {method.rounding}, ties {method.ties}"
    how = (
        f"Consistency: {method.consistency}{matched if method.consistency == 'matching' else ''}{rounded}. "
        f"Sizes above {measurements.max_size:,} count as {measurements.max_size:,}."
    )
    if method.unbiased:
        how += " Counts that are right on average, signed, with exact variances, lie in unbiased.parquet: add those up."
    shown = table(("level", "query", "noise", *(() if by_posterior else ("loss",))), rows, numeric=4, stacked=True)
    return f"<h2>Queries and method</h2>\n{shown}\n<p class='note'>{escape(how)}</p>"


def _level_gaps(shown: Shown) -> str:
    """Return the certified gap of joint estimation to the best fit, by level; empty for other methods."""
    gaps = shown.result.level_gaps
    if gaps is None:
        return ""
    levels = shown.measurement.measurement_plan.levels
    each = ", ".join(
        f"{name} {gap:.2g}" for name, gap in zip(levels, gaps.tolist(), strict=True) if not math.isnan(gap)
    )
    words = f"What the fit may miss of the least total loss, relative to the loss of each level alone: {each}."
    return f"<p class='note'>{escape(words)}</p>"


def _query(measurements: GroupsMeasurements, level: int) -> str:
    buckets, split = measurements.buckets(level), split_of(measurements.measurement.measurement_plan, level)
    if split is not None:
        return f"cumulative below size {split.at:,}, ranks from there on"
    if buckets is None:
        return measurements.query(level)
    return f"cumulative, {measurements.max_size:,} sizes in {buckets.count:,} buckets"


def _posterior(shown: Shown) -> str:
    """Return the account of the chains and the intervals, empty for other methods."""
    convergence, intervals = shown.result.convergence, shown.result.intervals
    if convergence is None:
        return ""
    paragraphs = [
        f"The table has the least expected error under a model of the data whose prior ({convergence.prior}) was "
        "learned from the noisy answers.",
        f"{convergence} In the last update the prior's expected counts changed by "
        f"{100 * convergence.prior_moved:.2g} % of all groups.",
    ]
    if shown.result.uncertified_gap:
        paragraphs[0] += (
            " It was not certified as the best for these draws: a relative gap of "
            f"{shown.result.uncertified_gap:.2g} is left."
        )
    if intervals is not None:
        paragraphs += [
            f"Intervals of {100 * intervals.coverage:g} % are in intervals.parquet. For each region and size alone, "
            "the true count is inside with at least that probability under the model. This holds for each interval on "
            "its own, not for many at the same time. Every interval contains the released count. The privacy guarantee "
            "does not depend on the model.",
            *_unmeasured_words(measured_sizes(shown.measurement.measurement_plan)),
            "Intervals of each region's mean, quantiles, share of groups of one and largest size are in "
            "summaries.parquet.",
        ]
    text = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    return f"<h2>Posterior</h2>\n{text}{_not_converged(shown)}"


def _unmeasured_words(measured: Flags) -> list[str]:
    """Return the warning about sizes that were measured in buckets alone; none where there are none."""
    first = np.flatnonzero(~measured.all(axis=0))
    if not first.size:
        return []
    return [
        f"Sizes from {first[0]:,} on share buckets with others at some levels: no answer says how groups are spread "
        "within a bucket. Intervals of such sizes also hold the counts that the released buckets permit, between the "
        "mean counts of the buckets around: in intervals.parquet, 'measured' is false there."
    ]


def _not_converged(shown: Shown) -> str:
    """Return the list of regions that have not converged, empty where all have."""
    convergence, paths = shown.result.convergence, shown.result.hierarchy.paths
    if convergence is None or convergence.converged:
        return ""
    named = [paths[region] for region in convergence.not_converged]
    more = f" and {len(named) - _MOST_NAMED:,} more" if len(named) > _MOST_NAMED else ""
    words = f"Not converged: {', '.join(named[:_MOST_NAMED])}{more}. Their errors and intervals are less certain."
    return f"<p class='banner exposed'>{escape(words)}</p>"


def _errors(levels: Sequence[str], errors: Mapping[str, Sequence[float]]) -> str:
    if not errors:
        return ""
    rows = [(name, *(f"{value:,.1f}" for value in values)) for name, values in errors.items()]
    return (
        "<h2>Error by level</h2>\n<p>The data are simulated, so the truth is known: people to add or remove, mean over "
        f"the regions of a level.</p>\n{table(('method', *levels), rows)}\n"
        f"{error_figure(errors, levels, 'people, mean over regions')}"
    )


def _explored(shown: Shown, measurements: GroupsMeasurements) -> Explored:
    """Return every region's released groups by size, and the sizes that may have some."""
    measurement_plan, result = shown.measurement.measurement_plan, shown.result
    words = {"weight": "groups", "key": "size", "value": "groups", "rows": "sizes have any"}
    sizes = [histogram.sizes for histogram in result.histograms]
    regions = np.repeat(np.arange(measurements.hierarchy.regions), [region_sizes.size for region_sizes in sizes])
    keys, values = np.concatenate(sizes), np.concatenate([histogram.counts for histogram in result.histograms])
    lower = upper = None
    if result.intervals is not None:
        words["rows"] = "sizes have any or may"
        uncertain = result.intervals.groups_upper > 0
        uncertain[regions, keys] = True
        released = np.zeros(uncertain.shape, np.int64)
        released[regions, keys] = values
        regions, keys = np.nonzero(uncertain)
        values = released[uncertain]
        lower, upper = result.intervals.groups_lower[uncertain], result.intervals.groups_upper[uncertain]
    tree, weight = measurements.hierarchy, measurements.group_counts
    return Explored(
        tree,
        measurement_plan.levels,
        measurement_plan.region_ids,
        weight,
        regions,
        keys,
        values,
        words,
        lower=lower,
        upper=upper,
        outlines=shown.outlines,
    )


def _interval_words(shown: Shown) -> str:
    intervals = shown.result.intervals
    return (
        ""
        if intervals is None
        else f"Lines are intervals of {100 * intervals.coverage:g} %, for each count on its own."
    )


def _regions(shown: Shown, measurements: GroupsMeasurements) -> str:
    truth = None if shown.truth is None else shown.truth.private.histograms()
    figures = []
    for level in shown_levels(measurements.hierarchy.levels):
        name = shown.measurement.measurement_plan.levels[level]
        region = max(
            measurements.hierarchy.level_range(level), key=lambda region: int(measurements.group_counts[region])
        )
        path, groups = measurements.hierarchy.paths[region], int(measurements.group_counts[region])
        exact = None if truth is None else truth[region]
        picture = region_figure(path, measurements.get(region), shown.result.histograms[region], exact)
        figures.append(f"<h3>{escape(name)}: {escape(path)} ({groups:,} groups)</h3>\n{picture}")
    return (
        "<h2>Released against noisy histograms</h2>\n<p>The region with the most groups of each level.</p>\n"
        + "\n".join(figures)
    )


_AXES = {
    "sizes": "group size (groups of that size)",
    "cumulative": "group size (groups up to that size)",
    "buckets": "first size of the bucket (its sum)",
    "ranks": "rank of the group (its size)",
    "split": "group size up to the split, then rank of the group",
}


def region_figure(
    name: str, measurement: RegionMeasurement | None, estimate: CountOfCounts, truth: CountOfCounts | None
) -> str:
    """Return a region's estimated and noisy histograms, and next to them noisy minus released, as pictures of a page.

    ``measurement`` is None where the region's level was not measured: then the estimate is drawn alone.
    """
    drawn = [_histogram(name, measurement, estimate, truth)]
    if measurement is not None:
        drawn.append(_residual(name, measurement, estimate))
    return panels(drawn)


def residuals(measurement: RegionMeasurement, estimate: CountOfCounts, cells: Ints) -> Ints:
    """Return the noisy value of some measured cells, in increasing order, minus the released value."""
    if measurement.query != "ranks":
        exact = exact_answers(estimate, measurement.query, measurement.max_size, measurement.scheme)
        return (measurement.values - exact)[cells]
    sizes, stops = estimate.clamp(measurement.max_size).rank_runs()
    noisy = [
        piece[cells[slice(*np.searchsorted(cells, [start, start + piece.size]))] - start]
        for start, piece in measurement.pieces()
    ]
    return np.concatenate([np.empty(0, np.int64), *noisy]) - sizes[np.searchsorted(stops, cells, side="right")]


def _histogram(
    name: str, measurement: RegionMeasurement | None, estimate: CountOfCounts, truth: CountOfCounts | None
) -> str:
    layers = []
    if measurement is not None:
        sizes, noisy = measurement.histogram()
        shown = thin(sizes.size)
        layers.append(Dots("noisy", sizes[shown], noisy[shown], "noisy"))
    if truth is not None:
        layers.append(Dots("true", truth.sizes, truth.counts, "true (simulated data)"))
    layers.append(Dots("released", estimate.sizes, estimate.counts, "released"))
    x = signed("group size (people)", *(layer.x for layer in layers))
    y = signed("groups", *(layer.y for layer in layers))
    return panel("Groups of each size", x, y, layers, f"Released and noisy groups by size in {name}")


def _residual(name: str, measurement: RegionMeasurement, estimate: CountOfCounts) -> str:
    cells = thin(measurement.stored.size)
    difference = residuals(measurement, estimate, cells)
    positions = (
        cells + (measurement.query == "ranks") if measurement.buckets is None else measurement.buckets.begin[cells]
    )
    deviation = measurement.distribution.variance**0.5
    x = signed(_AXES[measurement.query], positions)
    y = linear("noisy minus released", difference, [-deviation, deviation])
    layers = (
        Band([x.low, x.high], [-deviation], [deviation], "one standard deviation"),
        Dots("noisy", positions, difference),
        Steps("released", [x.low, x.high], [0.0]),
    )
    return panel("Noisy minus released", x, y, layers, f"Noisy minus released answers in {name}")
