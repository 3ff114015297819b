"""Fixtures and settings shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings

from tests.files.helpers import Write

settings.register_profile("coco", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coco")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data sets, or skip where it is absent."""
    folder = Path(os.environ.get("COCO_OPT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("real data sets are not on this machine (set COCO_OPT_DATA to their folder)")
    return folder


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
