"""TopDown's recursion: from the root down, each region's integer table is split among its children and rounded.

A split is a least-squares problem (``coco_opt.problems.topdown_split``), a rounding a flow
(``coco_opt.problems.table_rounding``). This module runs them level by level: a task of an executor splits consecutive
regions of one level. Failsafes are no tasks, because their changes meet in the regions above: they follow one after the
other, in the order of the regions, once all others of the level are split. A checkpoint covers all levels down to its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from coco_opt.activity import Progress
from coco_opt.array_types import Ints
from coco_opt.choices import Certificate
from coco_opt.errors import ProblemError, SolverError
from coco_opt.execution import Count, Executor, Shared, Threads, batch_size, batches, even_tasks
from coco_opt.execution.temporary_storage import forget_pages
from coco_opt.histograms import Hierarchy
from coco_opt.topdown.estimating.implied.cuts import Cut
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.estimating.splitting.failsafe import NO_TABLES_FIT, Relaxation, relaxed_split, unsplit
from coco_opt.topdown.estimating.splitting.level import LevelSplit, level_split
from coco_opt.topdown.estimating.splitting.step import SplitStep

_CHANGES = 50  # changed cells that a failsafe's record names
_NUMBERS = 1 << 20  # answers or cells of the children that a compiled call splits: several arrays of so many numbers
_WAITING_RUNS = 1 << 18  # nonzero cells of a level's finished tables, above which they are moved to a file


@dataclass(frozen=True, eq=False, slots=True)
class Checkpoint:
    """The state after a level: the integer tables of every level so far, root first, and the regions relaxed.

    A later level's failsafe can change tables of the levels above, so a checkpoint holds them all. ``certificates``
    are those of the fits and roundings so far. ``core`` are the classes' counts in all leaves
    and ``cuts`` the constraints found so far, by region: splits that go on must keep the same.
    """

    tables: tuple[SparseTables, ...]
    relaxed: tuple[Relaxation, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    core: Ints | None = None
    cuts: tuple[tuple[int, Cut], ...] = ()

    @property
    def level(self) -> int:
        """Return the last level that is done, -1 for none."""
        return len(self.tables) - 1


AfterLevel = Callable[[Checkpoint], None]


@dataclass(frozen=True, eq=False, slots=True)
class SplitResult:
    """A task's result for some parents: their children's tables, why some have none, and what the run is to count.

    The children of ``failures``, by their parents' regions, have empty tables here.
    """

    parents: range
    tables: SparseTables
    failures: tuple[tuple[int, Exception], ...]
    certificates: tuple[Certificate, ...]
    cuts: tuple[tuple[int, Cut], ...]
    unchecked: frozenset[int]

    @classmethod
    def of(
        cls, parents: range, tables: SparseTables, step: SplitStep, failures: Sequence[tuple[int, Exception]] = ()
    ) -> SplitResult:
        """Return the result of a task with a ``step`` that no other task has."""
        cuts = () if step.cutting is None else step.cutting.sorted
        unchecked = frozenset[int]() if step.cutting is None else frozenset(step.cutting.unchecked)
        return cls(parents, tables, tuple(failures), step.solvers.certificates, cuts, unchecked)

    def note(self, step: SplitStep) -> None:
        """Count into the run's step what the task's own step has counted."""
        step.solvers.merge(self.certificates)
        if step.cutting is not None:
            step.cutting.add(self.cuts, self.unchecked)


@dataclass(frozen=True, eq=False, slots=True)
class Splitter:
    """The task to split consecutive regions of one level; ``together``, if any, splits all that it can at once."""

    step: Shared[SplitStep]
    together: Shared[LevelSplit | None]

    def __call__(self, work: tuple[range, SparseTables]) -> list[SplitResult]:
        """Return the result for regions and their tables, in a list that its reader empties."""
        parents, above = work
        step, together = self.step.value.fresh(), self.together.value
        children = _children(step.measured.hierarchy, parents)
        if together is None:
            batch_tables, left = SparseTables.empty(len(children), above.size), list(parents)
        else:
            batch_tables, left = together(step, parents, above)
        single_tables, failures = dict[int, SparseTables](), list[tuple[int, Exception]]()
        for region in left:
            place = region - parents.start
            try:
                children_tables = step.split(region, above.dense(place, place + 1)[0])
            except (ProblemError, SolverError) as error:
                failures.append((region, error))
            else:
                single_tables[step.children(region).start - children.start] = SparseTables.of(children_tables)
        tables = SparseTables.joined([batch_tables.with_parts(single_tables)])  # in a file, where they are large
        result = SplitResult.of(parents, tables, step, failures)
        forget_pages()
        return [result]


@dataclass(frozen=True, eq=False, slots=True)
class LeavesAlone:
    """The task to fit and round the children of some regions, bound by no parent."""

    step: Shared[SplitStep]

    def __call__(self, parents: Sequence[int | None]) -> SplitResult:
        """Fit the children of some regions; of None the root."""
        step = self.step.value.fresh()
        return SplitResult.of(range(0), SparseTables.joined(_fit_alone(step, region) for region in parents), step)


def top_down(
    step: SplitStep,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
    after_level: AfterLevel | None = None,
    resume_from: Checkpoint | None = None,
) -> Checkpoint:
    """Split all regions from the root on; the answer does not depend on the ``executor`` (default: this thread).

    ``progress`` is called with the numbers of regions done and in all. Raises ProblemError or SolverError naming the
    region, and ProblemError for a checkpoint of another hierarchy or schema.
    """
    done, hierarchy = resume_from or Checkpoint(()), step.measured.hierarchy
    if resume_from is not None:
        size, levels = step.measured.schema.size, range(hierarchy.levels)
        shapes = [(len(hierarchy.level_range(level)), size) for level in levels][: len(done.tables)]
        if [(tables.regions, tables.size) for tables in done.tables] != shapes:
            raise ProblemError("the checkpoint to resume from is of another hierarchy or schema")
        step.solvers.merge(done.certificates)
        if step.cutting is not None:
            step.cutting.add(done.cuts)
    counter = Count(hierarchy.regions, progress)
    counter.add(sum(tables.regions for tables in done.tables))
    run_by = Threads() if executor is None else executor
    with run_by.share(step) as shared:
        for level in range(done.level, hierarchy.levels - 1):
            if level < 0:
                done = _checkpoint(step, (_fit_alone(step, None),), ())
                counter.add(1)
            else:
                done = _with_next_level(step, shared, done, run_by, counter)
            if after_level is not None:
                after_level(done)
    return done


def bottom_up(step: SplitStep, *, executor: Executor | None = None, progress: Progress | None = None) -> Checkpoint:
    """Fit and round the leaves alone, and sum them: for measurements that bind nothing above (``method.misfit``)."""
    hierarchy = step.measured.hierarchy
    counter = Count(hierarchy.regions, progress)
    parents: Sequence[int | None] = [None] if hierarchy.levels == 1 else hierarchy.level_range(hierarchy.levels - 2)
    run_by = Threads() if executor is None else executor
    chunks = [parents[chunk.start : chunk.stop] for chunk in even_tasks(len(parents), run_by.workers)]
    with run_by.share(step) as shared:
        results = run_by.map(LeavesAlone(shared), chunks, lambda _, result: counter.add(result.tables.regions))
    for result in results:
        result.note(step)
    levels = [SparseTables.joined(result.tables for result in results)]
    for level in range(hierarchy.levels - 2, -1, -1):
        regions = hierarchy.level_range(level)
        levels.append(levels[-1].summed(hierarchy.first_child[regions.start : regions.stop] - regions.stop))
        counter.add(len(regions))
    return Checkpoint(tuple(reversed(levels)), certificates=step.solvers.certificates)


def _fit_alone(step: SplitStep, region: int | None) -> SparseTables:
    try:
        return SparseTables.of(step.split(region, None))
    except (ProblemError, SolverError) as error:
        failure = error
    try:
        return SparseTables.of(unsplit(step, region, failure))
    except (ProblemError, SolverError) as error:
        failure = error
    raise _with_name(failure, step.name(region))


class LevelResults:
    """The results of a level's tasks; their tables are moved to files, many small tables together."""

    def __init__(self) -> None:
        self._stored, self._waiting, self._runs = list[SplitResult](), list[SplitResult](), 0

    def add(self, result: SplitResult) -> None:
        """Take the result for some parents."""
        self._waiting.append(result)
        self._runs += result.tables.cells.size
        if self._runs >= _WAITING_RUNS:
            joined, begin = SparseTables.joined(each.tables for each in self._waiting), 0
            for each in self._waiting:
                self._stored.append(replace(each, tables=joined.part(begin, begin + each.tables.regions)))
                begin += each.tables.regions
            self._waiting, self._runs = [], 0

    @property
    def in_order(self) -> list[SplitResult]:
        """Return all results in the parents' order."""
        return sorted(self._stored + self._waiting, key=lambda result: result.parents.start)


