"""Table look-ups of the exact noise sampler: 16 bits a symbol first, 64 bits where those do not decide.

The problem: invert the distribution function of a discrete noise distribution exactly, at a cost of a few nanoseconds a
value. A symbol's outcome is the number of thresholds (exact binary fractions) below its random bits.

1. Look up the outcome that the first 16 bits decide (``look_up``, ``combine``, ``propose``), without branches; the
   places of those that these bits leave open are returned.
2. For these alone, search the outcome among 64-bit thresholds (``search``), put symbols together (``assemble``), and
   accept or reject proposals (``judge``).
3. Ties at 64 bits are marked OPEN; the caller settles them with more bits.

Integers only. int64 and uint64 are never mixed in one operation, for their common type would be a double.

Invariant: every decided value is the exact sampler's. Cost: O(n) a pass, with a binary search for the symbols that 64
bits decide.
Source: the inversion method (Devroye 1986, chapter III); blocks, tables and error bounds are our own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Int16 = NDArray[np.int16]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt16 = NDArray[np.uint16]
UInt64 = NDArray[np.uint64]
States = NDArray[np.uint8]

UNDECIDED = -32768  # in a root table: 16 bits leave more than one outcome

ACCEPTED, REJECTED, OPEN = 0, 1, 2  # states of a proposal; OPEN needs more bits


@compiled
def look_up(words: UInt16, root: Int16, out: Int64, opened: Int64) -> int:
    """Add root[words[i]] to out[i] where it decides; return how many it leaves, their places in ``opened``.

    words and out have n entries, opened room for n, root 2^16. O(n).
    """
    left = 0
    # Every entry writes its place; the count moves on only past undecided ones, so there is no branch to guess.
    for i in range(words.size):
        symbol = np.int64(root[words[i]])
        undecided = symbol == UNDECIDED
        out[i] += np.int64(0) if undecided else symbol
        opened[left] = i
        left += int(undecided)
    return left


@compiled
def combine(words: UInt16, roots: Int16, shifts: Int64, block_bits: int, out: Int64, opened: Int64) -> int:
    """Add to out[i] the variable of block roots[0, w0] and place the sum of roots[j + 1, w(j+1)] << shifts[j].

    words [n, 1 + digits], roots [1 + digits, 2^16]. Returns how many entries are left undecided, their places in
    ``opened``. O(n digits), free of branches.
    """
    left = 0
    top = roots[0]
    for i in range(words.shape[0]):
        block = np.int64(top[words[i, 0]])
        undecided = np.int64(block == UNDECIDED)
        place = np.int64(0)
        # The digits' bits do not overlap: their sum is the place in the block.
        for j in range(shifts.size):
            digit = np.int64(roots[j + 1, words[i, j + 1]])
            undecided |= np.int64(digit == UNDECIDED)
            place += digit << shifts[j]
        # A negative block counts down from -1: flipping all bits mirrors block and place together.
        sign = block >> 63
        noise = (((block ^ sign) << block_bits) + place) ^ sign
        out[i] += noise & (undecided - 1)  # all bits where it is decided, else none
        opened[left] = i
        left += int(undecided)
    return left


@compiled
def propose(words: UInt16, root: Int16, block_bits: int, keep: Int64, out: Int64, opened: Int64) -> int:
    """Add to out[i] the place in the block root[w0] that the next words give, where the last word surely keeps it.

    words [n, 2 + place words]; the place words hold a sign in their lowest bit and block_bits bits above it;
    keep[g] / 2^16 is at most the probability of keeping any place of block g, and its last entry, which stands
    for all further blocks, is 0. Returns how many entries are left, their places in ``opened``. O(n).
    """
    left = 0
    last = words.shape[1] - 1
    further = keep.size - 1
    mask = (np.int64(1) << block_bits) - 1
    for i in range(words.shape[0]):
        block = np.int64(root[words[i, 0]])
        tabulated = (block & 0xFFFF) < further  # UNDECIDED becomes large
        opens = np.int64(np.int64(words[i, last]) >= keep[block if tabulated else further])
        bits = np.int64(words[i, 1])
        # The place's bits, 16 a word, above those of the first word.
        for j in range(2, last):
            bits |= np.int64(words[i, j]) << (16 * (j - 1))
        noise = ((block << block_bits) + ((bits >> 1) & mask)) ^ -(bits & 1)
        out[i] += noise & (opens - 1)
        opened[left] = i
        left += int(opens)
    return left


@compiled
def search(
    bits: UInt64, roots: Int16, values: UInt64, cells: Int32, firsts: Int64, outcomes: Int64, states: States
) -> None:
    """Write the outcomes [n, distributions] that the 64 bits of each symbol decide; states[i] is OPEN at a tie.

    bits [n, distributions or more]; each distribution has a row of the tables. Its thresholds are in ``values``, where
    cells[distribution, c] counts those before its first that begins with the 16 bits c or more. O(n distributions log
    thresholds).
    """
    for i in range(bits.shape[0]):
        states[i] = ACCEPTED
        for distribution in range(firsts.size):
            number = bits[i, distribution]
            cell = np.int64(number >> np.uint64(48))
            outcome = np.int64(roots[distribution, cell])
            # The thresholds that begin with these 16 bits are few: a binary search among them.
            if outcome == UNDECIDED:
                low = np.int64(cells[distribution, cell])
                high = np.int64(cells[distribution, cell + 1])
                while low < high:
                    middle = (low + high) >> 1
                    if values[middle] < number:
                        low = middle + 1
                    else:
                        high = middle
                # A threshold with the same 64 bits: only further bits can tell on which side the symbol lies.
                if low < np.int64(cells[distribution, 65536]) and values[low] == number:
                    states[i] = OPEN
                outcome = firsts[distribution] + low
            outcomes[i, distribution] = outcome


@compiled
def assemble(outcomes: Int64, shifts: Int64, block_bits: int, noise: Int64) -> None:
    """Put block outcomes[i, 0] and digits outcomes[i, j + 1] << shifts[j] together, as ``combine`` does. O(n)."""
    for i in range(noise.size):
        place = np.int64(0)
        for j in range(shifts.size):
            place += outcomes[i, j + 1] << shifts[j]
        sign = outcomes[i, 0] >> 63
        noise[i] = (((outcomes[i, 0] ^ sign) << block_bits) + place) ^ sign


@compiled
def judge(
    lots: UInt64,
    blocks: Int64,
    bits: Int64,
    block_bits: int,
    factor: int,
    margin: int,
    part: Int64,
    noise: Int64,
    states: States,
) -> None:
    """Write the proposals to ``noise`` and compare the first 30 bits of their lots with exp(-x).

    x = c r (2 g + r) for the place r = (distance from the block's near end) / 2^block_bits <= 1 of block g, which
    is below 2^12 - 1, and c = factor / 2^38 at most 2^-13, so that x < 1. States that are ACCEPTED stay so or become
    REJECTED or OPEN. r carries 20 bits, so that r (2 g + r) is off by less than 2^-7 and x by less than 2^-20; the
    factor adds 2^-25; part[f] = 2^30 exp(-f / 256) and the series are off by less than 2^-25: together less than
    2^-19, and the margin is 2^-17 (all of 2^30). O(n).
    """
    mask = (np.int64(1) << block_bits) - 1
    # The lowest bit is the sign, the bits above it the place in the block.
    for i in range(noise.size):
        sign = bits[i] & 1
        place = (bits[i] >> 1) & mask
        noise[i] = ((blocks[i] << block_bits) + place) ^ -sign
        if states[i] != ACCEPTED:
            continue
        # Fixed point: r has 20 bits, x = c r (2 g + r) has 30, and exp(-x) = table x series up to the second order.
        far = place + sign
        r = far << (20 - block_bits) if block_bits <= 20 else far >> (block_bits - 20)
        x = (((r * ((blocks[i] << 21) + r)) >> 16) * factor) >> 32
        rest = x & ((1 << 22) - 1)
        value = (part[x >> 22] * ((1 << 30) - rest + ((rest * rest) >> 31))) >> 30
        lot = np.int64(lots[i] >> np.uint64(34))
        if lot > value + margin:
            states[i] = REJECTED
        elif lot >= value - margin:
            states[i] = OPEN
