"""A release in memory: its tables as frames, its regions by name, its folder on request; and a folder read again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coco_opt.array_types import Ints
from coco_opt.errors import InputError
from coco_opt.files.differences import FrameKind, as_frame
from coco_opt.files.folder import (
    MANIFEST,
    REPORT,
    Content,
    FileTable,
    arrow_table,
    as_json,
    read_manifest,
    sealed,
    write_folder,
)
from coco_opt.files.regions import REGIONS, region_table
from coco_opt.releases.datapackage import DATAPACKAGE, datapackage
from coco_opt.releases.kind import AnyKind, PageWriter, Shown, kind_named
from coco_opt.releases.reporter import Reporter, default_reporter
from coco_opt.releases.storage import check_target

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Estimated:
    """A release that is not written yet: everything in it is public, except the ``truth`` of simulated data.

    ``release["nation/north"]`` is the result for a region, by its path from the root. The release exports itself as an
    Arrow stream of its first table, which pandas, Polars, Arrow and DuckDB read directly. ``files`` are its tables by
    file name, the kind's own first; ``numbers`` come from the measurement, one a region.
    """

    kind: AnyKind
    shown: Shown
    files: Mapping[str, FileTable]
    default: Path
    scratch: Path | None = None
    recorded: Callable[[str], None] | None = None
    numbers: Mapping[str, Ints] = field(default_factory=dict)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Return the public account of the release, without the digests of its files."""
        return self.shown.manifest

    @property
    def spent(self) -> str:
        """Return the line that says which privacy budget was spent."""
        return self.shown.spent

    @property
    def result(self) -> Any:
        """Return the estimate as a value of its kind."""
        return self.shown.result

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of its tables, such as "histograms", the main one first and "hierarchy" last."""
        return tuple(Path(name).stem for name in (*self.files, REGIONS))

    def __getitem__(self, region: str) -> Any:
        """Return what was released of a region, by its path from the root."""
        return self.result[region]

    def intervals(self, region: str | None = None, *, frame: FrameKind = "pandas") -> Any:
        """Return the intervals of a region by its path from the root, as the saved release does; without one, a frame.

        The ``frame`` has the rows of intervals.parquet, for all regions, in pandas, Polars ("polars") or Arrow
        ("arrow"). Raises InputError (no-intervals) where this release has none.
        """
        if region is None:
            if "intervals" not in self.tables:
                raise InputError("no-intervals", "this release has no table of intervals")
            return as_frame(self.to_arrow("intervals"), frame)
        intervals_of = getattr(self.result, "intervals_of", None)
        if intervals_of is None:
            raise InputError("no-intervals", f"a release of {self.kind.name} has no intervals of regions by this name")
        return intervals_of(region)

    def __sub__(self, earlier: Any) -> pd.DataFrame:
        """Return the differences from an earlier release of the same kind: see ``coco_opt.differences``."""
        from coco_opt.releases.differences import differences

        changes: pd.DataFrame = differences(self, earlier)
        return changes

    def unbiased(self, *regions: str) -> Any:
        """Return the unbiased counts of a region by its path from the root, or the sums of several, with variances.

        Raises InputError: no-unbiased where this release has none, not-measured, repeated-region.
        """
        unbiased_of = getattr(self.result, "unbiased_of", None)
        if unbiased_of is None:
            raise InputError("no-unbiased", f"a release of {self.kind.name} has no unbiased counts by this name")
        return unbiased_of(*regions)

    def to_arrow(self, table: str | None = None) -> pa.Table:
        """Return a table of the release, by default the main one; InputError (unknown-table)."""
        chosen = self.tables[0] if table is None else table
        if chosen not in self.tables:
            raise InputError("unknown-table", f"there is no table {chosen!r}: there are {', '.join(self.tables)}")
        by_name = {Path(name).stem: content for name, content in self._tables.items()}
        return arrow_table(by_name[chosen])

    def to_pandas(self, table: str | None = None) -> pd.DataFrame:
        """Return a table as a pandas frame; see ``to_arrow``."""
        frame: pd.DataFrame = self.to_arrow(table).to_pandas()
        return frame

    def to_polars(self, table: str | None = None) -> pl.DataFrame:
        """Return a table as a Polars frame, where Polars is installed; see ``to_arrow``."""
        frame: pl.DataFrame = as_frame(self.to_arrow(table), "polars")
        return frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the main table as an Arrow stream."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def errors(self) -> dict[str, list[float]]:
        """Return the mean error of each level, root first, by method, where the truth is known; else {}."""
        truth = self.shown.truth
        return {} if truth is None else dict(self.kind.errors(self.shown.measurement, truth, self.result))

    def save(
        self, folder: str | Path | None = None, *, page: PageWriter | None = None, reporter: Reporter | None = None
    ) -> Path:
        """Write the release folder and return its path; it appears complete or not at all.

        Parameters
        ----------
        folder : str or Path, optional
            The folder, which must not exist. By default it is in the configured output directory and is named after the
            configuration and the measurement, with a number if that name is taken.
        page : callable, optional
            Writes the HTML report: ``render_report``.
        reporter : Reporter, optional
            Receives the progress.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        InputError
            folder-exists, cannot-write.
        """
        out = None if folder is None else Path(folder)
        if out is not None:
            check_target(out)
        written, digest = self.publish(out, page=page, reporter=reporter)
        if self.recorded is not None:
            self.recorded(digest)
        return written

    def publish(
        self, out: Path | None, *, page: PageWriter | None = None, reporter: Reporter | None = None
    ) -> tuple[Path, str]:
        """Write the folder, or find a folder of the same bytes; return where it lies and its manifest's SHA-256."""
        reporter = default_reporter(reporter)
        with reporter.stage("Writing the release"):
            files: dict[str, Content] = {}
            if page is not None:
                files[REPORT] = lambda: page(self.kind, self.shown).encode("utf-8")
            files |= self._tables
            folder, numbered = self.default if out is None else out, out is None
            published = write_folder(folder, files, MANIFEST, self._index, numbered=numbered, describe=self._described)
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return published

    def _index(self, digests: Mapping[str, str]) -> bytes:
        return as_json(sealed({**self.manifest, "files": dict(digests)}))

    def _described(self, folder: Path, digests: Mapping[str, str]) -> Mapping[str, bytes]:
        return {DATAPACKAGE: datapackage(folder, self.manifest, digests)}

    @property
    def _tables(self) -> Mapping[str, FileTable]:
        return {**self.files, REGIONS: region_table(self.shown.measurement.measurement_plan, self.numbers)}

    def __repr__(self) -> str:
        hierarchy = self.shown.measurement.hierarchy
        return f"Estimated({self.kind.name}, {hierarchy!r}, {self.manifest['status']}: {', '.join(self.tables)})"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the budget spent, the certificates, and the first rows."""
        rows = self.to_arrow().slice(0, 10).to_pandas().to_html(index=False, border=0)
        solved = "; ".join(
            f"{problem}: {row['solver']}, relative gap {row['worst_relative_gap']:.2g}"
            for problem, row in self.manifest["solvers"].items()
        )
        return f"<p><b>{escape(self.spent)}</b><br>{escape(solved)}</p>{rows}"


def read_release(folder: str | Path) -> Any:
    """Read a release folder of any kind.

    Parameters
    ----------
    folder : str or Path
        The release folder.

    Returns
    -------
    Release, TablesRelease or UniversalHistogram
        As ``read_groups_release``, ``read_tables_release`` or ``read_ranges_release`` return it.

    Raises
    ------
    InputError
        file-not-found, unreadable-file, bad-manifest, unknown-kind (no such kind is installed), and what the kind says
        of its files.
    VerificationError
        The manifest or a table is not what was written.

    Notes
    -----
    Use ``verify_release`` to judge the content.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> from coco_opt import configure, read_release, release
    >>> visits = pd.DataFrame({"value": [3, 1, 4, 1, 5]})
    >>> privacy = {"epsilon": "1", "noise": "seeded", "seed": 7}
    >>> with TemporaryDirectory() as folder:
    ...     config = configure(folder=folder, data={"values": visits}, privacy=privacy, ranges={"cells": 8})
    ...     read_release(release(config).folder).cells.size
    8
    """
    folder = Path(folder)
    return kind_named(str(read_manifest(folder).get("kind"))).open(folder)