def _with_next_level(
    step: SplitStep, shared: Shared[SplitStep], done: Checkpoint, executor: Executor, counter: Count
) -> Checkpoint:
    """Return the checkpoint after the next level: the regions of the last level are split, or their tables relaxed."""
    hierarchy, results = step.measured.hierarchy, LevelResults()
    parents, begin = hierarchy.level_range(done.level), hierarchy.level_range(done.level + 1).start

    def take(_: int, ended: list[SplitResult]) -> None:
        result = ended.pop()  # what executors keep of a task takes no memory
        results.add(result)
        waiting = sum(len(step.children(region)) for region, _ in result.failures)
        counter.add(result.tables.regions - waiting)
        forget_pages()

    together = level_split(step, done.level)
    work = [
        (parents[some.start : some.stop], done.tables[-1].part(some.start, some.stop))
        for some in _tasks(step, parents, executor.workers, compiled=together is not None)
    ]
    with executor.share(together) as level:
        executor.map(Splitter(shared, level), work, take)
    level_results = results.in_order
    for result in level_results:
        result.note(step)
    relaxed, tables, more = list(done.relaxed), list(done.tables), dict[int, SparseTables]()
    for region, failure in (failed for result in level_results for failed in result.failures):
        children = step.children(region)
        more[children.start - begin], tables, change = _failsafe(step, region, tables, failure)
        if change.any():
            relaxed.append(_relaxation(step, region, change))
        counter.add(len(children))
    below = SparseTables.joined(result.tables for result in level_results).with_parts(more)
    return _checkpoint(step, (*tables, below), tuple(relaxed))


