"""Choosing a method by its error on the private data, with every candidate paid for.

PRIVATE input: the rule reads ``truth``, the private histograms, to score candidates. Only what they return (sealed
measurements, their estimate, which candidate won) may be published. Everything is charged in pure epsilon, an exact
fraction; noise is integers from the run's noise source, and scores are exact integers.

The score of a candidate is the sum over the scored levels of the earth mover's distance between its estimate and the
truth. For a fixed estimate, one entity changes one cell of one region's Hc on a level by one, so each level's distance
by at most 1: sensitivity 1 a level, 2 where an entity is replaced. Clamping sizes to K only helps.

``noisy_min_selection`` (Chaudhuri, Monteleoni and Sarwate 2011, as Kuo et al. 2018, section 6.2, advise) runs every
candidate once with its own budget, and the one of the least noisy score wins. Cost: the sum of all budgets plus that of
choosing. The paper's "very small" extra is the latter alone; its candidates share epsilon in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import cast

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.measuring.measure import check_groups, measure_hierarchy, measurement_plan_of
from coco_opt.groups.queries import Query
from coco_opt.histograms import CountOfCounts, Hierarchy, emd
from coco_opt.privacy import NEIGHBOURS, Epsilon, Measurement, Neighbours, NoiseSource, NoiseStream
from coco_opt.privacy.budget import noise_scale, sequential
from coco_opt.privacy.noise import check_scale
from coco_opt.solver import Solver

Estimator = Callable[[Measurement], Sequence[CountOfCounts]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A method to choose from: its query and budget at each level, root first, and its post-processing.

    ``epsilons`` are what its measurement costs by level (0: not measured). ``estimate`` turns a measurement into one
    histogram a region with the public numbers of groups. It may draw randomness of its own, but must not read private
    data, nor remember calls: anything stored about runs that lost (certificates, counters, timings) would reveal more
    than the selection has paid for.
    """

    name: str
    queries: tuple[Query, ...]
    epsilons: tuple[Fraction, ...]
    estimate: Estimator

    @classmethod
    def of_method(
        cls,
        name: str,
        method: GroupsMethod,
        queries: Sequence[Query],
        epsilons: Sequence[Fraction],
        solvers: Mapping[str, str | Solver] | None = None,
    ) -> Candidate:
        """Return a candidate that measures and estimates as a release with this method would.

        ``solvers`` maps kinds of problems to solvers; UnknownSolverError for a kind that does not exist. Certificates
        of its runs are not stored: those of the winner come from estimating its measurements again.
        """
        SolverChoices(solvers)  # raises for an unknown kind of problem now, not after noise was drawn

        def estimate(measurement: Measurement) -> Sequence[CountOfCounts]:
            return estimate_groups(measurement, method, SolverChoices(solvers)).histograms

        return cls(name, tuple(queries), tuple(epsilons), estimate)

    @property
    def costs(self) -> tuple[Epsilon, ...]:
        """Return the budget of each level, root first."""
        return tuple(Epsilon(epsilon) for epsilon in self.epsilons)

    @property
    def epsilon(self) -> Fraction:
        """Return the budget of one run: the sum over the levels."""
        return sequential(self.epsilons)


@dataclass(frozen=True, eq=False, slots=True)
class PrivateGroups:
    """What a selection reads: ``truth`` is PRIVATE, one histogram per region in the hierarchy's order; the rest public.

    ``levels`` are those scored (all by default). ``source`` draws all noise, each stream under a label of its own.
    Raises ProblemError where truth and group counts are not one a region, or a level does not exist; InputError where a
    histogram does not hold the public number of groups.
    """

    hierarchy: Hierarchy
    truth: tuple[CountOfCounts, ...] = field(repr=False)
    group_counts: Ints
    max_size: int
    neighbours: Neighbours
    source: NoiseSource
    levels: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        regions = self.hierarchy.regions
        if not len(self.truth) == len(self.group_counts) == regions:
            raise ProblemError(f"{regions} regions need as many histograms and group counts")
        scored = range(self.hierarchy.levels) if self.levels is None else self.levels
        if not scored or len(set(scored)) < len(scored) or not set(scored) <= set(range(self.hierarchy.levels)):
            raise ProblemError(f"the levels to score must be some of 0 to {self.hierarchy.levels - 1}, each once")
        counts = np.array(self.group_counts, dtype=np.int64)
        counts.setflags(write=False)
        for histogram, path, groups in zip(self.truth, self.hierarchy.paths, counts.tolist(), strict=True):
            check_groups(histogram, path, groups)
        object.__setattr__(self, "group_counts", counts)
        object.__setattr__(self, "levels", tuple(scored))
        object.__setattr__(self, "truth", tuple(histogram.clamp(self.max_size) for histogram in self.truth))

    @property
    def scored(self) -> tuple[int, ...]:
        """Return the levels that are scored."""
        return self.levels or ()

    def measure(self, candidate: Candidate, label: str) -> Measurement:
        """Return the sealed noisy measurements of a candidate, with noise under its own label."""
        return measure_hierarchy(
            self.truth,
            self.hierarchy,
            self.group_counts,
            queries=candidate.queries,
            costs=candidate.costs,
            max_size=self.max_size,
            neighbours=self.neighbours,
            source=cast("NoiseSource", _Labelled(self.source, label)),
        )

    def score(self, histograms: Sequence[CountOfCounts]) -> int:
        """Return the exact score of an estimate: PRIVATE, of the sensitivity ``score_sensitivity``."""
        if len(histograms) != self.hierarchy.regions:
            raise ProblemError("a candidate must estimate one histogram for each region")
        regions = (region for level in self.scored for region in self.hierarchy.level_range(level))
        return sum(emd(histograms[region], self.truth[region]) for region in regions)

    def open(self, scale: Fraction, label: str) -> NoiseStream:
        """Open noise that belongs to the selection itself, not to a region's answer."""
        return self.source.stream(scale, measurement=label, region=self.hierarchy.paths[0])


