"""``coco-opt audit``: how much privacy a configuration's mechanism is seen to lose."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.audit_tables import AuditSize, audit_of_tables
from coco_opt.cli.console import TerminalReporter, figure, write, write_json, write_table
from coco_opt.cli.options import ConfigFile, Json, Version
from coco_opt.errors import CocoOptError, ConfigError, InputError, Place, VerificationError

if TYPE_CHECKING:
    from coco_opt.audit.groups import Audit
    from coco_opt.audit.released import GroupsMechanism
    from coco_opt.config import Config, TablesConfig
    from coco_opt.histograms import CountOfCounts, Hierarchy
    from coco_opt.privacy import NoiseSource
    from coco_opt.runs.settings import RunSettings, Settings

_LARGEST = 10_000  # denominator of a claim that is printed as a fraction
_HEADER = ("what", "epsilon claimed", "runs a side", "estimate", "sound lower bound", "")


@dataclass(frozen=True, eq=False, slots=True)
class _Subject:
    """The histograms an audit runs on, and in words what they are."""

    histograms: Sequence[CountOfCounts]
    hierarchy: Hierarchy
    what: str


def audit(
    config: ConfigFile,
    public: Annotated[
        Path | None,
        typer.Option("--public", help="Public data: a sizes table, or records of persons; made data unless given."),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=2, help="Whole releases on each of two neighbours.")] = 100,
    draws: Annotated[int, typer.Option("--draws", min=2, help="Noisy answers of each measured cell.")] = 200_000,
    confidence: Annotated[
        float, typer.Option("--confidence", min=0.5, max=0.999999, help="Of each lower bound.")
    ] = 0.999,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seeded noise in place of the configuration's own sampler.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A folder for the plots, CSV and JSON.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Estimate and bound the privacy lost on made or public data; spends nothing. Exit 1 if a bound beats its claim."""
    from coco_opt.config import load_any

    settings = load_any(config)
    reporter, noise, size = TerminalReporter(lines=not json), _noise(settings, seed), AuditSize(draws, runs, confidence)
    found, what, claimed = _audited(settings, public, noise, size, reporter)
    files = [] if out is None else _write_files(out, found, what, float(claimed))
    if json:
        write_json(_as_dict(found, what, files))
    else:
        _write_report(found, what, confidence, noise(0).name)
        for file in files:
            write(f"Written  {file}")
    return _verdict(found)


def _audited(
    settings: Config | TablesConfig,
    public: Path | None,
    noise: Callable[[int], NoiseSource],
    size: AuditSize,
    reporter: TerminalReporter,
) -> tuple[Audit, str, Fraction]:
    """Return the audit of groups or tables, in words what it ran on, and the epsilon that the whole claims."""
    from coco_opt.config import TablesConfig

    if isinstance(settings, TablesConfig):
        found, what = audit_of_tables(settings, public, noise, reporter, size)
        return found, what, found.rows[-1].claimed
    from coco_opt.audit.groups import audit_groups
    from coco_opt.audit.neighbours import neighbour_pair

    claimed = _pure_epsilon(settings)
    with reporter.stage("Reading the data"):
        subject = _subject(public, settings.data.root)
    mechanism = _mechanism(settings, claimed, subject.hierarchy.levels, noise)
    pair = neighbour_pair(subject.histograms, subject.hierarchy, settings.groups.max_size, settings.privacy.neighbours)
    with reporter.stage("Releasing") as progress:
        found = audit_groups(
            pair, mechanism, draws=size.draws, runs=size.runs, confidence=size.confidence, progress=progress
        )
    return found, subject.what, claimed


def _noise(settings: RunSettings, seed: int | None) -> Callable[[int], NoiseSource]:
    """Return what makes the noise source of a run: fresh for each, of the configured kind unless a seed is given."""
    from coco_opt.privacy import SeededNoise, resolve_noise

    chosen = settings.privacy.seed if seed is None else seed
    if chosen is None:
        return lambda run: resolve_noise(settings.privacy.noise)
    return lambda run: SeededNoise(chosen + run)


def _subject(public: Path | None, root: str | None) -> _Subject:
    """Read the public counts, or make the demo's data; the configuration's own tables stay closed."""
    from coco_opt.tables import read_sizes, read_tables

    if public is not None:
        counts = read_sizes(public, root)
        return _Subject(counts.histograms(), counts.hierarchy, f"the public counts of {public.name}")
    from coco_opt.runs.demo import write_demo

    with tempfile.TemporaryDirectory() as folder:
        files = write_demo(Path(folder))
        counts = read_tables(files.entities, files.groups, files.hierarchy)
    return _Subject(counts.histograms(), counts.hierarchy, "made data (three levels); no table of yours was opened")


