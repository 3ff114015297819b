"""The sampler does with its bits what the definition says: at every boundary, in any chunks, without a float."""

from __future__ import annotations

import ast
import decimal
import importlib
import pkgutil
from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import coco_opt.privacy
from coco_opt.kernels import noise_tables as kernels
from coco_opt.privacy import RunKey, table_sampler
from coco_opt.privacy import gaussian_sampler as gaussian_module
from coco_opt.privacy.gaussian_sampler import BlockGaussianSampler, gaussian_sampler
from coco_opt.privacy.keyed_stream import KeyedBits
from coco_opt.privacy.table_sampler import Refill, Sampler, laplace_sampler
from coco_opt.privacy.thresholds import NoiseDistribution, thresholds
from tests.privacy.exact_reference import CONTEXT, ChosenBits, exp, floor_of, gaussian_tails, laplace_tails

KEY = RunKey(bytes(range(32)))
PATH = ["intervals", "thresholds", "table_sampler", "gaussian_sampler", "keyed_stream", "run_key", "secure"]
SCALES = [Fraction(1, 7), Fraction(1), Fraction(10, 3), Fraction(10), Fraction(60)]


@pytest.fixture(autouse=True)
def one_hundred_digits() -> Iterator[None]:
    with decimal.localcontext(CONTEXT):
        yield


def boundary_streams(first: int, values: list[decimal.Decimal]) -> tuple[list[int], list[int]]:
    """Return 192-bit beginnings of U around F(x), x = first, ..., and the outcomes they decide.

    Around each F(x), of which ``values`` are some: one unit of the 64th bit off; equal there and one unit of the
    128th off; equal in 128 bits and one unit of the 192nd off.
    """
    bits: list[int] = []
    outcomes: list[int] = []
    for value in values:
        for taken in (64, 128, 192):
            threshold = floor_of(value, taken)
            for step in (-1, 1):
                word = (threshold + step) << (192 - taken)
                if not 0 <= word < 1 << 192:
                    continue
                place = bisect_left(values, (word + decimal.Decimal("0.5")) / (1 << 192))
                inside = 0 < place < len(values)
                if inside and word not in (floor_of(values[place - 1], 192), floor_of(values[place], 192)):
                    bits.append(word)
                    outcomes.append(first + place)
    return bits, outcomes


def source_of(bits: list[int]) -> ChosenBits:
    """Give cell i the bits of the i-th number, one symbol a cell."""
    words = np.array([[word >> 176] for word in bits], dtype=np.uint16)
    split = [[(word >> 128 & (2**48 - 1)) << 16, word >> 64 & (2**64 - 1), word & (2**64 - 1)] for word in bits]
    rows = np.array(split, dtype=np.uint64)
    blocks = {(0, 0): rows[:, None, :2], (0, 1): np.stack([rows[:, 2:], rows[:, 2:]], axis=-1)}
    return ChosenBits(words, blocks)


def test_ten_thousand_boundary_streams_fall_on_their_side() -> None:
    streams = 0
    deepest: set[tuple[int, int]] = set()
    for scale in SCALES:
        below, above = laplace_tails(scale)
        reach = min(len(below), 44 * int(scale) + 40)
        laplace = [*reversed(below[:reach]), *(1 - value for value in above[:reach])]
        tails = gaussian_tails(scale**2)
        half = min(len(tails), 9 * int(scale) + 9)
        gaussian = [*reversed(tails[:half]), *(1 - value for value in tails[:half])]
        for sampler, first, values in [
            (laplace_sampler(scale), -reach, laplace),
            (gaussian_sampler(scale**2), -half, gaussian),
        ]:
            bits, outcomes = boundary_streams(first, values)
            source = source_of(bits)
            noise = np.zeros(len(bits), dtype=np.int64)
            sampler.add(noise, 0, source)
            np.testing.assert_array_equal(noise, outcomes)
            streams += len(bits)
            deepest |= source.measurement_plan
    assert streams > 10_000
    assert deepest == {(0, 0), (0, 1)}  # some streams were open after 128 bits


