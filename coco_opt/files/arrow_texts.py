"""Texts as Arrow arrays of strings, and back: by their bytes, without an object a text; and their places in a list."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.execution.temporary_storage import stored_bytes
from coco_opt.histograms.hierarchy import Hierarchy, Paths
from coco_opt.histograms.texts import NONE, Texts

_AT_ONCE = 1 << 24  # bytes
_SPARSE = 8  # times as many texts as are wanted, from which these are copied one by one


def as_arrow(texts: Iterable[str | None]) -> Any:
    """Return an Arrow array of strings; of ``Texts`` it is their own memory."""
    import pyarrow as pa

    column = Texts.of(texts)
    content, ends = np.frombuffer(column.data, np.uint8), np.frombuffer(column.ends, np.int32)
    steps = range(0, content.size, _AT_ONCE)
    missing = [step + np.flatnonzero(content[step : step + _AT_ONCE] == NONE[0]) for step in steps]
    valid = None
    if any(some.size for some in missing):
        present = np.ones(len(column), np.bool_)
        present[np.searchsorted(ends, np.concatenate(missing), side="right") - 1] = False
        valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.StringArray.from_buffers(len(column), pa.py_buffer(column.ends), pa.py_buffer(content), valid)


def from_arrow(strings: Any) -> Texts[Any]:
    """Return the entries of an Arrow array, which are strings or are written as such; None where they are missing."""
    import pyarrow as pa

    strings = strings.cast(pa.string())
    if strings.null_count or not len(strings):
        return Texts.of(text.as_py() for text in strings)
    _, ends, data = strings.buffers()
    offsets = np.frombuffer(ends, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    first, stop = int(offsets[0]), int(offsets[-1])
    steps = range(first, stop, _AT_ONCE)
    content = stored_bytes(data[step : min(step + _AT_ONCE, stop)].to_pybytes() for step in steps)
    return Texts(content, array("i", (offsets - offsets[0]).tobytes()))


def arrow_texts_at(texts: Sequence[str | None], places: Ints) -> Any:
    """Return the entries of a sequence at rising places as an Arrow array of strings.

    Of ``Texts``, and of the paths of a hierarchy, no entry becomes an object: O(bytes).
    """
    import pyarrow as pa

    if isinstance(texts, Paths):
        return paths_at(texts.tree, places)
    if not isinstance(texts, Texts) or not places.size:
        return as_arrow(texts[place] for place in places.tolist())
    first, stop = int(places[0]), int(places[-1]) + 1
    if stop - first > _SPARSE * places.size:
        return as_arrow(texts.taken(places))
    near = as_arrow(texts.between(first, stop))
    return near if len(near) == places.size else near.take(pa.array(places - first))


def paths_at(tree: Hierarchy, places: Ints) -> Any:
    """Return the full names of regions, by their rising numbers, as an Arrow array of strings; O(bytes)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names, up = _escaped(arrow_texts_at(tree.names, places)), tree.parent[places]
    above, of_region = distinct(up[up >= 0])
    if not above.size:
        return names
    parent = np.zeros(places.size, np.int64)
    parent[up >= 0] = of_region
    parents = paths_at(tree, above).take(pa.array(parent, mask=up < 0))
    return pc.binary_join_element_wise(parents, names, "/", null_handling="skip")


def distinct(numbers: Ints) -> tuple[Ints, Ints]:
    """Return the distinct numbers, rising, and the place of each number among them; none is below 0.

    O(numbers) where they rise or are small, else O(numbers log numbers).
    """
    if (numbers[1:] >= numbers[:-1]).all():
        begins = np.append(True, numbers[1:] != numbers[:-1])[: numbers.size]
        return numbers[begins], np.cumsum(begins) - 1
    if (most := int(numbers.max())) > numbers.size:
        values, places = np.unique(numbers, return_inverse=True)
        return values, places.reshape(-1)
    occurs = np.zeros(most + 1, np.bool_)
    occurs[numbers] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[numbers]


def _escaped(names: Any) -> Any:
    """Return names as they stand in a path."""
    import pyarrow.compute as pc

    for odd in ("\\", "/"):
        if pc.any(pc.match_substring(names, odd)).as_py():
            names = pc.replace_substring(names, odd, f"\\{odd}")
    return names


def coded(values: Any) -> tuple[Ints, Any]:
    """Return a column as places in an Arrow array of the values it has; a null's is that array's length."""
    encoded = values.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(), np.int64), encoded.dictionary


def positions(values: Any, names: Sequence[str]) -> Ints:
    """Return where each value stands in ``names``: -1 for null, -2 for a value that does not occur there."""
    return OrderedNames(as_arrow(names)).at(values)


_NEARBY = 4  # times as many names as texts are looked at first
_JUMPS = 8  # places at which they are looked at, before all names are


class OrderedNames:
    """A list of distinct names (Arrow's strings) that tables mention in its order, in each about where the last ended.

    Names nearby are compared first: a table of many row groups would otherwise cost their number times the list.
    """

    def __init__(self, names: Any) -> None:
        self._names, self._near = names, 0

    def at(self, column: Any) -> Ints:
        """Return where each entry of a column stands: -1 for null, -2 for a text that does not."""
        codes, texts = coded(column)
        return self.places(texts)[codes]

    def places(self, texts: Any) -> Ints:
        """Return where each of some texts stands, -2 for a text that does not, and then -1, the place of null."""
        import pyarrow as pa

        rows = np.full(len(texts), -2, np.int64)
        if pa.types.is_string(texts.type) and len(texts):
            self._find(texts, rows)
            self._near = max(0, int(rows.max()))
        return np.append(rows, -1)

    def _find(self, texts: Any, rows: Ints) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        missing, near = np.arange(len(texts)), self._near
        for _ in range(_JUMPS):  # to another file's first region, or over levels that a table leaves out
            rest = texts.take(pa.array(missing))
            places = _indexed(rest, self._names.slice(near, _NEARBY * len(rest)))
            rows[missing] = np.where(places < 0, -2, places + near)
            missing = missing[places < 0]
            near = -1 if not missing.size else pc.index(self._names, texts[int(missing[0])]).as_py()
            if near < 0:
                break
        if missing.size:
            places = _indexed(texts.take(pa.array(missing)), self._names)
            rows[missing] = np.where(places < 0, -2, places)


def _indexed(texts: Any, names: Any) -> Ints:
    """Return where each text stands in Arrow's ``names``, -1 for a text that does not."""
    import pyarrow.compute as pc

    return np.asarray(pc.index_in(texts, value_set=names).fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
