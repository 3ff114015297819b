"""``coco-opt check``: is everything fine that a release would read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coco_opt.cli.console import TerminalReporter, write, write_facts, write_json, write_table
from coco_opt.cli.options import ConfigFile, Json, Version
from coco_opt.errors import BudgetError

if TYPE_CHECKING:
    from coco_opt.config import Config


def check(config: ConfigFile, json: Json = False, version: Version = False) -> int:
    """Read and check all input, the private tables too, and try the solvers; draws no noise and pays nothing.

    Exit 3 if the budget left of the dataset does not allow what is asked.
    """
    from coco_opt.config import load_config
    from coco_opt.releases import check as check_release

    settings = load_config(config)
    found = check_release(settings, reporter=TerminalReporter(lines=not json))
    asked, standing = found.plan.asked, found.standing
    # Counts of rows are private: whoever reads this may not be who holds the data.
    files = _files(settings)
    if json:
        facts = {"kind": asked.kind, "cost": asked.cost.as_dict(), "measurement": asked.digest, "levels": asked.levels}
        budget = {"fits": standing.fits, "unit": standing.unit, "left": standing.left, "total": standing.total}
        write_json({"fine": True, "files": files, **facts, "budget": {**budget, "words": standing.words}})
        return 0 if standing.fits else BudgetError.exit_code
    rows = [(row["key"], row["file"], "private" if row["private"] else "public", "every row is fine") for row in files]
    write_table("Read and checked", ("data", "file", "", "result"), rows, numeric=4)
    shown: list[tuple[str, object]] = [
        ("Would cost", asked.cost),
        ("Would pay", standing.words),
        ("Levels", ", ".join(asked.levels)),
    ]
    write_facts(shown)
    write("No noise was drawn and nothing was paid. What a check says depends on private rows: keep it with them.")
    return 0 if standing.fits else BudgetError.exit_code


def _files(config: Config) -> list[dict[str, Any]]:
    """Return the files of a configuration's data, by key."""
    data = config.data
    values = ((key, getattr(data, key)) for key in type(data).model_fields)
    return [
        {"key": key, "file": value.name, "private": key in config.private_tables}
        for key, value in values
        if isinstance(value, Path)
    ]
