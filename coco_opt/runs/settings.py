"""What a run reads from a configuration, as protocols: runs lie below the config reader and do not import it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

from coco_opt.errors import ConfigError, UnknownSolverError
from coco_opt.groups import GroupsMethod
from coco_opt.groups.estimators import Loss
from coco_opt.groups.release import Consistency
from coco_opt.kernels.merging import Merge, Rounding
from coco_opt.privacy import Neighbours, Query
from coco_opt.problems import PROBLEMS
from coco_opt.problems.isotonic import TieRule
from coco_opt.registry import backend, make_solver
from coco_opt.solver import Solver


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


class PrivacySettings(Protocol):
    """What is spent and how noise is drawn."""

    @property
    def epsilon(self) -> Fraction:
        """Return the whole budget."""
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


class Settings(Protocol):
    """A checked configuration."""

    @property
    def name(self) -> str:
        """Return the name."""
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
    def groups(self) -> GroupsSettings:
        """Return how histograms are estimated."""
        ...

    @property
    def solvers(self) -> SolverSettings:
        """Return the chosen solvers."""
        ...

    @property
    def output(self) -> OutputSettings:
        """Return where results go."""
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

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for the manifest."""
        ...


def method_of(settings: Settings, levels: int) -> GroupsMethod:
    """Return the post-processing a configuration asks for; ConfigError where a list has another length."""
    groups = settings.groups
    return GroupsMethod(
        losses=settings.losses(levels),
        ties=groups.ties,
        consistency=groups.consistency,
        merge=groups.merge,
        rounding=groups.rounding,
    )


def solvers_of(settings: Settings) -> dict[str, Solver]:
    """Build the chosen solvers, so that a wrong name or option is an error before any data is read.

    Raises ConfigError for an unknown solver, a wrong option or one that cannot express the problem,
    MissingPackageError for one that is not installed.
    """
    built: dict[str, Solver] = {}
    for kind, choice in settings.solvers.chosen().items():
        if choice.name == "auto" and not choice.options:
            continue
        failure = ""
        try:
            if not backend(choice.name).claims(PROBLEMS[kind]):
                failure = f"solver {choice.name!r} cannot express {kind}; see 'coco-opt solvers'"
            else:
                built[kind] = make_solver(choice.name, **choice.options)
        except UnknownSolverError as error:
            failure = str(error)
        if failure:
            raise ConfigError(f"solvers.{kind}", failure)
    return built
