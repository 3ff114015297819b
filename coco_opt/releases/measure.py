"""Check and measure: the only steps that open private data; measuring alone pays.

Everything that can be refused is refused before the payment: configuration, files, contradictions among constraints,
every value of the private table, folders, memory and the packages that draw noise. Then the run is paid, noise is drawn
and the measurement is sealed (``releases.runs``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from coco_opt.activity import PAYMENT_KEPT, set_interrupt_advice
from coco_opt.config.model import Config
from coco_opt.errors import BudgetError
from coco_opt.files.measurement import read_measurement, write_measurement
from coco_opt.files.scratch import Scratch
from coco_opt.privacy.blocks import KeyFile, Seed
from coco_opt.privacy.combined_measurements import together
from coco_opt.privacy.cost import Cost
from coco_opt.privacy.measurement import Drawing, MeasurementPlan
from coco_opt.privacy.noise import NoiseSource
from coco_opt.privacy.private_files import make_private_folder
from coco_opt.privacy.queries import DENSE
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.privacy.run_key import RunKey
from coco_opt.privacy.secure import SecureNoise
from coco_opt.privacy.seeded import SeededNoise, derived_seed
from coco_opt.releases.drawing import Measured, dividing, drawing, noisy, source_of, warm
from coco_opt.releases.kind import PageWriter, Plan, Private, kind_of
from coco_opt.releases.planning import is_look, planned, resolved
from coco_opt.releases.rehearsal import rehearse
from coco_opt.releases.report import render_report
from coco_opt.releases.reporter import Reporter, default_reporter
from coco_opt.releases.resource_cost import Clock
from coco_opt.releases.runs import (
    PaymentStatus,
    charge_for,
    dataset_of,
    fingerprint_of,
    ledger_of,
    new_account,
    opened_run,
    payment_status_of,
    refuse_other_data,
)
from coco_opt.releases.solvers import try_solvers
from coco_opt.releases.storage import check_folders, check_storage, check_target, new_run_id, open_private_folder
from coco_opt.releases.stored_runs import CHOSEN, SEEDED

_LOOK = 1  # of seeded noise: a look's is drawn from another seed than what is measured after it


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Checked:
    """What a check read: the public plan, and the counts of private rows, for their owner's eyes only.

    ``payment_status`` says what would be paid, and whether the dataset's account allows it. ``remarks`` are sentences
    on rows that are fine and yet not released as they are, such as groups above the bound; they hold private counts.
    """

    plan: Plan
    identity: Mapping[str, int]
    payment_status: PaymentStatus
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        plan = self.plan.measurement_plan
        levels = ", ".join(plan.levels)
        status = self.payment_status.words
        return f"Checked: every row is fine; {plan.kind} by {levels} for {plan.cost}. Would pay: {status}"


def check(config: Config, *, again: bool = False, renamed: bool = False, reporter: Reporter | None = None) -> Checked:
    """Read and check all input, the private tables too, and rehearse the release; draw no noise and pay nothing.

    Parameters
    ----------
    config : Config
        What to check.
    again, renamed : bool, default False
        Check what ``measure`` would do with these options.
    reporter : Reporter, optional
        Receives the progress.

    Returns
    -------
    Checked
        The public plan, what would be paid, and the counts of private rows. It is private: whoever varies public files
        and reads the refusals learns who is in the private table.

    Raises
    ------
    ConfigError, InputError, ProblemError, MissingPackageError
        Something is wrong; the message says what, where and what to do.
    BudgetError
        The ledger is damaged, or knows the data by another dataset's name.

    Examples
    --------
    >>> import pandas as pd
    >>> from coco_opt import check, configure
    >>> visits = pd.DataFrame({"value": [3, 1, 4, 1, 5]})
    >>> privacy = {"epsilon": "1", "noise": "seeded", "seed": 7}
    >>> print(check(configure(data={"values": visits}, privacy=privacy, ranges={"cells": 8})).plan.config.kind)
    ranges
    """
    reporter = default_reporter(reporter)
    try_solvers(config)
    plan = planned(config, reporter)
    kind = kind_of(config)
    kind.method(config, plan.measurement_plan)
    check_folders(config)
    rehearse(plan, render_report, reporter)
    private = _read(plan, reporter)
    check_storage(plan)
    fingerprint, start = None, plan.before or plan
    if source_of(config).private and ledger_of(config).books().runs:  # else nothing was paid before
        fingerprint = fingerprint_of(config, private.arrays)
        for further in filter(None, (start.look, plan.measurement_plan if plan.look is None else None)):
            refuse_other_data(config, further, fingerprint, again=again, renamed=renamed)
    status = payment_status_of(config, plan.measurement_plan, "" if again else fingerprint)  # no run has the data ""
    return Checked(plan, private.identity(), status, kind.remarks(plan, private))


def measure(
    config: Config,
    *,
    publish: Path | None = None,
    again: bool = False,
    renamed: bool = False,
    reporter: Reporter | None = None,
) -> Measured:
    """Check everything, pay, draw the noise and seal; the measurement can be estimated as often as wanted.

    Parameters
    ----------
    config : Config
        The data, the budget and the queries.
    publish : Path, optional
        A new folder to which the measurement is written too, and its first look next to it.
    again : bool, default False
        Pay again for queries that were paid for. Otherwise the first measurement of the same queries and data is
        returned.
    renamed : bool, default False
        Accept data that the ledger knows as another dataset.
    reporter : Reporter, optional
        Receives the progress.

    Returns
    -------
    Measured
        The measurement, where it is sealed, and whether this call paid for it.

    Raises
    ------
    ConfigError, InputError, ProblemError, MissingPackageError, BudgetError
        Before anything is paid.

    Notes
    -----
    A run that was interrupted resumes for free. Seeded noise pays nothing and is NOT PRIVATE.

    Examples
    --------
    >>> import pandas as pd
    >>> from coco_opt import configure, measure
    >>> visits = pd.DataFrame({"value": [3, 1, 4, 1, 5]})
    >>> privacy = {"epsilon": "1", "noise": "seeded", "seed": 7}
    >>> measure(configure(data={"values": visits}, privacy=privacy, ranges={"cells": 8})).paid
    False
    """
    reporter = default_reporter(reporter)
    if publish is not None:
        check_target(publish, private=config.output.private)
    plan = planned(config, reporter, measuring=True)
    if publish is not None and (plan.look is not None or plan.also):
        check_target(look_folder(publish))
    measured = measured_of(plan, again=again, renamed=renamed, reporter=reporter, clock=Clock(), page=render_report)
    if publish is not None:
        main, *looks = measured.measurement.every
        write_measurement(publish, main, private=False)
        for look in looks:
            write_measurement(look_folder(publish), look, private=False)
    return measured


def look_folder(folder: Path) -> Path:
    """Return where the look goes that a measurement published in a folder was chosen by."""
    return folder.with_name(f"{folder.name}-look")


def measured_of(
    plan: Plan,
    *,
    again: bool = False,
    renamed: bool = False,
    scratch: Scratch | None = None,
    reporter: Reporter,
    clock: Clock,
    page: PageWriter | None = None,
) -> Measured:
    """Return the measurement of a plan, paid for where its noise is private; see ``measure``.

    With a ``scratch`` folder a seeded measurement is stored there, or in memory where it is small, and not kept.
    What is to follow a payment, the ``page`` too, is rehearsed before it.
    """
    config, rehearsed = plan.config, None
    if _is_unpaid(config, plan.measurement_plan, None, again=again):
        rehearse(rehearsed := plan, page, reporter)
    private = _read(plan, reporter)
    clock.lap("read_private")
    # A look and what it chose are bound to the same table, which is hashed once.
    paying = _Paying(again, renamed, cache(lambda: fingerprint_of(config, private.arrays)))
    start = plan.before or plan
    if start.look is not None:
        if rehearsed is None and _is_unpaid(config, start.look, paying.fingerprint, again=again):
            rehearse(start, page, reporter)
        # Also where the look was measured before: only its run knows whether these are the same private data.
        plan = _after_look(start, private, paying, reporter, clock)
        for note in plan.notes:
            reporter.line(note)
        looks = (further.measurement_plan for further in plan.also)
        kind_of(plan.config).method(plan.config, plan.measurement_plan, *looks)
    if plan is not rehearsed and _is_unpaid(config, plan.measurement_plan, paying.fingerprint, again=again):
        rehearse(plan, page, reporter)  # the look chose other queries, or the same were reserved for other data
    measured = _measured(plan, private, paying, scratch, reporter, clock)
    return replace(measured, measurement=together([measured.measurement, *plan.also])) if plan.also else measured


def _is_unpaid(
    config: Config, measurement_plan: MeasurementPlan, fingerprint: Callable[[], str] | None, *, again: bool
) -> bool:
    """Return whether private noise has to be paid for; without a fingerprint, whether no data were measured so."""
    if again or not source_of(config).private:
        return source_of(config).private
    return payment_status_of(config, measurement_plan, fingerprint and fingerprint()).run is None


@dataclass(frozen=True, slots=True)
class _Paying:
    """How a run is paid or taken up: the flags of ``measure``, and what fingerprints its private table."""

    again: bool
    renamed: bool
    fingerprint: Callable[[], str]


def _after_look(plan: Plan, private: Private, paying: _Paying, reporter: Reporter, clock: Clock) -> Plan:
    """Pay for the look of a plan, measure it, and return the plan that its noisy answers lead to.

    Both payments must fit the budget before the first is made: an account that this opens is granted all of it.
    """
    assert plan.look is not None
    config = plan.config
    privacy = config.privacy
    if privacy.noise == "seeded":
        assert privacy.seed is not None
        config = replace(config, privacy=privacy.model_copy(update={"seed": derived_seed(privacy.seed, _LOOK)}))
        look = replace(plan.on(plan.look, plan.detail), config=config)
        return resolved(plan, noisy(look, private, source_of(config), reporter), None)
    _check_both_fit(plan)
    look = replace(plan.on(plan.look, plan.detail), config=with_total(config, privacy.cost))
    reporter.line(f"A first look at the data, for {plan.look.cost} of the budget, chooses what is measured")
    measured = _measured(look, private, paying, None, reporter, clock)
    assert measured.folder is not None
    return resolved(plan, measured.measurement, RunFolder.of_measurement(measured.folder))


def _check_both_fit(plan: Plan) -> None:
    """Raise BudgetError where an account does not hold the look and the main measurement together.

    Where the look is paid already, the payment of the main measurement checks its own cost.
    """
    config, books = plan.config, ledger_of(plan.config).books()
    account = books.accounts.get(dataset_of(config))
    if account is None or any(is_look(plan, run) for run in books.runs.values()):
        return
    cost = account.cost(charge_for(config, plan.measurement_plan, ""))
    if cost > account.remaining:
        raise BudgetError(
            f"a look and what it chooses need {account.unit} = {cost}, and {account.remaining} of {account.total} is "
            f"left of dataset {account.dataset!r}: nothing was paid. Ask for less, or allow more with "
            "coco-opt ledger CONFIG --grant AMOUNT"
        )


def with_total(config: Config, budget: Cost) -> Config:
    """Return a configuration whose first payment opens an account of the whole budget, where it states no total."""
    privacy = config.privacy
    if (
        privacy.noise == "seeded"
        or privacy.total is not None
        or dataset_of(config) in ledger_of(config).books().accounts
    ):
        return config
    return replace(config, privacy=privacy.model_copy(update={"total": budget.amount}))


def _measured(
    plan: Plan, private: Private, paying: _Paying, scratch: Scratch | None, reporter: Reporter, clock: Clock
) -> Measured:
    """Return the measurement of one plan on a private table that was read."""
    config, source = plan.config, source_of(plan.config)
    check_storage(plan)
    if not source.private:
        measured = _measure_seeded(plan, private, source, reporter, scratch)
        clock.lap("measure")
        return measured
    warm(plan.measurement_plan, source)
    fingerprint = paying.fingerprint()
    message = new_account(config, fingerprint, renamed=paying.renamed)
    set_interrupt_advice(PAYMENT_KEPT)
    if message:
        reporter.line(message)
    with (
        dividing(plan, private, source, reporter) as divide,
        opened_run(config, plan.measurement_plan, fingerprint, again=paying.again, renamed=paying.renamed) as run,
    ):
        paid = not run.resumed
        if paid and config.privacy.weaker_promise:
            promise = ledger_of(config).books().promise_words(dataset_of(config))
            reporter.line(f"The sum of the account holds where {promise}")
        if plan.is_chosen:
            run.folder.keep(CHOSEN, {"choice": plan.choice, "keys": dict(plan.chosen)})

        def draw(key: RunKey) -> Drawing:
            run.folder.keep("identity", private.identity())
            run_source = SecureNoise(key) if isinstance(source, SecureNoise) else source
            division = divide(KeyFile(run.folder.path.resolve(), plan.measurement_plan.digest, fingerprint))
            return replace(drawing(plan, private, run_source, reporter), division=division)

        measurement = run.measurement(fingerprint, draw)
        clock.lap("measure")
        set_interrupt_advice(
            f"Run {run.name} is paid, and its measurement is kept: run the same again, and it goes on for free"
        )
        # The run is bound to this input, so these are its rows: the stored counts are for their owner, and not read.
        return Measured(config, measurement, run.name, run.folder.measurement, paid, private.identity())


def _measure_seeded(
    plan: Plan, private: Private, source: NoiseSource, reporter: Reporter, scratch: Scratch | None
) -> Measured:
    drawn, run = drawing(plan, private, source, reporter), new_run_id()
    # A configuration made in Python that names no private folder asked to keep nothing: its working folder stays clean.
    kept = scratch is None and (plan.config.file is not None or "private" in plan.config.output.model_fields_set)
    if not kept and plan.measurement_plan.answers <= DENSE:
        return Measured(plan.config, drawn.measurement(), run, None, paid=False, identity=private.identity())
    root = open_private_folder(plan.config.output.private) / SEEDED if scratch is None else scratch.folder
    if root.is_dir() and not root.is_symlink():
        root.chmod(0o700)  # by the umask it may have been made open to others
    for made in (root, root / run):
        make_private_folder(made)
    folder = RunFolder(root, run).measurement
    with dividing(plan, private, source, reporter) as divide:
        division = divide(Seed(source.seed)) if isinstance(source, SeededNoise) else None
        digest = write_measurement(folder, replace(drawn, division=division), private=True)
    measurement, _ = read_measurement(folder, digest, plan.measurement_plan)
    stored = folder if scratch is None else None
    return Measured(plan.config, measurement, run, stored, paid=False, identity=private.identity())


def _read(plan: Plan, reporter: Reporter) -> Private:
    with reporter.stage("Reading the private table"):
        private: Private = kind_of(plan.config).read(plan)
    return private
