"""The recursion from the root to the leaves: parents of a level are independent, levels follow each other.

Parents, some at a time, are the tasks of an executor; failsafes are not, for their changes meet in the regions above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import Certificate
from coco_opt.errors import ProblemError, SolverError
from coco_opt.execution import Count, Executor, Shared, Threads
from coco_opt.topdown.estimated.failsafe import NO_TABLES_FIT, Relaxation
from coco_opt.topdown.estimated.level import LevelSplit, level_split
from coco_opt.topdown.estimated.relaxed_split import relaxed_split, unsplit
from coco_opt.topdown.estimated.sparse_tables import SparseTables
from coco_opt.topdown.estimated.step import SplitStep
from coco_opt.topdown.estimated.unproved import NOTHING_UNPROVED, Unproved
from coco_opt.topdown.facts.cuts import Cut

Ints = NDArray[np.int64]
Progress = Callable[[int, int], None]
PartT = TypeVar("PartT")
ItemT = TypeVar("ItemT")

_TASKS = 64  # of one level, at most
_A_WORKER = 8  # tasks, at least, where there are many workers
_CHANGES = 50  # changed cells that a failsafe's record names


@dataclass(frozen=True, eq=False, slots=True)
class Checkpoint:
    """What is done after a level: the whole tables of every level so far, root first, and the regions relaxed.

    A later level's failsafe can change tables of the levels above, so a checkpoint holds them all. ``unproved`` counts
    the fits and roundings so far that were not proved nearest. ``core`` are the classes' counts in all leaves and
    ``cuts`` the constraints found so far, by region: splits that go on must keep the same.
    """

    tables: tuple[SparseTables, ...]
    relaxed: tuple[Relaxation, ...] = ()
    unproved: Unproved = NOTHING_UNPROVED
    core: Ints | None = None
    cuts: tuple[tuple[int, Cut], ...] = ()

    @property
    def level(self) -> int:
        """Return the last level that is done, -1 for none."""
        return len(self.tables) - 1


AfterLevel = Callable[[Checkpoint], None]
Tables = SparseTables | Exception | None
"""The whole tables of a region's children, why there are none, or None where another way is to be taken."""


@dataclass(frozen=True, eq=False, slots=True)
class Splits:
    """What a task made: one outcome a parent, and what the run's step is to take note of."""

    outcomes: tuple[Tables, ...]
    certificates: tuple[Certificate, ...]
    unproved: Unproved
    cuts: tuple[tuple[int, Cut], ...]

    @classmethod
    def of(cls, outcomes: Sequence[Tables], own: SplitStep) -> Splits:
        """Return what a task made by a step of its own."""
        cuts = () if own.cutting is None else own.cutting.sorted
        return cls(tuple(outcomes), own.solvers.certificates, own.unproved.value, cuts)

    @property
    def regions(self) -> int:
        """Return the number of regions that have tables."""
        return sum(one.regions for one in self.outcomes if isinstance(one, SparseTables))

    def note(self, step: SplitStep) -> None:
        """Count into the run's step what the task's own step has counted."""
        step.solvers.merge(self.certificates)
        step.unproved.merge(self.unproved)
        if step.cutting is not None:
            step.cutting.resume(self.cuts)


@dataclass(frozen=True, eq=False, slots=True)
class ParentsAtOnce:
    """The task to split consecutive parents of a level in compiled calls, those that can be."""

    step: Shared[SplitStep]
    level: Shared[tuple[SparseTables, LevelSplit]]

    def __call__(self, parents: range) -> Splits:
        """Split parents, counted in their level."""
        own, (above, whole) = self.step.value.fresh(), self.level.value
        return Splits.of(whole(own, above, parents), own)


@dataclass(frozen=True, eq=False, slots=True)
class ParentsOneByOne:
    """The task to split some parents of a level, the first of which is region ``first``, one after the other."""

    step: Shared[SplitStep]
    above: Shared[SparseTables]
    first: int

    def __call__(self, parents: Sequence[int]) -> Splits:
        """Split parents, by their regions."""
        own, above = self.step.value.fresh(), self.above.value
        return Splits.of([_split(own, above, region, region - self.first) for region in parents], own)


