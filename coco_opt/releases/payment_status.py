"""What a configuration would pay, and whether the account of its dataset allows it; the ledger is only read."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from coco_opt.config.model import Config
from coco_opt.errors import BudgetError
from coco_opt.privacy.ledger import check_total
from coco_opt.privacy.measurement import MeasurementPlan
from coco_opt.releases.kind import promise_of
from coco_opt.releases.runs import charge_for, dataset_of, elsewhere, ledger_of


@dataclass(frozen=True, slots=True)
class PaymentStatus:
    """Whether the budget allows the measurement (``fits``), and in ``words`` why; ``left`` of ``total`` before it.

    Both are exact amounts of the account's ``unit``, None where no account is open or nothing private is paid. ``run``
    was paid to measure the same before; None without one. ``promise`` says for what the sum, this payment included, is
    a guarantee.
    """

    fits: bool
    words: str
    promise: str
    unit: str | None = None
    left: str | None = None
    total: str | None = None
    run: str | None = None

    def as_dict(self) -> dict[str, bool | str | None]:
        """Return plain values, without the run."""
        return {name: value for name, value in asdict(self).items() if name != "run"}


def payment_status_of(
    config: Config, measurement_plan: MeasurementPlan, fingerprint: str | None = None
) -> PaymentStatus:
    """Return the state of the budget before these queries are paid for.

    They are free where the same was measured of the same data. Only the ``fingerprint`` of the private table shows
    that; without it, a run of the same queries is named. Raises BudgetError where the ledger is damaged.
    """
    promise = promise_of(measurement_plan)
    if config.privacy.noise == "seeded":
        words = "nothing: seeded noise is NOT PRIVATE and pays nothing"
        return PaymentStatus(fits=True, words=words, promise=promise.words)
    books, name, total = ledger_of(config).books(), dataset_of(config), config.privacy.total
    charge, account = charge_for(config, measurement_plan, ""), books.accounts.get(name)
    promised = books.promise_words(name, promise) or books.promise_words(name)
    if account is None:
        granted = charge.amount if total is None else total
        words = f"fits: dataset {name!r} has no account yet, and this opens one of {charge.unit} = {granted}; "
        words += elsewhere(books.accounts)
        return PaymentStatus(fits=True, words=words, promise=promised)
    amounts = {"promise": promised, "unit": account.unit, "left": str(account.remaining), "total": str(account.total)}
    earlier = [run for run in books.runs.values() if (run.charge.dataset, run.charge.digest) == (name, charge.digest)]
    earlier = [run for run in earlier if run.counts and fingerprint in (None, run.charge.fingerprint)]
    left = f"{account.remaining} of {account.unit} = {account.total} is left of dataset {name!r}"
    if earlier:
        unless, run = ", unless the data changed" if fingerprint is None else "", earlier[-1].name
        words = f"nothing{unless}: run {run} was paid to measure the same. {left}"
        return PaymentStatus(fits=True, words=words, run=run, **amounts)
    try:
        cost = account.cost(charge)
        books.check_promise(charge)
        if total is not None:
            check_total(account, charge.unit, total)
    except BudgetError as error:
        return PaymentStatus(fits=False, words=f"DOES NOT FIT: {error} [{BudgetError.code}]", **amounts)
    if cost <= account.remaining:
        return PaymentStatus(fits=True, words=f"fits: {left}", **amounts)
    advice = "measure less, or allow more with  coco-opt ledger CONFIG --grant AMOUNT"
    words = f"DOES NOT FIT: {left}, a spent budget does not come back: {advice} [{BudgetError.code}]"
    return PaymentStatus(fits=False, words=words, **amounts)
