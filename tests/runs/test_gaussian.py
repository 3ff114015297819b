"""Releases with discrete Gaussian noise: charged in rho, of the right variance, resumed bit for bit."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from coco_opt.choices import SolverChoices
from coco_opt.cli import main
from coco_opt.config import Config, load_config
from coco_opt.errors import BudgetError, ProblemError
from coco_opt.groups import FitOptions, estimate
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import (
    Measurement,
    NoiseStream,
    OpenDPNoise,
    Query,
    RunKey,
    SecureNoise,
    SeededNoise,
    epsilon_of_rho,
    measure,
    rho_of_epsilon_delta,
    squared_sensitivity,
)
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.seal import seal, unseal
from coco_opt.report import render_report
from coco_opt.runs import release as module
from coco_opt.runs import run_release
from coco_opt.runs.publish import folder_digest
from coco_opt.runs.release import errors_by_level
from coco_opt.tables import read_sizes, verify_release

SIZES = "nation,state,size,groups\n" + "".join(
    f"land,{state},{size},{groups}\n"
    for state, counts in (("north", (2, 30, 21, 9, 1)), ("south", (0, 12, 40, 3, 2)), ("east", (1, 5, 2, 2, 0)))
    for size, groups in enumerate(counts)
)
SEEDED = 'noise = "seeded"\nseed = 9\n'
RHO = 'rho = "1/2"\n'
DATA = CountOfCounts.from_runs([1, 2, 5], [20, 30, 4])


def config(folder: Path, privacy: str = SEEDED + RHO, groups: str = "max_size = 12") -> Path:
    """Write a table and a configuration with discrete Gaussian noise; return the configuration."""
    (folder / "sizes.csv").write_text(SIZES)
    path = folder / "towns.toml"
    mechanism = 'mechanism = "discrete_gaussian"\n'
    path.write_text(f'[data]\nsizes = "sizes.csv"\n[privacy]\n{mechanism}{privacy}\n[groups]\n{groups}\n')
    return path


def settings(folder: Path, privacy: str = SEEDED + RHO, groups: str = "max_size = 12") -> Config:
    return load_config(config(folder, privacy, groups))


def gaussian(query: Query, source: Any = None, **more: Any) -> Measurement:
    facts: dict[str, Any] = {"region": "us", "groups": DATA.groups, "max_size": 9, "neighbours": "add_remove"}
    facts |= {"rho": Fraction(1, 8), "loss": "l2", **more}
    return measure(DATA, query, source=SeededNoise(3) if source is None else source, **facts)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("estimator", ["naive", "rank", "cumulative"])
def test_a_release_states_its_rho_and_keeps_its_promises(estimator: Query, neighbours: Any, tmp_path: Path) -> None:
    privacy = f'{SEEDED}{RHO}split = ["1/5", "4/5"]\nneighbours = "{neighbours}"\n'
    chosen = settings(tmp_path, privacy, f'max_size = 12\nestimator = "{estimator}"')
    outcome = run_release(chosen, tmp_path / "out", page=render_report)
    assert [check for check in verify_release(outcome.folder) if not check.passed] == []
    budget, delta = outcome.manifest["budget"], Fraction(1, 10**6)
    assert (budget["mechanism"], budget["rho"]) == ("discrete_gaussian", "1/2")
    assert not {"epsilon", "asked"} & set(budget)
    assert budget["implied"]["delta"] == str(delta)
    assert budget["implied"]["epsilon"] == str(epsilon_of_rho(Fraction(1, 2), delta))
    assert budget["implied"]["renyi"]["4"] == "2"
    squared = squared_sensitivity(estimator, neighbours)
    shares = (Fraction(1, 10), Fraction(2, 5))
    for row, rho in zip(budget["levels"], shares, strict=True):
        assert row == {"level": row["level"], "rho": str(rho), "noise_variance": str(squared / (2 * rho))}
    assert outcome.page.measurements.spent == Fraction(1, 2)
    assert "NOT PRIVATE: seeded noise as for rho = 1/2" in outcome.spent
    page = (outcome.folder / "report.html").read_text(encoding="utf-8")
    assert "noise variance" in page
    assert "noise scale" not in page


def test_epsilon_and_delta_become_the_largest_rho_that_implies_them(tmp_path: Path) -> None:
    delta = Fraction(1, 10**9)
    outcome = run_release(settings(tmp_path, SEEDED + 'epsilon = "1"\ndelta = "1/1000000000"'), tmp_path / "out")
    budget = outcome.manifest["budget"]
    rho = Fraction(budget["rho"])
    assert rho == rho_of_epsilon_delta(Fraction(1), delta)
    assert budget["asked"] == {"epsilon": "1", "delta": str(delta)}
    implied = Fraction(budget["implied"]["epsilon"])
    assert Fraction(999_999, 10**6) < implied <= 1
    assert epsilon_of_rho(rho * Fraction(1001, 1000), delta) > 1
    assert sum(Fraction(level["rho"]) for level in budget["levels"]) == rho


@pytest.mark.parametrize("source", [SeededNoise, SecureNoise])
def test_the_noise_has_the_variance_that_rho_asks(source: Any) -> None:
    cells, rho = 200_000, Fraction(1, 50)
    noise = source(4) if source is SeededNoise else source(RunKey(bytes(range(32))))
    answer = gaussian("naive", noise, max_size=cells - 1, rho=rho, neighbours="replace")
    assert answer.variance == Fraction(6) / (2 * rho) == 150
    drawn = (answer.values - DATA.to_dense(cells - 1)).astype(np.float64)
    # Standard errors of a normal sample's mean, variance and fourth moment over variance^2.
    assert abs(drawn.mean()) < 5 * np.sqrt(150 / cells)
    assert abs(drawn.var() / 150 - 1) < 5 * np.sqrt(2 / cells)
    assert abs((drawn**4).mean() / 150**2 - 3) < 5 * np.sqrt(96 / cells)


def test_estimates_build_on_the_noise_variance() -> None:
    solvers, fit = SolverChoices(), FitOptions(loss="l2")
    naive, cumulative, rank = (
        estimate(gaussian(query, rho=Fraction(50)), fit, solvers) for query in ("naive", "cumulative", "rank")
    )
    assert gaussian("rank", rho=Fraction(50)).variance == Fraction(1, 100)
    for found, cell in ((naive, 0.02), (cumulative, 0.02), (rank, 0.01)):
        np.testing.assert_allclose(found.variances * found.counts, cell)


def test_pooled_and_raw_ranks_agree() -> None:
    solvers, fit = SolverChoices(), FitOptions(loss="l2")
    raw, pooled = (gaussian("rank", raw_limit=limit) for limit in (10**6, 10))
    assert pooled.pooled
    assert not raw.pooled
    one, other = estimate(raw, fit, solvers), estimate(pooled, fit, solvers)
    np.testing.assert_array_equal(np.repeat(one.sizes, one.counts), np.repeat(other.sizes, other.counts))


def test_opendp_draws_it_too() -> None:
    answer = gaussian("cumulative", OpenDPNoise(), max_size=2000, rho=Fraction(1, 8))
    drawn = answer.values - DATA.cumulative(2000)[:-1]
    assert answer.private
    assert abs(drawn.var() / 4 - 1) < 5 * np.sqrt(2 / 2000)


class LaplaceOnly:
    """A source of geometric noise alone, as sources written before the other law was known."""

    name: ClassVar[str] = "laplace only"
    private: ClassVar[bool] = False

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        raise AssertionError("no noise may be drawn")


def test_what_is_not_one_budget_or_one_law_is_refused() -> None:
    with pytest.raises(ProblemError, match="draws no discrete Gaussian"):
        gaussian("rank", LaplaceOnly())
    for wrong in ({"rho": None}, {"epsilon": Fraction(1)}):
        with pytest.raises(ProblemError, match="either epsilon"):
            gaussian("rank", **wrong)
    with pytest.raises(ProblemError, match="variance must be"):
        gaussian("rank", rho=Fraction(1, 2**90))
    answer = gaussian("rank")
    for name in ("epsilon", "scale"):
        with pytest.raises(ProblemError, match="rho and a variance"):
            getattr(answer, name)
    assert "rho=1/8" in repr(answer)
    assert "variance 4" in repr(answer)


def test_a_sealed_release_comes_back(tmp_path: Path) -> None:
    before = run_release(settings(tmp_path), tmp_path / "out").page.measurements
    digest = seal(before, tmp_path / "sealed")
    after, _ = unseal(tmp_path / "sealed", digest)
    assert (after.mechanism, after.amounts, after.unit) == ("discrete_gaussian", before.amounts, "rho")
    for one, other in zip(before, after, strict=True):
        assert one is not None
        assert other is not None
        assert (one.parameter, one.amount, one.mechanism) == (other.parameter, other.amount, other.mechanism)
        np.testing.assert_array_equal(one.values, other.values)
    with pytest.raises(ProblemError, match="rho implies no pure epsilon"):
        _ = after.epsilon_spent


def private(folder: Path, more: str = "", amount: str = RHO) -> Config:
    return settings(folder, f'dataset = "towns"\n{amount}{more}')


def test_a_private_release_is_charged_in_rho_once(tmp_path: Path) -> None:
    outcome = run_release(private(tmp_path), tmp_path / "out")
    assert "PRIVATE: rho = 1/2 spent (1/4 at each of 2 levels), zCDP: epsilon at most 5." in outcome.spent
    book = Ledger(tmp_path / "private" / "ledger.sqlite")
    account = book.books().accounts["towns"]
    assert account.unit == "rho"
    assert (account.spent, account.left) == (Fraction(1, 2), Fraction(0))
    with pytest.raises(BudgetError, match="0 of 1/2 is left"):
        run_release(private(tmp_path), tmp_path / "again")


def test_a_total_of_rho_pays_for_both_mechanisms(tmp_path: Path) -> None:
    run_release(private(tmp_path, 'total = "5/8"\n'), tmp_path / "one")
    path = config(tmp_path, 'dataset = "towns"\nepsilon = "1/2"')
    path.write_text(path.read_text().replace('mechanism = "discrete_gaussian"', 'mechanism = "geometric"'))
    run_release(load_config(path), tmp_path / "two")
    account = Ledger(tmp_path / "private" / "ledger.sqlite").books().accounts["towns"]
    assert account.unit == "rho"
    assert (account.spent, account.left) == (Fraction(5, 8), Fraction(0))


@pytest.mark.parametrize("where", ["measure_hierarchy", "estimate_groups", "publish"])
def test_an_interrupted_release_is_resumed_bit_for_bit(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunKey, "generate", lambda: RunKey(bytes(range(32))))
    amount = 'epsilon = "1"\ndelta = "1/1000000"\n'

    def stop(*_: object, **__: object) -> Any:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(module, where, stop)
        with pytest.raises(InterruptedError):
            run_release(private(tmp_path, amount=amount))
    resumed = run_release(private(tmp_path, amount=amount))
    entries = Ledger(tmp_path / "private" / "ledger.sqlite").entries()
    assert [entry.kind for entry in entries] == ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]
    other = tmp_path / "other"
    other.mkdir()
    straight = run_release(private(other, amount=amount))
    assert folder_digest(straight.folder) == folder_digest(resumed.folder)


def test_a_large_rho_returns_the_truth(tmp_path: Path) -> None:
    outcome = run_release(settings(tmp_path, SEEDED + 'rho = "2000"'), tmp_path / "out")
    truth = read_sizes(tmp_path / "sizes.csv").histograms()
    assert errors_by_level(outcome.result.hierarchy, truth, outcome.result.histograms) == [0.0, 0.0]


def test_the_plan_speaks_of_rho(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(config(tmp_path))
    assert main(["plan", path, "--json", "--runs", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rho"] == "1/2"
    assert found["implied"]["epsilon"] == str(epsilon_of_rho(Fraction(1, 2), Fraction(1, 10**6)))
    assert [(row["rho"], row["noise_variance"]) for row in found["levels"]] == [("1/4", "2"), ("1/4", "2")]
    unsplit = [one for one in found["predictions"] if (one["method"], one["split"]) == ("none", "uniform")]
    assert unsplit[0]["exact"]
    np.testing.assert_allclose(unsplit[0]["errors"], np.sqrt(2))
    assert main(["plan", path, "--runs", "1"]) == 0
    said = capsys.readouterr().out
    assert "epsilon = 5." in said
    assert "at delta = 1/1000000" in said
    assert "noise variance" in said


def test_solvers_are_compared_under_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(config(tmp_path)), "--json", "--size", "20"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_an_audit_says_that_it_bounds_pure_epsilon_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(config(tmp_path))]) == 2
    said = capsys.readouterr().err
    assert "[privacy.mechanism]" in said
    assert "pure epsilon only" in said


def test_a_file_sealed_before_mechanisms_were_named_is_geometric(tmp_path: Path) -> None:
    path = config(tmp_path, SEEDED + 'epsilon = "1"')
    path.write_text(path.read_text().replace("discrete_gaussian", "geometric"))
    seal(run_release(load_config(path), tmp_path / "out").page.measurements, tmp_path / "sealed")
    body = (tmp_path / "sealed").read_bytes()[:-32]
    start = body.index(b"{") - 8
    stop = start + 8 + int.from_bytes(body[start : start + 8], "little")
    header = json.loads(body[start + 8 : stop])
    assert header.pop("mechanism") == "geometric"
    older = json.dumps(header, sort_keys=True).encode()
    body = body[:start] + len(older).to_bytes(8, "little") + older + body[stop:]
    (tmp_path / "older").write_bytes(body + hashlib.sha256(body).digest())
    found, _ = unseal(tmp_path / "older")
    assert found.mechanism == "geometric"
    assert found.epsilon_spent == 1
