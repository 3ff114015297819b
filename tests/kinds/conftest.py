"""A package with a kind of release, estimators and a solver, installed for the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coco_opt.estimators import estimator_rows
from coco_opt.kinds import kind_rows
from coco_opt.registry import backends
from tests.cli.conftest import coco as coco

PACKAGE = Path(__file__).parent / "toy_package"


@pytest.fixture
def toy_package() -> Iterator[None]:
    """Install the package for one test, as pip would: a folder with its metadata on the path."""
    sys.path.insert(0, str(PACKAGE))
    for rows in (kind_rows, estimator_rows, backends):
        rows.cache_clear()
    yield
    sys.path.remove(str(PACKAGE))
    for rows in (kind_rows, estimator_rows, backends):
        rows.cache_clear()
