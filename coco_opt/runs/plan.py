"""Everything a release decides before private data is opened: regions, budget, noise source, method, solvers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ConfigError, ProblemError
from coco_opt.groups import GroupsMethod
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import ConcentratedBudget, NoiseSource, Query, resolve_noise
from coco_opt.privacy.directed import round_above
from coco_opt.privacy.ledger_chain import Charge
from coco_opt.privacy.measurement import check_public
from coco_opt.privacy.mechanism import (
    Budget,
    Mechanism,
    amount_of,
    check_source,
    mechanism_of,
    noise_parameter,
    unit_of,
)
from coco_opt.runs.paid import charge_for
from coco_opt.runs.settings import RunSettings, Settings, budget_of, method_of, solvers_of
from coco_opt.solver import Solver
from coco_opt.tables import PrivateCounts, PublicTables, read_private, read_public, read_public_sizes, read_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

DELTA = Fraction(1, 10**6)
_SHOWN_DIGITS = 6


@dataclass(frozen=True, eq=False, slots=True)
class ReleasePlan:
    """A release's public half, checked: whatever is still wrong afterwards lies in the private table."""

    settings: Settings
    public: PublicTables
    budget: Budget
    queries: tuple[Query, ...]
    method: GroupsMethod
    solvers: Mapping[str, Solver]
    source: NoiseSource

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the public regions."""
        return self.public.hierarchy

    @property
    def group_counts(self) -> NDArray[np.int64]:
        """Return the public number of groups of every region."""
        return self.public.group_counts

    @property
    def mechanism(self) -> Mechanism:
        """Return the law of the noise."""
        return mechanism_of(self.budget)

    @property
    def charge(self) -> Charge:
        """Return what the release spends, bound to the configuration and to the public regions and group counts."""
        tree = self.hierarchy
        public = ("\0".join(tree.names).encode(), tree.parent.tobytes(), self.group_counts.tobytes())
        return charge_for(self.settings, self.mechanism, amount_of(self.budget), self.budget.neighbours, public)

    def parameter(self, level: int) -> Fraction:
        """Return the noise's scale (geometric) or variance (discrete Gaussian) at a level that is measured."""
        amount = self.budget.levels[level]
        return noise_parameter(self.mechanism, self.queries[level], self.budget.neighbours, amount)

    @property
    def spent(self) -> str:
        """Return one line: the mode, and what privacy the run spends."""
        privacy = self.settings.privacy
        levels = describe_levels(self.budget.levels)
        amount = f"{unit_of(self.mechanism)} = {amount_of(self.budget)}"
        if not self.source.private:
            return (
                f"NOT PRIVATE: {self.source.name} noise as for {amount} ({levels}); "
                "no privacy budget was spent, and these figures protect nobody"
            )
        neighbours = {"add_remove": "one entity added or removed", "replace": "one entity replaced"}
        return (
            f"PRIVATE: {amount} spent ({levels}){self._meaning}, {self.source.name} noise, "
            f"neighbours differ by {neighbours[privacy.neighbours]}"
        )

    @property
    def _meaning(self) -> str:
        """Return what a rho means at a delta, rounded up, in a few words; "" for pure epsilon."""
        if not isinstance(self.budget, ConcentratedBudget):
            return ""
        delta = stated_delta(self.settings)
        epsilon = float(round_above(self.budget.epsilon(delta), _SHOWN_DIGITS))
        return f", zCDP: epsilon at most {epsilon:g} at delta = {delta}"


def stated_delta(settings: RunSettings) -> Fraction:
    """Return the delta at which a rho is also stated as an epsilon: the configured one, or 10^-6."""
    return settings.privacy.delta or DELTA


def describe_levels(budgets: tuple[Fraction, ...]) -> str:
    """Return how a budget was shared, root first, in a few words."""
    if len(budgets) == 1:
        return "one level"
    if len(set(budgets)) == 1:
        return f"{budgets[0]} at each of {len(budgets)} levels"
    return "by level, root first: " + ", ".join(str(budget) for budget in budgets)


def plan_release(settings: Settings) -> ReleasePlan:
    """Read the public tables and check everything that can be checked without the private one.

    Raises ConfigError, InputError, HierarchyError, ProblemError, MissingPackageError.
    """
    solvers = solvers_of(settings)
    source = resolve_noise(settings.privacy.noise, settings.privacy.seed)
    public = _read_public(settings)
    levels = public.hierarchy.levels
    plan = ReleasePlan(
        settings=settings,
        public=public,
        budget=budget_of(settings, settings.budget_shares(levels)),
        queries=settings.estimators(levels),
        method=method_of(settings, levels),
        solvers=solvers,
        source=source,
    )
    check_source(source, plan.mechanism)
    _check_sizes(plan)
    _check_matching(plan)
    return plan


def _check_sizes(plan: ReleasePlan) -> None:
    """Raise ProblemError where noise or counts could leave 64 bits, from public numbers alone."""
    for level, amount in enumerate(plan.budget.levels):
        if amount:
            regions = plan.hierarchy.level_range(level)
            check_public(
                plan.queries[level],
                plan.method.losses[level],
                groups=int(plan.group_counts[regions.start : regions.stop].max()),
                max_size=plan.settings.groups.max_size,
                parameter=plan.parameter(level),
                mechanism=plan.mechanism,
            )


def _check_matching(plan: ReleasePlan) -> None:
    """Raise ProblemError where a region with children has more groups than matching takes."""
    if plan.method.consistency != "matching" or plan.hierarchy.levels == 1:
        return
    # Imported here: it brings the compiled kernels with it.
    from coco_opt.kernels.matching import MAX_GROUPS

    if int(plan.group_counts[0]) > MAX_GROUPS:
        raise ProblemError(f"matching takes at most {MAX_GROUPS:,} groups a region: choose another consistency")


def _read_public(settings: Settings) -> PublicTables:
    data = settings.data
    if data.sizes is not None:
        return read_public_sizes(data.sizes, data.root)
    return read_public(*_paths(settings)[1:])


def read_counts(plan: ReleasePlan) -> PrivateCounts:
    """Open the private table and count; raises InputError, whose message holds no private value."""
    data = plan.settings.data
    if data.sizes is not None:
        return read_sizes(data.sizes, data.root)
    return read_private(plan.public, _paths(plan.settings)[0])


def _paths(settings: Settings) -> tuple[Path, Path, Path]:
    data = settings.data
    if data.entities is None or data.groups is None or data.hierarchy is None:
        raise ConfigError("data", "give entities, groups and hierarchy, or sizes")
    return data.entities, data.groups, data.hierarchy
