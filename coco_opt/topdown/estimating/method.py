"""How tables are estimated from measurements: the choices of a top-down run, checked once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from coco_opt.errors import ProblemError
from coco_opt.estimators import estimator_row
from coco_opt.plugins import near
from coco_opt.topdown.queries import Query

Estimation = str
"""The name of a row of the table of estimators (``coco_opt.estimators``)."""
Weighting = Literal["variance", "equal"]
IntegerRule = Literal["passes", "nearest"]
Implied = Literal["auto", "bounds", "cuts", "minimal_schema"]


@dataclass(frozen=True, slots=True)
class Pass:
    """Queries fitted together; later passes keep their answers within ``tolerance`` people."""

    queries: tuple[str, ...]
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", tuple(self.queries))
        if not self.queries or len(set(self.queries)) < len(self.queries):
            raise ProblemError("a pass needs one or more queries, each named once")
        if not 0.0 <= self.tolerance < float("inf"):
            raise ProblemError("a pass's tolerance must be a number of people, 0 or more")


@dataclass(frozen=True, slots=True)
class TopdownMethod:
    """The post-processing of a release of tables of persons.

    Parameters
    ----------
    estimation : str, default "full"
        "full" fits every region to all answers at and below it, "classic" to its own level's answers alone, "bottom_up"
        fits the leaves alone and sums them. "posterior" samples all tables given all answers, begins with the tables
        of "full", and releases those of least expected error; its result has intervals. The tables of an estimator that
        a package adds to the table of ``coco_opt.estimators`` are fitted and rounded, as answers of "classic" are.
    passes : tuple of Pass, default ()
        Groups of queries in order of importance; queries in no group come last, together. Without passes all are fitted
        together.
    weighting : {"variance", "equal"}, default "variance"
        The weight of an answer: 1 / variance, or 1, which is for comparison only.
    rounding : {"passes", "nearest"}, default "passes"
        "passes" rounds totals first, then queries, then cells, each to the nearest that those before allow; where no
        query measures cells and queries cross, all are rounded together in place of the cells. "nearest" rounds cells
        alone.
    workload : tuple of Query, default ()
        The queries that are rounded in passes where they are nested; what was measured, if it is empty.
    rounding_order : tuple of Query, default ()
        The passes, most important first, in place of those of the workload.
    implied : {"auto", "bounds", "cuts", "minimal_schema"}, default "auto"
        How implied constraints on the regions above are enforced: by "bounds" on single answers, closed under sums; by
        "cuts", added where a table would not extend to its leaves; or by the "minimal_schema", which solves the classes
        of cells that constraints distinguish for all regions together, and the rest below. "auto" takes bounds where
        they suffice, and elsewhere the first of minimal schema, cuts and bounds whose predicted time is allowed.
    time : float, default 600
        Seconds that enforcing implied constraints may take. What is slower is not chosen by "auto", which goes on with
        the next method where a step turns out to be slow; cuts are no longer looked for after that time. The chains of
        "posterior" take no longer either, by the moves that two cores can make in this time.
    seed : int, optional
        Decides ties, rounding together and draws; determined by the noisy answers, if it is left out.
    intervals : float, default 0.9
        The coverage of the intervals of "posterior", 0 for none.

    Raises
    ------
    ProblemError
        A choice is unknown, or the choices exclude each other.

    Notes
    -----
    Source: Abowd et al. 2022.

    Examples
    --------
    >>> from coco_opt import TopdownMethod
    >>> TopdownMethod("classic").rounding
    'passes'
    """

    estimation: Estimation = "full"
    passes: tuple[Pass, ...] = ()
    weighting: Weighting = "variance"
    rounding: IntegerRule = "passes"
    workload: tuple[Query, ...] = ()
    rounding_order: tuple[Query, ...] = ()
    implied: Implied = "auto"
    time: float = 600.0
    seed: int | None = None
    intervals: float = 0.9

    def __post_init__(self) -> None:
        object.__setattr__(self, "passes", tuple(self.passes))
        estimator_row("tables", self.estimation)
        kinds = {"weighting": Weighting, "rounding": IntegerRule, "implied": Implied}
        for name, kind in kinds.items():
            choices, value = get_args(kind), getattr(self, name)
            if value not in choices:
                raise ProblemError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        for name in ("workload", "rounding_order"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.rounding != "passes" and self.rounding_order:
            raise ProblemError(f"rounding {self.rounding!r} has no order of queries: use 'passes'")
        if not 0.0 < self.time < float("inf"):
            raise ProblemError("time must be a number of seconds above 0")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise ProblemError("a seed is a number from 0 to below 2^64")
        if not 0.0 <= self.intervals < 1.0:
            raise ProblemError("the coverage of intervals must be from 0 to below 1")
        named = [query for group in self.passes for query in group.queries]
        if len(set(named)) < len(named):
            raise ProblemError("every query belongs to one pass only")

    def query_passes(self, names: Sequence[str]) -> tuple[tuple[tuple[int, ...], float], ...]:
        """Return for each pass the places of its queries among ``names``, and its tolerance.

        Raises ProblemError for a query that was not measured.
        """
        places = {name: at for at, name in enumerate(names)}
        result = []
        for fit in self.passes:
            for name in fit.queries:
                if name not in places:
                    hint = near(name, names, "")
                    raise ProblemError(f"a pass names the query {name!r}, which was not measured{hint}")
            result.append((tuple(places[name] for name in fit.queries), fit.tolerance))
        used = {at for group, _ in result for at in group}
        rest = tuple(at for at in range(len(names)) if at not in used)
        return (*result, (rest, 0.0)) if rest else tuple(result)


def misfit(
    method: TopdownMethod,
    queries: Sequence[str],
    measured_levels: Collection[int],
    levels: int,
    bound: Collection[int],
) -> tuple[str, str] | None:
    """Return the option of a method that does not fit what was measured or what binds levels, and why; or None.

    ``queries`` are the names of the measured queries, ``measured_levels`` those of the ``levels`` with measurements,
    and ``bound`` those with exact answers or bounds.
    """
    leaves = levels - 1
    if method.estimation == "bottom_up" and any(level < leaves for level in bound):
        reason = "bottom_up sums the leaves and cannot keep what must hold above them: use 'full' or 'classic'"
        return "estimation", reason
    needs = estimator_row("tables", method.estimation).needs
    needed = () if needs == "any" else range(levels) if needs == "every" else (leaves,)
    missing = next((level for level in needed if level not in measured_levels), None)
    if missing is not None:
        advice = ", or use 'full'" if missing < leaves else ""
        reason = f"{method.estimation!r} needs answers of level {missing}, and none were measured: give it a share of"
        return "estimation", f"{reason} the budget{advice}"
    try:
        method.query_passes(queries)
    except ProblemError as error:
        return "passes", str(error)
    return None
