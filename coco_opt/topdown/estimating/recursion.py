"""TopDown's recursion: from the root down, each region's integer table is split among its children and rounded.

A split is a least-squares problem (``coco_opt.problems.topdown_split``), a rounding a flow
(``coco_opt.problems.table_rounding``). This module runs them as parallel tasks, with checkpoints: once a region has its
table, what lies below it depends on nothing else.

Each task of an executor splits and rounds consecutive regions of one level; where their subtrees are small, it goes on
to the leaves. A task begins when its own regions have tables: no level waits for another. The results are joined level
by level, in order. A checkpoint covers all levels down to its own and nothing below. Failsafes are no tasks, because
their changes meet in the regions above.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from coco_opt.activity import Progress
from coco_opt.array_types import Ints
from coco_opt.choices import Certificate
from coco_opt.errors import ProblemError, SolverError, WorkerError
from coco_opt.execution import Count, Executor, Shared, Threads, batch_size, batches, even_tasks
from coco_opt.execution.temporary_storage import forget_pages
from coco_opt.histograms import Hierarchy
from coco_opt.topdown.estimating.implied.cuts import Cut
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.estimating.splitting.failsafe import NO_TABLES_FIT, Relaxation, relaxed_split, unsplit
from coco_opt.topdown.estimating.splitting.level import LevelSplit, level_split
from coco_opt.topdown.estimating.splitting.step import SplitStep

_CHANGES = 50  # changed cells that a failsafe's record names
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
class ParentTables:
    """Consecutive regions of one level and their integer tables: what a task begins with.

    ``to_leaves`` says that it goes on to the leaves; else it splits these regions alone.
    """

    regions: range
    tables: SparseTables
    to_leaves: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class SplitResult:
    """A task's result for some parents: their children's tables, why some have none, and what the run is to count.

    The children of ``failures``, by their parents' regions, have empty tables here. ``to_leaves`` says that the task
    splits the other children, too.
    """

    parents: range
    tables: SparseTables
    failures: tuple[tuple[int, Exception], ...]
    certificates: tuple[Certificate, ...]
    cuts: tuple[tuple[int, Cut], ...]
    unchecked: frozenset[int]
    to_leaves: bool

    @classmethod
    def of(
        cls,
        parents: range,
        tables: SparseTables,
        own: SplitStep,
        failures: Sequence[tuple[int, Exception]] = (),
        *,
        to_leaves: bool = False,
    ) -> SplitResult:
        """Return the result of a task with a step of its own."""
        cuts = () if own.cutting is None else own.cutting.sorted
        unchecked = frozenset[int]() if own.cutting is None else frozenset(own.cutting.unchecked)
        counted = own.solvers.certificates, cuts, unchecked
        return cls(parents, tables, tuple(failures), *counted, to_leaves)

    def note(self, step: SplitStep) -> None:
        """Count into the run's step what the task's own step has counted."""
        step.solvers.merge(self.certificates)
        if step.cutting is not None:
            step.cutting.add(self.cuts, self.unchecked)

    def below(self, hierarchy: Hierarchy) -> Iterator[ParentTables]:
        """Yield the children that have tables, consecutive ones together; none where they are leaves."""
        children = _children(hierarchy, self.parents)
        if not hierarchy.children(children.start):
            return
        at = children.start
        failed = [hierarchy.children(region) for region, _ in self.failures]
        for without in [*failed, range(children.stop, children.stop)]:
            if at < without.start:
                tables = self.tables.part(at - children.start, without.start - children.start)
                yield ParentTables(range(at, without.start), tables, self.to_leaves)
            at = without.stop


@dataclass(frozen=True, eq=False, slots=True)
class Splitter:
    """Splits any regions of a run; ``together`` [levels but the last] splits all of a level, where it can."""

    step: SplitStep
    together: tuple[LevelSplit | None, ...]

    @classmethod
    def of(cls, step: SplitStep) -> Splitter:
        """Prepare the splits of all levels."""
        return cls(step, tuple(level_split(step, level) for level in range(step.measured.hierarchy.levels - 1)))

    def __call__(self, parents: ParentTables) -> SplitResult:
        """Split regions: those that can be in compiled calls, the others individually."""
        own, hierarchy = self.step.fresh(), self.step.measured.hierarchy
        children, together = (
            _children(hierarchy, parents.regions),
            self.together[int(hierarchy.level[parents.regions.start])],
        )
        if together is None:
            batch_tables, left = SparseTables.empty(len(children), parents.tables.size), list(parents.regions)
        else:
            batch_tables, left = together(own, parents.regions, parents.tables)
        single_tables, failures = dict[int, SparseTables](), list[tuple[int, Exception]]()
        for region in left:
            place = region - parents.regions.start
            try:
                tables = own.split(region, parents.tables.dense(place, place + 1)[0])
            except (ProblemError, SolverError) as error:
                failures.append((region, error))
            else:
                single_tables[own.children(region).start - children.start] = SparseTables.of(tables)
        return SplitResult.of(
            parents.regions, batch_tables.with_parts(single_tables).aside, own, failures, to_leaves=parents.to_leaves
        )


@dataclass(frozen=True, eq=False, slots=True)
class Descent:
    """The task to split regions, and their descendants where the task goes on to the leaves; upper levels first."""

    splitter: Shared[Splitter]

    def __call__(self, parents: ParentTables) -> list[SplitResult]:
        """Split regions."""
        splitter, results, waiting = self.splitter.value, list[SplitResult](), deque([parents])
        while waiting:
            results.append(splitter(waiting.popleft()))
            if parents.to_leaves:
                waiting.extend(results[-1].below(splitter.step.measured.hierarchy))
        forget_pages()
        return results


@dataclass(frozen=True, eq=False, slots=True)
class LeavesAlone:
    """The task to fit and round the children of some regions, bound by no parent."""

    step: Shared[SplitStep]

    def __call__(self, parents: Sequence[int | None]) -> SplitResult:
        """Fit the children of some regions; of None the root."""
        own = self.step.value.fresh()
        return SplitResult.of(range(0), SparseTables.joined(_fit_alone(own, region) for region in parents), own)


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
    done = resume_from or Checkpoint(())
    _check_fit(step, done)
    if resume_from is not None:
        step.solvers.merge(done.certificates)
        if step.cutting is not None:
            step.cutting.add(done.cuts)
    counter = Count(step.measured.hierarchy.regions, progress)
    counter.add(sum(tables.regions for tables in done.tables))
    run_by = Threads() if executor is None else executor
    levels = Levels(Splitter.of(step), done, run_by.workers, counter, after_level)
    with run_by.share(levels.splitter) as shared:
        run_by.map(Descent(shared), levels.begin(), levels.ended)
    if levels.done.level < step.measured.hierarchy.levels - 1:
        raise WorkerError(f"executor {run_by.name!r} left out items that followed from others: see Executor.map")
    return levels.done


def _check_fit(step: SplitStep, done: Checkpoint) -> None:
    hierarchy, size = step.measured.hierarchy, step.measured.schema.size
    regions = [len(hierarchy.level_range(level)) for level in range(hierarchy.levels)]
    counts = [tables.regions for tables in done.tables]
    if counts != regions[: len(counts)] or any(tables.size != size for tables in done.tables):
        raise ProblemError("the checkpoint to resume from is of another hierarchy or schema")


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


class LevelParts:
    """The results for some parents of a level each; their tables are moved to files, many small tables together."""

    def __init__(self) -> None:
        self._stored, self._waiting, self._runs = list[SplitResult](), list[SplitResult](), 0

    def add(self, result: SplitResult) -> None:
        """Take the result for some parents."""
        self._waiting.append(result)
        self._runs += result.tables.cells.size
        if self._runs >= _WAITING_RUNS:
            self._store()

    def taken(self) -> list[SplitResult]:
        """Return all results in the parents' order, and forget them."""
        every = sorted(self._stored + self._waiting, key=lambda result: result.parents.start)
        self._stored, self._waiting, self._runs = [], [], 0
        return every

    def _store(self) -> None:
        joined, at = SparseTables.joined(result.tables for result in self._waiting), 0
        for result in self._waiting:
            self._stored.append(replace(result, tables=joined.part(at, at + result.tables.regions)))
            at += result.tables.regions
        self._waiting, self._runs = [], 0


