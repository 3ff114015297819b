"""``coco-opt plan`` of a release of tables: what each query costs and how sure its answers will be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coco_opt.cli.console import TerminalReporter, cell, figure, fraction, size, write, write_json, write_table
from coco_opt.errors import ConfigError

if TYPE_CHECKING:
    from coco_opt.config import TablesConfig
    from coco_opt.runs.tables.predict import TablesForecast


def show_forecast(settings: TablesConfig, like: Path | None, *, json: bool) -> int:
    """Print the forecast of a release of tables. Raises ConfigError for a look-alike, which it does not use."""
    from coco_opt.runs.tables.predict import forecast_tables

    if like is not None:
        raise ConfigError("", "--like rehearses releases of groups: standard errors of tables are exact without it")
    found = forecast_tables(settings, reporter=TerminalReporter(lines=not json))
    if json:
        write_json(_as_json(found))
    else:
        _write_tables(found)
    return 0


def _costs(found: TablesForecast) -> list[dict[str, Any]]:
    queries, levels = found.plan.queries, found.plan.public.levels
    noise = "noise_scale" if queries.mechanism == "geometric" else "noise_variance"
    return [
        {
            "level": levels[level],
            "regions": len(found.plan.hierarchy.level_range(level)),
            "query": queries.queries[query].text,
            "answers": queries.queries[query].answers,
            queries.unit: str(queries.amounts[level][query]),
            noise: str(queries.parameter(level, query)),
        }
        for level, query in queries.asked
    ]


def _as_json(found: TablesForecast) -> dict[str, Any]:
    from coco_opt.runs.manifest import implied_privacy

    plan = found.plan
    return {
        plan.queries.unit: str(plan.queries.spent),
        **implied_privacy(plan.settings, plan.queries.unit, plan.queries.spent),
        "costs": _costs(found),
        "predictions": [
            {
                "level": plan.public.levels[one.level],
                "query": one.query,
                "standard_error": _finite(one.linear),
                "standard_error_alone": _finite(one.alone),
            }
            for one in found.predictions
        ],
        "seconds": found.seconds,
        "sealed_bytes": found.sealed,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _write_tables(found: TablesForecast) -> None:
    costs = _costs(found)
    header = tuple(name.replace("_", " ") for name in costs[0])
    rows = [
        (*(cell(value) for value in values[:-2]), *(fraction(value) for value in values[-2:]))
        for values in (tuple(row.values()) for row in costs)
    ]
    write_table("Budget", header, rows, numeric=3)
    levels = found.plan.public.levels
    errors = [(levels[one.level], one.query, _shown(one.linear), _shown(one.alone)) for one in found.predictions]
    title = "Standard error of an answer (persons), root mean square: exact"
    write_table(title, ("level", "query", "all levels", "own level alone"), errors, numeric=2)
    for note in _notes(found):
        write(note)
    write(f"Time            about {figure(found.seconds)} s of noise and post-processing on one core, once compiled")
    write(f"Sealed          about {size(found.sealed)} on disk; memory two to four times that")
    write("Nothing was spent, and the private table was not opened.")


def _notes(found: TablesForecast) -> list[str]:
    """Return what the tables do not say by themselves."""
    from coco_opt.cli.plan import meaning
    from coco_opt.runs.manifest import implied_privacy

    plan, notes = found.plan, []
    if any(math.isinf(one.linear) for one in found.predictions):
        notes.append(
            "Not determined  the strategy measures too little to answer the query: what is released is a guess"
        )
    if plan.invariants:
        notes.append(f"Held exactly    {plan.exact}: no error there; the figures above do not use it")
    implied = implied_privacy(plan.settings, plan.queries.unit, plan.queries.spent)["implied"]
    return [*notes, f"Budget implies  {meaning(implied)}"]


def _shown(value: float) -> str:
    return figure(value, 4) if math.isfinite(value) else "not determined"
