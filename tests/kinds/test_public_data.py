"""Public data in the private table's form, which ``plan --like`` reads: their columns and their groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from coco_opt.config import parse_config
from coco_opt.errors import InputError
from coco_opt.releases.kind import kind_of

HIERARCHY = "comune,paese,regione\n1,Italia,a\n2,Italia,b\n"
GROUPS = "famiglia,comune\nf,1\ng,2\n"
PERSONS = "persona,famiglia,sesso\np,f,M\nq,f,F\nr,g,M\n"
COLUMNS = 'columns = { group_id = "famiglia", region_id = "comune"'
TABLES = f'records = "persone.csv"\n{COLUMNS} }}'
SIZES = f'entities = "persone.csv"\n{COLUMNS}, entity_id = "persona" }}'
SECTIONS = {
    "topdown": f'[data]\n{TABLES}\n[topdown]\nworkload = ["total"]\nattributes = {{ sesso = ["M", "F"] }}\n',
    "groups": f"[data]\n{SIZES}\n[groups]\nmax_size = 5\n",
}


def write(folder: Path, persons: str = PERSONS, groups: str | None = GROUPS) -> None:
    folder.mkdir()
    (folder / "persone.csv").write_text(persons)
    if groups is not None:
        (folder / "famiglie.csv").write_text(groups)


@pytest.mark.parametrize("kind", SECTIONS)
def test_public_records_are_read_like_the_private_ones(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "now")
    (tmp_path / "now" / "comuni.csv").write_text(HIERARCHY)
    write(tmp_path / "earlier", PERSONS + "s,h,F\n", GROUPS + "h,2\n")
    tables = '[data]\ngroups = "famiglie.csv"\nhierarchy = "comuni.csv"\nlevels = ["paese", "regione"]\n'
    text = '[privacy]\nepsilon = "1"\nnoise = "seeded"\nseed = 1\n' + SECTIONS[kind].replace("[data]\n", tables)
    config = parse_config(text, tmp_path / "now", file="x.toml")
    engine = kind_of(config)
    plan = engine.outline(config)
    (tmp_path / "now" / "persone.csv").unlink()  # stays closed
    private = engine.simulated_data(plan, tmp_path / "earlier" / "persone.csv").private
    if kind == "groups":
        assert [private.leaf(k).to_dense(2).tolist() for k in range(2)] == [[0, 0, 1], [0, 2, 0]]
    else:
        assert private.hierarchy.regions == 3
        assert private.rows_read == 4
        (tmp_path / "now" / "famiglie.csv").unlink()  # closed too
        write(tmp_path / "placed", "comune,sesso\n2,M\n", None)
        assert engine.simulated_data(plan, tmp_path / "placed" / "persone.csv").private.rows_read == 1
        write(tmp_path / "lost", PERSONS, None)
        with pytest.raises(InputError, match="missing-column"):
            engine.simulated_data(plan, tmp_path / "lost" / "persone.csv")