@dataclass(frozen=True, eq=False, slots=True)
class LeavesAlone:
    """The task to fit and round the children of some regions, bound by no parent."""

    step: Shared[SplitStep]

    def __call__(self, parents: Sequence[int | None]) -> Splits:
        """Fit the children of some regions; of None the root."""
        own = self.step.value.fresh()
        return Splits.of([_alone(own, region) for region in parents], own)


def top_down(
    step: SplitStep,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
    after_level: AfterLevel | None = None,
    resume_from: Checkpoint | None = None,
) -> Checkpoint:
    """Split every level in turn; the answer does not depend on the ``executor`` (default: this thread).

    ``progress`` is told the regions done and their number. Raises ProblemError or SolverError naming the region, and
    ProblemError for a checkpoint of another hierarchy or schema.
    """
    done = resume_from or Checkpoint(())
    _check_fit(step, done)
    if resume_from is not None:
        step.unproved.resume(done.unproved)
        if step.cutting is not None:
            step.cutting.resume(done.cuts)
    counter = Count(step.measured.hierarchy.regions, progress)
    counter.add(sum(tables.regions for tables in done.tables))
    run_by = Threads() if executor is None else executor
    with run_by.share(step) as shared:
        for level in range(done.level + 1, step.measured.hierarchy.levels):
            done = _level(step, shared, level, done, run_by, counter)
            if after_level is not None:
                after_level(done)
    return done


def _check_fit(step: SplitStep, done: Checkpoint) -> None:
    hierarchy, size = step.measured.hierarchy, step.measured.schema.size
    regions = [len(hierarchy.level_range(level)) for level in range(hierarchy.levels)]
    found = [tables.regions for tables in done.tables]
    if found != regions[: len(found)] or any(tables.size != size for tables in done.tables):
        raise ProblemError("the checkpoint to resume from is of another hierarchy or schema")


def bottom_up(step: SplitStep, *, executor: Executor | None = None, progress: Progress | None = None) -> Checkpoint:
    """Fit and round the leaves alone, and sum them: for measurements that bind nothing above (``method.misfit``)."""
    hierarchy = step.measured.hierarchy
    counter = Count(hierarchy.regions, progress)
    parents = [None] if hierarchy.levels == 1 else list(hierarchy.level_range(hierarchy.levels - 2))
    run_by = Threads() if executor is None else executor
    with run_by.share(step) as shared:
        outcomes = _mapped(step, LeavesAlone(shared), _chunks(parents, run_by.workers), run_by, counter)
    levels = [SparseTables.joined(one for one in outcomes if isinstance(one, SparseTables))]
    for level in range(hierarchy.levels - 2, -1, -1):
        regions = hierarchy.level_range(level)
        levels.append(levels[-1].summed(hierarchy.first_child[regions.start : regions.stop] - regions.stop))
        counter.add(len(regions))
    return Checkpoint(tuple(reversed(levels)), unproved=step.unproved.value)


def _alone(step: SplitStep, region: int | None) -> SparseTables:
    try:
        return SparseTables.of(step.split(region, None))
    except (ProblemError, SolverError) as error:
        failure = error
    try:
        return SparseTables.of(unsplit(step, region, failure))
    except (ProblemError, SolverError) as error:
        failure = error
    raise _named(failure, step.name(region))


def _split(step: SplitStep, above: SparseTables, region: int, place: int) -> SparseTables | Exception:
    try:
        return SparseTables.of(step.split(region, above.dense(place, place + 1)[0]))
    except (ProblemError, SolverError) as error:
        return error


def _level(
    step: SplitStep, shared: Shared[SplitStep], level: int, done: Checkpoint, executor: Executor, counter: Count
) -> Checkpoint:
    """Return the checkpoint with one level more."""
    if level == 0:
        root = _alone(step, None)
        counter.add(1)
        return _done(step, (root,), ())
    above = step.measured.hierarchy.level_range(level - 1)
    outcomes = _batched(step, shared, level - 1, done.tables[-1], executor, counter)
    left = [region for region, outcome in zip(above, outcomes, strict=True) if outcome is None]
    with executor.share(done.tables[-1]) as tables_above:
        task = ParentsOneByOne(shared, tables_above, above.start)
        found = _mapped(step, task, _chunks(left, executor.workers), executor, counter)
    for region, outcome in zip(left, found, strict=True):
        outcomes[region - above.start] = outcome
    relaxed = list(done.relaxed)
    tables = list(done.tables)
    # One after the other, in the order of the regions: their changes meet in the regions above.
    for at, region in enumerate(above):
        failure = outcomes[at]
        if isinstance(failure, Exception):
            outcomes[at], tables, change = _failsafe(step, region, tables, failure)
            if change.any():
                relaxed.append(_relaxation(step, region, change))
            counter.add(len(step.children(region)))
    parts = [outcome for outcome in outcomes if isinstance(outcome, SparseTables)]
    return _done(step, (*tables, SparseTables.joined(parts)), tuple(relaxed))


