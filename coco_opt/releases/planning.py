"""From a configuration to its plan: all that the public tables say, before the private one is opened.

What a configuration leaves out is chosen from public numbers, or after a paid look. A choice that was measured once
stays: a later version that would choose otherwise takes up what was measured (``_as_chosen_before``, ``resolved``).
Notes name what is allowed and yet seldom meant: repeated levels, almost equal names of regions, a huge budget.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from coco_opt.activity import NOTHING_PAID, set_interrupt_advice
from coco_opt.config.model import Config
from coco_opt.files import column_checks
from coco_opt.files.geometry import Outlines, read_outlines, without_outline
from coco_opt.privacy.composition import Composition, bought, shares_of
from coco_opt.privacy.cost import Cost
from coco_opt.privacy.ledger_chain import Run
from coco_opt.privacy.measurement import Measurement, MeasurementPlan
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.releases.drawing import check_noise, source_of
from coco_opt.releases.kind import Plan, kind_of
from coco_opt.releases.manifest import protects_hardly
from coco_opt.releases.reporter import Reporter
from coco_opt.releases.runs import dataset_of, sweep
from coco_opt.releases.solvers import size_note
from coco_opt.releases.stored_runs import CHOSEN, read_stored, runs_of_ledger
from coco_opt.releases.swept_runs import RUNS


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
        plan = _after_known_look(_as_chosen_before(_spending_all(read(config), read), config, read))
    measurement_plan, source = plan.measurement_plan, source_of(config)
    notes = [] if measuring and plan.before is not None else [*plan.notes]
    if plan.is_chosen:  # as a configuration would state it
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


def _as_chosen_before(plan: Plan, config: Config, read: Callable[[Config], Plan]) -> Plan:
    """Return the plan with the keys that an earlier run of the same choice took from public numbers, if there is one.

    So a later version that would choose otherwise takes up what was measured. The queries must be those that were paid.
    """
    if not plan.is_chosen or plan.replanned is None or not source_of(config).private:
        return plan
    for stored in reversed(runs_of_ledger(plan.config)):
        if stored.run is None or not stored.run.counts or stored.run.charge.dataset != dataset_of(plan.config):
            continue
        record = RunFolder(plan.config.output.private / RUNS, stored.name).stored_values(CHOSEN)
        if record.get("choice") == plan.choice:
            same = record["keys"] == plan.chosen
            before = plan if same else _spending_all(plan.replanned(config, record["keys"]), read)
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
    replanned = read(config) if plan.replanned is None else plan.replanned(config, None)
    if Composition.of(replanned.measurement_plan.queries).delta(pair[0]) > pair[1]:
        return plan
    # What was chosen stays chosen: the queries are those of the first plan, for another cost.
    return replace(replanned, chosen=plan.chosen, choice=plan.choice)


def with_bought(config: Config, measurement_plan: MeasurementPlan) -> Config:
    """Return a configuration that knows what its (epsilon, delta) buys for these queries; unchanged without a pair."""
    pair = config.privacy.pair
    if pair is None or config.privacy.mechanism == "geometric":
        return config
    return replace(config, privacy=config.privacy.buying(bought(*pair, shares_of(measurement_plan.queries))))


_MOST = 50_000  # regions of a level whose names are compared; levels of more have codes for names
_SHOWN = 5
_LETTERS = str.maketrans(*column_checks.ALPHABETS)
_ACCENTS = re.compile("[\u0300-\u036f]")
_SIGNS = re.compile(r"(?<!\d)[\W_]+|[\W_]+(?!\d)")


def budget_notes(cost: Cost) -> Iterator[str]:
    """Yield a note on a budget that protects hardly anybody."""
    if protects_hardly(cost):
        yield (
            f"Note: {cost} protects hardly anybody: whoever thinks one of two answers of a person as likely as the "
            "other may be certain of the answer after the release. Most published tables spend an epsilon between "
            "0.1 and 10"
        )


def region_notes(plan: MeasurementPlan) -> Iterator[str]:
    """Yield notes on the hierarchy: levels with the same regions, often a column that is no level; similar names."""
    counts = np.diff(plan.hierarchy.level_start)
    for level in np.flatnonzero(counts[1:] == counts[:-1]) + 1:
        above, name = plan.levels[level - 1], plan.levels[level]
        yield (
            f"Note: every region of level {above!r} has one region of {name!r} below it, which says nothing new for "
            f"its share of the budget: if {name!r} is no level, leave its column out of the hierarchy; if {above!r} "
            f"lies within {name!r}, list the levels in their order, root first"
        )
    pairs = list(islice(_similar_pairs(plan), _SHOWN + 1))
    for pair in pairs[:_SHOWN]:
        described = []
        for region in pair:  # its first leaf's id finds its row of the hierarchy
            path, identity = plan.hierarchy.path(region), plan.region_ids[plan.hierarchy.leaf_range(region).start]
            described.append(repr(path) if identity is None else f"{path!r} (region_id {identity!r})")
        yield (
            f"Note: {' and '.join(described)} are two regions, and their names differ in capitals, accents, alphabet, "
            "spaces or punctuation alone: if they are one, give it one name in the hierarchy"
        )
    if len(pairs) > _SHOWN:
        yield "Note: further regions have names that are almost those of others"


def _similar_pairs(plan: MeasurementPlan) -> Iterator[tuple[int, int]]:
    """Yield pairs of regions of one parent whose names are equal but for capitals, accents, spaces or punctuation.

    So they are but for letters of two alphabets that look alike. Signs between digits count.
    """
    tree = plan.hierarchy
    for level in range(1, tree.levels):
        regions = tree.level_range(level)
        if len(regions) > _MOST:
            return
        seen: dict[tuple[int, str], int] = {}
        for region in regions:
            letters = _ACCENTS.sub("", unicodedata.normalize("NFKD", tree.names[region]))
            name = _SIGNS.sub("", letters.casefold().translate(_LETTERS))
            first = seen.setdefault((int(tree.parent[region]), name), region) if name else region
            if first != region:
                yield first, region


_KEPT = 2  # a release's own, and those of its rehearsal
_read: dict[tuple[Path, int, int, str], Outlines] = {}


def outlines_of(config: Config, measurement_plan: MeasurementPlan) -> Outlines | None:
    """Read the outlines that ``output.geometry`` names, None without it. Raises ConfigError, InputError.

    A file that has not changed is read once, though planning, the rehearsal and the page need it one after the other.
    """
    path, tree = config.output.geometry, measurement_plan.hierarchy
    if path is None:
        return None
    if tree.regions == 1:
        raise config.error("output.geometry", "this release has a single region: there is no map to draw, leave it out")
    if not path.is_file():  # which is what the reader says
        return read_outlines(path, tree, measurement_plan.region_ids)
    seen = path.stat()
    key = path.resolve(), seen.st_mtime_ns, seen.st_size, measurement_plan.regions_digest
    outlines = _read.pop(key, None) or read_outlines(path, tree, measurement_plan.region_ids)
    _read[key] = outlines
    if len(_read) > _KEPT:
        del _read[next(iter(_read))]
    return outlines
