"""Every planted fault is noticed by the test that is named for it; a fault that none notices fails here."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.evidence import defined
from tests.mutation.mutant import ROOT, Mutant
from tests.mutation.table import MUTANTS

SURVIVORS = {  # of the project's first version
    "tables by OpenDP pay nothing",
    "the link between entries is unchecked",
    "the charge's digest without the facts of its section",
    "the run's key stays in memory",
    "a key is unlinked without overwriting",
    "an unkeyed digest of the input",
    "a private file's name is not made durable",
    "epsilon is rounded down in a conversion",
    "a deferred transaction",
}
LEAST = 60
HARMLESS = """
from tests.mutation.__main__ import run
from tests.mutation.mutant import Mutant
tests = ("tests/privacy/test_budget.py::test_noise_scale_is_exact",)
harmless = Mutant("harmless", "", "coco_opt/privacy/budget.py", "epsilon is zero: a", "epsilon is zero; a", tests)
unseen = Mutant("unseen", "", "coco_opt/topdown/schema.py", "from __future__", "from  __future__", tests)
print(*(one.verdict for one in run([harmless, unseen], 1)), sep=", ")
"""

forks = pytest.mark.skipif(os.name != "posix", reason="forks")


def test_the_table_is_large_and_holds_what_once_survived() -> None:
    names = [one.name for one in MUTANTS]
    assert len(names) == len(set(names)) >= LEAST
    assert set(names) >= SURVIVORS
    assert len({(one.file, one.old, one.new) for one in MUTANTS}) == len(MUTANTS)


def test_a_mutants_text_stands_in_the_code_once_and_its_tests_exist() -> None:
    for mutant in MUTANTS:
        compile(mutant.source(), mutant.file, "exec")
        assert mutant.tests
        for node in mutant.tests:
            file, _, name = node.partition("::")
            assert name.partition("[")[0] in defined(file), node


@pytest.mark.parametrize("old", ["no such text anywhere", "return"])
def test_a_text_that_is_gone_or_stands_twice_is_no_mutant(old: str) -> None:
    with pytest.raises(ValueError, match=r"times in coco_opt/privacy/budget.py, not once"):
        Mutant("m", "", "coco_opt/privacy/budget.py", old, "", ()).source()


@pytest.mark.slow
@forks
def test_what_changes_nothing_survives() -> None:
    """The runner tells who lives, and what no test looked at."""
    done = subprocess.run([sys.executable, "-c", HARMLESS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["survived, its module was never imported"], done.stderr


@pytest.mark.slow
@forks
def test_every_mutant_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutation", "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    alive = [f"{one['name']}: {one['verdict']}\n{one['output']}" for one in found if one["verdict"] != "killed"]
    assert not alive, "\n".join(alive)
    assert {one["name"] for one in found} == {one.name for one in MUTANTS}, done.stderr
