"""``coco-opt keys``, ``errors`` and ``cite``: look up what a key or an error's code means, and what to cite."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import coco_opt.errors
from coco_opt._version import __version__
from coco_opt.cli.console import write, write_json, write_table
from coco_opt.cli.options import Json, Version
from coco_opt.errors import CocoOptError, InputError
from coco_opt.estimators import estimator_rows
from coco_opt.kinds import kind_rows
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


_OPENING = """\
Every error has a stable code: in brackets at the end of its line, and as `error.code` with `--json`. No message holds
a private value. Exit codes: 1 a check failed; 2 bad usage, configuration, input or output; 3 budget refused; 4 a
solver missed its tolerance; 130 interrupted. Nothing that was paid for is lost by any of them."""


@cache
def explanations() -> Mapping[str, tuple[str, str]]:
    """Return by code what it means, and what to do."""
    table = tomllib.loads((files("coco_opt.cli") / "errors.toml").read_text(encoding="utf-8"))
    return {code: (entry["meaning"], entry["advice"]) for code, entry in table.items()}


def exit_codes() -> Mapping[str, int]:
    """Return by code what the command line returns."""
    kinds = (kind for kind in vars(coco_opt.errors).values() if isinstance(kind, type))
    own = {kind.code: kind.exit_code for kind in kinds if issubclass(kind, CocoOptError)}
    return {**dict.fromkeys(explanations(), CocoOptError.exit_code), **own, "interrupted": 130, "unexpected": 1}


def errors(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", help="A code; all of them by default.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Say what the code of an error means and what to do, or print the catalogue of all codes."""
    table = explanations()
    if code is not None and code not in table:
        raise InputError("unknown-code", f"there is no error {code!r}: coco-opt errors lists them all")
    shown = table if code is None else {code: table[code]}
    if json:
        codes = exit_codes()
        write_json(
            [
                {"code": name, "exit_code": codes[name], "meaning": meaning, "advice": advice}
                for name, (meaning, advice) in shown.items()
            ]
        )
    elif code is None:
        write("\n\n".join(["# Errors", _OPENING, *map(_text_of, shown)]))
    else:
        write(_text_of(code))
    return 0


def _text_of(code: str) -> str:
    """Return what a code means and what to do."""
    meaning, advice = explanations()[code]
    return f"{code} (exit code {exit_codes()[code]}): {meaning}\nWhat to do: {advice}"


SOURCES: Mapping[str, tuple[str, ...]] = {
    "groups": ("kuo2018",),
    "sizes": ("kuo2018",),
    "ranks": ("kuo2018", "hay2010"),
    "cumulative": ("kuo2018",),
    "ranges": ("hay2010",),
    "tables": ("abowd2022", "kifer2019"),
    "geometric": ("ghosh2012",),
    "discrete_gaussian": ("canonne2020", "bun2016"),
    "audit": ("flaxman2019",),
}
"""The papers to cite with the software, by kind of release, query, noise distribution, or verb."""
_ESTIMATOR_KEYS = ("consistency", "estimation", "estimator")  # of a manifest that name an estimator


def cite(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Methods, kinds, noise distributions, or release folders; none: a list."
        ),
    ] = None,
    version: Version = False,
) -> int:
    """Print the BibTeX entries of this software and of the papers behind methods or a release."""
    if not names:
        rows = [(name, ", ".join(map(_shown, papers))) for name, papers in sources().items()]
        write_table("What can be cited", ("name", "papers"), rows, numeric=2)
        return 0
    keys = dict.fromkeys(key for name in names for key in _papers(name))
    entries = references()
    write("\n\n".join([_software(), *(entries.get(key, key) for key in keys)]))
    return 0


def sources(kind: str | None = None) -> dict[str, tuple[str, ...]]:
    """Return the papers by all names that can be cited; the estimators of one kind alone, if a ``kind`` is given."""
    papers = dict(SOURCES)
    for row in kind_rows():
        for estimator in estimator_rows(row.name) if kind in (None, row.name) else ():
            of_name = papers.get(estimator.name, ())
            papers[estimator.name] = (*of_name, *(paper for paper in estimator.papers if paper not in of_name))
    return papers


def references() -> dict[str, str]:
    """Return the BibTeX entries by key."""
    text = (files("coco_opt.cli") / "references.bib").read_text(encoding="utf-8")
    matches = re.findall(r"^(@\w+\{(\w+),.*?^\})", text, flags=re.DOTALL | re.MULTILINE)
    return {key: entry for entry, key in matches}


def _papers(name: str) -> Iterable[str]:
    from coco_opt.files.folder import MANIFEST, read_manifest

    papers = sources()
    if name in papers:
        return papers[name]
    if (Path(name) / MANIFEST).is_file():
        return _papers_of_release(read_manifest(Path(name)))
    raise InputError("unknown-name", f"{name!r} is no method and no release folder{near(name, papers)}")


def _papers_of_release(manifest: Mapping[str, Any]) -> Iterable[str]:
    """Return the papers behind a release: for its kind, queries, noise distributions and consistency method."""
    budget, method = manifest.get("budget"), manifest.get("method")
    queries = budget.get("questions", []) if isinstance(budget, dict) else []
    names = [manifest.get("kind")]
    names += [query.get(part) for query in queries if isinstance(query, dict) for part in ("query", "law")]
    ranges = manifest.get("ranges")
    names += [part.get(key) for part in (method, ranges) if isinstance(part, dict) for key in _ESTIMATOR_KEYS]
    papers = sources(manifest.get("kind"))
    return [key for source in names if isinstance(source, str) for key in papers.get(source, ())]


def _shown(paper: str) -> str:
    """Return a paper's key, also that of a whole entry."""
    match = re.match(r"@\w+\{([^,\s]+),", paper)
    return match[1] if match else paper


def _software() -> str:
    return (
        "@software{coco-opt,\n"
        "  author  = {{The coco-opt contributors}},\n"
        "  title   = {coco-opt},\n"
        f"  version = {{{__version__}}}\n"
        "}"
    )
