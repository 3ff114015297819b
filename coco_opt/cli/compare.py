"""``coco-opt compare`` and ``solvers``: solvers on the same problems, releases under several keys, who solves what."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coco_opt.cli.console import TerminalReporter, csv_text, figure, write, write_json, write_table, writing
from coco_opt.cli.options import Json, Version, integer
from coco_opt.cli.release import settings_for
from coco_opt.errors import InputError, VerificationError

if TYPE_CHECKING:
    from coco_opt.config import Config
    from coco_opt.privacy import Measurement
    from coco_opt.registry import Backend
    from coco_opt.releases import Comparison
    from coco_opt.releases.compare import Row
    from coco_opt.releases.reporter import Reporter
    from coco_opt.releases.trials import Trial


_HEADER = ("solver", "unknowns", "status", "objective", "- first", "gap", "violation", "seconds", "ties", "note")


def compare(
    target: Annotated[
        str,
        typer.Argument(metavar="CONFIG|MEASUREMENT", help="A configuration, a measurement's folder, or a run's id."),
    ],
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="CONFIG", help="Method and solvers for a measurement; default: its kind's."),
    ] = None,
    size: Annotated[int, typer.Option("--size", min=2, help="Most unknowns of a problem.")] = 2_000,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Also write the rows to this file.")] = None,
    profile: Annotated[
        Path | None, typer.Option("--profile", help="Also draw a performance profile: this path with .png and .pdf.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="KEY=VALUE,...",
            help="Compare whole releases instead, one for each value: groups.loss=l1,l2. Repeat it for a grid.",
        ),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", metavar="N", parser=integer(1), help="Releases a value.")] = 10,
    like: Annotated[
        Path | None,
        typer.Option("--like", metavar="FILE", help="Public data in the form of the private table, to release."),
    ] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Solve one problem of each kind with every solver, or with --vary release data under several keys; spends nothing.

    Exit 4 if a solver that the configuration uses misses its tolerance; other solvers may miss theirs. With --vary the
    data are simulated or public, --csv takes the errors by level, and --profile their picture.
    """
    from coco_opt.releases import compare as compare_solvers

    reporter = TerminalReporter(lines=not json)
    if vary:
        return _compare_releases(target, grid_of(vary), runs, like, csv_file, profile, json=json)
    settings, measurement = _read_target(target, config, reporter)
    comparison = compare_solvers(settings, measurement, size=size, reporter=reporter)
    if csv_file is not None:
        from coco_opt.releases.compare import columns

        _write_csv(csv_file, columns(), [row.as_dict() for row in comparison.rows])
    pictures = [] if profile is None else _draw_profile(profile, comparison)
    if json:
        write_json({"data": comparison.data, "rows": [row.as_dict() for row in comparison.rows]})
    else:
        write(comparison.data[0].upper() + comparison.data[1:])
        _write_tables(comparison)
        if pictures:
            write(f"Performance profile  {', '.join(map(str, pictures))}")
    return _verdict(comparison, lines=not json)


def grid_of(options: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of keys that are to vary, each as a file would state it. Raises InputError (bad-option)."""
    grid: dict[str, list[Any]] = {}
    for option in options:
        key, equals, text = (part.strip() for part in option.partition("="))
        if not (equals and text and all(key.partition("."))):
            raise InputError("bad-option", f"--vary {option}: write SECTION.KEY=VALUE,VALUE, such as groups.loss=l1,l2")
        values = _toml(f"[{text}]")
        listed = values if isinstance(values, list) else [_toml(part.strip()) for part in text.split(",")]
        # Amounts of privacy are exact, which a float is not.
        exact = [str(value) if key.startswith("privacy.") and isinstance(value, float) else value for value in listed]
        grid.setdefault(key, []).extend(exact)
    return grid


def _toml(text: str) -> Any:
    """Return a value of a config, a text without quotes as it is."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _compare_releases(
    target: str,
    grid: dict[str, list[Any]],
    runs: int,
    like: Path | None,
    csv_file: Path | None,
    picture: Path | None,
    *,
    json: bool,
) -> int:
    """Release the same data under every combination of values, and show what each errs."""
    from coco_opt.config import load_config
    from coco_opt.releases.compare import finite_or_none
    from coco_opt.releases.trials import trials

    result = trials(load_config(Path(target)), grid, runs=runs, public=like, reporter=TerminalReporter(lines=not json))
    records = list(result.records())
    if csv_file is not None:
        _write_csv(csv_file, list(records[0]), records)
    pictures: list[Path] = []
    if picture is not None:
        from coco_opt.releases.trials import draw_trials

        with writing(picture):
            pictures = draw_trials(picture, result)
    if json:
        write_json({"data": result.data, "rows": [finite_or_none(record) for record in records]})
        return 0
    header = (*grid, *(f"error, {level}" for level in result.levels), "times the first", "seconds", "worst gap", "note")
    rows = [
        (
            *trial.values.values(),
            *(f"{figure(mean)} ± {figure(error, 2)}" for mean, error in _by_level(trial, len(result.levels))),
            *(figure(value, 3) for value in (trial.times(result.rows[0]), trial.seconds, trial.gap)),
            trial.note,
        )
        for trial in result.rows
    ]
    write_table(f"Releases of {result.data}, {runs} each", header, rows, numeric=len(grid))
    if pictures:
        write(f"Picture  {', '.join(map(str, pictures))}")
    write("Nothing was spent, and no private table was opened.")
    return 0


def _by_level(trial: Trial, levels: int) -> list[tuple[float, float]]:
    pairs = list(zip(trial.means, trial.standard_errors, strict=True))
    return pairs or [(math.nan, math.nan)] * levels


