"""``coco-opt solvers``: which solver can solve which problem, and how to install the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coco_opt.cli.console import write, write_json, write_table
from coco_opt.cli.options import Json, Version

if TYPE_CHECKING:
    from coco_opt.registry import Backend


def solvers(json: Json = False, version: Version = False) -> int:
    """List problems against solvers: "auto" marks the solver used where the config names none."""
    from coco_opt.estimators import estimator_rows
    from coco_opt.kinds import kind_rows
    from coco_opt.registry import backends

    rows = [_row(backend) for backend in backends()]
    if json:
        write_json(rows)
        return 0
    for title, general in (("Special algorithms, the fast paths", False), ("Open general solvers", True)):
        shown = [row for row in rows if bool(row["programs"]) == general]
        table = [(row["solver"], " ".join(row["programs"]).upper(), row["summary"], _installed(row)) for row in shown]
        write_table(title, ("solver", "programs" if general else "", "what", "installed"), table, numeric=4)
    answered = [(kind, _automatic(rows, kind), _others(rows, kind)) for kind in rows[0]["problems"]]
    write_table("Problems", ("problem", "auto", "also"), answered, numeric=3)
    write("auto: used unless [solvers] names another, by PROBLEM = NAME or, where it can, default = NAME")
    write("*: always optimal, with the problem's tie rule\n")
    estimators = [row for kind in kind_rows() for row in estimator_rows(kind.name)]
    shown_estimators = [(row.kind, row.name, row.summary, row.takes) for row in estimators]
    write_table("Estimators", ("of", "name", "what", "takes"), shown_estimators, numeric=4)
    return 0


def _installed(row: dict[str, Any]) -> str:
    return "yes" if row["installed"] else str(row["install"])


def _automatic(rows: list[dict[str, Any]], kind: str) -> str:
    """Return the solver that is used where none is chosen, with those that are tried before it for some shapes."""
    from coco_opt.problems import PROBLEMS

    suited = " ".join(PROBLEMS[kind].suited)
    return _names(rows, kind, "auto") + (f"; for some shapes {suited}" if suited else "")


def _names(rows: list[dict[str, Any]], kind: str, mark: str) -> str:
    return " ".join(row["solver"] for row in rows if row["problems"][kind] == mark)


def _others(rows: list[dict[str, Any]], kind: str) -> str:
    exact = " ".join(f"{row['solver']}*" for row in rows if row["problems"][kind] == "exact")
    return " ".join(filter(None, (exact, _names(rows, kind, "yes"))))


def _row(backend: Backend) -> dict[str, Any]:
    extra = f"coco-opt[{backend.extra}]" if backend.extra else " ".join(backend.packages)
    return {
        "solver": backend.name,
        "summary": backend.summary,
        "programs": list(backend.forms),
        "problems": _problems(backend),
        "packages": list(backend.packages),
        "installed": backend.installed,
        "install": f"pip install '{extra}'",
    }


def _problems(backend: Backend) -> dict[str, str | None]:
    from coco_opt.problems import PROBLEMS
    from coco_opt.registry import built_in

    marks: dict[str, str | None] = {}
    for kind, problem in PROBLEMS.items():
        installed = [row for row in built_in() if row.claims(problem) and row.installed]
        if not backend.claims(problem):
            marks[kind] = None
        elif installed and installed[0].name == backend.name:
            marks[kind] = "auto"
        else:
            marks[kind] = "exact" if backend.honours_ties else "yes"
    return marks
