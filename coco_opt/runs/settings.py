"""What a run reads from a configuration, as protocols: runs lie below the config reader and do not import it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from coco_opt.errors import CocoOptError, ConfigError, MissingPackageError, UnknownSolverError
from coco_opt.groups import GroupsMethod
from coco_opt.groups.estimators import Loss
from coco_opt.groups.release import Consistency, VarianceRule
from coco_opt.kernels.merging import Merge, Rounding
from coco_opt.operators import identity
from coco_opt.privacy import ConcentratedBudget, Neighbours, PureBudget, Query, rho_of_epsilon_delta
from coco_opt.privacy.mechanism import Budget, Mechanism
from coco_opt.problem import Problem
from coco_opt.problems import (
    PROBLEMS,
    ControlledRounding,
    CumulativeRounding,
    GroupMatching,
    IntegerTreeL1,
    IntegerTreeL2,
    IsotonicL1,
    IsotonicL2,
    JointL1,
    JointL2,
    SimplexProjection,
    TableRounding,
    TopdownSplit,
)
from coco_opt.problems.isotonic import TieRule
from coco_opt.problems.split_rows import SplitTerm
from coco_opt.registry import backend, make_solver
from coco_opt.solver import Solver, solve


class SolverChoice(Protocol):
    """A solver's name and options."""

    @property
    def name(self) -> str:
        """Return the name."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """Return the typed options."""
        ...


class DataSettings(Protocol):
    """Where the input lies."""

    @property
    def entities(self) -> Path | None:
        """Return the private table of entities."""
        ...

    @property
    def groups(self) -> Path | None:
        """Return the public table of groups."""
        ...

    @property
    def hierarchy(self) -> Path | None:
        """Return the public table of regions."""
        ...

    @property
    def sizes(self) -> Path | None:
        """Return the table of counts made elsewhere."""
        ...

    @property
    def root(self) -> str | None:
        """Return the name of the one region of a table without levels."""
        ...

    @property
    def records(self) -> Path | None:
        """Return the private table of persons with their attributes."""
        ...

    @property
    def bounds(self) -> Path | None:
        """Return the public table of bounds on answers."""
        ...


class PrivacySettings(Protocol):
    """What is spent and how noise is drawn."""

    @property
    def mechanism(self) -> Mechanism:
        """Return the law of the noise."""
        ...

    @property
    def epsilon(self) -> Fraction | None:
        """Return the whole budget of geometric noise, or what ``delta`` goes with."""
        ...

    @property
    def rho(self) -> Fraction | None:
        """Return the whole budget of discrete Gaussian noise, where it is stated."""
        ...

    @property
    def delta(self) -> Fraction | None:
        """Return the delta that goes with epsilon."""
        ...

    @property
    def split(self) -> Literal["uniform"] | Sequence[Fraction]:
        """Return the levels' shares of the budget."""
        ...

    @property
    def noise(self) -> str:
        """Return the name of the noise source."""
        ...

    @property
    def seed(self) -> int | None:
        """Return the seed of seeded noise."""
        ...

    @property
    def neighbours(self) -> Neighbours:
        """Return by what neighbouring databases differ."""
        ...

    @property
    def dataset(self) -> str | None:
        """Return the ledger's name for the data."""
        ...

    @property
    def ledger(self) -> Path | None:
        """Return where the ledger lies."""
        ...

    @property
    def total(self) -> Fraction | None:
        """Return what may be spent on the data in all."""
        ...


class GroupsSettings(Protocol):
    """How histograms are estimated."""

    @property
    def max_size(self) -> int:
        """Return the public bound on sizes."""
        ...

    @property
    def ties(self) -> TieRule:
        """Return the tie rule of p = 1."""
        ...

    @property
    def consistency(self) -> Consistency:
        """Return how regions are made to agree."""
        ...

    @property
    def merge(self) -> Merge:
        """Return how matched sizes are merged."""
        ...

    @property
    def rounding(self) -> Rounding:
        """Return how halves are rounded."""
        ...

    @property
    def variances(self) -> VarianceRule:
        """Return where the variances that weigh merged sizes come from."""
        ...


