"""Controlled rounding of tables as a sparse program, integer or not, in each cell's excess over its floor.

Every cell starts from its floor (or the nearest number it may hold). One person more costs 1 - 2 fraction, further
persons
1 each, and so does every person less: at most three variables a cell, those without room left out. Where the distance
is that of answers to queries, people cost nothing and each answer has three such variables of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.forms import Formulation, LinearProgram, in_form
from coco_opt.problems.table_rounding.data import RoundingData, RoundingDual
from coco_opt.registry import program_solver
from coco_opt.solution import Status
from coco_opt.solver import hushed

_PRICE_SECONDS = 60.0  # for the linear relaxation that prices come from


@dataclass(frozen=True, eq=False, slots=True)
class Written:
    """A linear program with the way back to tables and prices.

    base int64[children, cells]; child, cell and sign of each variable; the rows of C that are in it [children x rows].
    """

    data: RoundingData
    program: LinearProgram
    base: Ints
    child: Ints
    cell: Ints
    sign: Ints
    row_present: Flags

    @property
    def integer(self) -> Flags:
        """Return which variables are people."""
        return np.arange(self.program.variables) < self.child.size

    def table(self, z: Floats) -> NDArray[Any]:
        """Return the tables of a point."""
        z = z[: self.child.size]
        integers = np.rint(z)
        if np.abs(z - integers).max(initial=0.0) <= 1e-6:
            table = self.base.copy()
            np.add.at(table, (self.child, self.cell), self.sign * integers.astype(np.int64))
            return table
        fractional: Floats = self.base.astype(np.float64)
        np.add.at(fractional, (self.child, self.cell), self.sign * z)
        return fractional

    def prices(self, dual: Floats) -> RoundingDual:
        """Return the problem's prices from those of the program's rows."""
        parent, rows, position = np.zeros(self.data.shape[1]), np.zeros(self.row_present.size), 0
        if self.data.parent is not None:
            position = self.data.open.size
            parent[self.data.open] = dual[:position]
        upto = position + int(self.row_present.sum())
        rows[self.row_present] = dual[position:upto]
        answers = -dual[upto:].reshape(self.data.shape[0], -1) if self.data.queries else None
        return RoundingDual(parent, rows.reshape(self.data.sides[0].shape), answers)


def program(data: RoundingData, form: type[LinearProgram]) -> Formulation[NDArray[Any], RoundingDual]:
    """Return the program in one of the problem's forms."""
    written = relaxation(data)
    chosen = in_form(written.program, form, written.integer)
    return Formulation(chosen, written.table, multipliers=lambda dual: written.prices(dual.rows))


def relaxation(data: RoundingData, sides: tuple[Floats, Floats] | None = None) -> Written:
    """Return the linear relaxation; rows of C without variables are left out, which the problem has checked.

    ``sides`` [children, rows] replace the problem's own, in the same sense as ``RoundingData.sides``.
    """
    from scipy.sparse import csc_array, csr_array, eye_array, kron, vstack

    low, high = data.box
    floors = np.floor(data.x).astype(np.int64)
    base = np.clip(floors, low, high)
    first = np.minimum(high - base, ((data.x > base) & (base == floors)).astype(np.int64))
    rooms = (first, high - base - first, base - low)
    where = [np.nonzero(room) for room in rooms]
    child, cell = (np.concatenate([place[axis] for place in where]) for axis in (0, 1))
    sign = np.repeat([1, 1, -1], [place[0].size for place in where])
    cost = np.ones(child.size)
    cost[: where[0][0].size] = 1.0 - 2.0 * (data.x - base)[where[0]]
    children, cells = data.shape
    position = np.full(cells, -1)
    position[data.open] = np.arange(data.open.size)
    signs = sign.astype(np.float64)
    pick = csr_array(
        (signs, (child * data.open.size + position[cell], np.arange(child.size))),
        shape=(children * data.open.size, child.size),
    )
    rows, shape = data.rows, (data.rows.shape[0], data.open.size)
    each = kron(eye_array(children), csr_array((rows.value, rows.cell, rows.start), shape=shape), format="csr") @ pick
    present = np.diff(csr_array(each).indptr) > 0
    moved, (lowest, highest) = _base_rows(data, base), sides or data.sides
    blocks, lower = [csr_array(each)[present]], [(lowest - moved).ravel()[present]]
    upper = [(highest - moved).ravel()[present]]
    if data.parent is not None:
        sums = csr_array(kron(np.ones((1, children)), eye_array(data.open.size), format="csr") @ pick)
        missing = (data.parent - base.sum(axis=0))[data.open].astype(np.float64)
        blocks, lower, upper = [sums, *blocks], [missing, *lower], [missing, *upper]
    linear = LinearProgram(
        c=cost,
        A=csc_array(vstack(blocks, format="csc")),
        row_lower=np.concatenate(lower),
        row_upper=np.concatenate(upper),
        lower=np.zeros(child.size),
        upper=np.concatenate([room[place] for room, place in zip(rooms, where, strict=True)]).astype(np.float64),
        offset=float(np.abs(base - data.x).sum()),
    )
    if data.queries:
        linear = _of_answers(data, linear, base, pick)
    return Written(data, linear, base, child, cell, sign, present)


def _of_answers(data: RoundingData, program: LinearProgram, base: Ints, pick: Any) -> LinearProgram:
    """Return the program with the queries' errors as its cost: each answer's excess over its aim's floor."""
    from scipy.sparse import block_array, csc_array, csr_array, eye_array, kron

    queries, children = data.query_rows, data.shape[0]
    matrix = csr_array(
        (queries.value, queries.cell, queries.start),
        shape=(queries.shape[0], data.open.size),
    )
    answers = kron(eye_array(children), matrix, format="csr") @ pick
    moved = np.ascontiguousarray((base - data.box[0])[:, data.open].astype(np.float64).T)
    floors = np.floor(data.aims)
    missing, above = (floors - queries.apply(moved).T).ravel(), (data.aims - floors).ravel()
    unit = eye_array(missing.size, format="csr")
    ones, free = np.ones(missing.size), np.full(2 * missing.size, np.inf)
    return LinearProgram(
        c=np.concatenate([np.zeros(program.variables), 1.0 - 2.0 * above, ones, ones]),
        A=csc_array(block_array([[program.A, None, None, None], [answers, -unit, -unit, unit]], format="csc")),
        row_lower=np.concatenate([program.row_lower, missing]),
        row_upper=np.concatenate([program.row_upper, missing]),
        lower=np.concatenate([program.lower, np.zeros(3 * missing.size)]),
        upper=np.concatenate([program.upper, ones, free]),
        offset=float(above.sum()),
    )


def _base_rows(data: RoundingData, base: Ints) -> Floats:
    """Return the excess of every row at the base over the least tables [children, rows]."""
    above = (base - data.box[0])[:, data.open].astype(np.float64)
    return np.ascontiguousarray(data.rows.apply(np.ascontiguousarray(above.T)).T)


def relaxed_prices(data: RoundingData) -> RoundingDual:
    """Return the optimal prices of the linear relaxation; zeros, which prove little, where it is not solved in time.

    By dual simplex of the solver table.
    """
    written = relaxation(data)
    with hushed:
        answer = program_solver("scipy", method="highs-ds", time_limit=_PRICE_SECONDS).solve_program(written.program)
    if answer.status is not Status.OPTIMAL or answer.dual is None:
        return RoundingDual.zeros(data.shape[1], data.sides[0].shape)
    prices: RoundingDual = written.prices(answer.dual.rows)
    return prices