def _read_target(target: str, config: Path | None, reporter: Reporter) -> tuple[Config, Measurement | None]:
    """Return the configuration and the measurement that pose the problems; None where simulated data do."""
    from coco_opt.config import load_config
    from coco_opt.files.measurement import read_measurement
    from coco_opt.releases.estimate import config_of, find_measurement
    from coco_opt.releases.runs import sweep

    path, settings = Path(target), None if config is None else settings_for(target, config)
    if settings is None and (path.is_file() or path.suffix == ".toml"):
        return load_config(path), None
    if settings is not None:
        sweep(settings, reporter.line)
    measurement, _ = read_measurement(find_measurement(target, settings))
    return settings or config_of(measurement), measurement


def _verdict(comparison: Comparison, *, lines: bool) -> int:
    if not comparison.caught:
        raise VerificationError("the planted wrong answer was certified: do not trust these certificates")
    sentences = ["The planted wrong answer was caught."]
    failed = [row for row in comparison.missed if row.used]
    if failed:
        sentences.append(f"Not certified within tolerance, though your configuration uses it: {_solver_names(failed)}.")
    if others := [row for row in comparison.missed if not row.used]:
        sentences.append(
            f"Not certified within tolerance, and not used by your configuration: {_solver_names(others)}."
        )
    if lines:
        write(" ".join(sentences))
    return 4 if failed else 0


def _solver_names(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row.solver} on {row.problem} ({row.status})" for row in rows)


def _write_tables(comparison: Comparison) -> None:
    kinds = dict.fromkeys(row.problem for row in comparison.rows)
    for kind in kinds:
        rows = [_cells(row) for row in comparison.rows if row.problem == kind]
        write_table(kind, _HEADER, rows)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.solver,
        f"{row.unknowns:,}",
        row.status,
        figure(row.objective, 10),
        figure(row.difference),
        figure(row.relative_gap),
        figure(row.violation),
        figure(row.seconds, 3),
        "yes" if row.honours_ties else "any",
        row.note,
    )


def _write_csv(path: Path, columns: Sequence[str], records: Sequence[Mapping[str, Any]]) -> None:
    with writing(path):
        path.write_text(csv_text(records, columns), encoding="utf-8", newline="")


def _draw_profile(path: Path, comparison: Comparison) -> list[Path]:
    from coco_opt.releases.compare import draw_profiles

    with writing(path):
        return draw_profiles(path, comparison)


def solvers(json: Json = False, version: Version = False) -> int:
    """List problems against solvers: "auto" marks the solver used where the config names none."""
    from coco_opt.estimators import estimator_rows
    from coco_opt.kinds import kind_rows
    from coco_opt.registry import backends

    rows = [_row(backend) for backend in backends()]
    if json:
        write_json(rows)
        return 0
    for title, general in (("Special algorithms, the fast paths", False), ("Open general solvers", True)):
        shown = [row for row in rows if bool(row["programs"]) == general]
        table = [
            (
                row["solver"],
                " ".join(row["programs"]).upper(),
                row["summary"],
                "yes" if row["installed"] else row["install"],
            )
            for row in shown
        ]
        write_table(title, ("solver", "programs" if general else "", "what", "installed"), table, numeric=4)
    answered = [(kind, _automatic(rows, kind), _others(rows, kind)) for kind in rows[0]["problems"]]
    write_table("Problems", ("problem", "auto", "also"), answered, numeric=3)
    write("auto: used unless [solvers] names another, by PROBLEM = NAME or, where it can, default = NAME")
    write("*: always optimal, with the problem's tie rule\n")
    estimators = [row for kind in kind_rows() for row in estimator_rows(kind.name)]
    shown_estimators = [(row.kind, row.name, row.summary, row.takes) for row in estimators]
    write_table("Estimators", ("of", "name", "what", "takes"), shown_estimators, numeric=4)
    return 0


def _automatic(rows: list[dict[str, Any]], kind: str) -> str:
    """Return the solver that is used where none is chosen, with those that are tried before it for some shapes."""
    from coco_opt.problems import PROBLEMS

    suited = " ".join(PROBLEMS[kind].suited)
    return _names(rows, kind, "auto") + (f"; for some shapes {suited}" if suited else "")


def _names(rows: list[dict[str, Any]], kind: str, mark: str) -> str:
    return " ".join(row["solver"] for row in rows if row["problems"][kind] == mark)


def _others(rows: list[dict[str, Any]], kind: str) -> str:
    exact = " ".join(f"{row['solver']}*" for row in rows if row["problems"][kind] == "exact")
    return " ".join(filter(None, (exact, _names(rows, kind, "yes"))))


def _row(backend: Backend) -> dict[str, Any]:
    extra = f"coco-opt[{backend.extra}]" if backend.extra else " ".join(backend.packages)
    return {
        "solver": backend.name,
        "summary": backend.summary,
        "programs": list(backend.forms),
        "problems": _problems(backend),
        "packages": list(backend.packages),
        "installed": backend.installed,
        "install": f"pip install '{extra}'",
    }


def _problems(backend: Backend) -> dict[str, str | None]:
    from coco_opt.problems import PROBLEMS
    from coco_opt.registry import built_in

    marks: dict[str, str | None] = {}
    for kind, problem in PROBLEMS.items():
        installed = [row for row in built_in() if row.claims(problem) and row.installed]
        if not backend.claims(problem):
            marks[kind] = None
        elif installed and installed[0].name == backend.name:
            marks[kind] = "auto"
        else:
            marks[kind] = "exact" if backend.honours_ties else "yes"
    return marks
