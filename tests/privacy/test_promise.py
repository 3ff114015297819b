"""Joint promises: the pairs of data sets for which several costs add up, against enumerated pairs of tiny data sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.privacy.promise import Promise, joint

COUNTS = ("persons", "women", "northerners")
PROMISES = st.builds(
    Promise,
    neighbours=st.sampled_from(["add_remove", "replace"]),
    unit=st.sampled_from(["entity", "person", "household"]),
    contributions=st.integers(1, 3),
    groups=st.sampled_from(["", "public", "private"]),
    exact=st.none()
    | st.sets(st.sampled_from(COUNTS)).map(lambda words: tuple(sorted(("nation", name) for name in words))),
)
Person = tuple[str, ...]  # the rows of a person: "nf" is a woman in the north


def data_sets(most: int) -> Iterator[frozenset[tuple[int, Person]]]:
    """Yield all data sets of two persons, of none to ``most`` rows each."""
    persons = [rows for count in range(most + 1) for rows in combinations_with_replacement(("nf", "nm", "sf"), count)]
    for pair in product(persons, repeat=2):
        yield frozenset(enumerate(pair))


def answers(data: frozenset[tuple[int, Person]]) -> dict[str, int]:
    rows = [row for _, person in data for row in person]
    return dict(zip(COUNTS, (len(rows), sum("f" in row for row in rows), sum("n" in row for row in rows)), strict=True))


def covers(promise: Promise, one: frozenset[tuple[int, Person]], other: frozenset[tuple[int, Person]]) -> bool:
    """Return whether two data sets are neighbours under a promise, by its definition."""
    changed = sorted(one ^ other)
    if len(changed) != 2 or any(len(rows) > promise.contributions for _, rows in changed):
        return False
    gone = () in (rows for _, rows in changed)
    if gone != (promise.neighbours == "add_remove"):
        return False
    equal = {name for name, count in answers(one).items() if answers(other)[name] == count}
    return {words for _, words in promise.exact or ()} <= equal


PAIRS = [(one, other) for one in data_sets(2) for other in data_sets(2) if one != other and len(one ^ other) == 2][::7]


@given(st.lists(PROMISES, min_size=1, max_size=3))
def test_neighbours_of_a_joint_promise_are_neighbours_of_all(promises: list[Promise]) -> None:
    together = joint(promises)
    assert together == joint(reversed(promises))
    if together is None:
        assert len({promise.neighbours for promise in promises}) > 1 or len({p.unit for p in promises}) > 1
        return
    assert joint([*promises, together]) == together
    for one, other in PAIRS:
        assert covers(together, one, other) == all(covers(promise, one, other) for promise in promises)
    assert (together.groups == "public") == any(promise.groups == "public" for promise in promises)


@given(PROMISES, PROMISES)
def test_what_an_account_admits_leaves_its_neighbours_as_they_are(account: Promise, later: Promise) -> None:
    if account.admits(later):
        together = joint((account, later))
        assert together is not None
        assert all(covers(together, *pair) == covers(account, *pair) for pair in PAIRS)
        assert (together.groups == "public") == (account.groups == "public")
    assert account.admits(account)


@pytest.mark.parametrize("change", [{"contributions": 2}, {"groups": "public"}, {"exact": (("nation", "persons"),)}])
def test_each_difference_is_seen_both_ways_round(change: dict[str, object]) -> None:
    promise = Promise("replace", "person", 1, "private", ())
    other = replace(promise, **change)  # type: ignore[arg-type]
    assert not promise.admits(other)
    assert not other.admits(promise)


@given(PROMISES)
def test_words_name_all_that_is_exact_and_plain_values_are_read_back(promise: Promise) -> None:
    assert Promise.of(promise.as_dict()) == promise
    for level, words in promise.exact or ():
        assert f"{words} by {level}" in promise.words
    assert ("number of groups of every region" in promise.words) == (promise.groups == "public")
    assert "exactly, without noise" in promise.words
