"""Queries over a table, read from text: marginals, groupings and ranges of attributes and their products.

* ``total``: everybody; ``detail`` (or ``identity``): every cell that can occur;
* ``race``, ``hispanic * race``: marginals; the name of a grouping counts its groups: ``age_groups * race``;
* ``age[..17, 18..64, 65..]``: lists of values and spans in the declared order, which may overlap;
* ``cumulative(age)``: for every value, everybody up to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import InputError, ProblemError
from coco_opt.operators import Grouping, Kronecker, Operator, Restricted
from coco_opt.privacy.budget import NEIGHBOURS, Neighbours
from coco_opt.privacy.cost import Sensitivity
from coco_opt.topdown.names import find, read_values
from coco_opt.topdown.schema import Schema

_LISTED = re.compile(r"(?P<name>[^\[\]()]+)\[(?P<ranges>[^\[\]]*)\]")
_CUMULATIVE = re.compile(r"cumulative\s*\((?P<name>[^()]*)\)")
_FACTORS = re.compile(r"\*(?![^\[]*\])")


@dataclass(frozen=True, eq=False, slots=True)
class Factor:
    """What a query counts of one attribute, with a name for each answer.

    ``counts`` are labels int64[values], each value's answer or -1 for none, or, where a value counts in several
    answers, a 0/1 matrix float64[answers, values]. ``complete`` says that the answers are the attribute's values, one
    each.
    """

    attribute: int
    title: str
    answers: tuple[str, ...]
    counts: Ints | Floats
    complete: bool = False

    @property
    def labels(self) -> Ints | None:
        """Return each value's answer, -1 for none, or None where a value counts in several."""
        return self.counts.astype(np.int64) if self.counts.ndim == 1 else None

    @property
    def matrix(self) -> Floats:
        """Return the 0/1 weights, float64[answers, values]."""
        if self.counts.ndim == 2:
            return self.counts.astype(np.float64)
        return np.asarray(self.counts == np.arange(len(self.answers))[:, None], np.float64)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Query:
    """A linear query with 0/1 weights over the cells that can occur; build it with ``parse_query``.

    ``operator`` maps tables [..., schema.size] to [..., answers]; ``combinations`` int64[answers] are the answers'
    combinations of the factors' answers, numbered in C order. Where no value counts in two answers of a factor,
    combinations that no cell can enter are left out. ``most_answers`` is in how many answers one person counts at
    most. Raises ProblemError for other weights than 0 and 1.
    """

    name: str
    text: str
    operator: Operator
    factors: tuple[Factor, ...]
    combinations: Ints
    most_answers: int = field(init=False)

    def __post_init__(self) -> None:
        combinations = np.array(self.combinations, dtype=np.int64)
        combinations.setflags(write=False)
        object.__setattr__(self, "combinations", combinations)
        if combinations.shape != (self.operator.answers,):
            raise ProblemError(f"query {self.name!r}: {self.operator.answers} answers need as many labels")
        largest = _most_answers(self.operator)
        if largest < 1:
            raise ProblemError(f"query {self.name!r} must count at least one cell, with weights 0 and 1 only")
        object.__setattr__(self, "most_answers", largest)

    def __reduce__(self) -> tuple[Callable[..., Query], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return Query, (self.name, self.text, self.operator, self.factors, self.combinations)

    @property
    def answers(self) -> int:
        """Return the number of answers."""
        return self.operator.answers

    @property
    def marginal(self) -> frozenset[int] | None:
        """Return the attributes whose marginal this is, or None for another kind of query."""
        if all(factor.complete for factor in self.factors):
            return frozenset(factor.attribute for factor in self.factors)
        return None

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """Return by how much neighbouring databases change the answers of all regions of a level.

        A person replaced leaves one cell and enters another, perhaps of another region. The weights are 0 or 1, so
        both norms at most double, and do where the two cells share no answer.
        """
        if neighbours not in NEIGHBOURS:
            raise ProblemError(f"unknown neighbours {neighbours!r}: use one of {', '.join(NEIGHBOURS)}")
        times = 2 if neighbours == "replace" else 1
        return Sensitivity(self.most_answers * times, self.most_answers * times)

    @property
    def words(self) -> str:
        """Return in words what the answers count."""
        named = {"total": "persons in all", "detail": "persons in every cell that can occur"}
        return named.get(self.text, f"persons by {self.text}")

    def label(self, answer: int) -> str:
        """Return what an answer counts in words, ``hispanic = yes, race = white``, or ``total``."""
        places = np.unravel_index(int(self.combinations[answer]), self._shape)
        parts = zip(self.factors, places, strict=True)
        return ", ".join(f"{factor.title} = {factor.answers[int(place)]}" for factor, place in parts) or "total"

    def labels(self) -> list[str]:
        """Return all answers in words."""
        if not self.factors:
            return ["total"]
        titled = [[f"{title} = {name}" for name in names] for title, names in self.columns().items()]
        return [", ".join(parts) for parts in zip(*titled, strict=True)]

    def columns(self) -> dict[str, list[str]]:
        """Return, for a table of answers, one column per factor with the answers' names in it; none for the total."""
        if not self.factors:
            return {}
        places = np.unravel_index(self.combinations, self._shape)
        parts = zip(self.factors, places, strict=True)
        return {factor.title: [factor.answers[place] for place in column.tolist()] for factor, column in parts}

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(len(factor.answers) for factor in self.factors)

    def __repr__(self) -> str:
        return f"Query({self.text!r}, {self.answers:,} answers)"


def _most_answers(operator: Operator) -> int:
    """Return in how many answers one cell counts at most, 0 where some weight is neither 0 nor 1.

    Both sensitivities, and their doubling under "replace", hold for such weights: a person moved from a weight of -1
    to one of 1 would change the squared norm fourfold.
    """
    absolute, signed = operator.absolute_columns, operator.adjoint(np.ones(operator.answers))
    if not np.array_equal(absolute, operator.squared_columns) or not np.array_equal(absolute, signed):
        return 0
    largest = float(absolute.max(initial=0.0))
    return int(largest) if largest.is_integer() else 0


def parse_query(text: str, schema: Schema, name: str | None = None) -> Query:
    """Return the query of a text over a schema; its name is the text in its normal form unless a name is given.

    Raises InputError (bad-query, unknown-attribute, unknown-value, bad-range), naming the text and the nearest name.
    """
    stripped = text.strip()
    if stripped in ("detail", "identity"):
        factors = [_attribute(axis, schema) for axis in range(len(schema.names))]
        normal = "detail"
    elif stripped == "total":
        factors, normal = [], "total"
    else:
        factors = [_factor(part.strip(), schema, text) for part in _FACTORS.split(stripped)]
        normal = " * ".join(factor.title for factor in factors)
    axes = [factor.attribute for factor in factors]
    if len(set(axes)) < len(axes):
        twice = next(schema.names[axis] for axis in axes if axes.count(axis) > 1)
        raise InputError("bad-query", f"{text!r} uses the attribute {twice!r} twice")
    if any(factor.labels is None for factor in factors):
        factors.sort(key=lambda factor: factor.attribute)  # a Kronecker product's answers are in this order
        operator, combinations = _kronecker(factors, schema)
    else:
        operator, combinations = _grouping(factors, schema)
    if not operator.absolute_columns.any():
        raise InputError("bad-query", f"{text!r} counts no cell that the structural zeros allow")
    return Query(name or normal, normal, operator, tuple(factors), combinations)


def parse_queries(texts: Sequence[str], schema: Schema) -> tuple[Query, ...]:
    """Return queries from their texts.

    Parameters
    ----------
    texts : sequence of str
        "total", "detail" (every cell), an attribute, or attributes joined by " * ", such as "sex * age".
    schema : Schema
        The attributes and cells.

    Returns
    -------
    tuple of Query
        Linear queries, in the order of the texts.

    Raises
    ------
    InputError
        bad-query: a text names what the schema does not have, or is given twice.

    Examples
    --------
    >>> from coco_opt import Schema, parse_queries
    >>> [query.name for query in parse_queries(["total", "sex"], Schema({"sex": ["female", "male"]}))]
    ['total', 'sex']
    """
    queries = tuple(parse_query(text, schema) for text in texts)
    names = [query.name for query in queries]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError("bad-query", f"the query {twice!r} is given twice")
    return queries


def marginal_query(attributes: Sequence[int], schema: Schema) -> Query:
    """Return the marginal of attributes given by their places; all of them are the detail, none the total."""
    axes = sorted(attributes)
    if len(axes) == len(schema.names):
        return parse_query("detail", schema)
    return parse_query(" * ".join(schema.names[axis] for axis in axes) or "total", schema)


def _factor(part: str, schema: Schema, text: str) -> Factor:
    listed, cumulative = _LISTED.fullmatch(part), _CUMULATIVE.fullmatch(part)
    if listed is not None:
        return _listed(listed["name"].strip(), listed["ranges"].split(","), schema, text)
    if cumulative is not None:
        axis = find(cumulative["name"].strip(), schema.names, "attribute", text)
        values = schema.attributes[schema.names[axis]]
        names = tuple(f"..{value}" for value in values)
        return Factor(axis, f"cumulative({schema.names[axis]})", names, np.tri(len(values)))
    if not part or set("[]()") & set(part):
        form = "name * name, name[values, values] or cumulative(name)"
        raise InputError("bad-query", f"{text!r}: a query reads {form}, not {part!r}")
    if part in schema.group_labels:
        axis, labels = schema.group_labels[part]
        names = tuple(schema.groupings[part].groups)
        return Factor(axis, part, names, labels)
    valid = (*schema.names, *schema.group_labels)
    crossed = [word for word in re.split(r"\W+", part) if word in valid]
    if part not in valid and len(crossed) > 1:
        joined = " * ".join(crossed)
        raise InputError("bad-query", f"{text!r}: attributes are crossed by *, such as {joined!r}")
    return _attribute(find(part, valid, "attribute", text), schema)


def _attribute(axis: int, schema: Schema) -> Factor:
    name = schema.names[axis]
    values = tuple(schema.attributes[name])
    return Factor(axis, name, values, np.arange(len(values)), complete=True)


def _listed(name: str, ranges: Sequence[str], schema: Schema, text: str) -> Factor:
    axis = find(name, schema.names, "attribute", text)
    values = schema.attributes[name]
    matrix = np.zeros((len(ranges), len(values)))
    for row, listed in enumerate(ranges):
        matrix[row, read_values(listed, name, values, text)] = 1.0
    names = tuple(" ".join(listed.split()) for listed in ranges)
    if len(set(names)) < len(names):
        raise InputError("bad-query", f"{text!r}: a range of {name!r} is given twice")
    overlap = (matrix.sum(axis=0) > 1).any()
    counts = matrix if overlap else np.where(matrix.any(axis=0), matrix.argmax(axis=0), -1)
    return Factor(axis, f"{name}[{', '.join(names)}]", names, counts)


def _grouping(factors: Sequence[Factor], schema: Schema) -> tuple[Operator, Ints]:
    """Return the sums over the combinations that an allowed cell enters, and which those are."""
    codes = np.unravel_index(schema.allowed, schema.shape)
    combined = np.zeros(schema.size, np.int64)
    counted = np.ones(schema.size, np.bool_)
    for factor in factors:
        assert factor.labels is not None
        own = factor.labels[codes[factor.attribute]]
        counted &= own >= 0
        combined = combined * len(factor.answers) + own
    combinations, inverse = np.unique(combined[counted], return_inverse=True)
    places = np.full(schema.size, -1, np.int64)
    places[counted] = inverse
    return Grouping(places, int(combinations.size)), combinations


def _kronecker(factors: Sequence[Factor], schema: Schema) -> tuple[Operator, Ints]:
    """Return the product over the attributes; the factors are in the schema's order."""
    by_axis = {factor.attribute: factor.matrix for factor in factors}
    product = Kronecker(tuple(by_axis.get(axis, np.ones((1, size))) for axis, size in enumerate(schema.shape)))
    operator: Operator = product if schema.size == schema.cells else Restricted(product, schema.allowed)
    return operator, np.arange(prod(len(factor.answers) for factor in factors), dtype=np.int64)
