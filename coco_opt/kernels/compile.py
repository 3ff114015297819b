"""The one decorator of all kernels: compile with numba, keep the result on disk where that is possible."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("coco_opt")
_told = False


def _tell_once(reason: object) -> None:
    global _told
    if not _told:
        _told = True
        _log.warning(
            "compiled kernels cannot be kept on disk (%s): they are compiled again in every process, about a "
            "second each; set NUMBA_CACHE_DIR to a writable folder to avoid it",
            reason,
        )


def _forgive_io(action: Callable[..., Any]) -> Callable[..., Any]:
    """Turn an input/output error of the cache into one warning: a full disk must not stop a release."""

    def forgiving(*args: Any, **kwargs: Any) -> Any:
        try:
            return action(*args, **kwargs)
        except OSError as error:
            _tell_once(error.strerror or "input/output error")
            return None

    return forgiving


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel on first call: cached on disk, without the interpreter lock, strict floating point.

    Where the cache folder cannot be written, compile in memory and say so once through the logger
    ``coco_opt``. A kernel may call only functions of its own file: numba's cache notices no other edits.
    """
    try:
        dispatcher: Any = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError as error:  # numba's "no locator available for file ..."
        if "locator" not in str(error):
            raise
        _tell_once("no writable cache folder")
        return cast("Callable[P, R]", numba.njit(nogil=True)(function))
    cache = getattr(dispatcher, "_cache", None)
    if cache is not None:
        cache.load_overload = _forgive_io(cache.load_overload)
        cache.save_overload = _forgive_io(cache.save_overload)
    return cast("Callable[P, R]", dispatcher)
