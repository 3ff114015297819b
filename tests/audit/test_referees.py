"""Outside auditors of whole measurements: dp-recorder replays neighbours, DP Auditorium bounds delta from samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt.array_types import Ints
from coco_opt.config import load_config
from coco_opt.kinds import kind_row
from coco_opt.privacy import RunKey, SecureNoise, SeededNoise
from coco_opt.privacy.queries import Exact, Noise
from coco_opt.releases.drawing import noisy
from coco_opt.releases.estimate import estimated
from coco_opt.releases.reporter import Silent
from tests.audit.helpers import KINDS, config_of


@contextmanager
def intercepted(auditor: Any, monkeypatch: pytest.MonkeyPatch, claimed: Fraction) -> Iterator[None]:
    """Let an auditor of dp-recorder record, or replay, all noise; it is told ``claimed`` times the sensitivity."""
    add_to = Noise.add_to

    def through(self: Noise, part: Exact) -> Ints:
        if part.query.exact:
            return add_to(self, part)

        def noise(values: Ints, sensitivity: float) -> Ints:
            return add_to(self, dataclasses.replace(part, values=values))

        reach = float(claimed * part.query.sensitivity.l1)  # type: ignore[union-attr]
        distance = lambda one, two: float(np.abs(one - two).sum())  # noqa: E731
        call = ("noise", noise, "values", "sensitivity", distance, None)
        found: Ints = auditor.intercept_mechanism(*call, values=part.values, sensitivity=reach)
        return found

    with monkeypatch.context() as patch, auditor:
        patch.setattr(Noise, "add_to", through)
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("claimed", [Fraction(1), Fraction(1, 4)], ids=["as stated", "a quarter of it"])
def test_dp_recorder_replays_a_neighbour(
    kind: str, claimed: Fraction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every input of noise within the stated distance, and after the noise nothing that differs."""
    reason = "needs dp-recorder (github.com/ObliviousAI/dp-recorder), which no registry has"
    recorder = pytest.importorskip("dp_recorder.auditing.audit_primitives", reason=reason)
    config = load_config(config_of(kind, tmp_path))
    value: Any = kind_row(config.kind).load()
    like = value.simulated_data(value.plan(config), None, 2)
    pair, auditor = value.neighbours(like), recorder.Auditor()
    for number, private in enumerate((pair.first, pair.second)):
        if number:
            auditor.set_replay()
        with intercepted(auditor, monkeypatch, claimed):
            measurement = noisy(like.plan, private, SeededNoise(3))
            made = estimated(config, measurement, "release", reporter=Silent()).save(tmp_path / f"out{number}")
            for path in sorted(made.iterdir()):
                auditor.check_equality(path.read_bytes(), path.name)
    if claimed == 1:
        auditor.validate_records()
    else:
        with pytest.raises(AssertionError, match="Sens"):
            auditor.validate_records()


@pytest.mark.parametrize(("share", "rejected"), [(Fraction(1), False), (Fraction(1, 2), True)])
def test_dp_auditorium_does_not_reject_the_noise_and_rejects_half_of_it(share: Fraction, rejected: bool) -> None:
    reason = "needs DP Auditorium (github.com/google/differential-privacy), which no registry has"
    testers = pytest.importorskip("dp_auditorium.testers.histogram_tester", reason=reason)
    configs = pytest.importorskip("dp_auditorium.configs.property_tester_config", reason=reason)
    properties = pytest.importorskip("dp_auditorium.configs.privacy_property", reason=reason)
    scale, cells = Fraction(5), 61
    constraints = {
        "test_discrete_mechanism": True,
        "histogram_size": cells,
        "min_value": 0,
        "max_value": cells - 1,
        "approximate_dp": properties.ApproximateDp(epsilon=float(1 / scale), delta=1e-6),
        "use_original_tester": False,
    }
    known = {one.name for one in dataclasses.fields(configs.HistogramPropertyTesterConfig)}
    config = configs.HistogramPropertyTesterConfig(
        **{name: constraint for name, constraint in constraints.items() if name in known}
    )
    tester, samples = testers.HistogramTester(config), []
    for count in (0, 1):
        source = SecureNoise(RunKey(bytes([count] * 32)))
        noise = source.stream(scale * share, measurement="auditorium", region="all").draw(1_000_000)
        samples.append(np.clip(noise + count + cells // 2, 0, cells - 1))
    bounds = [tester.estimate_lower_bound(*pair, 1e-6) for pair in (samples, samples[::-1])]
    assert any(tester.reject_property(bound) for bound in bounds) == rejected, bounds
