"""What an experiment states for programs."""

from __future__ import annotations

import json

from coco_experiments.outcome import Outcome, Table


def test_numbers_that_are_not_finite_are_null_in_json() -> None:
    table = Table.of("Gaps", [{"solver": "short", "gap": float("inf")}, {"solver": "sound", "gap": 0.5}])
    record = Outcome((table,)).record("bench/gaps")
    assert json.loads(json.dumps(record, allow_nan=False))["tables"][0]["rows"] == [
        {"solver": "short", "gap": None},
        {"solver": "sound", "gap": 0.5},
    ]
