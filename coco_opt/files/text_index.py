"""Places of texts in a long list of distinct texts, looked up in batches: the list is hashed once, not each time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.execution.temporary_storage import stored_empty
from coco_opt.files.packed_texts import MOST_WORDS, LongTextError, OddTextError, UInt64Array, packed_texts

_LEAST = 1 << 17  # texts: fewer are hashed again before the kernels for it are compiled
_AT_ONCE = 1 << 18  # texts that are packed together
_NEARBY = 4  # times as many names as texts are looked at first
_JUMPS = 8  # places at which they are looked at, before all names are


class TextIndex:
    """A list of distinct texts (Arrow's strings), of which threads may ask for places."""

    def __init__(self, texts: Any) -> None:
        self._texts = texts
        self._packed = _packed(texts) if len(texts) >= _LEAST else None

    def places(self, texts: Any) -> Ints | None:
        """Return the place of each of some texts, int64; None where a text is not in the list. O(texts), if many."""
        import pyarrow.compute as pc

        if self._packed is None:
            places = pc.index_in(texts, value_set=self._texts)
            return None if places.null_count else np.asarray(places.to_numpy(zero_copy_only=False), np.int64)
        from coco_opt.kernels.text_ids import find

        keys, slots = self._packed
        places = np.empty(len(texts), np.int64)
        try:
            words = packed_texts(texts, keys.shape[1])
        except (OddTextError, LongTextError):  # no text of the list is such a text
            return None
        return None if find(words, keys, slots, places) >= 0 else places


def _packed(texts: Any) -> tuple[UInt64Array, NDArray[np.int32]] | None:
    """Return the texts in words and the table of their hashes; None where a text is long or not plain."""
    from coco_opt.kernels.text_ids import insert

    slots = np.full(1 << (len(texts) + len(texts) // 4).bit_length(), -1, np.int32)
    for words in range(1, MOST_WORDS + 1):
        try:
            keys = stored_empty((len(texts), words), np.dtype(np.uint64))
            for start in range(0, len(texts), _AT_ONCE):
                keys[start : start + _AT_ONCE] = packed_texts(texts.slice(start, _AT_ONCE), words)
        except LongTextError:
            continue
        except OddTextError:
            return None
        return (keys, slots) if insert(keys, 0, len(keys), slots) < 0 else None
    return None


class OrderedNames:
    """A list of distinct names (Arrow's strings) that tables mention in its order, in each about where the last ended.

    Names nearby are compared first: a table of many row groups would otherwise cost their number times the list.
    """

    def __init__(self, names: Any) -> None:
        self._names, self._near = names, 0

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
