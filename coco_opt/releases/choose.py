"""Choosing the queries by the data: a small measurement of its own, noisy, paid for and sealed like any other.

Only its noisy result decides which queries are measured next; the private table never does. The two payments add up in
the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from coco_opt.config.model import Config
from coco_opt.privacy.cost import Cost
from coco_opt.releases.clock import Clock
from coco_opt.releases.kind import Choosing, Chosen
from coco_opt.releases.measure import Measured, kind_of, measured_of, planned, with_total
from coco_opt.releases.reporter import Reporter, Silent

SHARE = Fraction(1, 50)
"""The default share of the budget that choosing takes."""


@dataclass(frozen=True, eq=False, slots=True)
class Choice:
    """The measurement that chose, the queries it advises, and what is left of the configured budget for them."""

    measured: Measured
    chosen: Chosen
    left: Cost


def choose(
    config: Config, share: Fraction = SHARE, *, renamed: bool = False, reporter: Reporter | None = None
) -> Choice:
    """Pay a small share of the budget to learn, with noise, which queries promise the smaller error.

    Parameters
    ----------
    config : Config
        The data, the budget and the queries.
    share : Fraction, default 1/50
        The share of the budget that is paid.
    renamed : bool, default False
        Accept data that the ledger knows as another dataset.
    reporter : Reporter, optional
        Receives the progress.

    Returns
    -------
    Choice
        The advised keys, and what is ``left`` of the budget, to write into the config.

    Raises
    ------
    ConfigError
        The kind has nothing to choose, the share is not between 0 and 1, or the budget is an (epsilon, delta).
    InputError, ProblemError, MissingPackageError, BudgetError
        As ``measure`` raises them.

    Notes
    -----
    It is a measurement of its own: it is checked in full before it is paid, sealed, and never paid twice for the same
    data and share. If this opens an account, the account is granted the budget in full.
    """
    reporter, kind, budget = Silent() if reporter is None else reporter, kind_of(config), config.privacy.cost
    if not isinstance(kind, Choosing):
        raise config.error(config.section, "this kind of release has no query to choose by data")
    if not 0 < share < 1:
        raise config.error(
            "privacy", f"the share of the budget that chooses lies between 0 and 1, and {share} does not"
        )
    if config.privacy.pair is not None and config.privacy.mechanism != "geometric":
        raise config.error("privacy.delta", "two payments add up in rho: state rho in place of epsilon and delta")
    plan = planned(with_total(config, budget), reporter)
    choice_plan = plan.on(kind.choice(plan, budget * share), plan.detail)
    measured = measured_of(choice_plan, renamed=renamed, reporter=reporter, clock=Clock())
    return Choice(measured, kind.chosen(config, measured.measurement), budget * (1 - share))
