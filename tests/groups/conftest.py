"""Fixtures of tests that read tables of groups."""

from __future__ import annotations

import pytest

from coco_opt.groups.measuring.entities import PublicGroups, read_public
from tests.files.helpers import GROUPS, HIERARCHY


@pytest.fixture(scope="session")
def public(tmp_path_factory: pytest.TempPathFactory) -> PublicGroups:
    """Read the public tables of the poster's example once."""
    folder = tmp_path_factory.mktemp("public")
    (folder / "h.csv").write_text(HIERARCHY)
    (folder / "g.csv").write_text(GROUPS)
    return read_public(folder / "g.csv", folder / "h.csv")
