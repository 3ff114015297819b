"""What all runs on a data set guarantee together, as (epsilon, delta), from the questions that the ledger paid for.

The ledger adds up epsilon or rho and knows of a run's questions their digest alone. The questions stand in the sealed
measurement, whose digest the ledger holds too: while it is kept, their privacy loss distributions compose to less than
what the sum implies. That holds for questions that were fixed beforehand; a sum below a total that was fixed beforehand
also where later questions were chosen by earlier answers (Feldman and Zrnic 2021; Whitehouse, Ramdas, Rogers and Wu
2023), and so the sum is what a payment is held to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coco_opt.errors import InputError
from coco_opt.files.folder import file_digest
from coco_opt.files.measurement import INDEX, question_of, read_index
from coco_opt.privacy.answers import Question
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import COSTS
from coco_opt.privacy.ledger_chain import Account
from coco_opt.releases.kept import KnownRun


@dataclass(frozen=True, slots=True)
class Together:
    """The guarantee of all that was spent on a data set; ``unknown`` are runs whose questions are not kept.

    With any of these the sum of epsilon or rho alone counts.
    """

    account: Account
    guaranteed: Composition
    by_sum: Composition
    unknown: tuple[str, ...]


def together(account: Account, runs: Iterable[KnownRun]) -> Together | None:
    """Return what the runs of an account guarantee together, None where nothing was spent.

    Runs that were given up count: noise may have been drawn. Those that were voided drew none.
    """
    if not account.spent:
        return None
    spent = COSTS[account.unit](account.spent)
    questions: list[Question] = []
    unknown: list[str] = []
    for known in runs:
        if known.run is None or known.run.state == "VOIDED" or known.run.charge.dataset != account.dataset:
            continue
        asked = _questions(known)
        questions.extend(asked or ())
        unknown.extend(() if asked else (known.name,))
    by_sum = Composition(spent, None)
    whole = by_sum if unknown else Composition.of_spent(spent, questions)
    return Together(account, whole, by_sum, tuple(unknown))


def _questions(known: KnownRun) -> Sequence[Question] | None:
    """Return the questions of a run whose measurement is kept as it was sealed, None where they are not known."""
    if known.run is None or known.folder is None or not known.run.sealed:
        return None
    try:
        if file_digest(known.folder / INDEX) != known.run.sealed:
            return None
        return [question_of(plain) for plain in read_index(known.folder)["questions"]]
    except InputError:
        return None
