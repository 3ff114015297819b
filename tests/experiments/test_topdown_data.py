"""Tables for experiments: real counts add up to published totals, simulated tables keep the counts they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coco_experiments.topdown.data import (
    NO_YOUNG_SOLDIERS,
    Blocks,
    Tables,
    generated_blocks,
    hawaii,
    large_schema,
    large_tables,
    small_tables,
)

from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema


def answers(tables: Tables, text: str, level: int) -> np.ndarray:
    query = parse_query(text, tables.schema)
    return tables.counts.answers_to(query.operator, tables.hierarchy.level_range(level))


@pytest.fixture(scope="module")
def blocks() -> Blocks:
    return generated_blocks(np.random.default_rng(4))


def test_small_tables_are_the_counts_themselves(blocks: Blocks) -> None:
    tables = small_tables(blocks)
    assert (tables.schema.cells, tables.schema.size) == (14, 7)
    assert np.array_equal(tables.counts.level_tables(4), blocks.people)
    assert answers(tables, "hispanic", 0)[0, 1] == blocks.people[:, 6].sum()
    assert tables.schema.label(6) == "hispanic = yes, race = any"


@pytest.mark.parametrize("structural_zeros", [False, True])
def test_large_tables_keep_people_hispanics_and_single_races(blocks: Blocks, structural_zeros: bool) -> None:
    tables = large_tables(blocks, seed=3, structural_zeros=structural_zeros)
    assert tables.schema.cells == 2016
    assert tables.schema.size == (1890 if structural_zeros else 2016)
    both = answers(tables, "hispanic * race", 4).reshape(-1, 2, 63)
    assert np.array_equal(both[:, 0, :5], blocks.people[:, :5])
    assert np.array_equal(both[:, 0, 5:].sum(axis=1), blocks.people[:, 5])
    assert np.array_equal(both[:, 1].sum(axis=1), blocks.people[:, 6])
    residence = answers(tables, "residence", 0)[0]
    assert residence[0] > 0.9 * residence.sum()


def test_large_tables_repeat_by_seed_and_keep_the_structural_zero(blocks: Blocks) -> None:
    first, second, other = (large_tables(blocks, seed).counts.level_tables(0) for seed in (0, 0, 1))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
    forbidden = Schema(large_schema().attributes, (NO_YOUNG_SOLDIERS,)).position < 0
    assert forbidden.sum() == 126
    assert (first[0, forbidden] == 0).all()


def test_made_blocks_repeat_by_seed() -> None:
    first, second = (generated_blocks(np.random.default_rng(9), counties=2) for _ in range(2))
    assert np.array_equal(first.people, second.people)
    assert np.diff(first.hierarchy.level_start).tolist() == [1, 2, 8, 16, 96]
    assert (first.people.sum(axis=1) == 0).any()


def test_hawaii_has_its_blocks_and_people(shared_data: Path) -> None:
    blocks = hawaii(shared_data)
    assert np.diff(blocks.hierarchy.level_start).tolist() == [1, 5, 351, 875, 25_016]
    assert int(blocks.people.sum()) == 1_360_301
    tables = small_tables(blocks)
    assert answers(tables, "total", 0).tolist() == [[1_360_301]]
    assert blocks.hierarchy.paths[-1].count("/") == 4


def test_hawaii_carries_the_larger_schema(shared_data: Path) -> None:
    blocks = hawaii(shared_data)
    tables = large_tables(blocks)
    assert tables.counts.cells.size < 250_000  # of 50 million cells
    assert np.array_equal(answers(tables, "total", 4)[:, 0], blocks.people.sum(axis=1))