def _tasks(step: SplitStep, parents: range, workers: int, *, compiled: bool) -> list[range]:
    """Return places of a level's regions cut into tasks: by the numbers of their children, or about equally many."""
    if not compiled:
        return even_tasks(len(parents), workers)
    children = np.diff(step.measured.hierarchy.first_child[parents.start : parents.stop + 1])
    answers = sum(query.operator.answers for query in step.measured.queries)
    numbers = children * max(answers, step.measured.schema.size)
    return list(batches(numbers, min(_NUMBERS, batch_size(int(numbers.sum()), workers))))


def _checkpoint(step: SplitStep, tables: tuple[SparseTables, ...], relaxed: tuple[Relaxation, ...]) -> Checkpoint:
    core = None if step.core is None else step.core.levels[-1]
    cuts = () if step.cutting is None else step.cutting.sorted
    return Checkpoint(tables, relaxed, step.solvers.certificates, core, cuts)


def _failsafe(
    step: SplitStep, region: int, tables: list[SparseTables], failure: Exception
) -> tuple[SparseTables, list[SparseTables], Ints]:
    """Return the children's tables after a relaxed split, all levels above changed with them, and the change."""
    hierarchy = step.measured.hierarchy
    lineage = (region, *hierarchy.ancestors(region))
    places = [hierarchy.within_level(range(member, member + 1)) for member in lineage]
    own = [tables[level].dense(at.start, at.stop)[0] for level, at in places]
    try:
        children, change = relaxed_split(step, region, own, failure)
    except (ProblemError, SolverError) as error:
        failure = error
    else:
        return SparseTables.of(children), _with_change(step, tables, lineage, change), change
    raise _with_name(failure, step.name(region))


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
    for member in lineage:
        level, at = hierarchy.within_level(range(member, member + 1))
        table = changed[level].dense(at.start, at.stop) + change
        changed[level] = changed[level].with_parts({at.start: SparseTables.of(table)})
    return changed


def _children(hierarchy: Hierarchy, regions: range) -> range:
    """Return the children of consecutive regions of one level."""
    return range(hierarchy.children(regions[0]).start, hierarchy.children(regions[-1]).stop)


def _with_name(error: Exception, name: str) -> ProblemError | SolverError:
    """Return an error that says which region it is about."""
    message = str(error) if name in str(error) else f"{name}: {error}"
    return SolverError(message, error.solution) if isinstance(error, SolverError) else ProblemError(message)
