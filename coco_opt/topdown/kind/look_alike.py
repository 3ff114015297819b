"""Data like the private that nobody needs to protect: made in the public shape of a plan, or named by the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from coco_opt.histograms import Hierarchy
from coco_opt.releases.kind import LookAlike, Plan
from coco_opt.topdown.asked.counts import TableCounts
from coco_opt.topdown.kind.plan import TablesDetail, count_records
from coco_opt.topdown.questions import TableQuestions
from coco_opt.topdown.schema import Schema

SEED = 7  # of what is made: the same plan every time
_PERSONS = 200


def made_look_alike(plan: Plan, branches: int | Sequence[int] | None = None) -> LookAlike:
    """Make 200 persons a leaf: leaves alike, cells very unlike, as those of people are.

    ``branches`` keeps the first so many children of each region, by level where they are several. Bounds and
    constraints are not asked: they are of other people.
    """
    tree, where = plan.asked.hierarchy, np.arange(plan.asked.hierarchy.regions)
    if branches is not None:
        tree, where = tree.first_branches(branches)
    detail: TablesDetail = plan.detail
    asked = detail.questions
    questions = TableQuestions(tree, asked.schema, asked.plan, asked.invariants)
    ids = [plan.asked.region_ids[region] for region in where.tolist()]
    like = plan.on(questions.asked(plan.asked.levels, ids), TablesDetail(questions, detail.workload))
    return LookAlike(like, made_tables(tree, asked.schema), f"made persons, {_PERSONS} a leaf{_left_out(asked)}")


def read_look_alike(plan: Plan, path: Path) -> LookAlike:
    """Read public records of persons like the private, in the same regions and cells. Raises InputError.

    Bounds and constraints are not asked: they are of other people.
    """
    detail: TablesDetail = plan.detail
    questions = replace(detail.questions, bounds=(), linear=(), earlier=())
    asked = questions.asked(plan.asked.levels, plan.asked.region_ids)
    like = plan.on(asked, TablesDetail(questions, detail.workload, detail.public))
    return LookAlike(like, count_records(like, path), f"the public records {path.name}{_left_out(detail.questions)}")


def _left_out(questions: TableQuestions) -> str:
    return ", bounds and constraints left out" if questions.bounds or questions.linear else ""


def made_tables(hierarchy: Hierarchy, schema: Schema, seed: int = SEED) -> TableCounts:
    """Return made persons of every leaf."""
    rng = np.random.default_rng(seed)
    leaves, cells = len(hierarchy.leaves), schema.size
    persons = _PERSONS * leaves
    weights = rng.exponential(size=cells) ** 3
    where = rng.integers(leaves, size=persons), rng.choice(cells, size=persons, p=weights / weights.sum())
    return TableCounts.from_microdata(hierarchy, schema, *where)
