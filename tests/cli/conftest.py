"""The runner of the command line."""

from __future__ import annotations

import pytest

from tests.cli.helpers import Runner


@pytest.fixture
def coco(capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(capsys)
