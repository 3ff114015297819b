"""The recursion from the root to the leaves: parents of a level are independent, levels follow each other.

Consecutive parents are the tasks of an executor: a task reads what is known of their children, splits and rounds.
Failsafes are none, for their changes meet in the regions above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import Certificate
from coco_opt.errors import ProblemError, SolverError
from coco_opt.execution import Count, Executor, Shared, Threads, even_tasks
from coco_opt.topdown.estimated.failsafe import NO_TABLES_FIT, Relaxation
from coco_opt.topdown.estimated.level import LevelSplit, level_split
from coco_opt.topdown.estimated.relaxed_split import relaxed_split, unsplit
from coco_opt.topdown.estimated.sparse_tables import SparseTables
from coco_opt.topdown.estimated.step import SplitStep
from coco_opt.topdown.estimated.unproved import NOTHING_UNPROVED, Unproved
from coco_opt.topdown.facts.cuts import Cut

Ints = NDArray[np.int64]
Progress = Callable[[int, int], None]
ItemT = TypeVar("ItemT")

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


@dataclass(frozen=True, eq=False, slots=True)
class Splits:
    """What a task made of some parents: their children's tables, why some have none, and what the run is to note.

    The children of ``failures``, by their parents' regions, have empty tables here.
    """

    tables: SparseTables
    failures: tuple[tuple[int, Exception], ...]
    certificates: tuple[Certificate, ...]
    unproved: Unproved
    cuts: tuple[tuple[int, Cut], ...]

    @classmethod
    def of(cls, tables: SparseTables, own: SplitStep, failures: Sequence[tuple[int, Exception]] = ()) -> Splits:
        """Return what a task made by a step of its own."""
        cuts = () if own.cutting is None else own.cutting.sorted
        return cls(tables, tuple(failures), own.solvers.certificates, own.unproved.value, cuts)

    def note(self, step: SplitStep) -> None:
        """Count into the run's step what the task's own step has counted."""
        step.solvers.merge(self.certificates)
        step.unproved.merge(self.unproved)
        if step.cutting is not None:
            step.cutting.resume(self.cuts)


@dataclass(frozen=True, eq=False, slots=True)
class Parents:
    """The task to split consecutive parents of a level, the first of which is region ``first``.

    Those that can be are split together in compiled calls, if there is a ``LevelSplit``; the others one by one.
    """

    step: Shared[SplitStep]
    level: Shared[tuple[SparseTables, LevelSplit | None]]
    first: int

    def __call__(self, parents: range) -> Splits:
        """Split parents, counted in their level."""
        own, (above, together) = self.step.value.fresh(), self.level.value
        begin = own.children(self.first + parents.start).start
        if together is None:
            children = own.children(self.first + parents.stop - 1).stop - begin
            found, left = SparseTables.empty(children, above.size), list(parents)
        else:
            found, left = together(own, above, parents)
        more, failures = dict[int, SparseTables](), list[tuple[int, Exception]]()
        for place in left:
            region = self.first + place
            tables = _split(own, above, region, place)
            if isinstance(tables, Exception):
                failures.append((region, tables))
            else:
                more[own.children(region).start - begin] = tables
        return Splits.of(found.with_parts(more), own, failures)


@dataclass(frozen=True, eq=False, slots=True)
class LeavesAlone:
    """The task to fit and round the children of some regions, bound by no parent."""

    step: Shared[SplitStep]

    def __call__(self, parents: Sequence[int | None]) -> Splits:
        """Fit the children of some regions; of None the root."""
        own = self.step.value.fresh()
        return Splits.of(SparseTables.joined(_alone(own, region) for region in parents), own)


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
    parents: Sequence[int | None] = [None] if hierarchy.levels == 1 else hierarchy.level_range(hierarchy.levels - 2)
    run_by = Threads() if executor is None else executor
    chunks = [parents[one.start : one.stop] for one in even_tasks(len(parents), run_by.workers)]
    with run_by.share(step) as shared:
        leaves, _ = _mapped(step, LeavesAlone(shared), chunks, run_by, counter)
    levels = [leaves]
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
    above, together = step.measured.hierarchy.level_range(level - 1), level_split(step, level - 1)
    if together is None:
        batches = even_tasks(len(above), executor.workers)
    else:
        batches = list(together.batches(step.measured.hierarchy, done.tables[-1], executor.workers))
    with executor.share((done.tables[-1], together)) as held:
        below, failures = _mapped(step, Parents(shared, held, above.start), batches, executor, counter)
    relaxed, tables, made = list(done.relaxed), list(done.tables), dict[int, SparseTables]()
    # One after the other, in the order of the regions: their changes meet in the regions above.
    for region, failure in failures:
        children = step.children(region)
        made[children.start - above.stop], tables, change = _failsafe(step, region, tables, failure)
        if change.any():
            relaxed.append(_relaxation(step, region, change))
        counter.add(len(children))
    return _done(step, (*tables, below.with_parts(made)), tuple(relaxed))


def _done(step: SplitStep, tables: tuple[SparseTables, ...], relaxed: tuple[Relaxation, ...]) -> Checkpoint:
    core = None if step.core is None else step.core.levels[-1]
    cuts = () if step.cutting is None else step.cutting.sorted
    return Checkpoint(tables, relaxed, step.unproved.value, core, cuts)


def _mapped(
    step: SplitStep,
    task: Callable[[ItemT], Splits],
    items: Sequence[ItemT],
    executor: Executor,
    counter: Count,
) -> tuple[SparseTables, list[tuple[int, Exception]]]:
    """Return the tables of all items and the failures, and note what their tasks counted, in the items' order."""

    def done(_: int, splits: Splits) -> None:
        waiting = sum(len(step.children(region)) for region, _ in splits.failures)
        counter.add(splits.tables.regions - waiting)

    found = executor.map(task, items, done)
    for splits in found:
        splits.note(step)
    return SparseTables.joined(one.tables for one in found), [failed for one in found for failed in one.failures]


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
