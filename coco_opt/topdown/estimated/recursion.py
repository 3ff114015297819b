"""The recursion from the root to the leaves: parents of a level are independent, levels follow each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError, SolverError
from coco_opt.topdown.estimated.failsafe import NO_TABLES_FIT, Relaxation
from coco_opt.topdown.estimated.level import level_split
from coco_opt.topdown.estimated.relaxed_split import relaxed_split, unsplit
from coco_opt.topdown.estimated.sparse_tables import SparseTables
from coco_opt.topdown.estimated.step import SplitStep
from coco_opt.topdown.estimated.unproved import NOTHING_UNPROVED, Unproved
from coco_opt.topdown.facts.cuts import Cut

Ints = NDArray[np.int64]
Progress = Callable[[int, int], None]
PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")

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


def top_down(
    step: SplitStep,
    *,
    threads: int = 1,
    progress: Progress | None = None,
    after_level: AfterLevel | None = None,
    resume_from: Checkpoint | None = None,
) -> Checkpoint:
    """Split every level in turn; the answer does not depend on ``threads``.

    ``progress`` is told the regions done and their number. Raises ProblemError or SolverError naming the region, and
    ProblemError for a checkpoint of another hierarchy or schema.
    """
    done = resume_from or Checkpoint(())
    _check_fit(step, done)
    if resume_from is not None:
        step.unproved.resume(done.unproved)
        if step.cutting is not None:
            step.cutting.resume(done.cuts)
    counter = _Counter(step.measured.hierarchy.regions, progress)
    counter.add(sum(tables.regions for tables in done.tables))
    for level in range(done.level + 1, step.measured.hierarchy.levels):
        done = _level(step, level, done, threads, counter)
        if after_level is not None:
            after_level(done)
    return done


def _check_fit(step: SplitStep, done: Checkpoint) -> None:
    hierarchy, size = step.measured.hierarchy, step.measured.schema.size
    regions = [len(hierarchy.level_range(level)) for level in range(hierarchy.levels)]
    found = [tables.regions for tables in done.tables]
    if found != regions[: len(found)] or any(tables.size != size for tables in done.tables):
        raise ProblemError("the checkpoint to resume from is of another hierarchy or schema")


def bottom_up(step: SplitStep, *, threads: int = 1, progress: Progress | None = None) -> Checkpoint:
    """Fit and round the leaves alone, and sum them: for measurements that bind nothing above (``method.misfit``)."""
    hierarchy = step.measured.hierarchy
    counter = _Counter(hierarchy.regions, progress)
    groups = [None] if hierarchy.levels == 1 else list(hierarchy.level_range(hierarchy.levels - 2))
    outcomes = _each(lambda region: _alone(step, region, counter), groups, threads)
    levels = [SparseTables.joined(outcomes)]
    for level in range(hierarchy.levels - 2, -1, -1):
        regions = hierarchy.level_range(level)
        levels.append(levels[-1].summed(hierarchy.first_child[regions.start : regions.stop] - regions.stop))
        counter.add(len(regions))
    return Checkpoint(tuple(reversed(levels)), unproved=step.unproved.value)


def _alone(step: SplitStep, region: int | None, counter: _Counter) -> SparseTables:
    try:
        return counter.added(SparseTables.of(step.split(region, None)))
    except (ProblemError, SolverError) as error:
        failure = error
    try:
        return counter.added(SparseTables.of(unsplit(step, region, failure)))
    except (ProblemError, SolverError) as error:
        failure = error
    raise _named(failure, step.name(region))


def _level(step: SplitStep, level: int, done: Checkpoint, threads: int, counter: _Counter) -> Checkpoint:
    """Return the checkpoint with one level more."""
    if level == 0:
        return _done(step, (_alone(step, None, counter),), ())
    above = step.measured.hierarchy.level_range(level - 1)

    def one(region: int | None) -> SparseTables | Exception:
        assert region is not None
        try:
            table = done.tables[-1].dense(region - above.start, region - above.start + 1)[0]
            return counter.added(SparseTables.of(step.split(region, table)))
        except (ProblemError, SolverError) as error:
            return error

    outcomes = _batched(step, level - 1, done.tables[-1], threads, counter)
    left = [region for region, outcome in zip(above, outcomes, strict=True) if outcome is None]
    for region, outcome in zip(left, _each(one, left, threads), strict=True):
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
    step: SplitStep, level: int, tables: SparseTables, threads: int, counter: _Counter
) -> list[SparseTables | Exception | None]:
    """Return the children's tables of a level's regions that could be split at once, None for the others."""
    whole = level_split(step, level)
    if whole is None:
        return [None] * tables.regions

    def one(parents: range) -> list[SparseTables | None]:
        found = whole(tables, parents)
        counter.add(sum(part.regions for part in found if part is not None))
        return found

    return [part for found in _each(one, list(whole.batches(tables)), threads) for part in found]


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


def _each(one: Callable[[PartT], ResultT], parts: Sequence[PartT], threads: int) -> list[ResultT]:
    if threads <= 1:
        return [one(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, parts))


class _Counter:
    """Tells how many regions are done, from any thread."""

    def __init__(self, regions: int, progress: Progress | None) -> None:
        self._done, self._regions, self._progress, self._lock = 0, regions, progress, Lock()

    def add(self, regions: int) -> None:
        with self._lock:
            self._done += regions
            if self._progress is not None and regions:
                self._progress(self._done, self._regions)

    def added(self, tables: SparseTables) -> SparseTables:
        self.add(tables.regions)
        return tables
