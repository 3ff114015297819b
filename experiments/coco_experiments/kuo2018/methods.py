"""The methods the paper compares, and joint estimation, as values: a name and a function of one seed's draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from coco_experiments.groups import split_evenly
from coco_experiments.kuo2018.draws import Draws
from coco_opt.groups import Query
from coco_opt.groups.estimating.convex import convex
from coco_opt.groups.estimating.joint import joint
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.subtrees import matching
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import CountOfCounts, sum_of_leaves
from coco_opt.kernels.merging import Merge, Rounding

_QUERIES: dict[str, Query] = {"Hc": "cumulative", "Hg": "ranks", "naive": "sizes"}
Histograms = Sequence[CountOfCounts]


@dataclass(frozen=True, slots=True)
class Method:
    """A way from one seed's draws and a total epsilon to one histogram a region; ``most_runs`` caps dear ones.

    ``consistent`` says whether children sum to their parents: without that a method is no candidate for the best.
    """

    name: str
    run: Callable[[Draws, Fraction], Histograms]
    most_runs: int | None = None
    consistent: bool = True


def combinations(levels: int) -> list[tuple[str, ...]]:
    """Return every choice of Hc or Hg a level, root first."""
    return list(product(("Hc", "Hg"), repeat=levels))


def matched(choice: Sequence[str], merge: Merge = "weighted", rounding: Rounding = "half_up") -> Method:
    """Return Algorithm 1 with an estimator a level, total epsilon split evenly."""

    def run(draws: Draws, epsilon: Fraction) -> Histograms:
        each = draws.estimates(queries_of(choice), split_evenly(epsilon, len(choice)))
        return matching(draws.case.hierarchy, each, draws.solvers, merge=merge, rounding=rounding)

    kind = "" if (merge, rounding) == ("weighted", "half_up") else f", {merge} {rounding.replace('_', ' ')}"
    return Method(f"matching {' x '.join(choice)}{kind}", run)


def alone(choice: Sequence[str]) -> Method:
    """Return every region's own estimate, total epsilon split evenly: not consistent."""

    def run(draws: Draws, epsilon: Fraction) -> Histograms:
        return [each.histogram for each in draws.estimates(queries_of(choice), split_evenly(epsilon, len(choice)))]

    return Method(f"no consistency {' x '.join(choice)}", run, consistent=False)


def leaves_only(estimator: str) -> Method:
    """Return bottom-up: the whole epsilon on the leaves, upper levels are sums."""

    def run(draws: Draws, epsilon: Fraction) -> Histograms:
        levels = draws.case.levels
        budgets = [Fraction(0)] * (levels - 1) + [epsilon]
        tree, estimates = draws.case.hierarchy, draws.estimates(queries_of((estimator,) * levels), budgets)
        return sum_of_leaves(tree, [estimates[leaf].histogram for leaf in tree.leaves])

    return Method(f"bottom-up {estimator}", run)


def jointly(loss: Loss, most_runs: int | None = None) -> Method:
    """Return joint estimation of all regions from cumulative counts, rounded to integer consistent tables."""

    def run(draws: Draws, epsilon: Fraction) -> Histograms:
        noisy = draws.measurement("cumulative", split_evenly(epsilon, draws.case.levels))
        return joint(noisy, draws.solvers, loss=loss).histograms

    return Method(f"joint p = {loss[1]}", run, most_runs)


def convexly(estimator: str, loss: Loss, most_runs: int | None = None) -> Method:
    """Return the exact convex program a size (Fioretto et al. 2021), on H (naive) or Hc, total epsilon split evenly."""

    def run(draws: Draws, epsilon: Fraction) -> Histograms:
        noisy = draws.measurement(_QUERIES[estimator], split_evenly(epsilon, draws.case.levels))
        return convex(noisy, GroupsMethod(loss, consistency="convex"), draws.solvers)

    return Method(f"convex program on {'H' if estimator == 'naive' else estimator}, p = {loss[1]}", run, most_runs)


def queries_of(choice: Sequence[str]) -> list[Query]:
    """Return the queries of estimators called Hc, Hg or naive."""
    return [_QUERIES[name] for name in choice]
