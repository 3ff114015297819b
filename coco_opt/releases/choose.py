"""Choosing what to ask by the data: a small question of its own, paid and sealed as any other, whose answer is noisy.

Only what it releases, and never the private table, decides what is asked next. The two payments add up in the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from coco_opt.config.model import Config
from coco_opt.privacy.cost import Cost
from coco_opt.releases.clock import Clock
from coco_opt.releases.kind import Choosing, Chosen
from coco_opt.releases.measure import Measured, kind_of, measured_of, planned
from coco_opt.releases.reporter import Reporter, Silent
from coco_opt.releases.runs import dataset_of, ledger_of

SHARE = Fraction(1, 50)
"""The part of the budget that choosing takes unless another is stated."""


@dataclass(frozen=True, eq=False, slots=True)
class Choice:
    """The measurement that chose, what it advises, and what of the configured budget is left for it."""

    measured: Measured
    chosen: Chosen
    left: Cost


def choose(
    config: Config, share: Fraction = SHARE, *, renamed: bool = False, reporter: Reporter | None = None
) -> Choice:
    """Pay ``share`` of the configured budget to learn, with noise, which questions promise the smaller error.

    It is a measurement of its own: checked in full before it is paid, sealed, never paid twice for the same data and
    share. What is ``left`` is to be written into the configuration, with the keys that are advised. An account that
    this opens is granted the whole budget. Raises ConfigError where the kind has nothing to choose, the share is not
    between 0 and 1 or the budget is an (epsilon, delta), and what ``measure`` raises.
    """
    told, kind, whole = Silent() if reporter is None else reporter, kind_of(config), config.privacy.cost
    if not isinstance(kind, Choosing):
        raise config.error(config.section, "this kind of release has no question to choose by data")
    if not 0 < share < 1:
        raise config.error(
            "privacy", f"the share of the budget that chooses lies between 0 and 1, and {share} does not"
        )
    if config.privacy.pair is not None and config.privacy.mechanism != "geometric":
        raise config.error("privacy.delta", "two payments add up in rho: state rho in place of epsilon and delta")
    plan = planned(_granting(config, whole), told)
    asking = plan.on(kind.choice(plan, whole * share), plan.detail)
    measured = measured_of(asking, renamed=renamed, reporter=told, clock=Clock())
    return Choice(measured, kind.chosen(config, measured.measurement), whole * (1 - share))


def _granting(config: Config, whole: Cost) -> Config:
    """Return a configuration whose first payment opens an account of the whole budget, where it states no total."""
    privacy = config.privacy
    if (
        privacy.noise == "seeded"
        or privacy.total is not None
        or dataset_of(config) in ledger_of(config).books().accounts
    ):
        return config
    return replace(config, privacy=privacy.model_copy(update={"total": whole.amount}))
