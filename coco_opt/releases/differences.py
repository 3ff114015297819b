"""Two releases of one kind and hierarchy, compared: what changed, and which changes are beyond noise."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coco_opt.errors import InputError, Place
from coco_opt.files.differences import (
    COVERAGE,
    Compared,
    FrameKind,
    Reader,
    Renamed,
    as_frame,
    difference_frame,
    key_columns,
    most_certain,
    regions_apart,
    renamed_release,
)
from coco_opt.files.folder import read_columns, read_manifest
from coco_opt.files.unchanged import TABLE, stated_files, unchanged_manifest
from coco_opt.kinds import kind_row
from coco_opt.releases.about import date_of, title_of
from coco_opt.releases.kind import AnyKind
from coco_opt.report.html import counted, document, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import pyarrow as pa

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
        ``standard_error``. With intervals ``converged`` is false if a region's chains have not in one of the releases.
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
    if renamed is not None:
        earlier = with_renamed(earlier, later, Path(renamed))
    result = checked_differences(later, earlier, table)
    if frame == "pandas":
        return result
    import pyarrow as pa

    return as_frame(pa.Table.from_pandas(result, preserve_index=False), frame)


def checked_differences(later: Any, earlier: Any, table: str | None) -> pd.DataFrame:
    """Return what ``differences`` does, of releases that have been compared with their digests. Raises InputError."""
    compared, coverage = _compared(later, earlier, table or table_of_known_noise(later, earlier))
    return difference_frame(compared, _reader(later, compared), _reader(earlier, compared), coverage)


def with_renamed(earlier: Any, later: Any, file: Path) -> Renamed:
    """Return an earlier release whose regions have the names of the later one, as a file says. Raises InputError."""
    return renamed_release(earlier, file, lambda release: _plain_reader(release)("hierarchy"), later)


def render_differences(later: Any, earlier: Any, names: tuple[str, str] = ("earlier", "later")) -> str:
    """Return a page of the differences of all tables that can be compared; those beyond noise are marked.

    Their titles name the releases, or ``names``, earlier first, where both have the same. Raises what ``differences``
    does.
    """
    kind, manifests = _kind(later), (_manifest(earlier), _manifest(later))
    titles = [", ".join(filter(None, (title_of(manifest), date_of(manifest)))) for manifest in manifests]
    names = (titles[0], titles[1]) if titles[0] != titles[1] else names
    title = f"{names[1]} compared with {names[0]}"
    states = [str(manifest.get("status")) for manifest in manifests]
    exposed = "; ".join(f"{name} is {state}" for name, state in zip(names, states, strict=True) if state != "private")
    public = "Both are differentially private, and comparing costs no budget."
    words = f"{names[1]} minus {names[0]}, row by row. {f'Do not publish: {exposed}.' if exposed else public}"
    sections = [
        f"<h1>{escape(title)}</h1>",
        f"<p class='banner {'exposed' if exposed else 'private'}'>{escape(words)}</p>",
    ]
    words = regions_words(*different_regions(later, earlier), (names[1], names[0]))
    words = " ".join(filter(None, (words, renamed_words(later, earlier))))
    sections += [f"<p>{escape(words)}</p>"] if words else []
    shown = table_of_known_noise(later, earlier)  # it comes first
    for compared in sorted(kind.compared, key=lambda row: row.table != shown):
        readers = _reader(later, compared), _reader(earlier, compared)
        if all(read(compared.table) is not None for read in readers):
            _, coverage = _compared(later, earlier, compared.table)
            frame = difference_frame(compared, *readers, coverage)
            guessed = are_guesses(later, earlier, compared.table, frame)
            words = noise_words(later, earlier, compared.table, frame, "The table {} has standard errors.")
            sections.append(_section(compared.table, frame, words, guessed=guessed))
    return document(title, sections)


def different_regions(later: Any, earlier: Any) -> tuple[list[str], list[str]]:
    """Return the regions of the later release only and of the earlier one only, by their paths from the root.

    Raises InputError (not-comparable) where no region is common.
    """
    return regions_apart(_reader(later), _reader(earlier))


def are_guesses(later: Any, earlier: Any, table: str | None, frame: pd.DataFrame) -> bool:
    """Return whether no query measured a table's rows in one of the releases, and no intervals say how far they err."""
    compared, _ = _compared(later, earlier, table)
    manifests = _manifest(later), _manifest(earlier)
    unmeasured = any(manifest.get(compared.measured) is False for manifest in manifests)
    return unmeasured and "beyond_noise" not in frame


def noise_words(
    later: Any,
    earlier: Any,
    table: str | None,
    frame: pd.DataFrame,
    elsewhere: str = "--table {} compares unbiased estimates, with standard errors.",
) -> str:
    """Return how many of a table's differences are beyond noise and how many by chance, or what is unknown of it.

    ``elsewhere`` names a table that states standard errors, where this one states no errors.
    """
    compared, coverage = _compared(later, earlier, table)
    if "beyond_noise" not in frame:
        unknown = GUESSES if are_guesses(later, earlier, table, frame) else NO_ERRORS
        return " ".join([unknown, *(elsewhere.format(name) for name in stated_errors(later, earlier))])
    share = COVERAGE if compared.error else coverage
    assert share is not None
    return (
        f"{int(frame['beyond_noise'].sum()):,} of {len(frame):,} rows compared are beyond noise: their interval of "
        f"{100 * share:g} % excludes 0. Each interval holds on its own: of counts that did not change, up to "
        f"{100 * (1 - share):.3g} % are marked by chance.{_unsettled_words(frame)}"
    )


