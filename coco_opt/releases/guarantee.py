"""What all runs on a data set guarantee together, as (epsilon, delta), from the queries that the ledger paid for.

The ledger adds up epsilon or rho, and of a run's queries it knows only the digest. The queries stand in the sealed
measurement, whose digest the ledger holds too: while that is kept, their privacy loss distributions compose to less
than what the sum implies. This holds for queries that were fixed beforehand. The sum, below a total that was fixed
beforehand, also holds where later queries were chosen by earlier answers (Feldman and Zrnic 2021; Whitehouse, Ramdas,
Rogers and Wu 2023); therefore a payment is checked against the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coco_opt.errors import InputError
from coco_opt.files.folder import file_digest
from coco_opt.files.measurement import INDEX, query_from_dict, read_index
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import COSTS
from coco_opt.privacy.ledger_chain import Account
from coco_opt.privacy.queries import LevelQuery
from coco_opt.releases.stored_runs import StoredRun


@dataclass(frozen=True, slots=True)
class Together:
    """The guarantee of all that was spent on a data set; ``unknown`` are runs whose queries are not stored.

    If there are any of these, only the sum of epsilon or rho counts.
    """

    account: Account
    guaranteed: Composition
    by_sum: Composition
    unknown: tuple[str, ...]


def together(account: Account, runs: Iterable[StoredRun]) -> Together | None:
    """Return what the runs of an account guarantee together, None where nothing was spent.

    Runs that were given up count, because noise may have been drawn. Runs that were voided drew none.
    """
    if not account.spent:
        return None
    spent = COSTS[account.unit](account.spent)
    queries: list[LevelQuery] = []
    unknown: list[str] = []
    for stored in runs:
        if stored.run is None or stored.run.state == "VOIDED" or stored.run.charge.dataset != account.dataset:
            continue
        run_queries = _run_queries(stored)
        queries.extend(run_queries or ())
        unknown.extend(() if run_queries else (stored.name,))
    by_sum = Composition(spent, None)
    guaranteed = by_sum if unknown else Composition.of_spent(spent, queries)
    return Together(account, guaranteed, by_sum, tuple(unknown))


def _run_queries(stored: StoredRun) -> Sequence[LevelQuery] | None:
    """Return the queries of a run whose measurement is stored as it was sealed, None where they are not known.

    A damaged measurement is not known either: the run is named, and the sum that counts instead is never less.
    """
    if stored.run is None or stored.folder is None or not stored.run.sealed:
        return None
    try:
        if file_digest(stored.folder / INDEX) != stored.run.sealed:
            return None
        return [query_from_dict(plain) for plain in read_index(stored.folder)["questions"]]
    except InputError:
        return None
