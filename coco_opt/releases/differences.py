"""Two releases of one kind and hierarchy, compared: what changed, and which changes are beyond noise."""

from __future__ import annotations

from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coco_opt.errors import InputError, Place
from coco_opt.files.differences import (
    COVERAGE,
    Compared,
    FrameKind,
    Side,
    as_frame,
    difference_frame,
    key_columns,
    later_path,
    most_certain,
    read_renamed,
    regions_apart,
    under_later_names,
)
from coco_opt.files.folder import read_columns, read_manifest
from coco_opt.files.unchanged import TABLE, stated_files, unchanged_manifest
from coco_opt.releases.kind import kind_named
from coco_opt.releases.manifest import date_of, title_of
from coco_opt.report.html import counted, document, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

_PUBLIC_KEYS = ("max_size", "schema", "ranges")  # of a manifest: releases that differ here count different things
_MOST_ROWS = 20  # of a level on the page: the file of all rows has the others
_MOST_NAMES = 20  # of regions that one release lacks
GUESSES = (
    "No query measured these counts: they are guesses, shared out in proportion to the measured margins, so their "
    "differences say nothing about a change."
)
NO_ERRORS = "The releases do not both state the errors of these counts: differences may be noise alone."


def differences(
    later: Any,
    earlier: Any,
    table: str | None = None,
    *,
    frame: FrameKind = "pandas",
    renamed: str | Path | None = None,
) -> Any:
    """Return what changed between two releases of one kind and hierarchy.

    ``later - earlier`` is the same for releases that were read or estimated.

    Parameters
    ----------
    later, earlier : str, Path, Estimated, or what ``read_release`` returns for groups and tables
        The releases: folders, or values in memory.
    table : str, optional
        Which table: "histograms" (groups), "tables" or "estimates" (tables of persons), "ranges"; by default the first
        of these whose noise both releases state, else the first that the kind has.
    frame : {"pandas", "polars", "arrow"}, default "pandas"
        What is returned.
    renamed : str or Path, optional
        A file with the columns ``earlier`` and ``later``: regions whose name or id has changed, each by its path from
        the root or by its id. The regions below them follow.

    Returns
    -------
    DataFrame
        A row for each region and size, cell, answer or interval that either release has: ``earlier``, ``later`` and
        ``difference``, in groups, persons or entities. Where both releases state intervals of one coverage or standard
        errors: ``lower`` and ``upper`` ends of the difference, ``beyond_noise`` (the ends exclude 0) and
        ``standard_error``. With intervals ``converged`` is false if a region's chains have not in one of the releases,
        and ``measured`` where a size was measured together with its neighbours in one of them.
        Regions that one release lacks are left out; ``coco-opt diff`` and the page name them.

    Raises
    ------
    InputError
        not-comparable (another kind, schema or largest size, no common region), unknown-table, file-not-found;
        unknown-region, duplicate-region, other-level (a row of ``renamed``).
    VerificationError
        The manifest or a table of a folder is not what was written.

    Notes
    -----
    The intervals have the coverage of the releases, or 90 % for standard errors, and assume independent noise. Each
    holds on its own: of counts that did not change, about one in ten is marked by intervals of 90 %. Source: Zou and
    Donner 2008, section 2.

    Examples
    --------
    >>> import pandas as pd
    >>> import coco_opt as co
    >>> visits = [pd.DataFrame({"value": [3, 1, 4, 1, 5] * n}) for n in (10, 30)]
    >>> first, second = (
    ...     co.estimate(co.measure(co.configure(
    ...         data={"values": each}, privacy={"epsilon": "1", "noise": "seeded", "seed": 7}, ranges={"cells": 8}
    ...     ))) for each in visits
    ... )
    >>> changes = co.differences(second, first)
    >>> bool(changes["beyond_noise"].iloc[0])
    True
    """
    for release in (later, earlier):
        if isinstance(release, str | Path):
            unchanged_manifest(Path(release))
    result = Changes(later, earlier, None if renamed is None else Path(renamed)).frame(table)
    if frame == "pandas":
        return result
    import pyarrow as pa

    return as_frame(pa.Table.from_pandas(result, preserve_index=False), frame)


