"""Choosing a method by its error on the private data, with every candidate paid for.

PRIVATE input: the rule reads the case's private histograms to score candidates. Only what it returns (the winner, its
measurement and estimate, what was paid) may be published. Everything is charged in pure epsilon, an exact fraction, for
an entity added or removed; noise is integers from the run's noise source, and scores are exact integers.

The score of a candidate is the sum over all levels of the earth mover's distance between its estimate and the truth.
For a fixed estimate, one entity changes one cell of one region's Hc on a level by one, so each level's distance by at
most 1: the sensitivity is the number of levels. Clamping sizes to K only helps.

``noisy_min_selection`` (Chaudhuri, Monteleoni and Sarwate 2011, as Kuo et al. 2018, section 6.2, advise) runs every
candidate once with its own budget, and the one of the least noisy score wins. Cost: the sum of all budgets plus that of
choosing. The paper's "very small" extra is the latter alone; its candidates share epsilon in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from coco_experiments.groups import Case
from coco_opt.groups.measuring.measure import measured, measurement_plan_of
from coco_opt.groups.queries import Query
from coco_opt.histograms import CountOfCounts, emd
from coco_opt.privacy import Epsilon, Measurement, NoiseSource, NoiseStream
from coco_opt.privacy.budget import noise_scale, sequential
from coco_opt.privacy.noise import check_scale


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
    estimate: Callable[[Measurement], Sequence[CountOfCounts]]

    @property
    def epsilon(self) -> Fraction:
        """Return the budget of one run: the sum over the levels."""
        return sequential(self.epsilons)


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
    """What a selection releases: the winner and the ``histograms`` estimated from its measurement.

    ``epsilon`` is the total cost, more than that of the winner's measurement; ``paid`` holds the measurements of every
    candidate, in order.
    """

    candidate: Candidate
    histograms: Sequence[CountOfCounts]
    epsilon: Fraction
    paid: tuple[Measurement, ...]


def score(case: Case, histograms: Sequence[CountOfCounts]) -> int:
    """Return the exact score of an estimate: PRIVATE; a neighbour changes it by at most the number of levels."""
    return sum(emd(estimate, truth) for estimate, truth in zip(histograms, case.truth, strict=True))


def noisy_min_selection(
    case: Case, candidates: Sequence[Candidate], source: NoiseSource, *, epsilon: Fraction
) -> Selection:
    """Run every candidate once and release that of the least noisy score; the case is PRIVATE.

    Scores get double-geometric noise of scale 2 x sensitivity / ``epsilon``; only the winner's place is released, not
    its score. Total: every candidate's budget and ``epsilon``. Raises ProblemError, before any noise is drawn, where
    budgets do not fit the levels. O(sum of the candidates' estimates).
    """
    scale = 2 * noise_scale(case.levels, epsilon)
    check_scale(scale)
    plans = [
        measurement_plan_of(
            case.hierarchy,
            case.counts.group_counts,
            queries=candidate.queries,
            costs=[Epsilon(part) for part in candidate.epsilons],
            max_size=case.max_size,
            neighbours="add_remove",
        )
        for candidate in candidates
    ]
    paid = tuple(
        measured(plan, case.truth, cast("NoiseSource", _Labelled(source, f"candidate {place}")))
        for place, plan in enumerate(plans)
    )
    estimates = [candidate.estimate(answers) for candidate, answers in zip(candidates, paid, strict=True)]
    stream = source.stream(scale, measurement="selection of a candidate", region=case.hierarchy.paths[0])
    best = noisy_min([score(case, histograms) for histograms in estimates], stream)
    total = sequential([*(candidate.epsilon for candidate in candidates), epsilon])
    return Selection(candidates[best], estimates[best], total, paid)


def noisy_min(scores: Sequence[int], stream: NoiseStream) -> int:
    """Return the place of the least score after adding one noise to each; the first of equal ones.

    With integer scores of sensitivity D and double-geometric noise of scale 2 D / epsilon the place is epsilon-private:
    whatever the other noises are, a place wins when its own noise is at most some integer, which a neighbour moves by
    at most 2 D, and the distribution's probability of that changes by a factor of at most exp(2 D / scale). Equal noisy
    scores, which integer noise makes common, are covered: the fixed order only shifts that integer by one.
    """
    noisy = [score + int(noise) for score, noise in zip(scores, stream.draw(len(scores)), strict=True)]
    return noisy.index(min(noisy))
