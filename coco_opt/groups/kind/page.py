"""The sections of a report on groups: the main figures, every region, how they were estimated, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.estimators import estimator_row
from coco_opt.groups.estimating.estimate import GroupsResult
from coco_opt.groups.estimating.group_counts import with_group_counts
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.kind.forecast import errors_and_even
from coco_opt.groups.kind.intervals import measured_sizes
from coco_opt.groups.noisy_measurements import GroupsMeasurements, count_queries, has_private_counts, split_of
from coco_opt.histograms import errors_by_level
from coco_opt.privacy import Measurement
from coco_opt.releases.kind import Shown, Truth
from coco_opt.releases.manifest import Words, date_of, open_ends, protection, unit_words
from coco_opt.report.explorer import Explored, explorer_section
from coco_opt.report.front import TRIAL, Figure, between, front_section, precision, small_figures, where
from coco_opt.report.html import GAP_NOTE, reading_section, table

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
    tree, words = measurements.hierarchy, unit_words(shown.manifest)
    levels = shown.measurement.measurement_plan.levels
    what = f"{words.groups} by number of {words.entities} {where(tree, levels, date_of(shown.manifest))}"
    explorer = explorer_section(_explored(shown, measurements, words), open_ends(shown.manifest))
    return [
        front_section(what, _figures(shown, words), explorer, _sure(shown, words)) + _doubts(shown),
        _method(measurements, shown.method, errors_and_even(shown.measurement)),
        _posterior(shown),
        reading_section((GAP_NOTE, _worse(shown, errors), *_count_notes(shown), *([_ERROR_NOTE] if errors else []))),
    ]


def _figures(shown: Shown, words: Words) -> list[Figure]:
    """Return the main figures of the root: all groups, the mean size, and the two most frequent sizes."""
    result, root = shown.result, shown.result.histograms[0]
    exact = not has_private_counts(shown.measurement.measurement_plan)
    figures = [Figure(f"{root.groups:,}", f"{words.groups} in all", "exact" if exact else "")]
    if not root.groups:
        return figures
    spans = result.intervals
    summaries = None if spans is None else spans.summaries
    mean = between(summaries.lower[0, 0], summaries.upper[0, 0], 2) if summaries is not None else ""
    per_group = f"{words.entities} per {words.group}{', empty ones included' if not root.sizes.all() else ''}"
    figures.append(Figure(f"{int(root.sizes @ root.counts) / root.groups:,.2f}", per_group, mean))
    for place in sorted(np.argsort(-root.counts, kind="stable")[:2]):
        size, count = int(root.sizes[place]), int(root.counts[place])
        sure = "" if spans is None else between(spans.groups_lower[0, size], spans.groups_upper[0, size])
        unit = words.entity if size == 1 else words.entities
        more = " or more" if size == shown.manifest["max_size"] else ""
        figures.append(Figure(f"{count:,}", f"{words.groups} of {size:,}{more} {unit}", sure))
    return figures


def _sure(shown: Shown, words: Words) -> list[str]:
    """Return in four sentences how sure the figures are."""
    spans, tree = shown.result.intervals, shown.result.hierarchy
    leaves = tree.level_range(tree.levels - 1)
    half = None
    if spans is not None:
        reach = [
            (spans.groups_upper - spans.groups_lower)[region, shown.result.histograms[region].sizes]
            for region in leaves
        ]
        half = float(np.median(np.concatenate(reach))) / 2 if any(map(len, reach)) else None
    level = shown.measurement.measurement_plan.levels[-1]
    sums = "need not add up" if shown.method.consistency == "none" else "add up"
    public = not has_private_counts(shown.measurement.measurement_plan)
    exact = f"; the numbers of {words.groups} are exact" if public else ""
    return [
        TRIAL if shown.measurement.status == "NOT PRIVATE" else protection(shown.manifest),
        precision(None if spans is None else spans.coverage),
        small_figures(half, f"the {words.groups} of one size in one {level}"),
        f"The figures of all parts {sums} to those of the whole{exact}.",
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


def _count_notes(shown: Shown) -> list[tuple[str, str]]:
    """Return what is hidden of groups where their numbers are private."""
    measurement_plan = shown.measurement.measurement_plan
    if not has_private_counts(measurement_plan):
        return []
    noise = ", ".join(
        f"{measurement_plan.levels[query.level]}: {query.distribution}" for query in count_queries(measurement_plan)
    )
    text = (
        "They were measured too, then made integer, nonnegative and additive: the true numbers are not shown here. "
        f"Their noise: {noise}. Noise hides an entity together with a group that it alone is in, and whether an empty "
        "group exists. Hiding a group of s entities costs s times what the sizes cost, and once what the numbers cost. "
        "The regions are public."
    )
    return [("Numbers of groups", text)]


def _method(measurements: GroupsMeasurements, method: GroupsMethod, expected: Floats | None) -> str:
    """Return what was measured and how it was estimated, with the ``expected`` errors, also of an even allocation."""
    rows, by_posterior = [], method.consistency == "posterior"
    header = ("level", "query", "noise", *(() if by_posterior else ("loss",)))
    if by_posterior and expected is not None:
        header += ("error to expect", "with an even allocation")
    for level, name in enumerate(measurements.measurement.measurement_plan.levels):
        measured = level in measurements.measured_levels
        query, noise = (
            (_query(measurements, level), str(measurements.distribution(level))) if measured else ("not measured", "-")
        )
        errors = () if len(header) < 5 or expected is None else [f"{error:,.3g}" for error in expected[:, level]]
        rows.append((name, query, noise, *(() if by_posterior else (method.loss(level),)), *errors))
    matched = f", merging {method.merge}, variances by {method.variances}"
    rounded = "" if by_posterior else f", rounding {method.rounding}, ties {method.ties}"
    how = (
        f"Consistency: {method.consistency}{matched if method.consistency == 'matching' else ''}{rounded}. "
        f"Sizes above {measurements.max_size:,} count as {measurements.max_size:,}."
    )
    if method.unbiased:
        how += " Counts that are right on average, signed, with exact variances, lie in unbiased.parquet: add those up."
    if len(header) == 5:
        how += (
            " Errors to expect are earth mover's distances of a region from the truth, predicted from public numbers "
            "and the first look."
        )
    shown = table(header, rows, numeric=3 if by_posterior else 4, stacked=True)
    return f"<h2>Queries and method</h2>\n{shown}\n<p class='note'>{escape(how)}</p>"


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
        paragraphs.append(
            f"Intervals of {100 * intervals.coverage:g} % are in intervals.parquet. For each region and size alone, "
            "the true count is inside with at least that probability under the model. This holds for each interval on "
            "its own, not for many at the same time. Every interval contains the released count. The privacy guarantee "
            "does not depend on the model."
        )
        shared = np.flatnonzero(~measured_sizes(shown.measurement.measurement_plan).all(axis=0))
        if shared.size:
            paragraphs.append(
                f"Sizes from {shared[0]:,} on share buckets with others at some levels: no answer says how groups are "
                "spread within a bucket. Intervals of such sizes also hold the counts that the released buckets "
                "permit, between the mean counts of the buckets around: in intervals.parquet, 'measured' is false "
                "there."
            )
        paragraphs.append(
            "Intervals of each region's mean, quantiles, share of groups of one and largest size are in "
            "summaries.parquet."
        )
    text = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    return f"<h2>Posterior</h2>\n{text}"


def _doubts(shown: Shown) -> str:
    """Return what refutes the model, and the list of regions that have not converged; empty where there is neither."""
    convergence, paths = shown.result.convergence, shown.result.hierarchy.paths
    if convergence is None:
        return ""
    refuted = convergence.refuted_words(shown.measurement.measurement_plan.levels)
    banners = [f"{refuted}."] if refuted else []
    named = [paths[region] for region in convergence.not_converged]
    more = f" and {len(named) - _MOST_NAMED:,} more" if len(named) > _MOST_NAMED else ""
    if named:
        words = f"Not converged: {', '.join(named[:_MOST_NAMED])}{more}. Their errors and intervals are less certain."
        banners.append(words)
    return "".join(f"<p class='banner exposed'>{escape(words)}</p>" for words in banners)


def _explored(shown: Shown, measurements: GroupsMeasurements, unit: Words) -> Explored:
    """Return every region's released groups by size, and the sizes that may have some."""
    measurement_plan, result = shown.measurement.measurement_plan, shown.result
    title, key = f"{unit.groups} by number of {unit.entities}", f"{unit.entities} per {unit.group}"
    words = {"weight": unit.groups, "key": key, "value": unit.groups, "title": title}
    sizes = [histogram.sizes for histogram in result.histograms]
    regions = np.repeat(np.arange(measurements.hierarchy.regions), [region_sizes.size for region_sizes in sizes])
    keys, values = np.concatenate(sizes), np.concatenate([histogram.counts for histogram in result.histograms])
    lower = upper = None
    if result.intervals is not None:
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
