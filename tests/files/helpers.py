"""Small valid tables, and the proof that an error shows nothing private."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from coco_opt.errors import InputError

CANARY = "CANARY7391"
SECRET_SIZE = 918273

HIERARCHY = "region_id,root,part\nr1,town,a\nr2,town,b\n"
GROUPS = "group_id,region_id\n1,r1\n2,r2\n3,r1\n4,r2\n"
ENTITIES = "entity_id,group_id\nAlice,1\nBob,1\nCarol,1\nDave,1\nEve,2\nFrank,2\nJudy,3\nNick,4\n"  # poster, figure 1

Write = Callable[..., Path]


def refused(action: Callable[[], object], secrets: Sequence[str] = (CANARY, str(SECRET_SIZE))) -> InputError:
    """Return the InputError that ``action`` raises, having checked that no secret is anywhere in it."""
    with pytest.raises(InputError) as caught:
        action()
    error = caught.value
    assert error.__context__ is None
    assert error.__cause__ is None
    assert error.exit_code == 2
    shown = "".join(traceback.format_exception(error))
    for secret in secrets:
        assert secret not in str(error) + repr(error) + shown + repr(vars(error))
    return error


def at(error: InputError) -> tuple[str, str | None, int | None, str | None]:
    """Return code, file, row and column of an error."""
    place = error.place
    return (error.code, place.file, place.row, place.column) if place else (error.code, None, None, None)
