"""Fixtures that write small input files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.tables import PublicTables, read_public
from tests.tables.helpers import GROUPS, HIERARCHY, Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write text or bytes to a file in a fresh folder and return its path."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.fixture
def parquet(tmp_path: Path) -> Write:
    """Write columns to a Parquet file with page checksums and return its path."""

    def write_parquet(name: str, columns: dict[str, object] | pa.Table) -> Path:
        path = tmp_path / name
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pq.write_table(table, path, write_page_checksum=True)
        return path

    return write_parquet


@pytest.fixture(scope="session")
def public(tmp_path_factory: pytest.TempPathFactory) -> PublicTables:
    """Read the public tables of the poster's example once."""
    folder = tmp_path_factory.mktemp("public")
    (folder / "h.csv").write_text(HIERARCHY)
    (folder / "g.csv").write_text(GROUPS)
    return read_public(folder / "g.csv", folder / "h.csv")
