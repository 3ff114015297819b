"""A whole release: every method keeps its promises, budgets are exact, and what is private stays out of the public."""

from __future__ import annotations

import json
import os
import stat
from fractions import Fraction
from pathlib import Path

import pytest

from coco_opt import Config, read_groups_release
from coco_opt.errors import BudgetError, InputError, ProblemError
from coco_opt.groups.measuring.sizes import read_sizes
from coco_opt.groups.queries import QUERIES, sensitivity
from coco_opt.privacy import NEIGHBOURS, Ledger, Neighbours
from coco_opt.privacy.accounting import epsilon_of_rho, rho_of_epsilon_delta
from coco_opt.releases import Outcome, release, render_report, verify_release
from coco_opt.releases.kind import Truth
from coco_opt.releases.verify import budget_check
from tests.groups.helpers import config_of
from tests.releases.towns import Watch

SEEDED = 'epsilon = "1"\nnoise = "seeded"\nseed = 9\n'
RHO = 'mechanism = "discrete_gaussian"\nrho = "1/2"\nnoise = "seeded"\nseed = 9\n'


def sized(folder: Path, privacy: str = SEEDED, more: str = "", **groups: object) -> Config:
    """Return a configuration over a table of counts."""
    return config_of(folder, budget="", privacy=privacy, more=more, **groups)


def held(outcome: Outcome) -> list[str]:
    """Return the names of the checks, all of which must pass."""
    checks = verify_release(outcome.folder)
    assert [check for check in checks if not check.passed] == []
    return [check.name for check in checks]


def errors(outcome: Outcome, folder: Path) -> list[float]:
    """Return the errors of a release by level."""
    from coco_opt.histograms import errors_by_level

    truth = read_sizes(folder / "sizes.csv").histograms()
    assert outcome.estimate is not None
    return errors_by_level(outcome.estimate.result.hierarchy, outcome.estimate.result.histograms, truth).tolist()


@pytest.mark.parametrize("consistency", ["matching", "bottom_up", "none"])
@pytest.mark.parametrize("loss", ["l1", "l2"])
@pytest.mark.parametrize("query", QUERIES)
def test_every_method_keeps_its_promises(query: str, loss: str, consistency: str, tmp_path: Path) -> None:
    outcome = release(sized(tmp_path, query=query, loss=loss, consistency=consistency), tmp_path / "out")
    assert ("children_sum_to_parents" in held(outcome)) == (consistency != "none")
    assert read_groups_release(tmp_path / "out").hierarchy.regions == 4
    kinds = {"sizes": {"simplex_projection", "controlled_rounding"}}.get(query, {f"isotonic_{loss}"})
    if consistency == "matching":
        kinds = kinds | {"group_matching"}
    assert set(outcome.manifest["solvers"]) == kinds


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("query", QUERIES)
def test_gaussian_noise_is_charged_in_rho(query: str, neighbours: Neighbours, tmp_path: Path) -> None:
    config = sized(tmp_path, f'{RHO}split = ["1/5", "4/5"]\nneighbours = "{neighbours}"\n', query=query)
    outcome = release(config, tmp_path / "out", page=render_report)
    held(outcome)
    budget, delta = outcome.manifest["budget"], Fraction(1, 10**6)
    assert budget["rho"] == "1/2"
    assert not {"epsilon", "asked"} & set(budget)
    assert Fraction(budget["implied"]["epsilon"]) < epsilon_of_rho(Fraction(1, 2), delta)
    assert budget["implied"]["curve"]["1/1000000"] == budget["implied"]["epsilon"]
    squared = sensitivity(query, neighbours).l2_squared  # type: ignore[arg-type]
    for level_query, rho in zip(budget["questions"], (Fraction(1, 10), Fraction(2, 5)), strict=True):
        assert level_query["cost"] == {"rho": str(rho)}
        assert level_query["variance"] == str(squared / (2 * rho))