class Changes:
    """What changed between two releases, as in ``differences``, of which folders have been compared with their digests.

    ``apart`` are the regions of the later release only and of the earlier one only, by their paths from the root.
    ``renamed`` are the later paths of those that were renamed, by their earlier ones, and ``moved`` the later paths of
    those of them that lie in another region than before. Raises InputError: not-comparable, and what ``read_renamed``
    does.
    """

    def __init__(self, later: Any, earlier: Any, renamed: Path | None = None) -> None:
        self._sides = _side(later), _side(earlier)
        manifests = [side.manifest for side in self._sides]
        later_kind, earlier_kind = (kind_named(str(manifest.get("kind"))) for manifest in manifests)
        if later_kind.name != earlier_kind.name:
            words = f"{later_kind.name!r} and {earlier_kind.name!r}"
            raise InputError("not-comparable", f"the releases are of different kinds, {words}: give two of one kind")
        for key in _PUBLIC_KEYS:
            if manifests[0].get(key) != manifests[1].get(key):
                message = f"the releases have another {key!r} each, so their counts mean different things"
                raise InputError("not-comparable", message)
        self.renamed: Mapping[str, str] = {}
        self.moved: list[str] = []
        if renamed is not None:
            self.renamed = paths = _later_paths(self._sides, renamed)
            earlier_side = self._sides[1]
            renamed_side = Side(earlier_side.manifest, lambda name: under_later_names(earlier_side.table(name), paths))
            self._sides = self._sides[0], renamed_side
            above = {path: path.rpartition("/")[0] for pair in paths.items() for path in pair}
            self.moved = [after for before, after in paths.items() if later_path(above[before], paths) != above[after]]
        self.apart = regions_apart(*self._sides)
        self._rows: dict[str, Compared] = {compared.table: compared for compared in later_kind.compared}
        stated = [(manifest.get("intervals") or {}).get("coverage") for manifest in manifests]
        self._coverage: float | None = stated[0] if stated[0] == stated[1] else None

    @cached_property
    def table(self) -> str | None:
        """The first table whose differences have intervals or standard errors; None without any."""
        rows = (row for row in self._rows.values() if row.error or self._coverage)
        return next((row.table for row in rows if self._has(row.table)), None)

    def frame(self, table: str | None = None) -> pd.DataFrame:
        """Return what ``differences`` does, of a table. Raises InputError (unknown-table)."""
        return difference_frame(self._compared(table or self.table), *self._sides, self._coverage)

    def are_guesses(self, table: str | None, frame: pd.DataFrame) -> bool:
        """Return whether no query measured the rows in one of the releases, and no intervals say how far they err."""
        measured = self._compared(table).measured
        return "beyond_noise" not in frame and any(side.manifest.get(measured) is False for side in self._sides)

    def noise_words(self, table: str | None, frame: pd.DataFrame, other: str) -> str:
        """Return how many of a table's differences are beyond noise and how many by chance, or why that is unknown.

        ``other`` is then said of every table with standard errors.
        """
        if "beyond_noise" not in frame:
            errors = [row.table for row in self._rows.values() if row.error and self._has(row.table)]
            unknown = GUESSES if self.are_guesses(table, frame) else NO_ERRORS
            return unknown + "".join(f" {other.format(name)}" for name in errors)
        share = COVERAGE if self._compared(table).error else self._coverage
        assert share is not None
        return (
            f"{int(frame['beyond_noise'].sum()):,} of {len(frame):,} rows compared are beyond noise: their interval of "
            f"{100 * share:g} % excludes 0. Each interval holds on its own: of counts that did not change, up to "
            f"{100 * (1 - share):.3g} % are marked by chance.{_unsettled_words(frame)}"
        )

    def regions_words(self, names: tuple[str, str], most: int = _MOST_NAMES) -> str:
        """Return which regions are left out or renamed, up to ``most`` of each, and that borders changed."""
        pairs = [f"{after} (earlier {before})" for before, after in self.renamed.items() if before != after]
        rest = f" and {len(pairs) - most:,} more" if len(pairs) > most else ""
        sentences = [f"Compared under later names: {', '.join(pairs[:most])}{rest}."] if pairs else []
        apart = [_apart_words(*self.apart, names, most)] if any(self.apart) else []
        sentences += apart + [f"{region} lies in another region than before." for region in self.moved[:most]]
        if apart or self.moved:
            sentences.append(
                "Regions that took others in, or gave them away, are compared as each release has them: their "
                "differences are changes of borders, too."
            )
        return " ".join(sentences)

    def remedy(self) -> str:
        """Return what to do about regions that only one release has; "" where either has all of the other's.

        It says how many of them have the same id in both releases, which a renamed region above them has kept apart.
        """
        if not all(self.apart):
            return ""
        same = len(set.intersection(*map(_ids_of, self._sides, self.apart)))
        found = f"Of those left out, {counted(same, 'region')} with the same id in both releases. " if same else ""
        return (
            f"{found}If a region was renamed, list its two names in a file for --renamed: it is compared then, with "
            "all regions below it."
        )

    def page(self, names: tuple[str, str]) -> str:
        """Return the page of all tables that can be compared; ``names`` are used where the titles are the same."""
        manifests = [side.manifest for side in reversed(self._sides)]
        titles = [", ".join(filter(None, (title_of(manifest), date_of(manifest)))) for manifest in manifests]
        names = (titles[0], titles[1]) if titles[0] != titles[1] else names
        title = f"{names[1]} compared with {names[0]}"
        states = zip(names, (manifest.get("status") for manifest in manifests), strict=True)
        exposed = "; ".join(f"{name} is {state}" for name, state in states if state != "private")
        public = "Both are differentially private, and comparing costs no budget."
        words = f"{names[1]} minus {names[0]}, row by row. {f'Do not publish: {exposed}.' if exposed else public}"
        sections = [
            f"<h1>{escape(title)}</h1>",
            f"<p class='banner {'exposed' if exposed else 'private'}'>{escape(words)}</p>",
        ]
        words = " ".join(filter(None, (self.regions_words((names[1], names[0])), self.remedy())))
        sections += [f"<p>{escape(words)}</p>"] if words else []
        ordered = sorted(self._rows, key=lambda name: name != self.table)  # the table of known noise comes first
        sections += [self._section(name) for name in ordered if self._has(name)]
        return document(title, sections)

    def _section(self, table: str) -> str:
        frame, title = self.frame(table), f"<h2>{escape(table.capitalize())}</h2>"
        if self.are_guesses(table, frame):
            note = f"{GUESSES} They are not compared here; coco-opt diff --table {table} lists them."
            return f"{title}\n<p>{escape(note)}</p>"
        words = self.noise_words(table, frame, "The table {} has standard errors.")
        shown = frame if has_unsettled(frame) else frame.drop(columns="converged", errors="ignore")
        by_level = shown.groupby("level_name", sort=False) if "level_name" in shown else [("", shown)]
        levels = (_level(str(level), rows) for level, rows in by_level)
        return "\n".join([title, f"<p>{escape(words)}</p>", *levels])

    def _has(self, table: str) -> bool:
        return all(side.table(table) is not None for side in self._sides)

    def _compared(self, table: str | None) -> Compared:
        chosen = next(iter(self._rows), "") if table is None else table
        if chosen not in self._rows:
            message = f"no table {table!r} can be compared: there are {', '.join(self._rows) or 'none'}"
            raise InputError("unknown-table", message)
        return self._rows[chosen]


