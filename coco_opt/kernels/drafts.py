"""Compile what kernels call only once, together with the kernel that Python calls.

By itself numba makes machine code of every function that is called, with a wrapper for Python, and optimises anew all
that the function calls: what stands below n callers is optimised n + 1 times. Here a function that kernels call is a
draft, which ends as LLVM's intermediate code. A kernel that Python calls links its drafts in as its own functions, so
that LLVM may inline them and drop arguments that they do not use, and is optimised and stored on disk as one. A
function that both call is compiled in both ways, and one that calls itself cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any
from uuid import uuid4

import numba
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import AnnotateTypes, NativeLowering

_NARROW = types.integer_domain - {types.uint64}


class _Flags(Flags):
    """Numba's flags, compared quickly: they are a part of the key of everything that it looks up.

    Numba hashes the names of all flags anew, and compares values by a call for each: a tenth of the time to compile.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return _HASH

    def __eq__(self, other: object) -> Any:
        same_values = isinstance(other, Flags) and self._values == other._values
        return self is other or same_values or super().__eq__(other)


_HASH = hash(Flags())


class _Compiler(CompilerBase):
    """Numba's compiler with flags that are compared quickly."""

    def __init__(
        self, typing: Any, target: Any, library: Any, args: Any, return_type: Any, flags: Flags, locals_: Any
    ) -> None:
        super().__init__(typing, target, library, args, return_type, _Flags(flags), locals_)


class KernelCompiler(_Compiler):
    """Numba's compiler, for a kernel that Python calls."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_BeginKernel, AnnotateTypes)
        passes.finalize()
        return [passes]


class _DraftCompiler(_Compiler):
    """Numba's compiler without its end, for a function that kernels call."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_BeginDraft, AnnotateTypes)
        passes.add_pass_after(_EndDraft, NativeLowering)
        passes.finalize()
        return [passes]


class _KernelLibrary(JITCodeLibrary):
    """The code of a kernel and its drafts."""

    def _optimize_final_module(self) -> None:
        unique = uuid4().hex
        linked = [function for function in self._final_module.functions if function.linkage.name == "linkonce_odr"]
        for function in linked:
            # Under its own name, modules that define it too would be given this one, which may lose arguments.
            function.name = f"part_{unique}"
            function.linkage = "internal"
        super()._optimize_final_module()


class _DraftLibrary(JITCodeLibrary):
    """The intermediate code of a draft and of those it calls."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


class _Pass(LoweringPass):
    """A step of a compiler."""

    def __init__(self) -> None:
        super().__init__()


@register_pass(mutates_CFG=False, analysis_only=True)
class _BeginKernel(_Pass):
    _name = "begin_kernel"

    def run_pass(self, state: Any) -> bool:
        state.library = _KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return True


@register_pass(mutates_CFG=False, analysis_only=True)
class _BeginDraft(_Pass):
    _name = "begin_draft"

    def run_pass(self, state: Any) -> bool:
        state.flags.no_compile = True
        state.library = _DraftLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return True


@register_pass(mutates_CFG=False, analysis_only=True)
class _EndDraft(_Pass):
    """Let callers find the draft."""

    _name = "end_draft"

    def run_pass(self, state: Any) -> bool:
        key: list[Any] = []
        found_by = key.append  # numba wants some builtin function, different for every draft; nothing calls it
        state.targetctx.insert_user_function(found_by, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=found_by)
        return True


def _widened(argument: Any) -> Any:
    """Return the type that a draft takes an argument as: one for integers of all widths, constant or not."""
    argument = types.unliteral(argument)
    return types.int64 if argument in _NARROW else argument


def draft_for_kernels(dispatcher: Any, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Let kernels that call a function compile it as a draft; the dispatcher's own code is for Python."""
    uncalled = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}

    @cache
    def draft() -> Any:
        compiler: Any = numba.njit
        return compiler(pipeline_class=_DraftCompiler, **uncalled)(function)

    def template(arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        widened = {name: _widened(argument) for name, argument in named.items()}
        return draft().get_call_template([_widened(argument) for argument in arguments], widened)

    dispatcher.get_call_template = template
    dispatcher.get_overload = lambda signature: draft().get_overload(signature)