def _done(step: SplitStep, tables: tuple[SparseTables, ...], relaxed: tuple[Relaxation, ...]) -> Checkpoint:
    core = None if step.core is None else step.core.levels[-1]
    cuts = () if step.cutting is None else step.cutting.sorted
    return Checkpoint(tables, relaxed, step.unproved.value, core, cuts)


def _batched(
    step: SplitStep,
    shared: Shared[SplitStep],
    level: int,
    tables: SparseTables,
    executor: Executor,
    counter: Count,
) -> list[Tables]:
    """Return the children's tables of a level's regions that could be split at once, None for the others."""
    whole = level_split(step, level)
    if whole is None:
        return [None] * tables.regions
    batches = list(whole.batches(step.measured.hierarchy, tables, executor.workers))
    with executor.share((tables, whole)) as held:
        return _mapped(step, ParentsAtOnce(shared, held), batches, executor, counter)


def _mapped(
    step: SplitStep,
    task: Callable[[ItemT], Splits],
    items: Sequence[ItemT],
    executor: Executor,
    counter: Count,
) -> list[Tables]:
    """Return the outcomes of all items, and take note of what their tasks counted, in the items' order."""
    found = executor.map(task, items, lambda place, splits: counter.add(splits.regions))
    for splits in found:
        splits.note(step)
    return [outcome for splits in found for outcome in splits.outcomes]


def _chunks(parents: Sequence[PartT], workers: int) -> list[Sequence[PartT]]:
    """Return parents cut into tasks of about equally many."""
    tasks = min(len(parents), max(_TASKS, _A_WORKER * workers))
    ends = [len(parents) * k // tasks for k in range(tasks + 1)] if tasks else []
    return [parents[begin:end] for begin, end in pairwise(ends)]


def _failsafe(
    step: SplitStep, region: int, tables: list[SparseTables], failure: Exception
) -> tuple[SparseTables, list[SparseTables], Ints]:
    """Return the children's tables after a relaxed split, all levels above changed with them, and the change."""
    hierarchy = step.measured.hierarchy
    lineage = (region, *hierarchy.ancestors(region))
    own = []
    for one in lineage:
        level = int(hierarchy.level[one])
        at = one - int(hierarchy.level_start[level])
        own.append(tables[level].dense(at, at + 1)[0])
    try:
        children, change = relaxed_split(step, region, own, failure)
    except (ProblemError, SolverError) as error:
        failure = error
    else:
        return SparseTables.of(children), _with_change(step, tables, lineage, change), change
    raise _named(failure, step.name(region))


def _relaxation(step: SplitStep, region: int, change: Ints) -> Relaxation:
    moved = max(int(np.maximum(change, 0).sum()), int(np.maximum(-change, 0).sum()))
    cells = sorted(np.flatnonzero(change).tolist(), key=lambda cell: (-abs(int(change[cell])), cell))[:_CHANGES]
    changes = tuple((step.measured.schema.label(cell), int(change[cell])) for cell in cells)
    return Relaxation(region, step.measured.hierarchy.paths[region], moved, changes, NO_TABLES_FIT)


def _with_change(
    step: SplitStep, tables: Sequence[SparseTables], lineage: Sequence[int], change: Ints
) -> list[SparseTables]:
    """Return all levels' tables with the change added to a region's and to those above it."""
    hierarchy = step.measured.hierarchy
    changed = list(tables)
    for one in lineage:
        level = int(hierarchy.level[one])
        at = one - int(hierarchy.level_start[level])
        changed[level] = changed[level].changed(at, changed[level].dense(at, at + 1)[0] + change)
    return changed


def _named(error: Exception, name: str) -> ProblemError | SolverError:
    """Return an error that says which region it is about."""
    message = str(error) if name in str(error) else f"{name}: {error}"
    return SolverError(message, error.solution) if isinstance(error, SolverError) else ProblemError(message)
