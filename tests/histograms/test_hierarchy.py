"""Hierarchy: layout, constructors, every way not to be a tree, aggregation; and the texts that hold its names."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import HierarchyError, InputError, Place
from coco_opt.files.arrow_texts import as_arrow, from_arrow
from coco_opt.histograms import Hierarchy
from coco_opt.histograms import texts as texts_module
from coco_opt.histograms.hierarchy_build import unescaped
from coco_opt.histograms.texts import Texts

PATHS = [("us", "a", "x"), ("us", "b", "y"), ("us", "a", "z"), ("us", "b", "x"), ("us", "c", "c")]


def test_layout_of_interleaved_paths() -> None:
    tree = Hierarchy.from_paths(PATHS)
    assert tree.paths == (
        "us", "us/a", "us/b", "us/c", "us/a/x", "us/a/z", "us/b/y", "us/b/x", "us/c/c",
    )  # fmt: skip
    assert tree.parent.tolist() == [-1, 0, 0, 0, 1, 1, 2, 2, 3]
    assert tree.level.tolist() == [0, 1, 1, 1, 2, 2, 2, 2, 2]
    assert tree.first_child.tolist() == [1, 4, 6, 8, 9, 9, 9, 9, 9, 9]
    assert tree.level_start.tolist() == [0, 1, 4, 9]
    assert (tree.regions, tree.levels, tree.leaves) == (9, 3, range(4, 9))
    assert tree.children(2) == range(6, 8)
    assert len(tree.children(8)) == 0
    assert tree.leaf_range(0) == range(4, 9)
    assert tree.leaf_range(2) == range(6, 8)
    assert tree.leaf_range(7) == range(7, 8)
    assert tree.ancestors(7) == (2, 0)
    assert tree.ancestors(0) == ()
    assert tree.index("us/b/x") == tree.index(("us", "b", "x")) == 7
    assert tree.level_range(1) == range(1, 4)
    assert repr(tree) == "Hierarchy('us', 9 regions in 3 level(s): 1 / 3 / 5)"


def test_frame() -> None:
    frame = Hierarchy.from_paths(PATHS[:1]).to_pandas()
    assert frame.columns.tolist() == ["region", "parent", "level"]
    assert frame["region"].tolist() == ["us", "us/a", "us/a/x"]
    assert frame["parent"].isna().tolist() == [True, False, False]
    assert frame["parent"].tolist()[1:] == ["us", "us/a"]


def test_edges_with_and_without_a_marked_root() -> None:
    marked = Hierarchy.from_edges(["x", "us", "b", "a", "y"], ["a", None, "us", "us", "b"])
    implied = Hierarchy.from_edges(["x", "b", "a", "y"], ["a", "us", "us", "b"])
    for tree in (
        marked,
        implied,
        Hierarchy.from_edges(["us", "b", "a", "x", "y"], ["", "us", "us", "a", "b"]),
    ):
        assert tree.paths == ("us", "us/b", "us/a", "us/b/y", "us/a/x")


def test_parents_in_any_order() -> None:
    tree = Hierarchy.from_parents([2, 0, -1, 4, 2], ["a", "x", "us", "x", "b"])
    assert tree.paths == ("us", "us/a", "us/b", "us/a/x", "us/b/x")


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: Hierarchy.from_edges(["a", "b", "c"], ["b", "c", "a"]), "cycle"),
        (lambda: Hierarchy.from_edges(["r", "a", "b"], [None, "b", "a"]), "cycle"),
        (lambda: Hierarchy.from_edges(["r", "a"], [None, "a"]), "cycle"),
        (lambda: Hierarchy.from_edges(["a", "x", "a"], ["r", "a", "s"]), "two-parents"),
        (lambda: Hierarchy.from_edges(["r", "r"], [None, "a"]), "two-parents"),
        (lambda: Hierarchy.from_edges(["r", "a"], [None, "missing"]), "orphan"),
        (lambda: Hierarchy.from_edges([], []), "no-root"),
        (lambda: Hierarchy.from_edges(["r", "s"], [None, None]), "several-roots"),
        (lambda: Hierarchy.from_edges(["a", "b"], ["r", "s"]), "several-roots"),
        (lambda: Hierarchy.from_edges(["a", "b", "c"], ["r", "r", "a"]), "uneven-depth"),
        (lambda: Hierarchy.from_edges([""], ["r"]), "bad-name"),
        (lambda: Hierarchy.from_edges(["a", "a"], ["r", "r"]), "duplicate-region"),
        (lambda: Hierarchy.from_edges(["a", "b"], ["r"]), "bad-shape"),
        (lambda: Hierarchy.from_paths([]), "no-root"),
        (lambda: Hierarchy.from_paths([()]), "no-root"),
        (lambda: Hierarchy.from_paths([("r", "a"), ("s", "a")]), "several-roots"),
        (lambda: Hierarchy.from_paths([("r", "a"), ("r", "b", "c")]), "uneven-depth"),
        (lambda: Hierarchy.from_paths([("r", "")]), "bad-name"),
        (lambda: Hierarchy.from_paths([("r", "a\x1b[31m")]), "bad-name"),
        (lambda: Hierarchy.from_paths([("r", "a"), ("r", "b"), ("r", "a")]), "duplicate-region"),
        (lambda: Hierarchy.from_parents([], []), "no-root"),
        (lambda: Hierarchy.from_parents([-1, -1], ["a", "b"]), "several-roots"),
        (lambda: Hierarchy.from_parents([-1, 2, 1], ["a", "b", "c"]), "cycle"),
        (lambda: Hierarchy.from_parents([1, 0], ["a", "b"]), "cycle"),
        (lambda: Hierarchy.from_parents([-1, 7], ["a", "b"]), "orphan"),
        (lambda: Hierarchy.from_parents([-1, -2], ["a", "b"]), "orphan"),
        (lambda: Hierarchy.from_parents([-1, 0, 0, 1], list("rabc")), "uneven-depth"),
        (lambda: Hierarchy.from_parents([-1, 0, 0], ["r", "a", "a"]), "duplicate-region"),
        (lambda: Hierarchy.from_parents([-1, 0], ["r"]), "bad-shape"),
        (lambda: Hierarchy(np.array([-1, 0, 0, 2, 1]), tuple("rabcd")), "bad-order"),
        (lambda: Hierarchy(np.array([-1, 1]), ("r", "a")), "bad-order"),
    ],
)
def test_no_tree(build: Callable[[], Hierarchy], code: str) -> None:
    with pytest.raises(HierarchyError) as caught:
        build()
    assert caught.value.code == code


def test_errors_name_the_region_and_its_place() -> None:
    def place(row: int) -> Place:
        return Place("hierarchy.csv", row + 2)

    with pytest.raises(HierarchyError, match=r"hierarchy\.csv, row 4: 'a' has two parents: 'r' and 'x'"):
        Hierarchy.from_edges(["a", "x", "a"], ["r", "r", "x"], place)
    with pytest.raises(HierarchyError, match=r"row 3: 'r/a' occurs twice \(first in row 2\): the last level must name"):
        Hierarchy.from_paths([("r", "a"), ("r", "a")], place)
    with pytest.raises(HierarchyError, match=r"row 3: more than one region has no parent: 'r', 's'"):
        Hierarchy.from_paths([("r", "a"), ("s", "a")], place)
    with pytest.raises(HierarchyError, match="below itself: b -> c -> b"):
        Hierarchy.from_edges(["r", "a", "b", "c"], [None, "b", "c", "b"])


def test_unknown_regions_and_levels() -> None:
    tree = Hierarchy.from_paths(PATHS)
    with pytest.raises(HierarchyError, match="unknown-region"):
        tree.index("us/d")
    name = PATHS[1][-1]
    with pytest.raises(HierarchyError, match=f"no region '{name}'; give its path from the root, such as '.*/{name}'"):
        tree.index(name)
    for action in (lambda: tree.children(9), lambda: tree.leaf_range(-1), lambda: tree.ancestors(9)):
        with pytest.raises(InputError, match="unknown-region"):
            action()
    with pytest.raises(InputError, match="unknown-level"):
        tree.level_range(3)


def test_arrays_are_read_only_after_pickling_too() -> None:
    tree = pickle.loads(pickle.dumps(Hierarchy.from_paths(PATHS)))
    assert tree.paths == Hierarchy.from_paths(PATHS).paths
    with pytest.raises(ValueError, match="read-only"):
        tree.parent[0] = 3


@given(st.lists(st.tuples(*[st.sampled_from("abc")] * 3), min_size=1, max_size=12, unique=True))
def test_aggregate_and_ranges_match_brute_force(tails: list[tuple[str, ...]]) -> None:
    tree = Hierarchy.from_paths([("r", *tail) for tail in tails])
    values = np.arange(2 * len(tails), dtype=np.int64).reshape(-1, 2) ** 2
    sums = tree.aggregate(values)
    for region, path in enumerate(tree.paths):
        below = [v for v in tree.leaves if tree.paths[v] == path or tree.paths[v].startswith(path + "/")]
        assert list(tree.leaf_range(region)) == below
        assert sums[region].tolist() == values[np.array(below) - tree.leaves.start].sum(axis=0).tolist()
        assert all(tree.parent[child] == region for child in tree.children(region))
        assert tree.index(path) == region
        assert len(tree.ancestors(region)) == tree.level[region]
    again = Hierarchy.from_parents(tree.parent[::-1][::-1], tree.names)
    assert again.paths == tree.paths


def test_aggregate_refuses_wrong_leaves() -> None:
    tree = Hierarchy.from_paths(PATHS)
    assert tree.aggregate(np.full(5, 0.5))[0] == 2.5
    with pytest.raises(InputError, match="bad-shape"):
        tree.aggregate(np.zeros(4, np.int64))
    with pytest.raises(InputError, match="bad-dtype"):
        tree.aggregate(np.zeros(5, np.int32))  # type: ignore[type-var]


def test_deep_chains_and_wide_trees_need_no_recursion() -> None:
    depth = 30_000
    chain = Hierarchy.from_parents(np.r_[1:depth, -1], [f"r{v}" for v in range(depth)])
    assert (chain.levels, chain.names[0], chain.leaf_range(0)) == (
        depth,
        f"r{depth - 1}",
        range(depth - 1, depth),
    )
    assert chain.aggregate(np.array([7]))[0] == 7
    wide = Hierarchy.from_parents([-1, *[0] * 50_000], [f"r{v}" for v in range(50_001)])
    assert len(wide.children(0)) == 50_000


def test_first_branches_are_a_tree_of_regions_found_again() -> None:
    tree = Hierarchy.from_paths([("n", f"s{i}", f"c{j}") for i in range(3) for j in range(1 + i)])
    cut, where = tree.first_branches(2)
    assert cut.paths == ("n", "n/s0", "n/s1", "n/s0/c0", "n/s1/c0", "n/s1/c1")
    assert tuple(tree.paths[region] for region in where) == cut.paths
    assert tree.first_branches(3)[0].paths == tree.paths
    assert tree.first_branches(1)[0].paths == ("n", "n/s0", "n/s0/c0")
    with pytest.raises(InputError, match="at least one child"):
        tree.first_branches(0)


@given(st.lists(st.lists(st.text("ab/\\ü", min_size=1, max_size=4), min_size=2, max_size=2), min_size=1, max_size=6))
def test_no_two_lists_of_names_have_one_path(rows: list[list[str]]) -> None:
    paths = sorted({("r", *row) for row in rows})
    tree = Hierarchy.from_paths(paths)
    assert len(set(tree.paths)) == tree.regions
    for row in paths:
        region = tree.index(row)
        assert tree.names[region] == row[-1]
        assert tree.index(tree.paths[region]) == region
    names = [path.removeprefix(tree.paths[up] + "/") for path, up in zip(tree.paths[1:], tree.parent[1:], strict=True)]
    assert [unescaped(name) for name in names] == list(tree.names[1:])


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("cde"), st.integers(0, 40)), min_size=1, unique=True))
def test_rows_in_any_order_and_a_few_at_a_time_give_one_tree(rows: list[tuple[str, str, int]]) -> None:
    paths = [("r", above, between, str(below)) for above, between, below in rows]
    whole = Hierarchy.from_paths(paths)
    for at_once in (1, 3):
        with pytest.MonkeyPatch.context() as patched:
            for module in ("histograms.hierarchy_build", "execution.temporary_storage"):
                patched.setattr(f"coco_opt.{module}._AT_ONCE", at_once)
            tree = Hierarchy.from_paths(paths)
        assert (tree.paths, tree.parent.tolist()) == (whole.paths, whole.parent.tolist())
    assert sorted(whole.paths[-len(paths) :]) == sorted("/".join(path) for path in paths)
    seconds = dict.fromkeys(path[:2] for path in paths)
    assert whole.paths[1 : 1 + len(seconds)] == tuple(map("/".join, seconds))


ENTRIES = st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=3), max_size=9)


@given(ENTRIES)
def test_texts_are_the_tuple_they_were_made_of(entries: list[str | None]) -> None:
    texts, plain = Texts.of(iter(entries)), tuple(entries)
    assert (texts, len(texts), tuple(texts)) == (plain, len(plain), plain)
    assert hash(texts) == hash(plain)
    assert repr(texts) == repr(plain)
    assert texts[1:-1] == plain[1:-1]
    assert [texts[np.int64(place)] for place in range(-len(plain), len(plain))] == [*plain, *plain]
    assert pickle.loads(pickle.dumps(texts)) == texts
    as_arrow(texts).validate(full=True)
    assert as_arrow(texts).to_pylist() == entries


@given(ENTRIES, st.integers(0, 3))
def test_arrow_arrays_are_read_from_where_they_begin(entries: list[str | None], first: int) -> None:
    array = pa.array(entries, pa.string())[first:]
    assert from_arrow(array) == tuple(entries[first:])


def test_what_differs_is_not_equal() -> None:
    assert Texts.of(("ab", "c")) != Texts.of(("a", "bc"))
    assert Texts.of(("ab", "c")) != ("ab",)
    assert Texts.of((None,)) != Texts.of(("",))
    assert Texts.of(("a",)) != ["a"]
    with pytest.raises(IndexError):
        Texts.of(("a",))[1]


def test_paths_of_some_regions_in_any_order_are_theirs() -> None:
    tree = Hierarchy.from_paths([("r/", a, b) for a in "xy" for b in ("1", "\\2")])
    whole = tree.paths
    assert whole == ("r\\/", "r\\//x", "r\\//y", "r\\//x/1", "r\\//x/\\\\2", "r\\//y/1", "r\\//y/\\\\2")
    assert list(whole.some([6, 3, 0, 4])) == [whole[6], whole[3], whole[0], whole[4]]
    assert [tree.path(region) for region in range(tree.regions)] == list(whole)


@given(entries=ENTRIES, places=st.lists(st.integers(-1, 40), max_size=30), at_once=st.integers(1, 5))
def test_texts_are_taken_and_joined_by_their_bytes(entries: list[str | None], places: list[int], at_once: int) -> None:
    texts = Texts.of(entries)
    chosen = [place if place < len(entries) else -1 for place in places]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts_module, "_AT_ONCE", at_once)
        taken = texts.taken(np.array(chosen, np.int64))
        plain = [entry for entry in entries if entry is not None]
        assert texts.printable is all(entry and entry.isprintable() for entry in entries)
        assert texts.digits is (
            bool(entries) and all(entry and entry.isascii() and entry.isdigit() for entry in entries)
        )
        assert Texts.of(plain).printable is all(entry and entry.isprintable() for entry in plain)
    assert taken == Texts.of(None if place < 0 else entries[place] for place in chosen)
    assert Texts.joined([texts, taken, texts]) == Texts.of([*texts, *taken, *texts])


@pytest.mark.parametrize("at_once", [2, 100])
def test_last_names_are_what_paths_add_to_their_parents(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_module, "_AT_ONCE", at_once)
    tree = Hierarchy.from_paths([("land", a, b) for a in ("north", "s\u00fcd") for b in ("1", "22", "333")])
    paths = list(tree.paths)
    assert Texts.of(paths).last_names(tree.parent) == tree.names
    for place, wrong in (
        (3, "land/nortH/1"),
        (3, "land/north/"),
        (3, "land/north/1/2"),
        (3, "land/north-1"),
        (2, "s\u00fcd"),
    ):
        changed = [wrong if row == place else path for row, path in enumerate(paths)]
        assert Texts.of(changed).last_names(tree.parent) is None
