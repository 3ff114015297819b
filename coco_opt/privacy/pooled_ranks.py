"""Pool rank noise while it is drawn: integer block sums, so that nothing on the way to the seal is a float.

Imported only where it is used, for it brings the compiled kernels with it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.isotonic_l2 import BlockStream
from coco_opt.privacy.noise import NoiseStream

Int64 = NDArray[np.int64]


def pooled_ranks(chunks: Iterable[Int64], stream: NoiseStream) -> tuple[Int64, Int64]:
    """Return (sums, lengths) of the blocks of equal isotonic fit of the noisy ranks, in rank order.

    ``chunks`` are the true ranks (entities) in order; sums (entities) and lengths (groups) are int64 and
    exact, neighbours of equal mean are one block. O(groups) time, memory of one chunk and the blocks.
    """
    blocks = BlockStream()
    for ranks in chunks:
        blocks.push(stream.add_to(ranks))
    return blocks.integers()
