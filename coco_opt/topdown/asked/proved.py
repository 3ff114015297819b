"""Refuse, before anything is paid, facts that exclude each other: of public facts alone, and with exact answers."""

from __future__ import annotations

from dataclasses import replace

from coco_opt.errors import InputError
from coco_opt.topdown.asked.counts import TableCounts
from coco_opt.topdown.facts.proof import TIME_LIMIT, Proof, prove
from coco_opt.topdown.invariants import LARGEST, Invariants, RegionBounds
from coco_opt.topdown.questions import TableQuestions


def proved(questions: TableQuestions, time_limit: float = TIME_LIMIT) -> Proof:
    """Return the proof that some whole table meets all public facts, or that this is undecided.

    Raises InputError (inconsistent-facts) naming a smallest set of facts that exclude each other.
    """
    facts = Invariants(questions.hierarchy, questions.schema, questions.bounds, linear=questions.linear)
    return _accepted(prove(facts.system, time_limit=time_limit))


def check_exact(counts: TableCounts, questions: TableQuestions) -> None:
    """Raise InputError where the true answers that are declared public exclude each other or the public facts.

    Data that meet every public fact are themselves the proof. Elsewhere facts and exact answers, all public once they
    are released, are proved like public facts alone. Codes: inconsistent-bounds and inconsistent-facts, which name
    regions and facts, and too-large; no count is said. A fact that is said to be taken from the data must hold in them:
    false-fact names it.
    """
    _check_taken(counts, questions)
    if not questions.invariants:
        return
    if int(counts.counts.sum()) >= LARGEST:
        raise InputError("too-large", "exact answers are kept for tables of fewer than 2^40 persons in all")
    if meets(counts, questions):
        return
    exact = [
        RegionBounds.exact(
            one.query,
            one.level,
            counts.answers_of(one.query.operator, counts.hierarchy.level_range(one.level)),
        )
        for one in questions.invariants
    ]
    facts = Invariants(counts.hierarchy, counts.schema, (*questions.bounds, *exact), linear=questions.linear)
    _accepted(prove(facts.system))


def _check_taken(counts: TableCounts, questions: TableQuestions) -> None:
    """Refuse a fact that is declared as taken from the data and does not hold in them."""
    taken = [replace(questions, bounds=(one,), linear=()) for one in questions.bounds if one.source == "data"]
    taken += [replace(questions, bounds=(), linear=(one,)) for one in questions.linear if one.source == "data"]
    for alone in taken:
        if not meets(counts, alone):
            name = alone.linear[0].text if alone.linear else alone.bounds[0].query.name
            message = "is declared as taken from the data, and does not hold in them: correct it, or its source"
            raise InputError("false-fact", f"the fact {name!r} {message}")


def meets(counts: TableCounts, questions: TableQuestions) -> bool:
    """Return whether the data meet every public fact, which proves that it can be met; PRIVATE."""
    facts = Invariants(questions.hierarchy, questions.schema, questions.bounds, linear=questions.linear)
    for level in range(questions.hierarchy.levels):
        regions = questions.hierarchy.level_range(level)
        constraints = facts.constraints_of(regions)
        if constraints is not None:
            answers = counts.answers_of(constraints.operator, regions)
            if ((answers < constraints.lower) | (answers > constraints.upper)).any():
                return False
    return True


def _accepted(proof: Proof) -> Proof:
    if proof.verdict == "conflict":
        raise InputError("inconsistent-facts", proof.message)
    return proof