class Levels:
    """Joins the tasks' results level by level, and returns which regions can be split next.

    ``done`` is the checkpoint after the last complete level, with its failsafes.
    """

    def __init__(
        self, splitter: Splitter, done: Checkpoint, workers: int, counter: Count, after_level: AfterLevel | None
    ) -> None:
        self.splitter, self.done = splitter, done
        self._step, self._hierarchy = splitter.step, splitter.step.measured.hierarchy
        self._counter, self._after_level = counter, after_level
        self._level_results = [LevelParts() for _ in splitter.together]
        self._left = [len(self._hierarchy.level_range(level)) for level in range(len(self._level_results))]
        answers = sum(query.operator.answers for query in self._step.measured.queries)
        width = max(answers, self._step.measured.schema.size)
        self._numbers = self._hierarchy.at_and_below(np.full(self._hierarchy.levels, width))
        self._sizes = [self._size(level, workers) for level in range(len(self._level_results))]

    def _size(self, level: int, workers: int) -> int:
        """Return how many numbers a task of a level's regions may have at and below them."""
        numbers = self._numbers[level]
        if self.splitter.together[level] is not None:
            return batch_size(int(numbers.sum()), workers)
        return int(numbers.sum()) // len(even_tasks(numbers.size, workers))

    def begin(self) -> list[ParentTables]:
        """Return the first tasks."""
        if self.done.level < 0:
            root = _fit_alone(self._step, None)
            self._counter.add(1)
            self._finish((root,), ())
        if self.done.level == len(self._level_results):
            return []
        return self._tasks([ParentTables(self._hierarchy.level_range(self.done.level), self.done.tables[-1])])

    def ended(self, _: int, results: list[SplitResult]) -> list[ParentTables]:
        """Take a task's results, finish the levels that they complete, and return the tasks that follow.

        ``results`` is empty afterwards: what executors keep of a task takes no memory.
        """
        ready: list[ParentTables] = []
        for result in results:
            level = int(self._hierarchy.level[result.parents.start])
            self._level_results[level].add(result)
            self._left[level] -= len(result.parents)
            waiting = sum(len(self._step.children(region)) for region, _ in result.failures)
            self._counter.add(result.tables.regions - waiting)
            if not result.to_leaves:
                ready += result.below(self._hierarchy)
        results.clear()
        while self.done.level < len(self._level_results) and not self._left[self.done.level]:
            ready += self._next_level()
        forget_pages()
        return self._tasks(ready)

    def _tasks(self, ready: Iterable[ParentTables]) -> list[ParentTables]:
        """Return regions cut into tasks, the largest first."""
        tasks = []
        for parents in ready:
            level, places = self._hierarchy.within_level(parents.regions)
            numbers = self._numbers[level][places]
            # Where some regions are split individually, progress and checkpoints do not wait for all that is below.
            compiled, most = None not in self.splitter.together[level:], self._sizes[level]
            for part in batches(numbers, most):
                size = int(numbers[part.start : part.stop].sum())
                tables = parents.tables.part(part.start, part.stop)
                tasks.append(
                    (size, ParentTables(parents.regions[part.start : part.stop], tables, compiled and size <= most))
                )
        # Those of about one size in the regions' order, in which answers lie in their file.
        return [parents for _, parents in sorted(tasks, key=lambda task: -task[0].bit_length())]

    def _next_level(self) -> list[ParentTables]:
        """Finish the next level, whose regions' parents are all split or failed; return the regions with new tables."""
        level_results = self._level_results[self.done.level].taken()
        for result in level_results:
            result.note(self._step)
        begin = self._hierarchy.level_range(self.done.level + 1).start
        relaxed, tables, more = list(self.done.relaxed), list(self.done.tables), dict[int, SparseTables]()
        # One after the other, in the order of the regions: their changes meet in the regions above.
        failures = [failed for result in level_results for failed in result.failures]
        for region, failure in failures:
            children = self._step.children(region)
            more[children.start - begin], tables, change = _failsafe(self._step, region, tables, failure)
            if change.any():
                relaxed.append(_relaxation(self._step, region, change))
            self._counter.add(len(children))
        below = SparseTables.joined(result.tables for result in level_results).with_parts(more)
        self._finish((*tables, below), tuple(relaxed))
        if self.done.level == len(self._level_results):
            return []
        return [ParentTables(range(begin + at, begin + at + own.regions), own) for at, own in more.items()]

    def _finish(self, tables: tuple[SparseTables, ...], relaxed: tuple[Relaxation, ...]) -> None:
        self.done = _checkpoint(self._step, tables, relaxed)
        if self._after_level is not None:
            self._after_level(self.done)


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
        changed[level] = changed[level].changed(at.start, changed[level].dense(at.start, at.stop)[0] + change)
    return changed


def _children(hierarchy: Hierarchy, regions: range) -> range:
    """Return the children of consecutive regions of one level."""
    return range(hierarchy.children(regions[0]).start, hierarchy.children(regions[-1]).stop)


def _with_name(error: Exception, name: str) -> ProblemError | SolverError:
    """Return an error that says which region it is about."""
    message = str(error) if name in str(error) else f"{name}: {error}"
    return SolverError(message, error.solution) if isinstance(error, SolverError) else ProblemError(message)