class SolverSettings(Protocol):
    """Which solver answers which kind of problem."""

    def chosen(self) -> Mapping[str, Any]:
        """Return the choices made, by kind of problem."""
        ...


class OutputSettings(Protocol):
    """Where public results and private records go."""

    @property
    def directory(self) -> Path:
        """Return the folder of public results."""
        ...

    @property
    def private(self) -> Path:
        """Return the folder of private records."""
        ...


class RunSettings(Protocol):
    """What every checked configuration holds, whatever it releases."""

    @property
    def name(self) -> str:
        """Return the name."""
        ...

    @property
    def file(self) -> str | None:
        """Return the name of the file it was read from, for messages."""
        ...

    @property
    def data(self) -> DataSettings:
        """Return where the input lies."""
        ...

    @property
    def privacy(self) -> PrivacySettings:
        """Return what is spent."""
        ...

    @property
    def solvers(self) -> SolverSettings:
        """Return the chosen solvers."""
        ...

    @property
    def output(self) -> OutputSettings:
        """Return where results go."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for the manifest."""
        ...


class Settings(RunSettings, Protocol):
    """A checked configuration of a groups release."""

    @property
    def groups(self) -> GroupsSettings:
        """Return how histograms are estimated."""
        ...

    def budget_shares(self, levels: int) -> tuple[Fraction, ...]:
        """Return the share of each level, root first."""
        ...

    def estimators(self, levels: int) -> tuple[Query, ...]:
        """Return the estimator of each level, root first."""
        ...

    def losses(self, levels: int) -> tuple[Loss, ...]:
        """Return the loss of each level, root first."""
        ...


def amount_in(settings: RunSettings) -> Fraction:
    """Return the whole budget in the unit of its mechanism; (epsilon, delta) becomes the largest rho that implies it.

    Raises ConfigError where the configuration states none.
    """
    privacy = settings.privacy
    if privacy.mechanism == "discrete_gaussian" and privacy.rho is not None:
        return privacy.rho
    if privacy.epsilon is not None and privacy.mechanism == "geometric":
        return privacy.epsilon
    if privacy.epsilon is not None and privacy.delta is not None:
        return rho_of_epsilon_delta(privacy.epsilon, privacy.delta)
    message = "give epsilon, or for discrete Gaussian noise rho, or epsilon and delta"
    raise ConfigError("privacy", message, settings.file)


def budget_of(settings: RunSettings, shares: Sequence[Fraction]) -> Budget:
    """Return the budget shared by levels, in the unit of its mechanism. Raises ConfigError, ProblemError."""
    amount, neighbours = amount_in(settings), settings.privacy.neighbours
    levels = tuple(amount * share for share in shares)
    if settings.privacy.mechanism == "geometric":
        return PureBudget(amount, levels, neighbours)
    return ConcentratedBudget(amount, levels, neighbours)


def method_of(settings: Settings, levels: int) -> GroupsMethod:
    """Return the post-processing a configuration asks for; ConfigError where a list has another length."""
    groups = settings.groups
    if groups.consistency == "joint":
        _check_program(settings, levels, "joint estimation", "cumulative")
    elif groups.consistency == "convex":
        _check_program(settings, levels, "the convex program", "naive", "cumulative")
    return GroupsMethod(
        losses=settings.losses(levels),
        ties=groups.ties,
        consistency=groups.consistency,
        merge=groups.merge,
        rounding=groups.rounding,
        variances=groups.variances,
    )