def _side(release: Any) -> Side:
    """Return the manifest of a release and what reads its tables. Raises InputError (not-comparable)."""
    folder: Path | None = Path(release) if isinstance(release, str | Path) else getattr(release, "folder", None)
    manifest: Mapping[str, Any] | None = getattr(release, "manifest", None)
    if folder is not None and isinstance(release, str | Path):
        manifest = read_manifest(folder)
    if manifest is None:
        message = f"a {type(release).__name__} names no release: give the folders of both, or what estimate returned"
        raise InputError("not-comparable", message)
    if hasattr(release, "to_arrow"):
        return Side(manifest, lambda name: release.to_arrow(name) if name in release.tables else None)
    if folder is None:
        raise InputError("not-comparable", "this release was not read from a folder", Place("folder"))
    stated = stated_files(read_manifest(folder))
    return Side(
        manifest, lambda name: read_columns(folder / f"{name}{TABLE}", ()) if f"{name}{TABLE}" in stated else None
    )


def _later_paths(sides: tuple[Side, Side], file: Path) -> Mapping[str, str]:
    """Return the later paths of the regions that a file renames, by their earlier ones. Raises InputError."""
    later, earlier = (side.table("hierarchy") for side in sides)
    if later is None or earlier is None:
        raise InputError("not-comparable", "a release without regions has none that were renamed")
    return read_renamed(file, earlier, later)


