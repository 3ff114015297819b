"""Queries from text: right sums and names, sensitivities by brute force, clear errors; operators and their matrices."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Grouping, Kronecker, Operator, Restricted, Stacked, identity, stack, total
from coco_opt.privacy import NEIGHBOURS, Neighbours, Sensitivity
from coco_opt.topdown import Query, Schema, TableCounts, ValueGroups, parse_queries, parse_query


def operator_of(kind: str, rng: np.random.Generator) -> Operator:
    cells = 12
    grouping = Grouping(rng.integers(-1, 5, cells), 5)
    kronecker = Kronecker((rng.integers(-2, 3, (2, 3)), np.ones((1, 2)), rng.integers(0, 2, (3, 2))))
    if kind == "restricted":
        return Restricted(kronecker, rng.permutation(cells)[:7])
    if kind == "stacked":
        return stack([grouping, kronecker, total(cells)])
    return {"grouping": grouping, "kronecker": kronecker, "identity": identity(cells), "total": total(cells)}[kind]


KINDS = ("grouping", "kronecker", "identity", "total", "restricted", "stacked")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lead", [(), (0,), (1,), (3,), (2, 3)])
@settings(max_examples=12)
@given(seed=st.integers(0, 10**6))
def test_operators_agree_with_their_matrices(kind: str, lead: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    operator = operator_of(kind, rng)
    matrix = operator.to_sparse().toarray()
    assert matrix.shape == (operator.answers, operator.cells)
    for dtype in (np.int64, np.float64):
        x = rng.integers(-9, 10, (*lead, operator.cells)).astype(dtype)
        y = rng.integers(-9, 10, (*lead, operator.answers)).astype(dtype)
        assert operator.apply(x).dtype == operator.adjoint(y).dtype == dtype
        assert operator.apply(x).flags.c_contiguous or operator.apply(x).size == 0 or kind == "kronecker"
        np.testing.assert_array_equal(operator.apply(x), x @ matrix.T.astype(dtype))
        np.testing.assert_array_equal(operator.adjoint(y), y @ matrix.astype(dtype))
    np.testing.assert_array_equal(operator.absolute_columns, np.abs(matrix).sum(axis=0))
    np.testing.assert_array_equal(operator.squared_columns, (matrix**2).sum(axis=0))
    cells = np.sort(rng.permutation(operator.cells)[: rng.integers(0, operator.cells + 1)])
    np.testing.assert_array_equal(operator.restrict(cells).to_sparse().toarray(), matrix[:, cells])


@pytest.mark.parametrize("kind", KINDS)
def test_int64_stays_exact_beyond_what_floats_hold(kind: str) -> None:
    operator = operator_of(kind, np.random.default_rng(3))
    x = np.full((2, operator.cells), 2**55 + 1, dtype=np.int64)
    exact = operator.to_sparse().toarray().astype(np.int64).astype(object) @ x[0].astype(object)
    assert operator.apply(x)[1].tolist() == exact.tolist()
    y = np.full(operator.answers, 2**54 + 1, dtype=np.int64)
    back = y.astype(object) @ operator.to_sparse().toarray().astype(np.int64).astype(object)
    assert operator.adjoint(y).tolist() == back.tolist()


def test_answers_do_not_share_memory_with_tables() -> None:
    x = np.arange(4.0)
    assert not np.shares_memory(identity(4).apply(x), x)
    assert not np.shares_memory(identity(4).adjoint(x), x)


def test_a_grouping_without_answers_or_cells_is_the_zero_map() -> None:
    none = Grouping(np.full(3, -1), 0)
    assert none.apply(np.ones((2, 3))).shape == (2, 0)
    assert none.adjoint(np.ones((2, 0))).tolist() == [[0.0] * 3] * 2
    empty = Grouping(np.zeros(0, np.int64), 2)
    assert empty.apply(np.ones((2, 0))).tolist() == [[0.0, 0.0]] * 2


def test_whole_answers_of_fractional_weights_are_refused() -> None:
    half = Kronecker((np.array([[0.5, 1.0]]),))
    assert half.apply(np.array([2.0, 1.0])).tolist() == [2.0]
    with pytest.raises(ProblemError, match="fractional weights"):
        half.apply(np.array([2, 1]))


@pytest.mark.parametrize("labels", [[0, 2], [-2, 0], [0.0, 1.0], [[0, 1]]])
def test_bad_labels_are_refused(labels: list[object]) -> None:
    with pytest.raises(ProblemError, match="labels must be"):
        Grouping(np.array(labels), 2)


@pytest.mark.parametrize("chosen", [[0, 0], [4], [-1]])
def test_bad_chosen_cells_are_refused(chosen: list[int]) -> None:
    with pytest.raises(ProblemError, match="chosen"):
        Restricted(identity(4), np.array(chosen))


def test_operators_over_different_cells_are_not_stacked() -> None:
    with pytest.raises(ProblemError, match="same cells"):
        Stacked((identity(2), identity(3)))
    with pytest.raises(ProblemError, match="finite"):
        Kronecker((np.array([[np.inf]]),))


ATTRIBUTES = {"hispanic": ("no", "yes"), "race": ("white", "black", "other"), "age": ("0", "1", "2", "3")}
GROUPINGS = {
    "school": ValueGroups("age", {"small": "0", "pupil": "1..2"}),
    "minority": ValueGroups("race", {"no": "white", "yes": ["black", "other"]}),
}
PLAIN = Schema(ATTRIBUTES, (), GROUPINGS)
ZEROS = Schema(ATTRIBUTES, ("age = 0 & race = white | black", "hispanic = yes & race = other"), GROUPINGS)
TEXTS = (
    "total",
    "detail",
    "race",
    "age * hispanic",
    "hispanic * race * age",
    "school",
    "minority * school",
    "age[..1, 2.., 0 | 3]",
    "race * age[..1, 2..]",
    "cumulative(age)",
    "cumulative(age) * hispanic",
)


def matching(schema: Schema, query: Query) -> np.ndarray:
    """Return bool[answers, allowed cells] by reading the labels: an oracle that knows no operator."""
    rows = []
    for label in query.labels():
        conditions = [] if label == "total" else label_parts(label)
        rows.append(
            [all(meets(schema, cell, title, answer) for title, answer in conditions) for cell in range(schema.size)]
        )
    return np.array(rows)


def label_parts(label: str) -> list[tuple[str, str]]:
    """Split ``a[x, y] = z, b = c`` at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(label + ","):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            title, _, answer = label[start:position].strip().rpartition(" = ")
            parts.append((title, answer))
            start = position + 1
    return parts


