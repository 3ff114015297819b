"""Ask the private tables: integers from the counts to the noise, and nothing but what was decided on public facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coco_opt.operators import Operator
from coco_opt.privacy.answers import Exact, Progress, Question, add_noise
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.noise import NoiseSource
from coco_opt.topdown.asked.counts import BLOCK, TableCounts
from coco_opt.topdown.asked.proved import check_exact, meets, proved
from coco_opt.topdown.constraint import LinearConstraint
from coco_opt.topdown.invariants import Invariant, RegionBounds
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.questions import TableQuestions, noise_label


def measure_tables(
    counts: TableCounts,
    plan: TablePlan,
    *,
    source: NoiseSource,
    invariants: Sequence[Invariant] = (),
    bounds: Sequence[RegionBounds] = (),
    linear: Sequence[LinearConstraint] = (),
    levels: Sequence[str] = (),
    progress: Progress | None = None,
) -> Measurement:
    """Return the sealed noisy answers of every query that costs something, in every region.

    ``invariants`` become exact public answers; ``bounds`` and ``linear`` constraints are public already. Exact answers
    keep their regions' counts from differing between neighbours, so they need a plan for "replace". ``levels`` names
    the levels, ``progress`` is told the answers done and their number. Everything is checked before the first noise is
    drawn: raises ProblemError, and for noise that was already drawn; InputError (inconsistent-bounds,
    inconsistent-facts, too-large) for facts that exclude each other. O(runs + answers) time and a proof of the facts;
    memory is that of the answers and one block.
    """
    questions = TableQuestions(counts.hierarchy, counts.schema, plan, tuple(invariants), tuple(bounds), tuple(linear))
    if not meets(counts, questions):
        proved(questions)
    check_exact(counts, questions)
    asked = questions.asked(levels)
    parts = exact_parts(counts, questions)
    answers = add_noise(asked.questions, parts, asked.hierarchy, asked.per_region, source, progress)
    return Measurement(asked, answers, source.name, source.private)


def exact_parts(counts: TableCounts, questions: TableQuestions, block: int = BLOCK) -> Iterator[Exact]:
    """Yield the exact answers to all questions in their order, about ``block`` answers at a time; all PRIVATE."""
    for (level, query), question in zip(questions.plan.asked, questions.noisy, strict=True):
        yield from _of_level(counts, question, questions.plan.queries[query].operator, level, block)
    for one, question in zip(questions.invariants, questions.exact, strict=True):
        yield from _of_level(counts, question, one.query.operator, one.level, block)


def _of_level(counts: TableCounts, question: Question, operator: Operator, level: int, block: int) -> Iterator[Exact]:
    regions, label = counts.hierarchy.level_range(level), noise_label(counts.hierarchy, level)
    step = max(1, block // operator.answers)
    for at in range(0, len(regions), step):
        yield Exact(question, label, counts.answers_of(operator, regions[at : at + step]).reshape(-1))
