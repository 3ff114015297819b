"""The noisy answers of a whole hierarchy, sealed: all that post-processing ever sees of the private data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms.counts import CountOfCounts
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.budget import Neighbours, Query, parallel, sequential
from coco_opt.privacy.ledger_chain import Unit
from coco_opt.privacy.measurement import (
    RAW_LIMIT,
    Loss,
    Measurement,
    charged,
    check_groups,
    check_public,
    measure,
)
from coco_opt.privacy.mechanism import Mechanism, check_mechanism, check_source, noise_parameter, unit_of
from coco_opt.privacy.noise import NoiseSource

Int64 = NDArray[np.int64]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Measurements:
    """Hold the noisy answer of every region of the measured levels, in the hierarchy's order.

    ``answers`` [regions] holds None where the region's level has no budget; ``group_counts`` int64[regions]
    (groups), ``amounts`` (epsilon or rho, by ``mechanism``), ``queries`` and ``losses`` [levels] are public; a pooled
    answer can be fitted with squared loss only, any other with either. Raises ProblemError where the parts do not
    fit together.
    """

    hierarchy: Hierarchy
    group_counts: Int64
    max_size: int
    amounts: tuple[Fraction, ...]
    queries: tuple[Query, ...]
    losses: tuple[Loss, ...]
    neighbours: Neighbours
    noise: str
    private: bool
    answers: tuple[Measurement | None, ...]
    mechanism: Mechanism = "geometric"

    def __post_init__(self) -> None:
        counts = np.array(self.group_counts, dtype=np.int64)
        counts.setflags(write=False)
        object.__setattr__(self, "group_counts", counts)
        check_mechanism(self.mechanism)
        _check_levels(self.hierarchy, self.amounts, self.queries, self.losses, self.unit)
        paths = self.hierarchy.paths
        if not len(self.answers) == len(counts) == len(paths):
            raise ProblemError(f"{len(paths)} regions need as many group counts and answers")
        for region, answer in enumerate(self.answers):
            level = int(self.hierarchy.level[region])
            expected = (paths[region], int(counts[region]), self.queries[level], self.amounts[level], self.mechanism)
            if (answer is None) != (self.amounts[level] == 0):
                raise ProblemError(f"region {paths[region]!r}: measured levels, and no others, have answers")
            if answer is not None and expected != (
                answer.region,
                answer.groups,
                answer.query,
                answer.amount,
                answer.mechanism,
            ):
                raise ProblemError(f"region {paths[region]!r}: the answer belongs to another region or query")

    def __getitem__(self, region: int) -> Measurement:
        """Return a region's answer; raise ProblemError where its level was not measured."""
        answer = self.answers[region]
        if answer is None:
            raise ProblemError(f"region {self.hierarchy.paths[region]!r} lies on a level that was not measured")
        return answer

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[Measurement | None]:
        return iter(self.answers)

    def level(self, level: int) -> tuple[Measurement, ...]:
        """Return the answers of one level in order; raise ProblemError where it was not measured."""
        return tuple(self[region] for region in self.hierarchy.level_range(level))

    @property
    def measured_levels(self) -> tuple[int, ...]:
        """Return the levels that have answers, root first."""
        return tuple(level for level, amount in enumerate(self.amounts) if amount > 0)

    @property
    def unit(self) -> Unit:
        """Return what the measurements were charged in."""
        return unit_of(self.mechanism)

    @property
    def spent(self) -> Fraction:
        """Return the budget spent in its unit: the sum over levels of the largest amount among a level's regions."""
        levels = (self.hierarchy.level_range(level) for level in self.measured_levels)
        return sequential(parallel(self[region].amount for region in regions) for regions in levels)

    @property
    def epsilon_spent(self) -> Fraction:
        """Return the pure epsilon spent; raise ProblemError where measurements were charged in rho."""
        if self.unit != "epsilon":
            raise ProblemError("these measurements were charged in rho, and rho implies no pure epsilon: use spent")
        return self.spent

    def __repr__(self) -> str:
        privacy = "private" if self.private else "NOT PRIVATE"
        levels = ", ".join(
            f"{query} {amount}" if amount else "not measured"
            for query, amount in zip(self.queries, self.amounts, strict=True)
        )
        return (
            f"Measurements({len(self):,} regions, max_size={self.max_size:,}, {self.unit} by level: {levels}, "
            f"{self.neighbours}, {self.noise} noise: {privacy})"
        )


