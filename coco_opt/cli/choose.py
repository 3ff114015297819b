"""``coco-opt choose``: which question to ask, by the data, for a small part of the budget."""

from __future__ import annotations

import json as plain_json
from typing import Annotated, Any

import typer

from coco_opt.cli.console import TerminalReporter, fraction, quoted, write, write_facts, write_json, write_table
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
    """Pay a part of the budget for a noisy answer that says which question to ask; prints the keys to write."""
    from fractions import Fraction

    from coco_opt.config import load_config
    from coco_opt.releases.choose import choose as choose_question
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
    found = choose_question(settings, part, renamed=renamed, reporter=TerminalReporter(lines=not json))
    left, keys = found.left, dict(found.chosen.keys)
    lines: dict[str, dict[str, Any]] = {"privacy": {left.unit: str(left.amount)}, settings.section: keys}
    spent = spent_line(kind_of(settings), settings, found.measured.measurement)
    if json:
        cost = found.measured.measurement.cost.as_dict()
        write_json({"spent": spent, **cost, "paid": found.measured.paid, "run": found.measured.run, "write": lines})
        return 0
    write_table("What to ask", found.chosen.header, found.chosen.rows, numeric=2)
    write(f"{spent}.")
    run = f"{found.measured.run}, {payment(found.measured)}"
    write_facts([("Run", run), ("Left of the budget", fraction(left.amount))])
    for section, stated in lines.items():
        words = ", ".join(f"{key} = {plain_json.dumps(value)}" for key, value in stated.items())
        write(f"Write into {config.name}, [{section}]:  {words}")
    write(f"Then  coco-opt release {quoted(config)}  spends what is left.")
    return 0