class _Labelled:
    """A source whose streams carry a label, so candidates with the same query draw their own noise."""

    def __init__(self, source: NoiseSource, label: str) -> None:
        self.name = source.name
        self.private = source.private
        self._source = source
        self._label = label

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        return self._source.stream(scale, measurement=f"{self._label}: {measurement}", region=region)


@dataclass(frozen=True, eq=False, slots=True)
class Selection:
    """What a selection releases: the winner, its sealed ``measurement`` and the ``histograms`` estimated from it.

    ``epsilon`` is the total cost, more than the winner's ``measurement.cost``; ``paid`` holds the measurements of every
    candidate, in order.
    """

    candidate: Candidate
    measurement: Measurement
    histograms: tuple[CountOfCounts, ...]
    epsilon: Fraction
    paid: tuple[Measurement, ...]

    @property
    def private(self) -> bool:
        """Return whether the noise came from a source that counts as private."""
        return self.measurement.private


def score_sensitivity(levels: int, neighbours: Neighbours) -> int:
    """Return by how much neighbours change the score of a fixed estimate: 1 a level, 2 where one is replaced."""
    if levels < 1 or neighbours not in NEIGHBOURS:
        raise ProblemError(f"at least one level must be scored, and neighbours be one of {', '.join(NEIGHBOURS)}")
    return levels * (2 if neighbours == "replace" else 1)


def noisy_min_epsilon(candidates: Sequence[Candidate], epsilon: Fraction) -> Fraction:
    """Return what ``noisy_min_selection`` costs: every candidate's budget and ``epsilon`` for the choice."""
    return sequential([*(candidate.epsilon for candidate in candidates), epsilon])


def noisy_min_selection(data: PrivateGroups, candidates: Sequence[Candidate], *, epsilon: Fraction) -> Selection:
    """Run every candidate once and release that of the least noisy score; PRIVATE input, before any noise.

    Scores get double-geometric noise of scale 2 x sensitivity / ``epsilon``; only the winner's place is released, not
    its score. Total: ``noisy_min_epsilon``. Raises ProblemError, before any noise is drawn, where budgets do not fit
    the levels. O(sum of the candidates' estimates).
    """
    scale = 2 * noise_scale(score_sensitivity(len(data.scored), data.neighbours), epsilon)
    _check(data, candidates, scale)
    measured = tuple(data.measure(candidate, f"candidate {place}") for place, candidate in enumerate(candidates))
    estimates = [tuple(candidate.estimate(answers)) for candidate, answers in zip(candidates, measured, strict=True)]
    best = noisy_min([data.score(histograms) for histograms in estimates], data.open(scale, "selection of a candidate"))
    total = noisy_min_epsilon(candidates, epsilon)
    return Selection(candidates[best], measured[best], estimates[best], total, measured)


def noisy_min(scores: Sequence[int], stream: NoiseStream) -> int:
    """Return the place of the least score after adding one noise to each; the first of equal ones.

    With integer scores of sensitivity D and double-geometric noise of scale 2 D / epsilon the place is epsilon-private:
    whatever the other noises are, a place wins when its own noise is at most some integer, which a neighbour moves by
    at most 2 D, and the distribution's probability of that changes by a factor of at most exp(2 D / scale). Equal noisy
    scores, which integer noise makes common, are covered: the fixed order only shifts that integer by one.
    """
    noisy = [score + int(noise) for score, noise in zip(scores, stream.draw(len(scores)), strict=True)]
    return noisy.index(min(noisy))


def _check(data: PrivateGroups, candidates: Sequence[Candidate], scale: Fraction) -> None:
    if not candidates:
        raise ProblemError("a selection needs at least one candidate")
    levels = data.hierarchy.levels
    for candidate in candidates:
        if not len(candidate.epsilons) == len(candidate.queries) == levels:
            raise ProblemError(f"candidate {candidate.name!r}: {levels} levels need as many epsilons and queries")
        if any(epsilon < 0 for epsilon in candidate.epsilons) or not candidate.epsilon:
            raise ProblemError(f"candidate {candidate.name!r}: no epsilon may be negative, nor all of them zero")
        measurement_plan_of(
            data.hierarchy,
            data.group_counts,
            queries=candidate.queries,
            costs=candidate.costs,
            max_size=data.max_size,
            neighbours=data.neighbours,
        )
    check_scale(scale)
