"""The table of estimators by kind of release, found through the entry-point group ``coco_opt.estimators``.

The built-in rows stand below. A package outside this repository adds rows of its own under the same group; each is a
value of the key of the configuration that chooses the estimator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter
from typing import Any, Literal

from coco_opt.errors import InputError, ProblemError
from coco_opt.plugins import all_rows, loaded, near

GROUP = "coco_opt.estimators"

Needs = Literal["any", "leaves", "every"]
Keeps = Literal["sums", "nonnegative", "integers"]
_ALL: tuple[Keeps, ...] = ("sums", "nonnegative", "integers")


@dataclass(frozen=True, slots=True)
class EstimatorRow:
    """One row of a table of estimators; describes an estimator without importing it.

    Attributes
    ----------
    kind, name : str
        The kind of release ("groups", "tables", "ranges"), and the value of its key in the configuration.
    summary : str
        What it does with the answers, in one line.
    takes : str
        How long an ordinary release takes: "milliseconds", "seconds", "minutes".
    papers : tuple of str
        What ``coco-opt cite`` prints: keys of ``coco_opt/cli/references.bib``, or whole BibTeX entries.
    target : str
        ``"module:function"`` that is called with the measurement, the method and the solvers. It returns what the kind
        makes whole: for groups a ``CountOfCounts`` for each region; for tables float64[regions, cells] for each level,
        which are moved to the nearest tables that meet all constraints and rounded; for ranges float64[cells]. Empty
        for estimators that the kind runs itself.
    needs : {"any", "leaves", "every"}
        The levels that must have been measured.
    queries : tuple of str
        The measured queries that it reads; empty where it reads every query of its kind.
    keeps : tuple of {"sums", "nonnegative", "integers"}
        What its estimates keep to, which the release promises.
    weakness : str
        Where other estimators err less, for the report.
    """

    kind: str
    name: str
    summary: str
    takes: str
    papers: tuple[str, ...]
    target: str = ""
    needs: Needs = "any"
    queries: tuple[str, ...] = ()
    keeps: tuple[Keeps, ...] = _ALL
    weakness: str = ""

    def load(self) -> Callable[..., Any]:
        """Import and return the function that estimates."""
        function: Callable[..., Any] = loaded(self.target)
        return function


_LEAVES = (
    "At the lowest levels bottom-up, with the whole budget on the leaves, usually errs less: here the leaves get a "
    "part of the budget only, and the rest buys the levels above. "
)
ESTIMATORS = (
    EstimatorRow(
        "groups",
        "posterior",
        "draws of all tables given all answers, and the table of least expected error; has intervals",
        "seconds to minutes",
        ("kuo2018",),
        queries=("cumulative", "buckets", "ranks", "split"),
        weakness=f"{_LEAVES}It uses what regions have in common: one unlike all others is drawn towards them where "
        "the noise leaves room.",
    ),
    EstimatorRow(
        "groups",
        "joint",
        "one program fits all regions to all answers in integers that add up",
        "seconds",
        ("kuo2018",),
        queries=("cumulative", "buckets"),
        weakness=f"{_LEAVES}Where most sizes have no group, matching on buckets and the posterior err less.",
    ),
    EstimatorRow(
        "groups",
        "convex",
        "one convex program for each cell over all regions (Fioretto et al. 2021)",
        "seconds",
        ("fioretto2021",),
        "coco_opt.groups.estimating.convex:convex",
        queries=("sizes", "cumulative"),
        weakness=f"{_LEAVES}Cumulative counts, by joint estimation, err less on most data than counts of single sizes.",
    ),
    EstimatorRow(
        "groups",
        "matching",
        "each region alone, then top-down matching and merging (Kuo et al. 2018, Algorithm 1)",
        "milliseconds",
        ("kuo2018",),
        needs="every",
        weakness=f"{_LEAVES}Each region is fitted alone before regions are made to agree: joint estimation and the "
        "posterior, which take seconds to minutes, err less on most data.",
    ),
    EstimatorRow(
        "groups",
        "bottom_up",
        "each leaf alone, and their sums",
        "milliseconds",
        ("kuo2018",),
        needs="leaves",
        weakness="Errors of leaves add up: the higher a region, the further off it is. Methods that measure every "
        "level err less there.",
    ),
    EstimatorRow(
        "groups",
        "none",
        "each region alone; regions do not add up",
        "milliseconds",
        ("kuo2018",),
        needs="every",
        keeps=("nonnegative", "integers"),
        weakness="Regions do not add up, and none learns from its neighbours: methods that make them agree err less.",
    ),
    EstimatorRow(
        "tables",
        "full",
        "every region is fitted to all answers at and below it, then rounded, top-down",
        "seconds",
        ("abowd2022", "kifer2019"),
        needs="leaves",
    ),
    EstimatorRow(
        "tables",
        "classic",
        "every region is fitted to its own level's answers, then rounded, top-down",
        "seconds",
        ("abowd2022", "kifer2019"),
        needs="every",
    ),
    EstimatorRow(
        "tables",
        "bottom_up",
        "the leaves alone are fitted and rounded, and summed",
        "seconds",
        ("abowd2022", "kifer2019"),
        needs="leaves",
    ),
    EstimatorRow(
        "tables",
        "posterior",
        "draws of all tables given all answers, and the tables of least expected error; has intervals",
        "a minute",
        ("abowd2022", "kifer2019"),
        needs="leaves",
    ),
    EstimatorRow(
        "ranges",
        "nonnegative",
        "least squares on the tree of intervals with nonnegative counts",
        "milliseconds",
        ("hay2010",),
        keeps=("sums", "nonnegative"),
    ),
    EstimatorRow(
        "ranges",
        "consistent",
        "least squares on the tree of intervals: the best linear unbiased estimate",
        "milliseconds",
        ("hay2010",),
        keeps=("sums",),
    ),
    EstimatorRow("ranges", "noisy", "as measured", "milliseconds", ("hay2010",), keeps=("integers",)),
    EstimatorRow(
        "ranges",
        "zeroed",
        "least squares, then subtrees of at most 0 become 0 and cells are rounded",
        "milliseconds",
        ("hay2010",),
    ),
    EstimatorRow(
        "ranges",
        "posterior",
        "draws of all cells given all answers, and the integers of least expected error; has intervals",
        "seconds",
        ("hay2010",),
    ),
)


@cache
def estimator_rows(kind: str) -> tuple[EstimatorRow, ...]:
    """Return the rows of a kind, built-in first; a table that cannot be loaded is left out with a warning.

    Raises InputError (two-estimators) where two rows of the kind have one name.
    """
    rows = all_rows(
        GROUP, ESTIMATORS, "estimator", partial(InputError, "two-estimators"), (attrgetter("kind", "name"),)
    )
    return tuple(row for row in rows if row.kind == kind)


def estimator_row(kind: str, name: str) -> EstimatorRow:
    """Return the row of a name; ProblemError naming the nearest."""
    rows = {row.name: row for row in estimator_rows(kind)}
    if name not in rows:
        raise ProblemError(f"no estimator of {kind} is called {name!r}{near(name, rows)}")
    return rows[name]


def added_rows(kind: str) -> tuple[EstimatorRow, ...]:
    """Return the rows of a kind that other packages added."""
    return tuple(row for row in estimator_rows(kind) if row not in ESTIMATORS)
