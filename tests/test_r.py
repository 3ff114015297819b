"""The examples of the page "From R" run, where R and the packages that they load are installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

import coco_opt as co
from coco_opt.files.spreadsheets import write_csv_files

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "r.md"
BLOCKS = re.findall(r"^```r\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a release and its tables as CSV."""
    made = tmp_path_factory.mktemp("r")
    persons = pd.DataFrame({"entity_id": range(400), "group_id": [k * k % 170 for k in range(400)]})
    households = pd.DataFrame({"group_id": range(180), "region_id": ["0012", "007"] * 90})
    areas = pd.DataFrame({"region_id": ["0012", "007"], "nation": "land", "part": ["=1+1", "Köln"]})
    config = co.configure(
        data={"entities": persons, "groups": households, "hierarchy": areas},
        privacy={"epsilon": "1", "noise": "seeded", "seed": 7},
        groups={"max_size": 20, "consistency": "matching"},
    )
    release = co.estimate(co.measure(config)).save(made / "releases" / "first")
    write_csv_files(release, made / "tables", raw=True)
    return made


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_examples_run(number: int, folder: Path) -> None:
    block = BLOCKS[number]
    for package in re.findall(r"library\((\w+)\)", block):
        found = ["Rscript", "-e", f'quit(status = !requireNamespace("{package}", quietly = TRUE))']
        if subprocess.run(found, capture_output=True, check=False, timeout=60).returncode:
            pytest.skip(f"the R package {package} is not installed")
    (folder / "block.R").write_text(f"options(warn = 2)\n{block}", encoding="utf-8")
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin:/usr/local/bin"}
    ran = subprocess.run(
        ["Rscript", "block.R"], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