@pytest.mark.parametrize("scale", [Fraction(1500), Fraction(10**6)], ids=str)
def test_ties_of_any_symbol_are_settled_by_its_own_further_bits(scale: Fraction) -> None:
    sampler = laplace_sampler(scale)
    rng = np.random.default_rng(3)
    rows = 300
    numbers = rng.integers(0, 2**64, (rows, sampler.width), dtype=np.uint64)
    more = rng.integers(0, 2**64, (rows, sampler.width, 2), dtype=np.uint64)
    expected = []
    for row in range(rows):
        tied = row % sampler.width
        values = thresholds(sampler.tables.distributions[tied], 64).values
        numbers[row, tied] = values[rng.integers(1, len(values) - 1)]
        pairs = zip(sampler.tables.distributions, numbers[row].tolist(), more[row, :, 1].tolist(), strict=True)
        block, *digits = (outcome_of(distribution, first << 64 | then, 128) for distribution, first, then in pairs)
        size = ((block if block >= 0 else ~block) << sampler.block_bits) + sum(d << 8 * j for j, d in enumerate(digits))
        expected.append(size if block >= 0 else -1 - size)
    more[:, :, 0] = (numbers & np.uint64(2**48 - 1)) << np.uint64(16)
    noise = np.zeros(rows, dtype=np.int64)
    sampler.add(noise, 0, ChosenBits((numbers >> np.uint64(48)).astype(np.uint16), {(0, 0): more}))
    np.testing.assert_array_equal(noise, expected)


def test_further_words_belong_to_one_symbol_and_are_used_once() -> None:
    source, cell = KeyedBits(KEY, "x"), np.array([9])
    first = source.more(cell, 2, range(3))[0]
    taken = [list(islice(Refill(source, cell, 2, first).of(symbol), 7)) for symbol in range(3)]
    for symbol, words in enumerate(taken):
        later = [source.more(cell, 2, range(symbol, symbol + 1), part).ravel().tolist() for part in (1, 2, 3)]
        assert words == [int(first[symbol, 1]), *chain.from_iterable(later)]
    assert len({*chain.from_iterable(taken), *first[:, 0].tolist()}) == 24


def test_the_support_has_no_end() -> None:
    # All bits 0 (or 1) for n bits lie beyond every threshold that n bits resolve.
    sampler = laplace_sampler(Fraction(10))
    noise = np.zeros(4, dtype=np.int64)
    sampler.add(noise, 0, source_of([1, 2**192 - 2, 2**70, 2**192 - 2**70]))
    expected = int(10 * 192 * 0.6931) - 10  # F(-m) is about 2^-192 there
    assert -expected - 20 < noise[0] < -expected + 20
    assert expected - 20 < noise[1] < expected + 20
    assert -noise[2] == pytest.approx(10 * 122 * 0.6931, abs=10)
    assert noise[3] == pytest.approx(10 * 122 * 0.6931, abs=10)


def outcome_of(distribution: NoiseDistribution, bits: int, taken: int) -> int:
    """Return the first x whose threshold exceeds the bits, by walking all of them."""
    exact = thresholds(distribution, taken)
    return next((exact.first + i for i, v in enumerate(exact.values) if v > bits), exact.first + len(exact.values))


@pytest.mark.parametrize("scale", [Fraction(3, 7), Fraction(20), Fraction(1500), Fraction(10**6)], ids=str)
def test_bulk_inversion_is_the_definition_applied_to_each_cell(scale: Fraction) -> None:
    sampler = laplace_sampler(scale)
    cells = np.arange(400)
    words = KeyedBits(KEY, "x").words(0, len(cells), sampler.width)
    more = KeyedBits(KEY, "x").more(cells, 0, range(sampler.width))
    noise = np.zeros(len(cells), dtype=np.int64)
    sampler.add(noise, 0, KeyedBits(KEY, "x"))
    for cell in cells.tolist():
        symbols = []
        for number, distribution in enumerate(sampler.tables.distributions):
            bits = (
                int(words[cell, number]) << 112 | (int(more[cell, number, 0]) >> 16) << 64 | int(more[cell, number, 1])
            )
            symbols.append(outcome_of(distribution, bits, 128))
        place = sum(digit << shift for digit, shift in zip(symbols[1:], range(0, 64, 8), strict=False))
        block = symbols[0] << sampler.block_bits
        expected = block + place if symbols[0] >= 0 else block + (1 << sampler.block_bits) - 1 - place
        assert noise[cell] == expected


