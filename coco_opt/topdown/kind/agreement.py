"""Check that tables agree with the earlier releases their manifest binds: found by digest, compared by raw columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.errors import CocoOptError
from coco_opt.files.checked import Check, Regions, first_of, int64_column, positions
from coco_opt.files.folder import MANIFEST, file_digest, read_columns, read_manifest
from coco_opt.histograms.arrays import Int64Array
from coco_opt.operators import Grouping
from coco_opt.privacy.cost import cost_of
from coco_opt.releases.kind import Folder
from coco_opt.releases.verify import verify_release
from coco_opt.topdown.constraint import TOTAL, counted
from coco_opt.topdown.kind.earlier import spent_in_all
from coco_opt.topdown.kind.files import PERSONS, TABLES
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.questions import AGREES
from coco_opt.topdown.schema import Schema

Tables = tuple[Int64Array, Int64Array, Int64Array]
"""Raw rows of tables: regions by row of the regions' file, allowed cells, persons."""


def agreement_checks(folder: Folder, schema: Schema, tables: Tables) -> Iterator[Check]:
    """Yield a check for every earlier release: it is there, unchanged, holds its promises, and the tables keep it."""
    said, budget = folder.manifest[AGREES], folder.manifest["budget"]
    if folder.manifest["spent_in_all"] != spent_in_all(cost_of(budget), budget["neighbours"], said):
        yield Check(AGREES, passed=False, detail="what all releases cost together is not what each of them says")
    for one in said:
        failure = ""
        try:
            failure = _failure(folder, schema, tables, one)
        except (CocoOptError, LookupError, TypeError, ValueError) as error:
            failure = str(error) or "what the manifest says of it is missing or wrong"
        name = one.get("release") if isinstance(one, Mapping) else None
        detail = f"{name!r}: {failure}" if failure else f"exactly what {name!r} published, in every region"
        yield Check(AGREES, not failure, detail)


def _failure(folder: Folder, schema: Schema, tables: Tables, one: Mapping[str, Any]) -> str:
    places = (folder.path.absolute().parent, *folder.earlier)
    candidates = list(_candidates(places, folder.path))
    found = next((path for path in candidates if file_digest(path / MANIFEST) == one["manifest"]), None)
    if found is None:
        changed = [path for path in candidates if _named(path, one)]
        seen = f"; {changed[0].name} has its name and another manifest: it was edited, or made anew" if changed else ""
        return (
            f"the release that these tables agree with was not found{seen}. Restore it, or name it with --earlier DIR"
        )
    failed = [check for check in verify_release(found, folder.earlier) if not check.passed]
    if failed:
        return f"{found.name} fails a check, {failed[0].name}: {failed[0].detail}"
    manifest = read_manifest(found)
    for key in ("name", "kind", "measurement", "receipt", "private", AGREES):
        stated = one["release"] if key == "name" else one.get(key, [])
        if stated != manifest.get(key, []):
            return f"{found.name} is not as it is described here: {key}"
    if any(manifest["budget"].get(key) != value for key, value in one["budget"].items()):
        return f"{found.name} did not cost what is said here"
    compare = _groups_differ if "groups" in one else _tables_differ
    return compare(found, folder.regions, schema, tables, one)


def _candidates(places: Sequence[Path], own: Path) -> Iterator[Path]:
    """Yield the release folders among some folders and in them."""
    for place in places:
        inside = sorted(place.iterdir()) if place.is_dir() else []
        for path in (place, *inside):
            if (path / MANIFEST).is_file() and path.absolute() != own.absolute():
                yield path


def _named(path: Path, one: Mapping[str, Any]) -> bool:
    try:
        manifest = read_manifest(path)
    except CocoOptError:
        return False
    return bool(manifest.get("name") == one["release"] and manifest.get("kind") == one["kind"])


def _tables_differ(found: Path, regions: Regions, schema: Schema, tables: Tables, one: Mapping[str, Any]) -> str:
    """Return where sums over the shared attributes differ, "" for nowhere."""
    query = parse_query(" * ".join(one["on"]) or TOTAL, schema)
    rows = read_columns(found / TABLES, ("level", "region", *one["on"], PERSONS))
    here = int64_column(rows, "level") == one["level"]
    codes, size = np.zeros(np.count_nonzero(here), np.int64), 1
    for factor in query.factors:
        code = positions(rows.column(factor.title), factor.answers)[here]
        if (code < 0).any():
            return f"{found.name} has values of {factor.title!r} that these tables lack"
        codes, size = codes * len(factor.answers) + code, size * len(factor.answers)
    theirs = regions.at(rows.column("region"))[here]
    if (theirs < 0).any() or not isinstance(query.operator, Grouping):
        return f"{found.name} has regions or attributes that these tables lack"
    region, cell, persons = tables
    mine = regions.level[region] == one["level"]
    answer = query.operator.labels[cell[mine]]
    if (answer < 0).any():
        return "the shared attributes leave out persons of these tables"
    keys = np.concatenate([region[mine] * size + query.kept[answer], theirs * size + codes])
    counts = np.concatenate([persons[mine], -int64_column(rows, PERSONS)[here]])
    different, where = np.unique(keys, return_inverse=True)
    rest = np.zeros(different.size, np.int64)
    np.add.at(rest, where, counts)
    if not rest.any():
        return ""
    path = regions.names[int(different[first_of(rest != 0)]) // size]
    return f"{np.count_nonzero(rest):,} answers differ from {found.name}; the first lies in {path!r}"


def _groups_differ(found: Path, regions: Regions, schema: Schema, tables: Tables, one: Mapping[str, Any]) -> str:
    """Return where persons, or householders, are not those of the groups, "" for nowhere."""
    from coco_opt.groups.kind.files import HISTOGRAMS

    rows = read_columns(found / HISTOGRAMS, ("level", "region", "size", "groups"))
    here = int64_column(rows, "level") == one["level"]
    theirs = regions.at(rows.column("region"))[here]
    if (theirs < 0).any():
        return f"{found.name} has regions that these tables lack"
    size, groups = int64_column(rows, "size")[here], int64_column(rows, "groups")[here]
    most = int(read_manifest(found)["max_size"])
    level = regions.level == one["level"]
    published = {"persons": size * groups, "householders": np.where(size > 0, groups, 0)}
    region, cell, persons = tables
    open_ended = np.zeros(level.size, np.bool_)
    open_ended[theirs[(size >= most) & (groups > 0)]] = True
    for what, conditions in one["groups"].items():
        sums, mine = np.zeros(level.size, np.int64), np.zeros(level.size, np.int64)
        np.add.at(sums, theirs, published[what])
        np.add.at(mine, region, np.where(counted(conditions, schema)[cell], persons, 0))
        more = open_ended if what == "persons" else np.zeros(level.size, np.bool_)
        wrong = level & ((mine < sums) | ((mine > sums) & ~more))
        if wrong.any():
            path = regions.names[first_of(wrong)]
            return f"{np.count_nonzero(wrong):,} regions have other {what} than {found.name}; the first is {path!r}"
    return ""
