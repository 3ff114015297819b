"""Signed, unbiased counts from the noisy answers alone, for users who add up regions.

An answer is the exact count plus noise of mean zero, and the noise of every region is drawn independently. Linear
functions of one region's own answers are therefore unbiased, have an exact variance, and can be added over regions
together with their variances. Nothing is clipped, pooled or made to agree, so counts can be negative and fractional.

A row is about the sizes ``size`` to ``last_size``: those of a bucket where cumulative counts were measured in buckets,
because sizes within a bucket are not estimated separately. With E the sum of G - Hc over a row's n sizes, which counts
the entities that groups have beyond their first ``size``, up to ``last_size`` + 1:

* cumulative counts and buckets: E = n G - y, and n G - E is the sum of Hc;
* ranks: the sum of all G answers is E of one row over all sizes below the largest; no other count is linear in them;
* a split at T: cells below T, and the sum of the ranks less G T is E of one row from T on;
* sizes: G - sum H is first spread evenly over all cells, which is the least squares fit to the sum G.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import InputError, ProblemError
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.noisy_measurements import buckets_of, has_private_counts, max_size_of, split_of
from coco_opt.groups.queries import GROUPS, plain_query
from coco_opt.privacy import Answers, Measurement
from coco_opt.privacy.queries import DENSE

NO_UNBIASED = "has no unbiased estimates: estimate the measurement with unbiased = true"

_ROWS = 1 << 18  # rows in memory at a time, unless one region has more


@dataclass(frozen=True, eq=False, slots=True)
class UnbiasedCounts:
    """Unbiased estimates by rows of sizes ``size`` to ``last_size`` int64[rows], and their exact variances.

    The other fields are float64[..., rows]: ``entities`` that groups have beyond their first ``size``, up to
    ``last_size`` + 1 (all rows together: every entity, sizes counted as the bound at most); groups of a size of the
    row or smaller (``at_most``, the mean over its sizes); ``groups`` of the row's one size, NaN where it
    is not determined.
    Rows of one region are not independent of each other; regions are.
    """

    size: Ints
    last_size: Ints
    entities: Floats
    entities_variance: Floats
    at_most: Floats
    at_most_variance: Floats
    groups: Floats
    groups_variance: Floats

    def of(self, place: int) -> UnbiasedCounts:
        """Return the counts of a region, by its place among several."""
        return UnbiasedCounts(self.size, self.last_size, *(figure[place] for figure in self._figures))

    @property
    def _figures(self) -> tuple[Floats, ...]:
        return tuple(getattr(self, field.name) for field in fields(self)[2:])

    def added(self, other: UnbiasedCounts) -> UnbiasedCounts:
        """Return the sums with another region's counts, variances included; ProblemError for rows of other sizes."""
        if not (np.array_equal(self.size, other.size) and np.array_equal(self.last_size, other.last_size)):
            raise ProblemError(
                "only regions measured in the same buckets of sizes can be added: add regions of one level"
            )
        sums = (a + b for a, b in zip(self._figures, other._figures, strict=True))
        return UnbiasedCounts(self.size, self.last_size, *sums)

    def averaged(self, other: UnbiasedCounts) -> UnbiasedCounts:
        """Return the means of two independent estimates of the same counts, weighted by 1 / variance."""
        means: list[Floats] = []
        first, second = self._figures, other._figures
        for a, va, b, vb in zip(first[::2], first[1::2], second[::2], second[1::2], strict=True):
            weight = np.divide(vb, va + vb, out=np.ones_like(va), where=va + vb > 0.0)
            means += [a * weight + b * (1.0 - weight), va * weight]
        return UnbiasedCounts(self.size, self.last_size, *means)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class UnbiasedEstimates:
    """The unbiased estimates of a measurement's regions, computed when read; levels not measured have none.

    With several measurements, a level's estimates are averaged over those with the same row sizes as the first.
    """

    measurement: Measurement

    def of(self, *regions: str) -> UnbiasedCounts:
        """Return the counts of a region, by its path from the root, or the sums of several, variances included.

        Raises InputError: not-measured where a region's level was not measured, repeated-region; ProblemError for no
        region and for regions with different buckets.
        """
        places = checked_regions([self.measurement.hierarchy.index(region) for region in regions])
        counts = []
        for name, region in zip(regions, places, strict=True):
            level = int(self.measurement.hierarchy.level[region])
            sources = self._sources(level)
            if not sources:
                raise not_measured(name)
            place = region - self.measurement.hierarchy.level_range(level).start
            counts.append(reduce(UnbiasedCounts.averaged, (source.read(place, place + 1) for source in sources)).of(0))
        return reduce(UnbiasedCounts.added, counts)

    def parts(self) -> Iterator[tuple[Ints, UnbiasedCounts]]:
        """Yield consecutive regions in the hierarchy's order, by their numbers, and their estimates [regions, rows]."""
        for level in range(self.measurement.hierarchy.levels):
            sources = self._sources(level)
            if not sources:
                continue
            regions = self.measurement.hierarchy.level_range(level)
            step = max(1, _ROWS // sources[0].size.size)
            for begin in range(0, len(regions), step):
                end = min(begin + step, len(regions))
                numbers = np.arange(regions.start + begin, regions.start + end)
                yield numbers, reduce(UnbiasedCounts.averaged, (source.read(begin, end) for source in sources))

    def _sources(self, level: int) -> list[_Level]:
        measurements = (self.measurement, *self.measurement.also)
        levels = [_Level.of(measurement, level) for measurement in measurements]
        sources = [source for source in levels if source is not None]
        return [source for source in sources if np.array_equal(source.size, sources[0].size)]


def checked_regions(places: Sequence[int]) -> Sequence[int]:
    """Return the numbers of regions to add up; ProblemError for none, InputError (repeated-region) for repetitions."""
    if not places:
        raise ProblemError("name a region, or several to add up")
    if len(set(places)) < len(places):
        raise InputError("repeated-region", "name each region only once: its noise would be the same both times")
    return places


def not_measured(region: str) -> InputError:
    """Return the error for a region on a level that was not measured."""
    return InputError("not-measured", f"the level of {region!r} was not measured: add up the regions below it")


@dataclass(frozen=True, eq=False, slots=True)
class _Level:
    """One measurement's answers about a level: rows by first size, ``size`` int64[rows], the last of which is K alone.

    ``counts`` are noisy numbers of groups, None where they are public: then ``groups`` int64[regions] are.
    """

    answers: Answers
    size: Ints
    max_size: int
    groups: Ints
    counts: Answers | None

    @classmethod
    def of(cls, measurement: Measurement, level: int) -> _Level | None:
        """Return the answers about a level, None where it was not measured."""
        measurement_plan = measurement.measurement_plan
        by_name = {measured.query.name: measured for measured in measurement.answers if measured.query.level == level}
        counts = by_name.pop(GROUPS, None)
        answers = next((measured for measured in by_name.values() if not measured.query.exact), None)
        if answers is None or (counts is None and has_private_counts(measurement_plan)):
            return None
        max_size = max_size_of(measurement_plan)
        regions = measurement_plan.hierarchy.level_range(level)
        none = np.zeros(len(regions), np.int64)
        groups = none if counts is not None else measurement_plan.per_region[GROUPS][regions.start : regions.stop]
        begin, split = (
            (buckets_of(measurement_plan, level) or Buckets.cells(max_size)).begin,
            split_of(measurement_plan, level),
        )
        if answers.query.name == "ranks":
            begin = np.zeros(1, np.int64)
        elif split is not None:
            begin = np.arange(split.at + 1)
        return cls(answers, np.append(begin, max_size), max_size, groups, counts)

    def read(self, begin: int, end: int) -> UnbiasedCounts:
        """Return the estimates of the level's regions ``begin`` .. ``end`` - 1."""
        groups, spread = self.groups[begin:end].astype(np.float64), 0.0
        if self.counts is not None:
            groups, spread = self.counts.read(begin, end).astype(np.float64), self.counts.query.distribution.variance
        values, query = self._values(begin, end), self.answers.query
        if query.name == "sizes":
            return self._of_sizes(values.astype(np.float64), groups[:, None], spread)
        width = np.diff(self.size).astype(np.float64)
        variance = np.full(values.shape, query.distribution.variance)
        entities = values.astype(np.float64)
        if query.name == "ranks":
            variance *= groups[:, None]
        elif query.name == "split":
            entities[:, :-1] = groups[:, None] - entities[:, :-1]
            entities[:, -1] -= groups * self.size[-2]
            variance[:, -1] *= groups
        elif plain_query(query) == query.name:
            entities = width * groups[:, None] - entities
        return self._of_entities(entities, variance, groups[:, None], spread)

    def _values(self, begin: int, end: int) -> Ints:
        """Return the answers int64[regions, cells]; the sum of ranks is one cell, the last one for a split."""
        offsets, query = self.answers.offsets[begin : end + 1], self.answers.query.name
        if query in ("ranks", "split") and int(offsets[-1] - offsets[0]) > DENSE:
            return self._piecewise(begin, end)
        values = self.answers.read(int(offsets[0]), int(offsets[-1]))
        if query not in ("ranks", "split"):
            return values.reshape(end - begin, -1)
        first = offsets[:-1] - offsets[0]
        cells = values[first[:, None] + np.arange(self.size.size - 2)]
        running = np.append(0, np.cumsum(values))
        sums = running[offsets[1:] - offsets[0]] - running[first + cells.shape[1]]
        return np.column_stack([cells, sums])

    def _piecewise(self, begin: int, end: int) -> Ints:
        """Return the same for very many ranks: few regions at a time, or parts of one region's ranks."""
        if end - begin > 1:
            middle = (begin + end) // 2
            return np.vstack([self._values(begin, middle), self._values(middle, end)])
        first, stop = (int(offset) for offset in self.answers.offsets[begin : end + 1])
        ranks = first + self.size.size - 2
        pieces = (
            self.answers.read(begin_rank, min(begin_rank + DENSE, stop)) for begin_rank in range(ranks, stop, DENSE)
        )
        return np.append(self.answers.read(first, ranks), sum(int(piece.sum()) for piece in pieces))[None, :]

    def _of_entities(self, entities: Floats, variance: Floats, groups: Floats, spread: float) -> UnbiasedCounts:
        """Return the estimates from entities by bucket, of independent noise, and groups [regions, 1], public or noisy.

        Both float64[regions, buckets]; ``spread`` is the groups' variance, 0 where they are public.
        """
        width, none = np.diff(self.size).astype(np.float64), np.zeros((len(entities), 1))
        at_most = groups - np.hstack([entities / width, none])
        spreads = spread + np.hstack([variance / width**2, none])
        # Groups of a size: those larger than the size before (G for the first size) less those larger than the size.
        alone = np.append(width == 1.0, True) & np.insert(width == 1.0, 0, True)
        of_size = np.hstack([groups, entities]) - np.hstack([entities, none])
        of_spread = np.hstack([np.full((len(entities), 1), spread), variance]) + np.hstack([variance, none])
        of_size[:, ~alone], of_spread[:, ~alone] = np.nan, np.nan
        last = np.append(self.size[1:] - 1, self.max_size)
        figures = (np.hstack([entities, none]), np.hstack([variance, none]), at_most, spreads, of_size, of_spread)
        return UnbiasedCounts(self.size, last, *figures)

    def _of_sizes(self, cells: Floats, groups: Floats, spread: float) -> UnbiasedCounts:
        """Return the estimates from noisy groups of each size [regions, K + 1] and groups [regions, 1]."""
        noise = self.answers.query.distribution.variance
        share = noise / (cells.shape[1] * noise + spread)
        fitted = cells - share * (cells.sum(axis=1, keepdims=True) - groups)
        at_most = np.cumsum(fitted, axis=1)
        if not spread:
            at_most[:, -1:] = groups  # public: without the rounding of the sums

        def variance(summed: Ints) -> Floats:
            """Return the variance of the sum of so many fitted cells, the same in every region: 0 for a public sum."""
            others = (cells.shape[1] - summed) * noise
            return np.broadcast_to(
                summed * noise * (others + spread) / (cells.shape[1] * noise + spread), cells.shape
            ).copy()

        below = np.arange(1, cells.shape[1] + 1)
        larger = at_most[:, -1:] - at_most
        return UnbiasedCounts(
            self.size,
            self.size,
            larger,
            variance(cells.shape[1] - below),
            at_most,
            variance(below),
            fitted,
            variance(np.ones_like(below)),
        )