def test_gaussian_blocks_are_the_definition_applied_to_each_cell() -> None:
    variance = Fraction(10**10, 3)
    sampler = BlockGaussianSampler(variance)
    cells = np.arange(3000)
    noise = np.zeros(len(cells), dtype=np.int64)
    sampler.add(noise, 0, KeyedBits(KEY, "x"))
    first = KeyedBits(KEY, "x").words(0, len(cells), sampler.width)
    attempts = 0
    for cell in cells.tolist():
        words, attempt, kept = first[cell], 0, None
        while kept is None:
            kept = proposal(sampler, words, KeyedBits(KEY, "x").more(cells[cell : cell + 1], attempt, range(2))[0])
            attempt += 1
            words = KeyedBits(KEY, "x").more(cells[cell : cell + 1], attempt, range(255, 256)).view("<u2").ravel()
            words = words[: sampler.width]
        attempts = max(attempts, attempt)
        assert noise[cell] == kept
    assert attempts > 1


def proposal(sampler: BlockGaussianSampler, words: NDArray[np.uint16], more: NDArray[np.uint64]) -> int | None:
    bits = [int(words[i]) << 48 | int(more[j, 0]) >> 16 for i, j in ((0, 0), (-1, 1))]
    block = outcome_of(sampler.tables.distributions[0], bits[0], 64)
    chosen = sum(int(word) << 16 * i for i, word in enumerate(words[1:-1]))
    near = block << sampler.block_bits
    size = near + (chosen >> 1) % (1 << sampler.block_bits)
    value = -1 - size if chosen & 1 else size
    exponent = Fraction(value**2 - near**2) / (2 * sampler.variance)
    return value if bits[1] < floor_of(exp(-exponent), 64) else None


