"""``coco-opt cite``: the papers behind a method, or behind a release, as BibTeX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from coco_opt._version import __version__
from coco_opt.cli.console import write, write_table
from coco_opt.cli.options import Version
from coco_opt.errors import InputError
from coco_opt.estimators import estimator_rows
from coco_opt.kinds import kind_rows
from coco_opt.plugins import near

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
_KEYS = ("consistency", "estimation", "estimator")  # of a manifest that name an estimator


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
    keys = dict.fromkeys(key for name in names for key in _keys(name))
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


def _keys(name: str) -> Iterable[str]:
    from coco_opt.files.folder import MANIFEST, read_manifest

    papers = sources()
    if name in papers:
        return papers[name]
    if (Path(name) / MANIFEST).is_file():
        return _release_keys(read_manifest(Path(name)))
    raise InputError("unknown-name", f"{name!r} is no method and no release folder{near(name, papers)}")


def _release_keys(manifest: Mapping[str, Any]) -> Iterable[str]:
    """Return the papers behind a release: for its kind, queries, noise distributions and consistency method."""
    budget, method = manifest.get("budget"), manifest.get("method")
    queries = budget.get("questions", []) if isinstance(budget, dict) else []
    names = [manifest.get("kind")]
    names += [query.get(part) for query in queries if isinstance(query, dict) for part in ("query", "law")]
    ranges = manifest.get("ranges")
    names += [part.get(key) for part in (method, ranges) if isinstance(part, dict) for key in _KEYS]
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
