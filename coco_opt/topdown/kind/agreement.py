"""Check that tables agree with their earlier releases: find these by digest, and compare raw columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import CocoOptError
from coco_opt.files.folder import MANIFEST, file_digest, read_columns, read_manifest
from coco_opt.files.release_checks import Check, Regions, first_of, int64_column, positions
from coco_opt.operators import Grouping
from coco_opt.privacy.cost import cost_of
from coco_opt.releases.kind import Folder
from coco_opt.releases.verify import verify_release
from coco_opt.topdown.constraint import TOTAL, counted
from coco_opt.topdown.kind.earlier_releases import spent_in_all
from coco_opt.topdown.kind.files import PERSONS, TABLES
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.table_queries import AGREES

Tables = tuple[Ints, Ints, Ints]
"""Raw rows of tables: regions by row of the regions' file, allowed cells, persons."""


def agreement_checks(folder: Folder, schema: Schema, tables: Tables) -> Iterator[Check]:
    """Yield a check for each earlier release: it is unchanged, keeps its promises, and the tables agree with it."""
    entries, budget = folder.manifest[AGREES], folder.manifest["budget"]
    if folder.manifest["spent_in_all"] != spent_in_all(cost_of(budget), budget["neighbours"], entries):
        yield Check(AGREES, passed=False, detail="what all releases cost together is not what each of them says")
    for entry in entries:
        failure = ""
        try:
            failure = _failure(folder, schema, tables, entry)
        except (CocoOptError, LookupError, TypeError, ValueError) as error:
            failure = str(error) or "what the manifest says of it is missing or wrong"
        name = entry.get("release") if isinstance(entry, Mapping) else None
        detail = f"{name!r}: {failure}" if failure else f"exactly what {name!r} published, in every region"
        yield Check(AGREES, not failure, detail)


def _failure(folder: Folder, schema: Schema, tables: Tables, entry: Mapping[str, Any]) -> str:
    places = (folder.path.absolute().parent, *folder.earlier)
    candidates = list(_candidates(places, folder.path))
    release = next((path for path in candidates if file_digest(path / MANIFEST) == entry["manifest"]), None)
    if release is None:
        changed = [path for path in candidates if _matches_entry(path, entry)]
        seen = f"; {changed[0].name} has its name and another manifest: it was edited, or made anew" if changed else ""
        return (
            f"the release that these tables agree with was not found{seen}. Restore it, or name it with --earlier DIR"
        )
    failed = [check for check in verify_release(release, folder.earlier) if not check.passed]
    if failed:
        return f"{release.name} fails a check, {failed[0].name}: {failed[0].detail}"
    manifest = read_manifest(release)
    for key in ("name", "kind", "measurement", "receipt", "private", AGREES):
        stated = entry["release"] if key == "name" else entry.get(key, [])
        if stated != manifest.get(key, []):
            return f"{release.name} is not as it is described here: {key}"
    if any(manifest["budget"].get(key) != value for key, value in entry["budget"].items()):
        return f"{release.name} did not cost what is said here"
    compare = _groups_differ if "groups" in entry else _tables_differ
    return compare(release, folder.regions, schema, tables, entry)


def _candidates(places: Sequence[Path], own: Path) -> Iterator[Path]:
    """Yield the release folders among the given folders and directly inside them."""
    for place in places:
        inside = sorted(place.iterdir()) if place.is_dir() else []
        for path in (place, *inside):
            if (path / MANIFEST).is_file() and path.absolute() != own.absolute():
                yield path


def _matches_entry(path: Path, entry: Mapping[str, Any]) -> bool:
    try:
        manifest = read_manifest(path)
    except CocoOptError:
        return False
    return bool(manifest.get("name") == entry["release"] and manifest.get("kind") == entry["kind"])


def _tables_differ(release: Path, regions: Regions, schema: Schema, tables: Tables, entry: Mapping[str, Any]) -> str:
    """Return where sums over the shared attributes differ; "" if they do not."""
    query = parse_query(" * ".join(entry["on"]) or TOTAL, schema)
    rows = read_columns(release / TABLES, ("level", "region", *entry["on"], PERSONS))
    mask = int64_column(rows, "level") == entry["level"]
    codes, size = np.zeros(np.count_nonzero(mask), np.int64), 1
    for factor in query.factors:
        code = positions(rows.column(factor.title), factor.answers)[mask]
        if (code < 0).any():
            return f"{release.name} has values of {factor.title!r} that these tables lack"
        codes, size = codes * len(factor.answers) + code, size * len(factor.answers)
    theirs = regions.at(rows.column("region"))[mask]
    if (theirs < 0).any() or not isinstance(query.operator, Grouping):
        return f"{release.name} has regions or attributes that these tables lack"
    region, cell, persons = tables
    mine = regions.level[region] == entry["level"]
    answer = query.operator.labels[cell[mine]]
    if (answer < 0).any():
        return "the shared attributes leave out persons of these tables"
    keys = np.concatenate([region[mine] * size + query.combinations[answer], theirs * size + codes])
    counts = np.concatenate([persons[mine], -int64_column(rows, PERSONS)[mask]])
    different, where = np.unique(keys, return_inverse=True)
    rest = np.zeros(different.size, np.int64)
    np.add.at(rest, where, counts)
    if not rest.any():
        return ""
    path = regions.names[int(different[first_of(rest != 0)]) // size]
    return f"{np.count_nonzero(rest):,} answers differ from {release.name}; the first lies in {path!r}"


def _groups_differ(release: Path, regions: Regions, schema: Schema, tables: Tables, entry: Mapping[str, Any]) -> str:
    """Return where persons or householders differ from those of the groups; "" if they do not."""
    from coco_opt.groups.kind.files import HISTOGRAMS

    rows = read_columns(release / HISTOGRAMS, ("level", "region", "size", "groups"))
    mask = int64_column(rows, "level") == entry["level"]
    theirs = regions.at(rows.column("region"))[mask]
    if (theirs < 0).any():
        return f"{release.name} has regions that these tables lack"
    size, groups = int64_column(rows, "size")[mask], int64_column(rows, "groups")[mask]
    most = int(read_manifest(release)["max_size"])
    level = regions.level == entry["level"]
    published = {"persons": size * groups, "householders": np.where(size > 0, groups, 0)}
    region, cell, persons = tables
    open_ended = np.zeros(level.size, np.bool_)
    open_ended[theirs[(size >= most) & (groups > 0)]] = True
    for what, conditions in entry["groups"].items():
        sums, mine = np.zeros(level.size, np.int64), np.zeros(level.size, np.int64)
        np.add.at(sums, theirs, published[what])
        np.add.at(mine, region, np.where(counted(conditions, schema)[cell], persons, 0))
        more = open_ended if what == "persons" else np.zeros(level.size, np.bool_)
        wrong = level & ((mine < sums) | ((mine > sums) & ~more))
        if wrong.any():
            path = regions.names[first_of(wrong)]
            return f"{np.count_nonzero(wrong):,} regions have other {what} than {release.name}; the first is {path!r}"
    return ""
