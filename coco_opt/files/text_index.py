"""Places of names in a long list of distinct names, looked up in batches, in about the order of the list."""

from __future__ import annotations

from typing import Any

import numpy as np

from coco_opt.array_types import Ints

_NEARBY = 4  # times as many names as texts are looked at first
_JUMPS = 8  # places at which they are looked at, before all names are


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
