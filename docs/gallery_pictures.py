"""Copy the experiments' figures and verdicts into the documentation: ``python docs/gallery_pictures.py RESULTS ...``.

A folder is what ``coco-opt reproduce --out`` wrote to; of a figure in several the first folder's is taken, of one in
none the picture that is there stays, and so with the verdicts on a paper's sentences. Pictures get few colours and a
screen's width, so that all together stay small.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from coco_experiments.table import EXPERIMENTS
from PIL import Image

GALLERY = Path(__file__).parent / "pictures" / "gallery"
VERDICTS = Path(__file__).parent / "verdicts.json"
_WIDTH, _COLOURS = 880, 96


def main(folders: list[Path]) -> None:
    """Write a picture for every experiment that shows something, and which were drawn of simulated data."""
    GALLERY.mkdir(parents=True, exist_ok=True)
    earlier = json.loads((GALLERY / "made.json").read_text(encoding="utf-8"))
    made = {}
    for one in (row for row in EXPERIMENTS if row.shows):
        folder = next((folder for folder in folders if (folder / f"{one.name}.png").is_file()), None)
        if folder is None and one.name in earlier:
            made[one.name] = earlier[one.name]
            continue
        if folder is None:
            sys.exit(f"no folder holds {one.name}.png: run  coco-opt reproduce {one.name}")
        made[one.name] = json.loads((folder / f"{one.name}_record.json").read_text(encoding="utf-8"))["small"]
        picture = Image.open(folder / f"{one.name}.png").convert("RGB")
        picture.thumbnail((_WIDTH, 10 * _WIDTH), Image.Resampling.LANCZOS)
        few = picture.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(GALLERY / f"{one.name.replace('/', '-')}.png", optimize=True)
    (GALLERY / "made.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    VERDICTS.write_text(json.dumps(verdicts(folders), indent=1) + "\n", encoding="utf-8")


def verdicts(folders: list[Path]) -> dict[str, Any]:
    """Return by experiment of a paper whether data were simulated, and its statements, of the first folder's record."""
    stored = json.loads(VERDICTS.read_text(encoding="utf-8")) if VERDICTS.exists() else {}
    for one in EXPERIMENTS:
        records = (folder / f"{one.name}_record.json" for folder in folders)
        record = next((json.loads(file.read_text(encoding="utf-8")) for file in records if file.is_file()), None)
        if record is not None and record["statements"]:
            picture = next((Path(file).name for file in record["files"] if file.endswith(".png")), "")
            for item in record["statements"]:
                item.setdefault("figure", picture)
            stored[one.name] = {"small": record["small"], "statements": record["statements"]}
    return {one.name: stored[one.name] for one in EXPERIMENTS if one.name in stored}


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
