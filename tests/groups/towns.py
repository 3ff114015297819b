"""A small table of sizes and configurations of its release."""

from __future__ import annotations

import json
from pathlib import Path

from coco_opt.config import Config, parse_config

SIZES = "nation,state,size,groups\n" + "".join(
    f"land,{state},{size},{groups}\n"
    for state, counts in (("north", (2, 30, 21, 9, 1)), ("south", (0, 12, 40, 3, 2)), ("east", (1, 5, 2, 2, 0)))
    for size, groups in enumerate(counts)
)
SEEDED = 'noise = "seeded"\nseed = 5'


def config_of(
    folder: Path, *, privacy: str = "", budget: str = 'epsilon = "1"', more: str = "", **groups: object
) -> Config:
    """Write the table and return the configuration of its release; of dataset "towns" unless its noise is seeded."""
    (folder / "sizes.csv").write_text(SIZES)
    single = {} if {"bucket_growth", "bucket_edges"} & set(groups) else {"bucket_growth": 0}
    split = "" if "split" in privacy else 'split = "uniform"'
    lines = "\n".join(
        f"{key} = {json.dumps(value)}"
        for key, value in {"max_size": 12, **single, "consistency": "matching", **groups}.items()
    )
    dataset = "" if "seeded" in privacy or "dataset" in privacy else 'dataset = "towns"'
    text = f'[data]\nsizes = "sizes.csv"\n[privacy]\n{budget}\n{split}\n{dataset}\n{privacy}\n[groups]\n{lines}\n{more}'
    return parse_config(text, folder, file="towns.toml")
