"""``coco-opt audit``: how much privacy a configuration's mechanism loses, measured and bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coco_opt.cli.console import TerminalReporter, csv_text, figure, fraction, write, write_json, write_table, writing
from coco_opt.cli.options import ConfigFile, Json, Version, integer
from coco_opt.errors import VerificationError

if TYPE_CHECKING:
    from coco_opt.audit import Audit, AuditRow, Subject
    from coco_opt.config import Config
    from coco_opt.privacy import NoiseSource
    from coco_opt.releases.kind import AnyKind, Plan

_LARGEST = 10_000  # denominator of a claim that is printed as a fraction
_BRANCHES = 2  # children of each region of simulated data: the noise of a region does not depend on the others
_BOUNDS = ("what", "epsilon claimed", "lost by this pair", "runs a side", "lower bound", "note")
_CURVE = ("delta", "what", "epsilon claimed", "lost by this pair", "lower bound", "note")
_NO_BOUND = "neither an upper nor a lower bound"
_ESTIMATES = ("what", "runs", "estimate", "note")
_NO_ALARM = (
    f"None of these says that more is lost than allowed, or less: each is {_NO_BOUND}. What counts stands above them.",
    "They take the distribution of residuals for that of the noise. Released counts are often exactly right and seldom",
    "a little wrong, for none is below zero. That falls steeply, loses nothing, and can make an estimate many times",
    "epsilon.",
)


def audit(
    config: ConfigFile,
    public: Annotated[
        Path | None,
        typer.Option("--public", help="Public data in the form of the private table; simulated data unless given."),
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", parser=integer(2), help="Whole releases on each of two neighbours.")
    ] = 100,
    draws: Annotated[
        int, typer.Option("--draws", metavar="N", parser=integer(2), help="Noisy answers of each measured cell.")
    ] = 200_000,
    confidence: Annotated[
        float, typer.Option("--confidence", min=0.5, max=0.999999, help="Of each lower bound.")
    ] = 0.999,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", parser=integer(0), help="Seeded noise in place of the configuration's own sampler."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A folder for the plots, CSV and JSON.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Measure, bound and estimate the privacy lost on simulated or public data; spends nothing.

    Exit 1 if a claim fails.
    """
    from coco_opt.audit import audit_release
    from coco_opt.config import load_config
    from coco_opt.releases.kind import kind_of
    from coco_opt.releases.planning import planned
    from coco_opt.releases.reporter import Silent

    settings = load_config(config)
    kind = kind_of(settings)
    reporter, noise = TerminalReporter(lines=not json), noise_of(settings, seed)
    with reporter.stage("Reading the data"):
        simulated = kind.simulated_data(planned(settings, Silent()), public, _BRANCHES)
        subject, pair = subject_of(kind, simulated.plan), kind.neighbours(simulated)
    with reporter.stage("Releasing") as progress:
        result = audit_release(subject, pair, noise, draws=draws, runs=runs, confidence=confidence, progress=progress)
    files = [] if out is None else _write_files(out, result, simulated.words, float(subject.epsilon()))
    if json:
        write_json(_as_dict(result, simulated.words, files))
    else:
        write_report(result, simulated.words, confidence, noise(0).name)
        for file in files:
            write(f"Written  {file}")
    return verdict(result)


def subject_of(kind: AnyKind, plan: Plan) -> Subject[Any, Any]:
    """Return the audit's subject for a kind and plan; the plan's configuration states the claim and the method."""
    from coco_opt.audit import Subject
    from coco_opt.releases.kind import Work
    from coco_opt.releases.solvers import choices_of

    config, measurement_plan = plan.config, plan.measurement_plan
    method, work = kind.method(config, measurement_plan), Work(choices_of(config))
    return Subject(
        measurement_plan,
        config.privacy.cost,
        exact=lambda table: kind.exact_answers(plan, table),
        estimate=lambda measurement: kind.estimate(measurement, method, work),
        statistics=lambda table: kind.statistics(measurement_plan, table),
        delta=config.privacy.delta,
    )


def noise_of(config: Config, seed: int | None) -> Callable[[int], NoiseSource]:
    """Return the maker of noise sources: a fresh source for each run, of the configured kind unless there is a seed."""
    from coco_opt.privacy import SeededNoise, resolve_noise

    chosen = config.privacy.seed if seed is None else seed
    if chosen is None:
        return lambda run: resolve_noise(config.privacy.noise)
    return lambda run: SeededNoise(chosen + run)


