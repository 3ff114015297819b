"""The verb ledger, and how measuring meets a spent budget, a stopped run and changed data, as a user sees them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest

from coco_opt.cli.console import TerminalReporter
from coco_opt.privacy import Epsilon, Rho, Sensitivity
from coco_opt.privacy.accounting import epsilon_of_rho
from coco_opt.privacy.loss_distributions import composed
from coco_opt.releases import Progress
from tests.cli.helpers import ENTITIES, SECURE, Runner, paid, write_groups, write_sizes

ONCE = ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]


class Stopping(TerminalReporter):
    """A terminal at which the user presses Ctrl-C when the noise is about to be drawn."""

    @contextmanager
    def stage(self, label: str) -> Iterator[Progress]:
        """Show a stage, or stop."""
        if label == "Measuring":
            raise KeyboardInterrupt
        yield lambda done, total: None


def test_a_spent_budget_is_exit_3_until_more_is_granted(tmp_path: Path, coco: Runner) -> None:
    config = write_sizes(tmp_path, privacy=SECURE)
    empty = json.loads(coco("ledger", config, "--json").out)
    assert (empty["entries"], empty["runs"], empty["verified"]) == ([], [], True)
    assert coco("ledger", config, "--grant", "1").code == 3
    assert coco("release", config).code == 0
    config.write_text(config.read_text().replace("max_size = 20", "max_size = 21"))
    refused = coco("release", config, "--json")
    assert refused.code == 3
    assert "0 of 1 is left" in json.loads(refused.out)["error"]["message"]
    text = coco("ledger", config)
    for words in (*ONCE, "land", "The chain of 4 entries holds"):
        assert words in text.out
    granted = json.loads(coco("ledger", config, "--grant", "3/2", "--json").out)
    assert granted["accounts"][0].pop("together")["composition"] == "loss_distributions"
    assert granted["accounts"] == [
        {
            "dataset": "land",
            "unit": "epsilon",
            "neighbours": "add_remove",
            "promise": "neighbours differ by one entity added or removed; published exactly, without noise: the number "
            "of groups of every region",
            "total": "5/2",
            "spent": "1",
            "left": "3/2",
        }
    ]
    stated = config.with_name("stated.toml")
    stated.write_text(config.read_text().replace("[privacy]", '[privacy]\ntotal = "1"'))
    for verb in ("check", "release"):
        ran = coco(verb, stated)
        assert (ran.code, 'write total = "5/2"' in ran.out + ran.err) == (3, True)
    assert coco("release", config).code == 0
    assert len(json.loads(coco("ledger", config, "--json").out)["runs"]) == 2
    assert coco("measure", config, "--again").code == 3
    assert coco("ledger", config, "--grant", "-1").code == 2


def test_a_release_is_recognised_where_all_was_moved(tmp_path: Path, coco: Runner) -> None:
    folder = tmp_path / "before"
    folder.mkdir()
    config = write_sizes(folder, privacy=SECURE)
    assert coco("release", config, "--out", folder / "out").code == 0
    moved = folder.rename(tmp_path / "after")
    for out in ((), ("--out", moved / "out")):
        assert "Released already" in coco("release", moved / config.name, *out).out
    assert coco("release", moved / config.name, "--out", moved / "more").code == 0


def test_what_all_runs_keep_together_is_less_than_their_sum_says(tmp_path: Path, coco: Runner) -> None:
    rho = 'mechanism = "discrete_gaussian"\nrho = "1/100"\ntotal = "1"\n'
    config = write_groups(tmp_path, privacy=rho + SECURE)
    given = [
        ("max_size = 20", "max_size = 21"),
        ("max_size = 21", "max_size = 22"),
        (rho, 'epsilon = "1/10"\n'),  # pure epsilon costs epsilon^2 / 2 of rho
    ]
    assert coco("measure", config).code == 0
    for old, new in given:
        config.write_text(config.read_text().replace(old, new))
        assert coco("measure", config).code == 0
    found = json.loads(coco("ledger", config, "--json").out)
    (account,), runs = found["accounts"], found["runs"]
    spent = Fraction(3, 100) + Fraction(1, 200)
    assert Fraction(account["spent"]) == spent
    together = account["together"]
    assert (together["composition"], together["unknown_runs"]) == ("loss_distributions", [])
    levels = [Sensitivity(1, 1)] * 2
    distributions = [Rho(Fraction(1, 200)).distribution(one) for one in levels] * 3 + [
        Epsilon(Fraction(1, 20)).distribution(one) for one in levels
    ]
    known = composed([(distribution, Sensitivity(1, 1)) for distribution in distributions])
    for delta, epsilon in together["curve"].items():
        assert known.delta(Fraction(epsilon)) == pytest.approx(float(Fraction(delta)), rel=1e-3)
        assert Fraction(epsilon) < Fraction(95, 100) * epsilon_of_rho(spent, Fraction(delta))
    assert "if no query was chosen by earlier answers" in coco("ledger", config).out
    coco("ledger", config, "--forget", runs[1]["run"])
    together = json.loads(coco("ledger", config, "--json").out)["accounts"][0]["together"]
    assert (together["composition"], together["unknown_runs"]) == ("sum", [runs[1]["run"]])
    assert Fraction(together["curve"]["1/1000000"]) == epsilon_of_rho(spent, Fraction(1, 10**6))
    assert (
        f"by the sum alone: the queries of run {runs[1]['run']} are not in this private folder"
        in coco("ledger", config).out
    )


def test_a_measurement_that_is_not_the_sealed_one_tells_no_questions(tmp_path: Path, coco: Runner) -> None:
    config = write_groups(tmp_path, privacy=SECURE)
    assert coco("measure", config).code == 0
    (index,) = (tmp_path / "private" / "runs").glob("*/measurement/measurement.json")
    index.write_bytes(index.read_bytes().replace(b'"1/2"', b'"1/9"'))
    (account,) = json.loads(coco("ledger", config, "--json").out)["accounts"]
    assert account["together"]["composition"] == "sum"


def test_changed_data_are_refused_with_the_ways_on(tmp_path: Path, coco: Runner) -> None:
    config = write_groups(tmp_path, privacy=SECURE + '\ntotal = "3"')
    assert coco("release", config).code == 0
    (tmp_path / "entities.csv").write_text(ENTITIES + "e99,g1\n")
    refused = coco("release", config)
    assert refused.code == 2
    for words in ("[input-changed]", "--again", "privacy.dataset"):
        assert words in refused.errors[0]
    assert "[input-changed]" in coco("check", config).errors[0]
    assert "fits: 2 of epsilon = 3" in coco("check", config, "--again").out
    assert paid(tmp_path) == ONCE
    assert "paid now" in coco("measure", config, "--again").out
    assert paid(tmp_path) == [*ONCE, "RESERVED", "MEASURED"]
    (tmp_path / "entities.csv").write_text(ENTITIES)
    assert "Released already" in coco("release", config).out
    config.write_text(config.read_text() + '[output]\ntitle = "Homes"\n')
    assert "Released already" not in coco("release", config).out
    (tmp_path / "entities.csv").write_text(ENTITIES + "e99,g1\n")
    config.write_text(config.read_text().replace('"land"', '"land 2"'))
    renamed = coco("release", config)
    assert renamed.code == 3
    assert "knows these data as dataset 'land'" in renamed.errors[0]
    assert coco("check", config).code == 3
    assert "has no account yet" in (out := coco("check", config, "--renamed").out)
    assert "if they are of the same people as 'land', state that name as privacy.dataset" in out
    assert "paid now" in coco("measure", config, "--renamed").out
    assert coco("release", config).code == 0


def test_measurements_are_forgotten_by_a_day(tmp_path: Path, coco: Runner) -> None:
    config = write_groups(tmp_path, privacy=SECURE)
    assert coco("release", config).code == 0
    (run,) = json.loads(coco("ledger", config, "--forget-before", "2020-01-01", "--json").out)["runs"]
    assert run["estimable"]
    (run,) = json.loads(coco("ledger", config, "--forget-before", "2999-01-01", "--json").out)["runs"]
    assert not run["estimable"]
    assert "not in this private folder" in coco("ledger", config).out
    assert "[measurement-gone]" in coco("release", config).errors[0]
    assert "write a day" in coco("ledger", config, "--forget-before", "yesterday").errors[0]


def test_a_broken_chain_is_shown_and_exit_1(tmp_path: Path, coco: Runner) -> None:
    config = write_sizes(tmp_path, privacy=SECURE)
    assert coco("release", config, "--out", tmp_path / "out").code == 0
    connection = sqlite3.connect(tmp_path / "private" / "ledger.sqlite")
    connection.execute("DROP TRIGGER no_update")
    connection.execute("UPDATE entries SET amount = '1/1000' WHERE kind = 'RESERVED'")
    connection.commit()
    connection.close()
    ran = coco("ledger", config)
    assert ran.code == 1
    assert "RELEASED" in ran.out
    assert "entry 2 of the ledger does not match its hash" in ran.errors[0]
    assert json.loads(coco("ledger", config, "--json").out)["verified"] is False
    assert coco("release", config).code == 3
    verified = coco("verify", tmp_path / "out", "--ledger", config)
    assert verified.code == 1
    assert "checks failed: paid" in verified.errors[0]


def test_an_interrupted_run_is_resumed_or_given_up(
    tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_sizes(tmp_path, privacy=SECURE + '\ntotal = "2"')
    with monkeypatch.context() as patch:
        patch.setattr("coco_opt.cli.release.TerminalReporter", Stopping)
        assert coco("release", config).code == 130
        (run,) = json.loads(coco("ledger", config, "--json").out)["runs"]
        assert (run["state"], run["estimable"]) == ("RESERVED", False)
        assert "not measured yet: going on is free" in coco("ledger", config).out
    assert json.loads(coco("release", config, "--json").out)["run"] == run["run"]
    assert paid(tmp_path) == ONCE

    config.write_text(config.read_text().replace("max_size = 20", "max_size = 21"))
    with monkeypatch.context() as patch:
        patch.setattr("coco_opt.cli.release.TerminalReporter", Stopping)
        assert coco("release", config).code == 130
    (key,) = tmp_path.glob("private/runs/*/key")
    assert coco("ledger", config, "--abandon", "nobody").code == 3
    assert coco("ledger", config, "--forget", key.parent.name).code == 3
    assert coco("ledger", config, "--abandon", key.parent.name).code == 0
    assert not key.exists()
    assert "given up" in coco("ledger", config).out
    refused = coco("release", config)
    assert refused.code == 3
    assert "0 of 2 is left" in refused.errors[0]


def test_a_total_below_what_is_asked_is_refused_before_any_table_is_opened(tmp_path: Path, coco: Runner) -> None:
    ran = coco("check", write_groups(tmp_path, privacy=SECURE + '\ntotal = "1/2"'))
    assert ran.code == 2
    assert "[privacy.total] is 1/2, less than the" in ran.err
