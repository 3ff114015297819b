"""The decorators of all kernels: compile with numba and cache the result on disk where possible."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

import numba

from coco_opt.kernels.compile_lock import share_compiling

P = ParamSpec("P")
R = TypeVar("R")


_log = logging.getLogger("coco_opt")
_warned = False
_TESTED = (0, 68)
"""The version of numba on whose inner parts ``drafts`` relies: others may lack them, or use them otherwise."""


@cache
def _drafts() -> ModuleType | None:
    """Return the module that compiles a kernel together with what it calls; None, with a warning, for another numba."""
    if tuple(map(int, re.findall(r"\d+", numba.__version__)[:2])) == _TESTED:
        from coco_opt.kernels import drafts

        return drafts
    tested = ".".join(map(str, _TESTED))
    _log.warning(
        "numba is %s, not %s: kernels take more than twice as long to compile, and results are the same",
        numba.__version__,
        tested,
    )
    return None


def _warn_once(reason: object) -> None:
    global _warned
    if not _warned:
        _warned = True
        _log.warning(
            "compiled kernels cannot be cached on disk (%s): they are compiled again in every process, about a "
            "second each; set NUMBA_CACHE_DIR to a writable folder to avoid it",
            reason,
        )


def _forgive_io(action: Callable[..., Any]) -> Callable[..., Any]:
    """Turn an input/output error of the cache into one warning: a full disk must not stop a release."""

    def forgiving(*args: Any, **kwargs: Any) -> Any:
        try:
            return action(*args, **kwargs)
        except OSError as error:
            _warn_once(error.strerror or "input/output error")
            return None

    return forgiving


def _empty_if_outdated(load_index: Callable[[], Any]) -> Callable[[], Any]:
    """Read an index that names what the package no longer has, or that is damaged, as an empty one."""

    def load() -> Any:
        try:
            return load_index()
        except (ImportError, AttributeError, EOFError, UnpicklingError):
            return {}

    return load


def _imported(function: Callable[..., Any]) -> Iterator[Any]:
    """Yield what a kernel's file imports by name, and all names in modules of its package that it imports."""
    package = function.__globals__.get("__package__")
    for value in function.__globals__.values():
        if isinstance(value, ModuleType) and value.__package__ == package:
            yield from vars(value).values()
        else:
            yield value


@cache
def _compiler_digest() -> str:
    """Return a digest of the files that say how kernels are compiled."""
    compiler = hashlib.sha256()
    for file in (__file__, *(module.__file__ for module in (_drafts(),) if module is not None)):
        compiler.update(Path(str(file)).read_bytes())
    return compiler.hexdigest()


def _renew_with_imported(cache: Any, function: Callable[..., Any]) -> None:
    """Invalidate the cache when the compiler changes, or a file from which this kernel's file imports kernels.

    A compiled function holds the code of those it calls, but numba looks only at the time and size of its own file.
    """
    stamps = {"": _compiler_digest()}
    for value in _imported(function):
        cache_file = getattr(getattr(value, "_cache", None), "_cache_file", None)
        if cache_file is not None and value.__module__ != function.__module__:
            stamps[value.__module__] = cache_file._source_stamp  # it includes those of the files imported there
    cache._cache_file._source_stamp = (cache._cache_file._source_stamp, *sorted(stamps.items()))


def cached_on_disk(kernel: Callable[..., Any]) -> bool:
    """Return whether the disk cache holds a compiled version of this kernel for the present version of its file."""
    cache = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    try:
        return cache is not None and bool(cache._load_index())
    except OSError:
        return False


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel on first call: cached on disk, without the interpreter lock, strict floating point.

    Where the cache folder cannot be written, compile in memory and warn once through the logger
    ``coco_opt``. A kernel may call compiled functions of its own file, and of others that its file imports, by name or
    as modules. It assigns entry by entry: a slice or a tuple assigned to an array brings broadcasting and its messages
    in, which take seconds to compile; so does numpy's sort. Nor does it take other kernels as arguments: the wrapper
    for that costs every kernel a twentieth of its compile time.
    """
    return _compiled(function, {})


def compiled_in_place(function: Callable[P, R]) -> Callable[P, R]:
    """Compile like ``compiled``, without reference counts on the arrays passed in; for kernels that make no arrays.

    Otherwise numba counts every read of a tuple of arrays, with atomic operations that threads contend for. Functions
    that the kernel calls must be compiled in place too; a kernel that makes an array does not compile.
    """
    return _compiled(function, {"_nrt": False})


def _compiled(function: Callable[P, R], options: dict[str, Any]) -> Callable[P, R]:
    drafts = _drafts()
    together = {} if drafts is None else {"pipeline_class": drafts.KernelCompiler}
    for_python = {"nogil": True, "no_cfunc_wrapper": True, **together, **options}
    try:
        dispatcher: Any = numba.njit(cache=True, **for_python)(function)
    except RuntimeError as error:  # numba's "no locator available for file ..."
        if "locator" not in str(error):
            raise
        _warn_once("no writable cache folder")
        dispatcher = numba.njit(**for_python)(function)
    else:
        _adjust_cache(dispatcher, function)
    if drafts is not None:
        drafts.draft_for_kernels(dispatcher, function, options)
    return cast("Callable[P, R]", dispatcher)


def _adjust_cache(dispatcher: Any, function: Callable[..., Any]) -> None:
    cache = getattr(dispatcher, "_cache", None)
    if cache is not None:
        _renew_with_imported(cache, function)
        cache._cache_file._load_index = _empty_if_outdated(cache._cache_file._load_index)
        cache.load_overload = _forgive_io(cache.load_overload)
        cache.save_overload = _forgive_io(cache.save_overload)
        share_compiling(dispatcher, cache)