def write_report(result: Audit, what: str, confidence: float, noise: str) -> None:
    """Print the bounds next to their claims, and the estimates apart from both."""
    write(f"Audited on {what}, with {noise} noise.")
    write("No private table was opened and no privacy budget was spent.")
    write(f"Neighbours: {result.neighbours}.")
    bounds = [row for row in result.rows if row.bound is not None]
    write_table("What is lost, and sound lower bounds on it", _BOUNDS, [_bound_cells(row) for row in bounds])
    write(_loss_line(result))
    write(f"Epsilon is at least the lower bound, with confidence {confidence:g} for each row on its own.")
    for delta in sorted({row.bound.delta for row in bounds if row.bound is not None and row.bound.delta}):
        write(f"A claim is the epsilon that holds at delta = {delta:g}. Losses and bounds are at the same delta.")
    if result.curve:
        write("")
        write_table("The claim at other deltas", _CURVE, [_curve_cells(row) for row in result.curve], numeric=2)
    if not result.violated:
        write("Nothing lies above its claim. That is no proof: other neighbours may lose more than these.")
    estimates = [row for row in result.rows if row.bound is None]
    if estimates:
        write("")
        write_table(f"Estimates from residuals, {_NO_BOUND}", _ESTIMATES, [_estimate_cells(row) for row in estimates])
        for line in _NO_ALARM:
            write(line)


def _loss_line(result: Audit) -> str:
    """Return the line on the share of the total cost that the pair loses, in the cost's unit."""
    share = (
        "all" if result.lost == result.claimed else f"{figure(float(result.lost.amount / result.claimed.amount), 3)}"
    )
    unit = "" if share == "all" else " times"
    return (
        f"These neighbours lose {result.lost.unit} = {fraction(result.lost.amount)} by the noisy answers, exactly: "
        f"{share}{unit} of the {fraction(result.claimed.amount)} claimed. Post-processing them loses no more."
    )


def _bound_cells(row: AuditRow) -> tuple[str, ...]:
    lower = None if row.bound is None else row.bound.epsilon
    lost = "-" if row.lost is None else _claim(row.lost)
    verdict = "ABOVE THE CLAIM" if row.violated else row.note
    return row.what, _claim(row.claimed), lost, f"{row.runs:,}", figure(lower, 3), verdict


def _curve_cells(row: AuditRow) -> tuple[str, ...]:
    what, claimed, lost, _, lower, note = _bound_cells(row)
    return "-" if row.bound is None else f"{row.bound.delta:g}", what, claimed, lost, lower, note


def _estimate_cells(row: AuditRow) -> tuple[str, ...]:
    from coco_opt.audit import CAVEAT

    return row.what, f"{row.runs:,}", figure(row.estimate, 3), row.note.removeprefix(CAVEAT).removeprefix("; ")


def _claim(epsilon: Fraction) -> str:
    """Return a claim exactly, or in six digits where rho implies it."""
    return str(epsilon) if epsilon.denominator < _LARGEST else figure(float(epsilon), 6)


def verdict(result: Audit) -> int:
    """Return 0; raise VerificationError, naming the rows, where a bound lies above its claim."""
    above = ", ".join(dict.fromkeys(row.what for row in result.violated))
    if above:
        raise VerificationError(f"more privacy is lost than claimed: {above}")
    return 0


def _as_dict(result: Audit, what: str, files: Sequence[Path]) -> dict[str, object]:
    from coco_opt.audit import CAVEAT

    return {
        "data": what,
        "neighbours": result.neighbours,
        "claimed": result.claimed.as_dict(),
        "lost": result.lost.as_dict(),
        "estimate": CAVEAT,
        "rows": [row.as_dict() for row in result.rows],
        "curve": [row.as_dict() for row in result.curve],
        "files": [str(file) for file in files],
    }


def _write_files(folder: Path, result: Audit, what: str, claimed: float) -> list[Path]:
    import json as json_module

    from coco_opt.report.losses import plot_losses

    table, record = folder / "audit.csv", folder / "audit.json"
    with writing(folder):
        files = plot_losses(folder / "audit", result.losses, claimed)
        records = [row.as_dict() for row in result.rows]
        table.write_text(csv_text(records, list(records[0])), encoding="utf-8", newline="")
        content = json_module.dumps(_as_dict(result, what, [*files, table]), indent=2, allow_nan=False)
        record.write_text(content + "\n", encoding="utf-8")
    return [*files, table, record]
