"""What a configuration would pay, and what the account of its dataset allows; the ledger is read, never written."""

from __future__ import annotations

from dataclasses import dataclass

from coco_opt.config.model import Config
from coco_opt.errors import BudgetError
from coco_opt.privacy.measurement import Asked
from coco_opt.releases.runs import charge_for, dataset_of, ledger_of


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether the budget allows what is asked (``fits``), and in ``words`` why; ``left`` of ``total`` before it.

    Both are exact amounts of the account's ``unit``, None where no account is open or nothing private is paid.
    """

    fits: bool
    words: str
    unit: str | None = None
    left: str | None = None
    total: str | None = None


def standing_of(config: Config, asked: Asked) -> Standing:
    """Return how the budget stands before these questions are paid for.

    Whether they are free, because the same was asked of the same data, shows only once the private table is hashed
    under the ledger's key: a run of the same questions is named. Raises BudgetError where the ledger is damaged.
    """
    if config.privacy.noise == "seeded":
        return Standing(fits=True, words="nothing: seeded noise is NOT PRIVATE and pays nothing")
    books, name, total = ledger_of(config).books(), dataset_of(config), config.privacy.total
    charge, account = charge_for(config, asked, ""), books.accounts.get(name)
    if account is None:
        granted = charge.amount if total is None else total
        words = f"fits: dataset {name!r} has no account yet, and this opens one of {charge.unit} = {granted}"
        return Standing(fits=True, words=words)
    amounts = {"unit": account.unit, "left": str(account.left), "total": str(account.total)}
    known = [run for run in books.runs.values() if (run.charge.dataset, run.charge.digest) == (name, charge.digest)]
    known = [run for run in known if run.state not in ("ABANDONED", "VOIDED")]
    left = f"{account.left} of {account.unit} = {account.total} is left of dataset {name!r}"
    if known:
        words = f"nothing, unless the data changed: run {known[-1].name} was paid to ask the same. {left}"
        return Standing(fits=True, words=words, **amounts)
    try:
        cost = account.cost(charge)
    except BudgetError as error:
        return Standing(fits=False, words=f"DOES NOT FIT: {error}", **amounts)
    if cost <= account.left:
        return Standing(fits=True, words=f"fits: {left}", **amounts)
    way = "ask for less, or allow more with  coco-opt ledger CONFIG --grant AMOUNT"
    return Standing(fits=False, words=f"DOES NOT FIT: {left}, a spent budget does not come back: {way}", **amounts)