def meets(schema: Schema, cell: int, title: str, answer: str) -> bool:
    values = dict(part.split(" = ") for part in schema.label(cell).split(", "))
    if title in schema.groupings:
        members = schema.groupings[title].groups[answer]
        texts = [members] if isinstance(members, str) else members
        return values[schema.groupings[title].of] in [value for text in texts for value in spelled(text)]
    if title.startswith("cumulative") or "[" in title:
        return values["age"] in spelled(answer)
    return values[title] == answer


def spelled(text: str) -> list[str]:
    """Return the values of ``a | b..c`` for ages 0..3 and single races."""
    out = []
    for part in text.split("|"):
        first, dots, last = part.strip().partition("..")
        out += [first] if not dots else [str(age) for age in range(int(first or 0), int(last or 3) + 1)]
    return out


@pytest.mark.parametrize("schema", [PLAIN, ZEROS], ids=["plain", "zeros"])
@pytest.mark.parametrize("text", TEXTS)
def test_answers_count_the_cells_that_their_labels_name(schema: Schema, text: str) -> None:
    query = parse_query(text, schema)
    expected = matching(schema, query)
    assert np.array_equal(query.operator.to_sparse().toarray(), expected)
    assert len(set(query.labels())) == query.answers == len(expected)
    if isinstance(query.operator, Grouping):
        assert expected.any(axis=1).all()  # combinations that no allowed cell enters are not asked
    columns = query.columns()
    assert all(len(column) == query.answers for column in columns.values())
    texts = [
        ", ".join(f"{t} = {column[row]}" for t, column in columns.items()) or "total" for row in range(query.answers)
    ]
    assert texts == query.labels()


