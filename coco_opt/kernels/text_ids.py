"""Look up texts in a list of distinct texts, by their bytes.

The problem: for texts t and a list of distinct texts, find the place of each t in the list, and whether the texts of a
list are distinct at all. Every text is plain: printable ASCII without a space at either end.

1. Pack each text into words of 8 bytes, zeros behind it. No byte of a plain text is zero, so equal words are equal
   texts; a text that is not plain, or too long for the words, ends the work.
2. Build the table: put each text of the list into the first free slot at or behind the one that its hash names, unless
   an equal one comes first.
3. Look up a text in the same way: go from its hash's slot on until an equal text, or a free slot.

Invariant: between the slot that a text's hash names and the slot where it lies, no slot is free. Cost: O(bytes) to
pack; O(1) expected for each text put or looked up, while a fifth of the slots is free.
Source: Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithm L; the hash mixes words as MurmurHash3
does (Appleby, public domain).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

UInt64Array = NDArray[np.uint64]
_FIRST, _SECOND, _SHIFT = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33)
_BLOCK = 256  # rows
_SPACE, _LEAST, _LARGEST = 32, 33, 126  # bytes


@compiled
def _pack(ends: Any, data: Any, words: Any) -> int:
    """Write texts into ``words``, which are zero; return the first row that is not plain or too long, -1 for none."""
    for row in range(words.shape[0]):
        # A text ends where the next one begins.
        begin, length = ends[row], ends[row + 1] - ends[row]
        # The caller tells the two apart: more words may help a long text, and nothing an empty one.
        if length == 0 or length > 8 * words.shape[1]:
            return row
        for k in range(length):
            byte = data[begin + k]
            # A space is plain between other characters only.
            if (byte < _LEAST or byte > _LARGEST) and (byte != _SPACE or k == 0 or k == length - 1):
                return row
            # The first character is the lowest byte.
            words[row, k >> 3] |= np.uint64(byte) << np.uint64(8 * (k & 7))
    return -1


@compiled
def _hash(words: Any, row: int) -> Any:
    """Return a hash of a text, the same for any number of words behind its last one that is not zero."""
    mixed = np.uint64(0)
    for k in range(words.shape[1]):
        word = words[row, k]
        # What follows is empty, too.
        if word == np.uint64(0):
            break
        # Each word changes what the next one is mixed with, so that their order counts.
        mixed ^= word
        # A change of any bit changes about half of the others.
        mixed = (mixed ^ (mixed >> _SHIFT)) * _FIRST
        mixed = (mixed ^ (mixed >> _SHIFT)) * _SECOND
    return mixed ^ (mixed >> _SHIFT)


@compiled
def _slot_of(words: Any, row: int, keys: Any, slots: Any) -> Any:
    """Return the slot of the key that equals a text, or the free one where it would lie."""
    # The number of slots is a power of two: the last bits of a hash are a slot, without a division.
    slot = np.int64(_hash(words, row) & np.uint64(slots.size - 1))
    # Some slot is free, so the search ends.
    while slots[slot] >= 0:
        equal = True
        # The first word that differs ends the comparison.
        for k in range(keys.shape[1]):
            if keys[slots[slot], k] != words[row, k]:
                equal = False
                break
        # An unequal key lies here because its own slot was taken, or this one is its own.
        if equal:
            break
        # Behind the last slot comes the first.
        slot = (slot + 1) & (slots.size - 1)
    return slot


@compiled
def _insert(keys: Any, begin: int, end: int, slots: Any) -> int:
    """Put the keys ``begin`` .. ``end`` - 1 into free slots; return the first that equals an earlier one, or -1."""
    # Each key is looked for among those before it.
    for row in range(begin, end):
        slot = _slot_of(keys, row, keys, slots)
        # A taken slot that ends the search holds an equal text: the list repeats it.
        if slots[slot] >= 0:
            return row
        # The search ended at a free slot: there the key is found from now on.
        slots[slot] = row
    return -1


@compiled
def _find(words: Any, keys: Any, slots: Any, places: Any) -> int:
    """Write the place of each text among the keys; return the first that is none of them, or -1."""
    for begin in range(0, words.shape[0], _BLOCK):
        end = min(begin + _BLOCK, words.shape[0])
        # Without a branch, the processor waits for the memory of many rows at a time.
        for row in range(begin, end):
            places[row] = slots[_hash(words, row) & np.uint64(slots.size - 1)]
        for row in range(begin, end):
            # Most texts lie where their hash says; a free slot is compared with any key, and differs or is looked at.
            place: Any = max(places[row], 0)
            differ = np.uint64(0)
            for k in range(keys.shape[1]):
                differ |= keys[place, k] ^ words[row, k]
            # The others lie behind an unequal text, or nowhere.
            if differ != np.uint64(0) or places[row] < 0:
                place = slots[_slot_of(words, row, keys, slots)]
            if place < 0:
                return row
            places[row] = place
    return -1


@compiled
def _add_one(places: Any, sizes: Any) -> None:
    # The places lie anywhere: the processor waits for many of them at a time.
    for row in range(places.size):
        sizes[places[row]] += 1


def pack(ends: NDArray[np.int32], data: NDArray[np.uint8], words: UInt64Array) -> int:
    """Pack texts data[ends[k]:ends[k + 1]] into ``words``, uint64[texts, words a text], which are zero.

    Returns the first text that is empty, not plain or longer than its words, -1 for none. O(bytes).
    """
    return _pack(ends, data, words)


def insert(keys: UInt64Array, begin: int, end: int, slots: NDArray[np.int32]) -> int:
    """Put the texts ``begin`` .. ``end`` - 1 of packed ``keys`` into the table ``slots``, int32, -1 where one is free.

    The number of slots is a power of two. Returns the first text that equals an earlier one, -1 for none.
    """
    return _insert(keys, begin, end, slots)


def find(words: UInt64Array, keys: UInt64Array, slots: NDArray[np.int32], places: NDArray[np.int64]) -> int:
    """Write the place of each of the packed texts among the ``keys`` of the table ``slots`` into ``places``.

    Returns the first text that is no key, -1 for none. Texts and keys have the same number of words.
    """
    return _find(words, keys, slots, places)


def add_one(places: NDArray[np.int64], sizes: NDArray[np.int32]) -> None:
    """Add one to ``sizes`` at each of the places, which may repeat; O(places)."""
    _add_one(places, sizes)