def _pure_epsilon(settings: Settings) -> Fraction:
    """Return the epsilon an audit holds a release to; ConfigError for noise that is not pure."""
    epsilon = settings.privacy.epsilon
    if settings.privacy.mechanism == "geometric" and epsilon is not None:
        return epsilon
    message = (
        "an audit bounds pure epsilon only, which discrete Gaussian noise has none of: audit mechanism 'geometric'"
    )
    raise ConfigError("privacy.mechanism", message, settings.file)


def _mechanism(
    settings: Settings, epsilon: Fraction, levels: int, noise: Callable[[int], NoiseSource]
) -> GroupsMechanism:
    from coco_opt.audit.released import GroupsMechanism
    from coco_opt.choices import SolverChoices
    from coco_opt.privacy import PureBudget
    from coco_opt.runs.settings import method_of, solvers_of

    failure = ""
    try:
        shares = settings.budget_shares(levels)
        queries, method = settings.estimators(levels), method_of(settings, levels)
    except CocoOptError as error:
        failure = str(error)
    if failure:
        raise ConfigError("", f"{failure}; audit it on data of as many levels with --public")
    budget = PureBudget(epsilon, tuple(epsilon * share for share in shares), settings.privacy.neighbours)
    chosen = SolverChoices(solvers_of(settings))
    return GroupsMechanism(queries, budget, settings.groups.max_size, method, noise, chosen)


def _write_report(found: Audit, what: str, confidence: float, noise: str) -> None:
    from coco_opt.audit.privacy_loss import CAVEAT

    write(f"Audited on {what}, with {noise} noise; no privacy budget was spent.")
    write(f"Neighbours: {found.neighbours}.")
    rows = [
        (
            row.what,
            _claim(row.claimed),
            f"{row.runs:,}",
            figure(row.estimate, 3),
            figure(None if row.bound is None else row.bound.epsilon, 3),
            "ABOVE THE CLAIM" if row.violated else row.note,
        )
        for row in found.rows
    ]
    write_table("Privacy lost", _HEADER, rows)
    write(f"Estimate: {CAVEAT}. Correlations between counts are not seen, and residuals differ in law.")
    write(f"Sound lower bound: epsilon is at least that, with confidence {confidence:g} for each row on its own.")
    deltas = {row.bound.delta for row in found.rows if row.bound is not None and row.bound.delta}
    for delta in deltas:
        write(f"A claim is the epsilon that rho implies at delta = {delta:g}; bounds hold at the same delta.")


def _claim(epsilon: Fraction) -> str:
    """Return a claim exactly, or in six digits where rho implies it."""
    return str(epsilon) if epsilon.denominator < _LARGEST else figure(float(epsilon), 6)


def _verdict(found: Audit) -> int:
    above = ", ".join(row.what for row in found.violated)
    if above:
        raise VerificationError(f"more privacy is lost than claimed: {above}")
    return 0


def _as_dict(found: Audit, what: str, files: Sequence[Path]) -> dict[str, object]:
    from coco_opt.audit.privacy_loss import CAVEAT

    return {
        "data": what,
        "neighbours": found.neighbours,
        "estimate": CAVEAT,
        "rows": [row.as_dict() for row in found.rows],
        "files": [str(file) for file in files],
    }


def _write_files(folder: Path, found: Audit, what: str, claimed: float) -> list[Path]:
    import json as json_module

    from coco_opt.audit.plots import plot_losses

    reason = ""
    try:
        files = plot_losses(folder / "audit", found.losses, claimed)
        table = folder / "audit.csv"
        records = [row.as_dict() for row in found.rows]
        with table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(records[0]))
            writer.writeheader()
            writer.writerows(records)
        record = folder / "audit.json"
        content = json_module.dumps(_as_dict(found, what, [*files, table]), indent=2, allow_nan=False)
        record.write_text(content + "\n", encoding="utf-8")
    except OSError as error:
        reason = error.strerror or "unknown reason"
    if reason:
        raise InputError("cannot-write", f"cannot be written: {reason}", Place(str(folder)))
    return [*files, table, record]
