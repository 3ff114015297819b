"""``coco-opt choose``: choose the queries by the data, for a small part of the budget."""

from __future__ import annotations

import json as plain_json
from typing import Annotated, Any

import typer

from coco_opt.cli.console import TerminalReporter, fraction, quoted, write, write_json, write_table, write_values
from coco_opt.cli.measure import payment
from coco_opt.cli.options import ConfigFile, Json, Version
from coco_opt.errors import InputError


def choose(
    config: ConfigFile,
    share: Annotated[
        str, typer.Option("--share", metavar="PART", help="The part of the budget that choosing takes.")
    ] = "1/50",
    renamed: Annotated[
        bool, typer.Option("--renamed", help="Pay for data that the ledger knows as another dataset.")
    ] = False,
    json: Json = False,
    version: Version = False,
) -> int:
    """Pay a part of the budget for a noisy measurement that chooses the queries; print the keys to write."""
    from fractions import Fraction

    from coco_opt.config import load_config
    from coco_opt.releases.choose import choose as query_of_choice
    from coco_opt.releases.manifest import spent_line
    from coco_opt.releases.measure import kind_of

    failed = False
    try:
        part = Fraction(share)
    except (ValueError, ZeroDivisionError):
        failed = True
    if failed:
        raise InputError("bad-option", f"--share {share}: write a fraction or a decimal, such as 1/50")
    settings = load_config(config)
    choice = query_of_choice(settings, part, renamed=renamed, reporter=TerminalReporter(lines=not json))
    left, keys = choice.left, dict(choice.chosen.keys)
    lines: dict[str, dict[str, Any]] = {"privacy": {left.unit: str(left.amount)}, settings.section: keys}
    spent = spent_line(kind_of(settings), settings, choice.measured.measurement)
    if json:
        cost = choice.measured.measurement.cost.as_dict()
        write_json({"spent": spent, **cost, "paid": choice.measured.paid, "run": choice.measured.run, "write": lines})
        return 0
    write_table("What to measure", choice.chosen.header, choice.chosen.rows, numeric=2)
    write(f"{spent}.")
    run = f"{choice.measured.run}, {payment(choice.measured)}"
    write_values([("Run", run), ("Left of the budget", fraction(left.amount))])
    for section, advised in lines.items():
        words = ", ".join(f"{key} = {plain_json.dumps(value)}" for key, value in advised.items())
        write(f"Write into {config.name}, [{section}]:  {words}")
    write(f"Then  coco-opt release {quoted(config)}  spends what is left.")
    return 0
