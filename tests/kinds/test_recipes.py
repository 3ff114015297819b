"""The recipes of CONTRIBUTING for an experiment and a query, followed in a copy of the project until all is green."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import KINDS, ROOT, environment_of

pytestmark = pytest.mark.slow

EXPERIMENT = '''"""One noisy sequence, fitted by squares: a rehearsal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Statement, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt import IsotonicL2, solve


def plan(data: Path | None, small: bool) -> list[tuple[int, Sequence[int]]]:
    """Return the length of the sequence under five seeds."""
    return seeded([100], range(5))


def measure(size: int, seed: int) -> float:
    """Return the squared error of the fit over that of the noisy sequence."""
    noise = np.random.default_rng(seed).laplace(size=size)
    return float(np.square(solve(IsotonicL2(noise)).value).sum() / np.square(noise).sum())


def report(results: Sequence[Runs[int, float]], path: Path) -> Report:
    """Return the mean ratio, and what the paper says of it."""
    ratio = float(np.mean(results[0].found))
    said = Statement("section 3.1", "the fit is nearer to the truth", f"{ratio:.2f} of the error", ratio < 1.0)
    return Report({"": Table.of("errors", [{"size": results[0].case, "ratio": ratio}])}, statements=[said])


REHEARSED = Study("hay2010/rehearsed", plan, measure, report)
'''
QUERY = """    if part.startswith("at_least(") and part.endswith(")"):
        axis = find(part[9:-1].strip(), schema.names, "attribute", text)
        values = schema.attributes[schema.names[axis]]
        return Factor(axis, part, tuple(f"{value}.." for value in values), np.tri(len(values)).T)
"""


@pytest.fixture
def clean_copy(tmp_path: Path) -> Path:
    """Return a copy of the project as a new checkout has it."""
    leave = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "private", "results")
    return shutil.copytree(ROOT, tmp_path / "copy", ignore=leave)


def run(folder: Path, *command: object) -> str:
    """Run a module of Python on the copy; it must succeed."""
    line = [sys.executable, "-m", *map(str, command)]
    ran = subprocess.run(line, cwd=folder, env=environment_of(folder), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr[-2_000:]
    return ran.stdout


def insert(path: Path, before: str, text: str) -> None:
    """Write a text into a file, before another that stands there once."""
    content = path.read_text(encoding="utf-8")
    assert content.count(before) == 1
    path.write_text(content.replace(before, text + before), encoding="utf-8")


def test_an_experiment_is_a_module_a_row_and_its_verdict(clean_copy: Path) -> None:
    experiments, name = clean_copy / "experiments" / "coco_experiments", "hay2010/rehearsed"
    (experiments / f"{name}.py").write_text(EXPERIMENT, encoding="utf-8")
    insert(experiments / "table.py", '    "hay2010/figure3": (', f'    "{name}": ("section 3.1", "one sequence"),\n')
    expected = clean_copy / "tests" / "experiments" / "verdicts.json"
    verdicts = json.loads(expected.read_text(encoding="utf-8")) | {name: ["section 3.1: reproduced"]}
    expected.write_text(json.dumps(verdicts), encoding="utf-8")
    assert "reproduced" in run(clean_copy, "coco_opt", "reproduce", name, "--out", "found")
    run(clean_copy, "docs.gallery_pictures", "found")
    run(clean_copy, "pytest", "-q", "tests/experiments", "-k", "rehearsed or without_a_verdict")
    run(clean_copy, "ruff", "check", "experiments")
    run(clean_copy, "mypy", experiments / f"{name}.py")


def test_a_query_is_a_form_of_its_text(clean_copy: Path, tmp_path: Path) -> None:
    insert(clean_copy / "coco_opt" / "topdown" / "queries.py", "    if not part or set(", QUERY)
    config = KINDS["tables"].write(tmp_path)
    config.write_text(config.read_text().replace("sex * age", "sex * at_least(age)"))
    for verb in ("check", "plan"):
        run(clean_copy, "coco_opt", verb, config)
    run(clean_copy, "coco_opt", "release", config, "--out", tmp_path / "out")
    run(clean_copy, "coco_opt", "verify", tmp_path / "out")
    run(clean_copy, "mypy", "coco_opt/topdown/queries.py")