def stated_errors(later: Any, earlier: Any) -> list[str]:
    """Return which tables of both releases have standard errors."""
    readers = _reader(later), _reader(earlier)
    rows = [compared for compared in _kind(later).compared if compared.error]
    return [row.table for row in rows if all(read(row.table) is not None for read in readers)]


def table_of_known_noise(later: Any, earlier: Any) -> str | None:
    """Return the first table whose differences have intervals or standard errors; None without any. InputError."""
    _compared(later, earlier, None)
    for compared in _kind(later).compared:
        present = all(_reader(release)(compared.table) is not None for release in (later, earlier))
        if present and (compared.error or _compared(later, earlier, compared.table)[1]):
            return compared.table
    return None


def _compared(later: Any, earlier: Any, table: str | None) -> tuple[Compared, float | None]:
    """Return how a table of two releases is compared, and the coverage of both's intervals; check that it can be."""
    kinds, manifests = [_kind(later), _kind(earlier)], [_manifest(later), _manifest(earlier)]
    if kinds[0].name != kinds[1].name:
        message = f"the releases are of different kinds, {kinds[0].name!r} and {kinds[1].name!r}: give two of one kind"
        raise InputError("not-comparable", message)
    for key in _PUBLIC_KEYS:
        if manifests[0].get(key) != manifests[1].get(key):
            message = f"the releases have another {key!r} each, so their counts mean different things"
            raise InputError("not-comparable", message)
    different_regions(later, earlier)
    rows = {compared.table: compared for compared in kinds[0].compared}
    chosen = next(iter(rows), "") if table is None else table
    if chosen not in rows:
        message = f"no table {table!r} can be compared: there are {', '.join(rows) or 'none'}"
        raise InputError("unknown-table", message)
    stated = [(manifest.get("intervals") or {}).get("coverage") for manifest in manifests]
    return rows[chosen], stated[0] if stated[0] == stated[1] else None


def _kind(release: Any) -> AnyKind:
    kind: AnyKind = kind_row(str(_manifest(release).get("kind"))).load()
    return kind


def _manifest(release: Any) -> Mapping[str, Any]:
    if isinstance(release, Renamed):
        return _manifest(release.release)
    if isinstance(release, str | Path):
        return read_manifest(Path(release))
    manifest = getattr(release, "manifest", None)
    if manifest is None:
        message = f"a {type(release).__name__} names no release: give the folders of both, or what estimate returned"
        raise InputError("not-comparable", message)
    stated: Mapping[str, Any] = manifest
    return stated


def _reader(release: Any, compared: Compared | None = None) -> Reader:
    """Return what reads a release's tables by name, the table of bounds with the keys that are compared."""
    read = _plain_reader(release)
    if compared is None or compared.keyed is None:
        return read
    keyed, bounds = compared.keyed, compared.bounds

    def read_keyed(name: str) -> pa.Table | None:
        table = read(name)
        return table if table is None or name != bounds else keyed(table, _manifest(release))

    return read_keyed


def _plain_reader(release: Any) -> Reader:
    if isinstance(release, Renamed):
        read = _plain_reader(release.release)
        return lambda name: release.table(read(name))
    if hasattr(release, "to_arrow"):
        return lambda name: release.to_arrow(name) if name in release.tables else None
    folder = Path(release) if isinstance(release, str | Path) else getattr(release, "folder", None)
    if folder is None:
        raise InputError("not-comparable", "this release was not read from a folder", Place("folder"))
    stated = stated_files(read_manifest(folder))
    return lambda name: read_columns(folder / f"{name}{TABLE}", ()) if f"{name}{TABLE}" in stated else None


def regions_words(later: Sequence[str], earlier: Sequence[str], names: tuple[str, str], most: int = _MOST_NAMES) -> str:
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


def renamed_words(later: Any, earlier: Any) -> str:
    """Return what to do about regions that only one release has; "" where either has all of the other's.

    It says how many of them have the same id in both releases, which a renamed region above them has kept apart.
    """
    apart = different_regions(later, earlier)
    if not all(apart):
        return ""
    sides = (_ids_of(release, set(regions)) for release, regions in zip((later, earlier), apart, strict=True))
    same = len(set.intersection(*sides))
    found = f"Of those left out, {counted(same, 'region')} with the same id in both releases. " if same else ""
    return (
        f"{found}If a region was renamed, list its two names in a file for --renamed: it is compared then, with all "
        "regions below it."
    )


def _ids_of(release: Any, regions: set[str]) -> set[str]:
    """Return the ids of some regions that have any."""
    table = _plain_reader(release)("hierarchy")
    if table is None or "region_id" not in table.column_names:
        return set()
    pairs = zip(table.column("region").to_pylist(), table.column("region_id").to_pylist(), strict=True)
    return {region_id for region, region_id in pairs if region_id is not None and region in regions}


def _section(name: str, frame: pd.DataFrame, words: str, *, guessed: bool) -> str:
    title = f"<h2>{escape(name.capitalize())}</h2>"
    if guessed:
        note = f"{GUESSES} They are not compared here; coco-opt diff --table {name} lists them."
        return f"{title}\n<p>{escape(note)}</p>"
    levels = list(dict.fromkeys(frame["level_name"])) if "level_name" in frame else [""]
    shown = frame if has_unsettled(frame) else frame.drop(columns="converged", errors="ignore")
    parts = [_level(level, shown[shown["level_name"] == level] if level else shown) for level in levels]
    return "\n".join((title, f"<p>{escape(words)}</p>", *parts))


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