def measure_hierarchy(
    histograms: Sequence[CountOfCounts],
    hierarchy: Hierarchy,
    group_counts: Int64,
    *,
    queries: Sequence[Query],
    losses: Sequence[Loss],
    epsilons: Sequence[Fraction | None] | None = None,
    rhos: Sequence[Fraction | None] | None = None,
    max_size: int,
    neighbours: Neighbours,
    source: NoiseSource,
    raw_limit: int = RAW_LIMIT,
    progress: Progress | None = None,
) -> Measurements:
    """Return the sealed noisy answers of all regions of the levels that have a budget.

    ``histograms`` and public ``group_counts`` come one a region in the hierarchy's order; ``queries``,
    ``losses`` and either ``epsilons`` (geometric noise) or ``rhos`` (discrete Gaussian noise) one a level, root
    first (0 or None: not measured). ``progress`` is told the regions done and their number. Everything is checked
    before the first noise is drawn: raises ProblemError for public parameters, InputError for a histogram without
    the public number of groups.
    """
    mechanism, amounts = charged(epsilons, rhos)
    budgets = tuple(Fraction(amount or 0) for amount in amounts)
    _check_levels(hierarchy, budgets, queries, losses, unit_of(mechanism))
    check_source(source, mechanism)
    _check_regions(histograms, hierarchy, group_counts, budgets)
    for level in range(hierarchy.levels):
        if budgets[level]:
            query, loss = queries[level], losses[level]
            noise = noise_parameter(mechanism, query, neighbours, budgets[level])
            most = max(int(group_counts[region]) for region in hierarchy.level_range(level))
            check_public(query, loss, groups=most, max_size=max_size, parameter=noise, mechanism=mechanism)

    def answer(region: int, level: int) -> Measurement | None:
        if not budgets[level]:
            return None
        return measure(
            histograms[region],
            queries[level],
            region=hierarchy.paths[region],
            groups=int(group_counts[region]),
            max_size=max_size,
            epsilon=budgets[level] if mechanism == "geometric" else None,
            rho=None if mechanism == "geometric" else budgets[level],
            neighbours=neighbours,
            source=source,
            loss=losses[level],
            raw_limit=raw_limit,
        )

    answers: list[Measurement | None] = []
    for region, level in enumerate(hierarchy.level.tolist()):
        answers.append(answer(region, level))
        if progress is not None:
            progress(region + 1, hierarchy.regions)
    return Measurements(
        hierarchy=hierarchy,
        group_counts=group_counts,
        max_size=max_size,
        amounts=budgets,
        queries=tuple(queries),
        losses=tuple(losses),
        neighbours=neighbours,
        noise=source.name,
        private=source.private,
        answers=tuple(answers),
        mechanism=mechanism,
    )


def _check_levels(
    hierarchy: Hierarchy,
    amounts: Sequence[Fraction],
    queries: Sequence[Query],
    losses: Sequence[Loss],
    unit: Unit,
) -> None:
    if not len(amounts) == len(queries) == len(losses) == hierarchy.levels:
        raise ProblemError(f"{hierarchy.levels} levels need as many {unit}s, queries and losses")
    if any(amount < 0 for amount in amounts) or not any(amounts):
        raise ProblemError(f"no level's {unit} may be negative and at least one must be above zero")


def _check_regions(
    histograms: Sequence[CountOfCounts],
    hierarchy: Hierarchy,
    group_counts: Int64,
    amounts: Sequence[Fraction],
) -> None:
    if not len(histograms) == len(group_counts) == hierarchy.regions:
        raise ProblemError(f"{hierarchy.regions} regions need as many histograms and group counts")
    for region, path in enumerate(hierarchy.paths):
        if amounts[int(hierarchy.level[region])]:
            check_groups(histograms[region], path, int(group_counts[region]))
