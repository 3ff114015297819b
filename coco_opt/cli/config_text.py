"""The text of the configuration that ``init`` writes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coco_opt.cli.file_roles import Candidate

if TYPE_CHECKING:
    from coco_opt.files.proposals import LevelProposal
    from coco_opt.releases.kind import Draft

_CONFIG = """\
# A coco-opt release. Next:  coco-opt check {name},  coco-opt plan {name}  and  coco-opt release {name}
[data]
{data}

[privacy]
{dataset}
epsilon = "1"                 # the whole budget, an exact decimal or fraction; smaller is more private
# mechanism = "discrete_gaussian" takes rho = "1/2", or epsilon and delta = "1/1000000", in place of epsilon alone
# split = "uniform"           # how the budget is allocated: or "leaves", or one share a level, root first
noise = "secure"              # cryptographic noise that cannot be repeated
neighbours = "add_remove"     # or "replace": {replaced}
# Exact totals need "replace", in every release of the dataset: state it from the first release on if you publish any.

{section}
[output]
directory = "releases"        # public results
private = "private"           # ledger, measurements and records for your eyes only, mode 0700
"""
_GEOMETRY = """\
# geometry = "areas.geojson"  # public outlines of the regions, with region_id in the properties: a map in the report
"""
_DATASET = "the ledger's name of these data: one budget for all that is measured of them"
ROOT = "all"


def text_of(
    candidate: Candidate, draft: Draft, stated: Mapping[str, Sequence[str]], levels: Sequence[str], out: Path
) -> str:
    """Return the configuration, with stated columns as they were stated; what was not found is left to fill in."""
    # It loads numpy, whose threads are limited before that, when a command begins.
    from coco_opt.histograms.texts import is_plain_name

    lines = []
    for key, note in draft.files.items():
        header = candidate.files.get(key)
        name, missing = (f"{key}.csv", " (NOT FOUND: fill in)") if header is None else (_relative(header.path, out), "")
        lines.append(_line(key, name, note + missing))
    lines += levels
    private = [candidate.files[key].path.stem for key in draft.files if key in candidate.private]
    dataset = next(filter(is_plain_name, (stem.strip() for stem in private[:1])), "")
    mapped = _GEOMETRY if {"hierarchy", "sizes"} & set(draft.files) else ""
    config = _CONFIG.format(
        name=out.name,
        data="\n".join((*lines, *_columns(candidate, stated), *draft.data)),
        dataset=_line("dataset", dataset or "data", _DATASET),
        replaced=draft.replaced,
        section=draft.section,
    )
    return config + mapped


def level_lines(proposal: LevelProposal) -> list[str]:
    """Return the lines of [data] that name the levels, and a root where no column has it."""
    root = [] if proposal.rooted else [_line("root", ROOT, "the name of the region above all others")]
    return [_line("levels", list(proposal.levels), "columns of the hierarchy, root first: check them"), *root]


def missing_id(candidate: Candidate) -> str | None:
    """Return the name of the column that must identify persons and was not found; None where nothing is missing."""
    if candidate.persons is None:
        return None
    own, header = candidate.persons
    return own if own == "entity_id" and own not in header.columns else None


def _columns(candidate: Candidate, stated: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the line with the files' own names of columns, where these differ, and what is to be filled in."""
    names: dict[str, list[str]] = {}
    for own, by_file in candidate.names.items():
        used = dict.fromkeys(by_file.values())
        names[own] = [name for name in stated.get(own, used) if name in used]
    listed = ", ".join(
        f"{own} = {json.dumps(some if len(some) > 1 else some[0], ensure_ascii=False)}" for own, some in names.items()
    )
    lines = [f"columns = {{ {listed} }}   # of your files: check them"] if names else []
    if (missing := missing_id(candidate)) is not None:
        lines += [
            f'# {missing}: NOT FOUND. Add the column with one value for each entity to columns: {missing} = "NAME".',
            f"# Or write this file again: coco-opt init ... --columns {missing}=NAME",
        ]
    return lines


def _line(key: str, value: str | list[str], note: str) -> str:
    # JSON strings and lists of strings are valid TOML.
    return f"{f'{key} = {json.dumps(value, ensure_ascii=False)}':<29} # {note}"


def _relative(path: Path, out: Path) -> str:
    return Path(os.path.relpath(path.resolve(), out.parent.resolve())).as_posix()