def _apart_words(later: Sequence[str], earlier: Sequence[str], names: tuple[str, str], most: int) -> str:
    """Return which regions only one of two releases has, up to ``most`` of each by name; "" where there are none.

    Regions of the higher levels come first: those below them are apart for the same reason.
    """

    def depth(path: str) -> tuple[int, str]:  # a stroke inside a name is escaped
        return path.count("/") - path.count("\\/"), path

    sides = [(sorted(regions, key=depth), name) for regions, name in zip((later, earlier), names, strict=True)]
    parts = [
        f"{counted(len(regions), 'region')} of {name} only ({', '.join(regions[:most])}"
        f"{f' and {len(regions) - most:,} more' if len(regions) > most else ''})"
        for regions, name in sides
        if regions
    ]
    return f"Common regions are compared. Left out: {'; '.join(parts)}." if parts else ""


def _ids_of(side: Side, regions: Sequence[str]) -> set[str]:
    """Return the ids of some regions that have any."""
    table, chosen = side.table("hierarchy"), set(regions)
    if table is None or "region_id" not in table.column_names:
        return set()
    pairs = zip(table.column("region").to_pylist(), table.column("region_id").to_pylist(), strict=True)
    return {region_id for region, region_id in pairs if region_id is not None and region in chosen}


def _unsettled_words(frame: pd.DataFrame) -> str:
    """Return a sentence about regions whose chains have not converged, "" where all have."""
    if not has_unsettled(frame):
        return ""
    regions = frame.loc[~frame["converged"], "region"].nunique()
    return (
        f" The chains of {counted(regions, 'region')} have not converged in one of the releases: do not rely on the "
        'intervals of rows with "no" under "converged".'
    )


def has_unsettled(frame: pd.DataFrame) -> bool:
    """Return whether some rows are of regions whose chains have not converged."""
    return "converged" in frame and not bool(frame["converged"].all())


def _level(level: str, rows: pd.DataFrame) -> str:
    shown = most_certain(rows[rows["difference"] != 0], _MOST_ROWS)
    title = f"<h3>{escape(str(level))}</h3>" if level else ""
    changed = int((rows["difference"] != 0).sum())
    rest = "; coco-opt diff --csv writes all" if len(shown) < changed else ""
    note = f"<p class='note'>{len(shown):,} of {changed:,} rows that differ, the clearest first{rest}.</p>"
    if not changed:
        return f"{title}\n<p class='note'>No row differs.</p>"
    header, texts, numeric = shown_rows(shown)
    page = table(header, texts, numeric, stacked=True, beyond=shown.get("beyond_noise", ()))
    return f"{title}\n{note}\n{page}"


def shown_rows(frame: pd.DataFrame) -> tuple[list[str], list[list[str]], int]:
    """Return rows for reading: their header, their texts, and how many columns stand before the figures."""
    keys, noise = list(key_columns(frame)), "beyond_noise" in frame
    marks = [name for name in ("beyond_noise", "converged") if name in frame]
    header = [*keys, "earlier", "later", "difference", *(["interval"] if noise else []), *marks]
    rows = []
    for row in frame.to_dict("records"):
        texts = [*(str(row[key]) for key in keys), *(short_figure(row[name]) for name in ("earlier", "later"))]
        texts.append(short_figure(row["difference"], sign=True))
        if noise:
            texts.append(f"{short_figure(row['lower'], sign=True)} to {short_figure(row['upper'], sign=True)}")
        rows.append([*texts, *("yes" if row[mark] else "no" for mark in marks)])
    return [name.replace("_", " ") for name in header], rows, len(keys)


def short_figure(value: float, *, sign: bool = False) -> str:
    """Return a figure for reading: integers and large ones in full, others to four digits and three places."""
    in_full = abs(value) >= 1000 or float(value).is_integer()
    text = f"{round(value):{'+' if sign else ''},}" if in_full else f"{round(value, 3):{'+' if sign else ''}.4g}"
    return text if float(text.replace(",", "")) else "0"  # no sign of a zero
