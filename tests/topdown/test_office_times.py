"""An office's tables with public and exact constraints: the release takes what the plan stated, and soon ends."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time

import numpy as np
import polars as pl
import pytest

from coco_opt.config import load_config
from coco_opt.releases.forecast import forecast
from coco_opt.releases.release import Outcome, release
from coco_opt.releases.verify import verify_release

TRACTS, PERSONS, HOUSEHOLDS, AGES, ORIGINS = 166, 300_000, 135_000, 21, 10
RELATIONS = np.array(["head", "spouse", "child", "relative", "other"])
SECONDS = 30.0


def office(folder: Path, exact: str, seed: int = 1) -> Path:
    """Write simulated persons of 166 tracts in five levels, and a config with ``exact`` totals by region."""
    rng = np.random.default_rng(seed)
    tract = np.arange(TRACTS)
    ids = np.array([f"T{number:03d}" for number in tract])
    names = {"nation": 10_000, "region": 54, "county": 18, "district": 6}
    levels = {name: [f"{name} {number // size}" for number in tract] for name, size in names.items()}
    pl.DataFrame({"region_id": ids, **levels, "tract": ids}).write_csv(folder / "areas.csv")
    home = np.concatenate([tract, rng.choice(TRACTS, HOUSEHOLDS - TRACTS, p=rng.dirichlet(np.full(TRACTS, 2.0)))])
    others = PERSONS - HOUSEHOLDS
    where = home[np.concatenate([np.arange(HOUSEHOLDS), rng.choice(HOUSEHOLDS, others)])]
    relation = np.concatenate([np.zeros(HOUSEHOLDS, np.int64), rng.integers(1, 5, others)])
    child = np.minimum(AGES - 1, rng.gamma(2.0, 3.0, PERSONS).astype(np.int64))
    age = np.where(relation == 0, rng.integers(4, AGES, PERSONS), child)
    persons = {
        "region_id": ids[where],
        "sex": np.array(["f", "m"])[rng.integers(0, 2, PERSONS)],
        "age": age,
        "relation": RELATIONS[relation],
        "origin": np.minimum(ORIGINS, rng.geometric(0.5, PERSONS)) - 1,
    }
    pl.DataFrame(persons).write_csv(folder / "persons.csv")
    config = folder / "config.toml"
    config.write_text(f"""
[data]
records = "persons.csv"
hierarchy = "areas.csv"
[privacy]
dataset = "office"
epsilon = "1"
neighbours = "replace"
[topdown]
attributes = {{ sex = ["f", "m"], age = "0..{AGES - 1}", relation = {json.dumps(RELATIONS.tolist())}, origin = "0..9" }}
workload = ["total", "sex * age", "relation", "detail"]
counts = {{ heads = "relation = head" }}
[[topdown.invariants]]
query = "{exact}"
level = "region"
[[topdown.constraints]]
holds = "heads >= 1"
level = "tract"
source = "public"
""")
    return config


def _release_of(folder: Path, exact: str) -> tuple[float, float, Outcome]:
    """Return the seconds that the plan states and that the release takes, and the release."""
    config = load_config(office(folder, exact))
    stated = forecast(config, rows=PERSONS).seconds  # this process is warm then, as plan's figures are
    assert stated is not None
    start = process_time()
    released = release(config)
    return stated, process_time() - start, released


@pytest.mark.slow
@pytest.mark.parametrize("exact", ["total", "sex", "sex * age"])
def test_a_release_takes_what_its_plan_stated(tmp_path: Path, exact: str) -> None:
    (tmp_path / "once").mkdir()
    (tmp_path / "again").mkdir()
    stated, actual, released = _release_of(tmp_path / "once", exact)
    if actual > min(SECONDS, 2.0 * stated):  # threads that wait for others count too, on a busy machine
        stated, actual, released = _release_of(tmp_path / "again", exact)
    assert actual <= min(SECONDS, 2.0 * stated)
    checks = verify_release(released.folder)
    assert all(check.passed for check in checks)
    implied = json.loads((released.folder / "manifest.json").read_text())["implied"]
    assert implied["method"] == ("bounds" if exact == "total" else "minimal_schema")
    assert implied["reason"]