@pytest.mark.parametrize("deviation", [Fraction(1100), Fraction(10**6), Fraction(2**33, 3)], ids=str)
def test_lots_at_the_edge_of_keeping_are_judged_exactly(deviation: Fraction) -> None:
    sampler = BlockGaussianSampler(deviation**2)
    rng = np.random.default_rng(1)
    rows = 200
    words = rng.integers(0, 2**16, (6 * rows, sampler.width), dtype=np.uint16)
    words[:, 0] = np.repeat(rng.choice(np.flatnonzero(sampler.tables.roots[0] != kernels.UNDECIDED), rows), 6)
    words[:, 1:-1] = np.repeat(words[::6, 1:-1], 6, axis=0)
    more = np.zeros((len(words), 2, 2), dtype=np.uint64)
    retry = np.zeros((len(words), 1, 2), dtype=np.uint64)  # the first word of the second attempt gives block 0
    third = np.zeros_like(more)
    expected = []
    for row in range(len(words)):
        block = int(sampler.tables.roots[0, words[row, 0]])
        chosen = sum(int(word) << 16 * i for i, word in enumerate(words[row, 1:-1]))
        near = block << sampler.block_bits
        size = near + (chosen >> 1) % (1 << sampler.block_bits)
        exponent = Fraction((size + (chosen & 1)) ** 2 - near**2) / (2 * deviation**2)
        taken, step = (64, 128)[row % 6 // 3], (-1, 0, 1)[row % 3]
        lot = (floor_of(exp(-exponent), taken) + step if exponent else taken) << (128 - taken)
        words[row, -1] = lot >> 112
        more[row, 1] = (lot >> 64 & (2**48 - 1)) << 16, lot & (2**64 - 1)
        value = ~size if chosen & 1 else size
        expected.append(value if lot < exp(-exponent) * 2**128 or not exponent else 0)
        if row % 12 == 10 and exponent:  # equal in 128 bits, and then all ones
            third[row] = 2**64 - 1
            expected[-1] = 0
    source = ChosenBits(words, {(0, 0): more, (0, 1): third, (1, -1): retry, (1, 0): np.zeros_like(more)})
    noise = np.zeros(len(words), dtype=np.int64)
    sampler.add(noise, 0, source)
    assert (0, 1) in source.measurement_plan
    np.testing.assert_array_equal(noise, expected)


@pytest.mark.parametrize("deviation", [Fraction(1025), Fraction(10**6), Fraction(2**40)], ids=str)
def test_the_kernels_probability_of_keeping_is_as_close_as_its_proof_says(deviation: Fraction) -> None:
    # Off by less than a quarter of the margin: lots a quarter inside it are open, a quarter outside are decided.
    sampler = BlockGaussianSampler(deviation**2)
    rng = np.random.default_rng(2)
    blocks = np.repeat(np.r_[0, 1, 1200, rng.integers(0, 1200, 1500)], 4)
    chosen = np.repeat(rng.integers(0, 2 << sampler.block_bits, len(blocks) // 4), 4)
    margin = gaussian_module._MARGIN
    steps = np.tile([-5 * margin // 4, -3 * margin // 4, 3 * margin // 4, 5 * margin // 4], len(blocks) // 4)
    lots = np.empty(len(blocks), dtype=np.uint64)
    fits = np.empty(len(blocks), dtype=bool)
    for row, (block, bits, step) in enumerate(zip(blocks.tolist(), chosen.tolist(), steps.tolist(), strict=True)):
        place = Fraction((bits >> 1) + (bits & 1), 1 << sampler.block_bits)
        lot = floor_of(exp(-sampler.ratio * place * (2 * block + place)), 30) + step
        fits[row] = lot < 2**30
        lots[row] = min(lot, 2**30 - 1) << 34
    noise, states = np.empty(len(blocks), dtype=np.int64), np.full(len(blocks), kernels.ACCEPTED, dtype=np.uint8)
    constants = (sampler.block_bits, sampler._factor, margin, sampler._part)
    kernels.judge(lots, blocks, chosen, *constants, noise, states)
    expected = np.tile([kernels.ACCEPTED, kernels.OPEN, kernels.OPEN, kernels.REJECTED], len(blocks) // 4)
    np.testing.assert_array_equal(states[fits], expected[fits])
    assert fits.sum() > 5000


def test_proposals_weigh_what_the_law_asks() -> None:
    # The weight of the block times the chance to keep is exp(-k^2 / 2v): exact equality of the exponents.
    sampler = BlockGaussianSampler(Fraction(12_345_678, 7))
    distribution = sampler.tables.distributions[0]
    width = 1 << sampler.block_bits
    for block in (0, 1, 5, 333):
        for far in (0, 1, width // 3, width):
            place = Fraction(far, width)
            keep = sampler.ratio * place * (2 * block + place)
            weight = Fraction(block**2) / (2 * distribution.variance)  # type: ignore[attr-defined]
            assert keep + weight == Fraction((block * width + far) ** 2) / (2 * sampler.variance)


@pytest.mark.parametrize("make", [laplace_sampler, gaussian_sampler])
@given(
    scale=st.sampled_from([Fraction(1, 3), Fraction(10), Fraction(900), Fraction(3000), Fraction(10**6)]),
    sizes=st.lists(st.integers(0, 700), max_size=6),
    start=st.sampled_from([0, 1, 7, 10**12]),
)
def test_any_chunking_is_bit_identical(make: object, scale: Fraction, sizes: list[int], start: int) -> None:
    sampler: Sampler = make(scale if make is laplace_sampler else scale**2)  # type: ignore[operator]
    total = sum(sizes)
    whole = np.zeros(total, dtype=np.int64)
    sampler.add(whole, start, KeyedBits(KEY, "c"))
    pieces = np.zeros(total, dtype=np.int64)
    at = 0
    for size in sizes:
        sampler.add(pieces[at : at + size], start + at, KeyedBits(KEY, "c"))
        at += size
    np.testing.assert_array_equal(whole, pieces)


@pytest.mark.parametrize("scale", [Fraction(10), Fraction(10**4)], ids=str)
def test_the_inner_chunks_do_not_show(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    for sampler in (laplace_sampler(scale), gaussian_sampler(scale**2)):
        n = 3 * table_sampler.BATCH // 2
        whole = np.zeros(n, dtype=np.int64)
        sampler.add(whole, 5, KeyedBits(KEY, "d"))
        with monkeypatch.context() as patch:
            patch.setattr(table_sampler, "BATCH", 5000)
            patch.setattr(gaussian_module, "BATCH", 7001)
            patch.setattr(table_sampler, "_CHUNK", 999)
            part = np.zeros(40_000, dtype=np.int64)
            sampler.add(part, 5 + n - 40_000, KeyedBits(KEY, "d"))
        np.testing.assert_array_equal(whole[-40_000:], part)


def test_scales_far_outside_the_useful_range_work() -> None:
    for scale in (Fraction(1, 10**9), Fraction(2**40)):
        for sampler in (laplace_sampler(scale), gaussian_sampler(scale**2)):
            noise = np.zeros(1000, dtype=np.int64)
            sampler.add(noise, 0, KeyedBits(KEY, "e"))
            assert noise.any() == (scale > 1)
            assert np.abs(noise).max() < 40 * scale
            if scale > 1:
                assert np.median(np.abs(noise)) / float(scale) == pytest.approx(0.69, abs=0.05)


def test_no_float_is_written_on_the_path() -> None:
    folder = Path(coco_opt.privacy.__file__).parent
    for file in [*(folder / f"{name}.py" for name in PATH), folder.parent / "kernels" / "noise_tables.py"]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.Div), (file.name, node)  # fractions are made by Fraction(a, b)
            assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
            assert not (isinstance(node, ast.Name) and node.id in {"float", "random"})
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("float")
                assert node.attr not in {"random", "double", "true_divide", "exp", "log", "sqrt"}


def test_the_modules_on_the_path_are_all_looked_at() -> None:
    loaded = {name for _, name, _ in pkgutil.iter_modules(coco_opt.privacy.__path__)}
    assert set(PATH) <= loaded
    for name in PATH:
        source = importlib.import_module(f"coco_opt.privacy.{name}").__file__
        assert source is not None
        tree = ast.parse(Path(source).read_text(encoding="utf-8"))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        inside = {module.removeprefix("coco_opt.privacy.") for module in imported if "coco_opt.privacy." in module}
        assert inside <= {*PATH, "noise"}  # noise.py: checks of the scale and of streams handed out twice


def test_no_compiled_variable_is_a_float() -> None:
    import numba

    for sampler in (laplace_sampler(Fraction(10)), laplace_sampler(Fraction(5000)), gaussian_sampler(Fraction(10**8))):
        sampler.add(np.zeros(2000, dtype=np.int64), 0, KeyedBits(KEY, "f"))
    for kernel in (kernels.look_up, kernels.combine, kernels.propose, kernels.search, kernels.assemble, kernels.judge):
        loaded = kernel.signatures  # type: ignore[attr-defined]
        assert loaded
        fresh = numba.njit(nogil=True)(kernel.py_func)  # type: ignore[attr-defined]  # the disk cache keeps no types
        for signature in loaded:
            fresh.compile(signature)
        for compiled in fresh.overloads.values():
            types = {str(kind) for kind in compiled.type_annotation.typemap.values()}
            assert not [kind for kind in types if "float" in kind or "complex" in kind]
