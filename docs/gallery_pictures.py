"""Copy the experiments' figures into the documentation: ``python docs/gallery_pictures.py RESULTS [RESULTS ...]``.

A folder is what ``coco-opt reproduce --out`` wrote to; of a figure in several the first folder's is taken, of one in
none the picture that is there stays. Pictures get few colours and a screen's width, so that all together stay small.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from coco_experiments.table import EXPERIMENTS
from PIL import Image

GALLERY = Path(__file__).parent / "pictures" / "gallery"
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


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