def _check_program(settings: Settings, levels: int, name: str, *queries: Query) -> None:
    asked = set(settings.estimators(levels))
    if len(asked) > 1 or not asked <= set(queries):
        failure = f"{name} reads one kind of counts: use the estimator {' or '.join(map(repr, queries))} on every level"
        raise ConfigError("groups.estimator", failure, settings.file)
    if len(set(settings.losses(levels))) > 1:
        raise ConfigError("groups.loss", f"{name} fits all levels with one loss", settings.file)


def solvers_of(settings: RunSettings) -> dict[str, Solver]:
    """Build the chosen solvers, so that a wrong name or option is an error before any data is read.

    Raises ConfigError for an unknown solver, a wrong option or one that cannot express the problem,
    MissingPackageError for one that is not installed.
    """
    built: dict[str, Solver] = {}
    for kind, choice in settings.solvers.chosen().items():
        if choice.name == "auto" and not choice.options:
            continue
        failure, key = "", f"solvers.{kind}"
        try:
            if choice.name == "auto":
                failure = "'auto' takes no options: name a solver"
            elif not backend(choice.name).claims(PROBLEMS[kind]):
                failure = f"solver {choice.name!r} cannot express {kind}; see 'coco-opt solvers'"
            else:
                built[kind] = make_solver(choice.name, **choice.options)
        except UnknownSolverError as error:
            failure = str(error)
        except ConfigError as error:
            failure, key = error.message, f"{key}.{error.key.rpartition('.')[2]}"
        if failure:
            raise ConfigError(key, failure, settings.file)
    return built


TINY: dict[str, Callable[[], Problem[Any, Any]]] = {
    "isotonic_l1": lambda: IsotonicL1([2, 0, 1], lower=0, upper=2),
    "isotonic_l2": lambda: IsotonicL2([2, 0, 1], lower=0, upper=2),
    "simplex_projection": lambda: SimplexProjection([2, 0, -1], 2),
    "controlled_rounding": lambda: ControlledRounding([0.5, 0.25, 1.25], 2),
    "group_matching": lambda: GroupMatching([1, 2], [1, 1], [1, 3], [1, 1], [0, 1, 2]),
    "joint_l1": lambda: JointL1([-1, 0, 0], [[2, 1], [1, 0], [0, 2]], [3, 2, 1], 1.0),
    "joint_l2": lambda: JointL2([-1, 0, 0], [[2, 1], [1, 0], [0, 2]], [3, 2, 1], 1.0),
    "topdown_split": lambda: TopdownSplit([SplitTerm(identity(2), np.eye(2), np.ones(2))], [1.0, 1.0]),
    "table_rounding": lambda: TableRounding([[0.5, 1.25], [0.5, 0.75]], [1, 2]),
    "cumulative_rounding": lambda: CumulativeRounding([[0.5, 1.25], [0.5, 0.75]], [1, 2], [2, 1]),
    "integer_tree_l1": lambda: IntegerTreeL1([-1, 0, 0], [[5, 2], [1, 0], [0, 2]], groups=[4, 3, 2]),
    "integer_tree_l2": lambda: IntegerTreeL2([-1, 0, 0], [[5, 2], [1, 0], [0, 2]], groups=[4, 3, 2]),
}


def rehearse(settings: RunSettings, solvers: Mapping[str, Solver]) -> None:
    """Let each chosen solver answer a tiny problem, for one that fails after the noise has wasted the budget.

    Raises ConfigError for one that fails, MissingPackageError.
    """
    for kind, solver in solvers.items():
        failure = _failure(kind, solver)
        if failure:
            raise ConfigError(f"solvers.{kind}", failure, settings.file)


def _failure(kind: str, solver: Solver) -> str:
    """Return why a solver fails on a tiny public problem of this kind, "" where it does not."""
    try:
        solve(TINY[kind](), solver)
    except MissingPackageError:
        raise
    except CocoOptError as error:
        return f"fails already on a tiny problem: {error}"
    except Exception as error:  # whatever a package raises on wrong options
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return f"fails already on a tiny problem, so check its options ({reason})"
    return ""