@pytest.mark.parametrize("schema", [PLAIN, ZEROS], ids=["plain", "zeros"])
@pytest.mark.parametrize("text", TEXTS)
def test_sensitivities_by_brute_force_over_single_person_changes(schema: Schema, text: str) -> None:
    query = parse_query(text, schema)
    unit = np.eye(schema.size, dtype=np.int64)
    added = query.operator.apply(unit)
    alone = Sensitivity(int(np.abs(added).sum(axis=1).max()), int((added**2).sum(axis=1).max()))
    assert query.sensitivity("add_remove") == alone
    # Two regions of one level: a person replaced changes a cell of one and a cell of either.
    changes = [unit[a] - unit[b] for a, b in combinations(range(schema.size), 2)]
    within = query.operator.apply(np.array(changes))
    across = [np.concatenate([added[a], -added[b]]) for a, b in product(range(schema.size), repeat=2)]
    l1 = max(np.abs(within).sum(axis=1).max(), np.abs(across).sum(axis=1).max())
    l2 = max((within**2).sum(axis=1).max(), (np.array(across) ** 2).sum(axis=1).max())
    assert query.sensitivity("replace") == Sensitivity(int(l1), int(l2))


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("schema", [PLAIN, ZEROS], ids=["plain", "zeros"])
def test_a_person_changes_all_regions_of_a_level_by_no_more_than_is_paid_for(
    schema: Schema, neighbours: Neighbours
) -> None:
    hierarchy = Hierarchy.from_paths([("r", f"p{leaf // 2}", f"l{leaf}") for leaf in range(4)])
    rng = np.random.default_rng(3)
    before = rng.integers(1, 4, (4, schema.size))
    queries = [parse_query(text, schema) for text in TEXTS]
    farthest = np.zeros((len(queries), 2))
    for _ in range(150):
        after = before.copy()
        after[rng.integers(4), rng.integers(schema.size)] -= 1
        if neighbours == "replace":
            after[rng.integers(4), rng.integers(schema.size)] += 1
        tables = [TableCounts.from_counts(hierarchy, schema, leaves) for leaves in (before, after)]
        for index, query in enumerate(queries):
            for level in range(3):
                answers = [leaves.answers_to(query.operator, hierarchy.level_range(level)) for leaves in tables]
                away = answers[0] - answers[1]
                farthest[index] = np.maximum(farthest[index], [np.abs(away).sum(), (away**2).sum()])
    for query, (l1, l2_squared) in zip(queries, farthest, strict=True):
        assert query.sensitivity(neighbours) == Sensitivity(int(l1), int(l2_squared))


@pytest.mark.parametrize("factor", [[[1.0, -1.0]], [[2.0, 0.0]], [[1.0, 0.5]], [[0.0, 0.0]], [[1.0, -1.0], [0.0, 1.0]]])
def test_other_weights_than_0_and_1_are_refused(factor: list[list[float]]) -> None:
    operator = Kronecker((np.array(factor),))
    with pytest.raises(ProblemError, match="weights 0 and 1"):
        Query("q", "q", operator, (), np.arange(operator.answers))


def test_known_sensitivities() -> None:
    expected = {"total": (1, 1), "detail": (1, 1), "age[..1, 2.., 0 | 3]": (2, 2), "cumulative(age)": (4, 4)}
    for text, both in expected.items():
        query = parse_query(text, PLAIN)
        assert query.sensitivity("add_remove") == Sensitivity(*both)


def test_names_are_the_text_in_its_normal_form_unless_given() -> None:
    assert parse_query(" race*age[ ..1,2.. ] ", PLAIN).name == "race * age[..1, 2..]"
    assert parse_query("identity", PLAIN).text == "detail"
    query = parse_query("race", PLAIN, "by race")
    assert (query.name, query.text) == ("by race", "race")
    assert parse_query(parse_query("cumulative(age)*hispanic", PLAIN).text, PLAIN).combinations.size == 8


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("rice", "unknown-attribute", "did you mean 'race'"),
        ("hispanic * scool", "unknown-attribute", "did you mean 'school'"),
        ("income", "unknown-attribute", "use one of 'hispanic', 'race', 'age', 'school', 'minority'"),
        ("age[..7]", "unknown-value", "value of 'age' '7', which is an end of '..7'; use one of '0', '1', '2'"),
        ("age[2..1]", "bad-range", "ends before"),
        ("age[..1, ..1]", "bad-query", "given twice"),
        ("age[..1", "bad-query", "a query reads"),
        ("", "bad-query", "a query reads"),
        ("race *", "bad-query", "a query reads"),
        ("sum(age)", "bad-query", "a query reads"),
        ("cumulative(years)", "unknown-attribute", "no attribute 'years'"),
        ("age * school", "bad-query", "'age' twice"),
        ("race x age", "bad-query", "attributes are crossed by *, such as 'race * age'"),
        ("race * total", "unknown-attribute", "no attribute 'total'"),
    ],
)
def test_queries_that_cannot_be_read_name_themselves_and_the_nearest(text: str, code: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_query(text, PLAIN)
    assert caught.value.code == code
    assert said in str(caught.value)
    assert repr(text) in str(caught.value)


def test_a_query_without_cells_and_a_query_given_twice_are_refused() -> None:
    schema = Schema({"a": ["x", "y"], "b": ["u", "v"]}, ["a = x & b = u"], {"g": ValueGroups("a", {"only": "x"})})
    assert parse_query("g * b", schema).labels() == ["g = only, b = v"]
    with pytest.raises(InputError, match="counts no cell"):
        parse_query("a[x] * b[u]", schema)
    with pytest.raises(InputError, match="given twice"):
        parse_queries(["race", " race"], PLAIN)
    with pytest.raises(ProblemError, match="unknown neighbours"):
        parse_query("race", PLAIN).sensitivity("swap")  # type: ignore[arg-type]
