"""From a configuration to its plan: all that the public tables say, before the private one is opened.

What a configuration leaves out is chosen from public numbers, or after a paid look. A choice that was measured once
stays: a later version that would choose otherwise takes up what was measured (``_as_chosen_before``, ``resolved``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from coco_opt.activity import NOTHING_PAID, set_interrupt_advice
from coco_opt.config.model import Config
from coco_opt.files.geometry import without_outline
from coco_opt.kinds import kind_row
from coco_opt.privacy.composition import Composition, bought, shares_of
from coco_opt.privacy.ledger_chain import Run
from coco_opt.privacy.measurement import Measurement, MeasurementPlan
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.releases.kind import AnyKind, Plan
from coco_opt.releases.noise_source import check_noise, source_of
from coco_opt.releases.outlines import outlines_of
from coco_opt.releases.plan_notes import budget_notes, region_notes
from coco_opt.releases.reporter import Reporter
from coco_opt.releases.runs import dataset_of, sweep
from coco_opt.releases.solvers import size_note
from coco_opt.releases.stored_runs import CHOSEN, read_stored, runs_of_ledger
from coco_opt.releases.swept_runs import RUNS


def kind_of(config: Config) -> AnyKind:
    """Return the kind of release of a configuration."""
    kind: AnyKind = kind_row(config.kind).load()
    return kind


def planned(config: Config, reporter: Reporter, *, outline: bool = False, measuring: bool = False) -> Plan:
    """Read the public tables and check all that does not need the private one; ``outline`` is for predictions.

    With ``measuring``, what an earlier look chose is not reported: another look may be used.
    Raises ConfigError, InputError, ProblemError, MissingPackageError.
    """
    kind = kind_of(config)
    set_interrupt_advice(NOTHING_PAID)
    sweep(config, reporter.line)
    with reporter.stage("Reading the public tables"):
        read = kind.outline if outline else kind.plan
        plan = _after_known_look(_as_chosen_before(_spending_all(read(config), read)))
    measurement_plan, source = plan.measurement_plan, source_of(config)
    notes = [] if measuring and plan.before is not None else [*plan.notes]
    if plan.chosen and plan.look is None and plan.rechosen is not None:  # as a configuration would state it
        keys = ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in plan.chosen.items())
        notes.append(f"Chosen from public numbers: {keys}")
    notes += [*region_notes(measurement_plan), *(budget_notes(config.privacy.cost) if source.private else ())]
    outlines = None if outline else outlines_of(config, measurement_plan)
    if outlines is not None and (unmapped := without_outline(outlines, measurement_plan.hierarchy)):
        notes.append(unmapped)
    for note in filter(None, (*notes, size_note(config, measurement_plan))):
        reporter.line(note)
    check_noise(measurement_plan, source)
    return plan


def _as_chosen_before(plan: Plan) -> Plan:
    """Return the plan with the keys that an earlier run of the same choice took from public numbers, if there is one.

    So a later version that would choose otherwise takes up what was measured. The queries must be those that were paid.
    """
    if not plan.chosen or plan.rechosen is None or plan.look is not None or not source_of(plan.config).private:
        return plan
    for stored in reversed(runs_of_ledger(plan.config)):
        if stored.run is None or not stored.run.counts or stored.run.charge.dataset != dataset_of(plan.config):
            continue
        record = RunFolder(plan.config.output.private / RUNS, stored.name).stored_values(CHOSEN)
        if record.get("choice") == plan.choice:
            before = plan if record["keys"] == plan.chosen else plan.rechosen(keys=record["keys"])
            if before.measurement_plan.digest == stored.run.charge.digest:
                return before
    return plan


def _after_known_look(plan: Plan) -> Plan:
    """Return the plan that a look leads to that a run measured before; the plan itself where none did."""
    if plan.look is None or not source_of(plan.config).private:
        return plan
    for stored in reversed(runs_of_ledger(plan.config)):
        if stored.run is not None and is_look(plan, stored.run) and stored.folder is not None:
            return resolved(plan, read_stored(plan.config, stored.folder)[0], RunFolder.of_measurement(stored.folder))
    return plan


def resolved(plan: Plan, look: Measurement, folder: RunFolder | None) -> Plan:
    """Return the plan after its look, which becomes part of the measurement plan.

    What was chosen is stored in the look's run, so that no later version differs.
    """
    assert plan.resolve is not None
    name = f"chosen-{plan.choice}"
    stored = None if folder is None else folder.stored_values(name) or None
    resolved = plan.resolve(look, stored)
    if folder is not None and stored is None:
        folder.keep(name, resolved.chosen)
    return replace(resolved, measurement_plan=replace(resolved.measurement_plan, look=look.record()), before=plan)


def is_look(plan: Plan, run: Run) -> bool:
    """Return whether a run that counts paid for the look of a plan, on the same dataset."""
    assert plan.look is not None
    same = (run.charge.dataset, run.charge.digest) == (dataset_of(plan.config), plan.look.digest)
    return same and run.counts


def _spending_all(plan: Plan, read: Callable[[Config], Plan]) -> Plan:
    """Return a plan that spends all that (epsilon, delta) buys for its queries, where the budget is stated so.

    Planning is repeated because the queries may depend on the budget; other queries are checked against the pair again.
    The public tables are not read again where the plan knows how; else ``read`` repeats all of it.
    """
    pair, config = plan.config.privacy.pair, with_bought(plan.config, plan.measurement_plan)
    if pair is None or config.privacy.cost == plan.measurement_plan.cost:
        return plan
    replanned, rechosen = (plan.again or read)(config), plan.rechosen
    if Composition.of(replanned.measurement_plan.queries).delta(pair[0]) > pair[1]:
        return plan
    # What was chosen stays chosen: the queries are those of the first plan, for another cost.
    again = None if rechosen is None else lambda keys: _spending_all(rechosen(keys=keys), read)
    return replace(replanned, chosen=plan.chosen, choice=plan.choice, rechosen=again)


def with_bought(config: Config, measurement_plan: MeasurementPlan) -> Config:
    """Return a configuration that knows what its (epsilon, delta) buys for these queries; unchanged without a pair."""
    pair = config.privacy.pair
    if pair is None or config.privacy.mechanism == "geometric":
        return config
    return replace(config, privacy=config.privacy.buying(bought(*pair, shares_of(measurement_plan.queries))))
