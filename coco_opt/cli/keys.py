"""``coco-opt keys``: the keys of a configuration, with type, default and meaning."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import write, write_json
from coco_opt.cli.options import Json, Version
from coco_opt.errors import InputError
from coco_opt.plugins import near

if TYPE_CHECKING:
    from coco_opt.cli.config_keys import ConfigKey

_WIDTH = 100


def keys(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A section or a key: privacy, privacy.epsilon or epsilon.")
    ] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """List the keys of a configuration with type, default and meaning: of a section, one key, or all."""
    from coco_opt.cli.config_keys import config_keys

    every = list(config_keys())
    chosen = [each for each in every if name is None or _fits(each, name.strip("[]"))]
    if not chosen:
        known = [*dict.fromkeys(each.section.partition(",")[0] for each in every), *(each.key for each in every)]
        hint = near(name, known, ": coco-opt keys lists them all", start=": ")
        raise InputError("unknown-name", f"there is no section and no key {name!r}{hint}")
    if json:
        write_json([asdict(each) for each in chosen])
    else:
        write("\n".join(_lines(chosen)))
    return 0


def _fits(each: ConfigKey, name: str) -> bool:
    """Return whether a key has this name, or lies in the section with this name or in a section below it."""
    section = each.section.partition(",")[0]
    return name in (each.key, f"{section}.{each.key}") or f"{section}.".startswith(f"{name}.")


def _lines(chosen: list[ConfigKey]) -> Iterator[str]:
    section = None
    for each in chosen:
        if each.section != section:
            yield from ([] if section is None else [""])
            section = each.section
            head, _, rest = section.partition(",")
            yield f"[{head}]{rest and ',' + rest}"
        default = "required" if each.default is None else f"default: {each.default}"
        yield f"  {each.key}: {each.value.replace('`', '')}; {default}".replace("default: none", "no default")
        yield from textwrap.wrap(
            each.meaning.replace("`", ""), _WIDTH, initial_indent="      ", subsequent_indent="      "
        )
