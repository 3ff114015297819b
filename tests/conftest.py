"""Fixtures and settings shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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