def test_epsilon_and_delta_become_the_largest_rho_that_their_questions_may_cost(tmp_path: Path) -> None:
    delta = Fraction(1, 10**9)
    pair = f'mechanism = "discrete_gaussian"\nepsilon = "1"\ndelta = "{delta}"\nnoise = "seeded"\nseed = 1'
    manifest = release(sized(tmp_path, pair), tmp_path / "out").manifest
    assert budget_check(manifest).passed
    for section in (manifest["budget"]["asked"], manifest["config"]["privacy"]):
        assert section["epsilon"] == "1"
        section["epsilon"] = "9/10"  # better than what was bought
    assert "beyond the (9/10, " in budget_check(manifest).detail
    budget = manifest["budget"]
    budget["asked"]["epsilon"] = "1"
    assert "differ in the (epsilon, delta)" in budget_check(manifest).detail
    rho = Fraction(budget["rho"])
    assert Fraction(11, 10) < rho / rho_of_epsilon_delta(Fraction(1), delta) < Fraction(13, 10)
    assert budget["asked"] == {"epsilon": "1", "delta": str(delta)}
    assert Fraction(9_999, 10**4) < Fraction(budget["implied"]["epsilon"]) <= 1


def test_a_total_of_rho_pays_for_both_mechanisms(tmp_path: Path) -> None:
    gaussian = 'dataset = "towns"\nmechanism = "discrete_gaussian"\nrho = "1/2"\ntotal = "5/8"\n'
    assert release(sized(tmp_path, gaussian), tmp_path / "one").paid
    assert release(sized(tmp_path, 'dataset = "towns"\nepsilon = "1/2"'), tmp_path / "two").paid
    account = Ledger(tmp_path / "private" / "ledger.sqlite").books().accounts["towns"]
    assert (account.unit, account.spent, account.remaining) == ("rho", Fraction(5, 8), Fraction(0))
    with pytest.raises(BudgetError, match="0 of 5/8 is left"):
        release(sized(tmp_path, 'dataset = "towns"\nepsilon = "1/4"'), tmp_path / "three")


def test_the_same_seed_writes_the_same_public_files(tmp_path: Path) -> None:
    folders = [release(sized(tmp_path), tmp_path / name, page=render_report).folder for name in ("one", "two")]
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes(), path.name


def test_what_is_private_stays_in_the_private_record(tmp_path: Path) -> None:
    watch = Watch()
    outcome = release(sized(tmp_path), reporter=watch, page=render_report)
    assert outcome.record is not None
    assert outcome.folder.parent == tmp_path / "releases"
    assert outcome.folder.name.startswith("towns-")
    assert os.name != "posix" or stat.S_IMODE(outcome.record.stat().st_mode) == 0o600
    assert os.name != "posix" or stat.S_IMODE(outcome.record.parent.stat().st_mode) == 0o700
    record = json.loads(outcome.record.read_text())
    assert record["identity"]["rows_read"] == record["identity"]["rows_counted"] == 15
    assert set(record["seconds"]) >= {"read_public", "read_private", "estimate", "write"}
    manifest = (outcome.folder / "manifest.json").read_text()
    for word in ("seconds", "rows", "identity", str(tmp_path), "sizes.csv"):
        assert word not in manifest


def test_no_truth_beside_a_private_release(tmp_path: Path) -> None:
    config = sized(tmp_path, 'dataset = "towns"\nepsilon = "1"')
    with pytest.raises(ProblemError, match="truth"):
        release(config, tmp_path / "out", truth=Truth(read_sizes(tmp_path / "sizes.csv")))
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "private").exists()  # nothing was paid for it
    outcome = release(config, tmp_path / "out")
    assert outcome.manifest["status"] == "private"
    assert outcome.estimate is not None
    assert outcome.estimate.spent.startswith("PRIVATE: epsilon = 1 spent")
    assert outcome.estimate.errors() == {}


def test_what_is_no_release_is_said_to_be_none(tmp_path: Path) -> None:
    (check,) = verify_release(tmp_path)
    assert not check.passed
    with pytest.raises(InputError):
        read_groups_release(tmp_path)
