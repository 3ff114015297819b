"""A newcomer's way from files as offices have them to a verified release: by the command line and by frames.

The files have a byte order mark, CRLF, semicolons, columns that nobody asked for, texts beyond ASCII, and counties of
one name in two states.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import coco_opt as co
from coco_opt.cli import main
from coco_opt.files.folder import read_columns

polars = pytest.importorskip("polars", reason="Polars is not installed")

STATES = ("Åland", "São Tomé")
AREAS = {"areacode": [f"A{k}" for k in range(6)], "Land": ["Ω"] * 6, "Staat": [STATES[k // 3] for k in range(6)]}
AREAS["Kreis"] = ["Mitte", "Süd", "Łódź", "Mitte", "Nord", "Süd/West"]
HOMES = {"Haushalt": [f"H{k:03}" for k in range(90)], "areacode": [f"A{k % 6}" for k in range(90)]}
HOMES["Miete"] = [f"{400 + 7 * k},50" for k in range(90)]
PEOPLE = {"PersNr": [f"{k:04}" for k in range(200)], "Haushalt": [f"H{(k * k + k) % 83:03}" for k in range(200)]}
PEOPLE["Bemerkung"] = ['sagt "ja; gern"'] * 200
TABLES: dict[str, dict[str, list[str]]] = {"personen": PEOPLE, "haushalte": HOMES, "gebiete": AREAS}
KEYS = {"personen": "entities", "haushalte": "groups", "gebiete": "hierarchy"}
COLUMNS = {"entity_id": "PersNr", "group_id": "Haushalt", "region_id": "areacode"}
PRIVACY = {"epsilon": "1", "noise": "seeded", "seed": 11}
GROUPS = {"max_size": 20}


def write(folder: Path) -> list[str]:
    """Write the three files as a spreadsheet program does."""
    for name, columns in TABLES.items():
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=";", lineterminator="\r\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        (folder / f"{name}.csv").write_bytes(b"\xef\xbb\xbf" + text.getvalue().encode())
    return [f"{name}.csv" for name in TABLES]


def by_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> pd.DataFrame:
    """Call init, check, plan, release and verify, with the changes that init asks for; return what was released."""
    assert main(["init", *write(folder), "--kind", "groups"]) == 0
    said = capsys.readouterr()
    for name in COLUMNS.values():
        assert name in said.out + said.err
    config = folder / "coco-opt.toml"
    text = config.read_text(encoding="utf-8")
    text = re.sub(r"^max_size = .*$", "max_size = 20", text, flags=re.MULTILINE)
    text = re.sub(r"^(dataset|epsilon|noise) = .*\n", "", text, flags=re.MULTILINE)
    config.write_text(text.replace("[privacy]", '[privacy]\nepsilon = "1"\nnoise = "seeded"\nseed = 11'), "utf-8")
    for verb in ("check", "plan", "release"):
        assert main([verb, "coco-opt.toml"]) == 0, capsys.readouterr()
    (released,) = (folder / "releases").iterdir()
    assert main(["verify", str(released)]) == 0
    assert "fails" not in capsys.readouterr().out
    return co.read_release(released).to_pandas()


FRAMES: dict[str, Any] = {
    "pandas": pd.DataFrame,
    "polars": polars.DataFrame,
    "arrow": pa.table,
    "duckdb": lambda columns: duckdb.from_arrow(pa.table(columns)),
}


def by_frames(library: str, folder: Path) -> pd.DataFrame:
    data: dict[str, Any] = {KEYS[name]: FRAMES[library](columns) for name, columns in TABLES.items()}
    made = co.estimate(
        co.measure(co.configure(folder=folder, data={**data, "columns": COLUMNS}, privacy=PRIVACY, groups=GROUPS))
    )
    saved = made.save(folder / "out", page=co.render_report)
    assert all(check.passed for check in co.verify_release(saved))
    assert read_columns(saved / "histograms.parquet", ()).to_pandas().equals(made.to_pandas())
    return co.read_release(saved).to_pandas()


@pytest.mark.slow
def test_every_way_in_gives_the_same_verified_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path / "files")
    released = by_command_line(tmp_path / "files", capsys)
    regions = set(released["region"])
    assert {"Ω/Åland/Mitte", "Ω/São Tomé/Mitte"} < regions
    assert sum("Süd" in region for region in regions) == 2
    for library in FRAMES:
        (tmp_path / library).mkdir()
        pd.testing.assert_frame_equal(by_frames(library, tmp_path / library), released)
