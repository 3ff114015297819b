"""Items made ahead: the same ones in order, what making them raises, and nothing more once nobody asks."""

from __future__ import annotations

from collections.abc import Iterator
from threading import active_count

import pytest

from coco_opt.files.in_threads import ahead


def test_the_same_items_come_in_order() -> None:
    assert list(ahead(range(100))) == list(range(100))
    assert list(ahead([None, None])) == [None, None]
    assert list(ahead(())) == []


def test_what_making_raises_is_raised_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise KeyError("gone")

    items = ahead(broken())
    assert next(items) == 1
    with pytest.raises(KeyError, match="gone"):
        next(items)


def test_nothing_is_made_for_a_caller_that_stopped() -> None:
    made: list[int] = []

    def counted() -> Iterator[int]:
        for number in range(1_000):
            made.append(number)
            yield number

    threads = active_count()
    items = ahead(counted())
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert len(made) < 6
    assert active_count() == threads
