"""The hierarchy that geocodes give: levels by length, parents by their first characters."""

from __future__ import annotations

import numpy as np
import pytest

from coco_opt.errors import InputError
from coco_opt.topdown.kind.noisy_measurement_files.queries import regions_of

STATE = {
    **dict.fromkeys(["050", "150"], "State"),
    **dict.fromkeys(["050100011", "050100012", "150100011"], "County"),
    **dict.fromkeys(["05010001110", "05010001111", "05010001210", "15010001110"], "Tract"),
}


@pytest.mark.parametrize("seed", range(3))
def test_regions_are_those_whose_codes_begin_theirs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = list(STATE)
    public = regions_of({codes[k]: STATE[codes[k]] for k in rng.permutation(len(codes))})
    tree = public.hierarchy
    assert public.levels == ("root", "State", "County", "Tract")
    assert tree.names[0] == "all"
    for region in range(1, tree.regions):
        above = tree.names[int(tree.parent[region])]
        assert above == "all" or (tree.names[region].startswith(above) and STATE[tree.names[region]] != STATE[above])
    assert sorted(tree.names[1:]) == sorted(codes)
    assert list(public.ids) == [tree.names[region] for region in tree.leaves]


def test_a_code_alone_at_the_top_is_the_root() -> None:
    public = regions_of({"0": "US", **STATE})
    assert public.levels == ("US", "State", "County", "Tract")
    assert public.hierarchy.regions == 1 + len(STATE)
    assert public.hierarchy.parent[1:3].tolist() == [0, 0]


def test_levels_that_share_a_name_are_called_by_their_length() -> None:
    assert regions_of({"0": "part", "01": "part", "02": "part"}).levels == ("length 1", "length 2")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"2501": "Tract"}, "'2501' begins with no code of 3 characters"),
        ({"0501": "County"}, "no code of 4 characters begins with '150'"),
        ({"060": "State"}, "no code of 9 characters begins with '060'"),
    ],
)
def test_codes_that_are_no_tree_are_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        regions_of({**STATE, **change})
    assert refused.value.code == "bad-geocode"
