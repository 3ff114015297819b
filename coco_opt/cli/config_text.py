"""The text of the configuration that ``init`` writes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coco_opt.cli.file_roles import Candidate, Header

if TYPE_CHECKING:
    from coco_opt.config import Config
    from coco_opt.files.proposals import LevelProposal
    from coco_opt.releases.kind import Draft

_CONFIG = """\
# A coco-opt release. Next:  coco-opt check {name},  coco-opt plan {name}  and  coco-opt release {name}
[data]
{data}

[privacy]
{account}
{budget}
# mechanism = "discrete_gaussian" takes rho = "1/2", or epsilon and delta = "1/1000000", in place of epsilon alone
# split = "uniform"           # how the budget is allocated: or "leaves", or one share a level, root first
noise = "secure"              # cryptographic noise that cannot be repeated
neighbours = "{neighbours}"     # add_remove, or replace: {replaced}
# Exact totals need "replace", in every release of the dataset: state it from the first release on if you publish any.

{section}
[output]
directory = "releases"        # public results
private = "private"           # ledger, measurements and records for your eyes only, mode 0700
{output}
"""
_GEOMETRY = """\
# geometry = "areas.geojson"  # public outlines of the regions, with region_id in the properties: a map in the report
"""
_HEADER = re.compile(r"\[\[?([\w-]+)[.\]]")
_BUDGET = re.compile(r"(epsilon|rho|delta|mechanism|split) *=.*[^\[,]$")
_EPSILON = 'epsilon = "1"                 # the whole budget, an exact decimal or fraction; smaller is more private'
_ID_OF = re.compile(r"([^\W\d_]{4,}?)[_ .-]?(id|nr|no|num|number|key|code)", re.IGNORECASE)
_SHORT = {"hh": "household", "hid": "household", "hhid": "household", "pid": "person", "people": "person"}
_SHOWN, _TITLED = 8, 3  # columns that a line names
_DATASET = "the ledger's name of these data: one budget for all that is measured of them"
_TOTAL = '# total = "3"                 # for all kinds and years; left out: as much as the first release'
_WORDS = '{ group = "household", groups = "households", entity = "person", entities = "persons" }'


class Earlier(NamedTuple):
    """An earlier configuration of the same persons, and whether the new one is ``carried`` over from it.

    Of one whose columns are ``restated`` only the budget is.
    """

    path: Path
    config: Config
    carried: bool
    restated: bool = False


def earlier_configs(
    candidate: Candidate, headers: Sequence[Header], stated: Mapping[str, Sequence[str]], out: Path
) -> tuple[Earlier | None, dict[Path, Config]]:
    """Return the configuration of the same persons, if any, and else those that may be of them.

    The same persons have private files that are called as the candidate's (while it has none, as any of the headers')
    but for the year, next to ``out`` or in a folder next to this one that is called like it but for the year. One of
    the same kind and of another year's files, with columns as ``stated``, counts before others, and is carried over; of
    several such, one that has made a release, then one that is called as ``out`` but for the year, then the last one.
    Others lie next to ``out``.
    """
    from coco_opt.config.load import nearby_configs, without_year

    private = [candidate.files[key] for key in candidate.private] or headers
    folder, files = out.resolve().parent, {header.path.resolve() for header in private}
    same: list[Earlier] = []
    beside: dict[Path, Config] = {}
    for path, config in nearby_configs(folder).items():
        tables = (getattr(config.data, key) for key in config.private_tables)
        theirs = {table.resolve() for table in tables if isinstance(table, Path)}
        if config.privacy.dataset and set(map(without_year, files)) & set(map(without_year, theirs)):
            alike = config.kind == candidate.kind.name and not files & theirs
            same.append(Earlier(path, config, alike and _agrees(config, stated)))
        elif config.privacy.dataset and path.parent == folder:
            beside[path] = config
    if not same:
        return None, beside

    def fits(earlier: Earlier) -> tuple[bool, ...]:
        records = earlier.config.output.private.glob(f"{escape(earlier.path.stem)}-*.json")
        named = without_year(Path(earlier.path.name)) == without_year(Path(out.name))
        return earlier.config.kind == candidate.kind.name, earlier.carried, any(records), named

    return sorted(same, key=fits)[-1], {}


def _agrees(earlier: Config, stated: Mapping[str, Sequence[str]]) -> bool:
    """Return whether an earlier configuration calls no column otherwise than the user states."""
    columns = getattr(earlier.data, "columns", {})
    return all(own not in columns or columns[own] in (*names, tuple(names)) for own, names in stated.items())


def _sections(text: str) -> dict[str, str]:
    """Return the text of a configuration by section; [a.b] lies in a."""
    sections: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            name = header[1]
        sections[name] = f"{sections[name]}\n{line}" if name in sections else line
    return sections


def text_of(
    candidate: Candidate,
    draft: Draft,
    stated: Mapping[str, Sequence[str]],
    levels: Sequence[str],
    out: Path,
    earlier: Earlier | None,
    beside: Mapping[Path, Config],
) -> str:
    """Return the configuration, with stated columns as they were stated; what was not found is left to fill in.

    Where the ``earlier`` one is carried over, all but [data], [privacy] and [output] is its own, and the budget.
    """
    lines = []
    for key, note in draft.files.items():
        header = candidate.files.get(key)
        name, missing = (f"{key}.csv", " (NOT FOUND: fill in)") if header is None else (relative(header.path, out), "")
        lines.append(_line(key, name, note + missing))
    lines += levels
    mapped = _GEOMETRY if {"hierarchy", "sizes"} & set(draft.files) else ""
    section, budget, last = draft.section, [_EPSILON], None if earlier is None else earlier.config
    if earlier is not None and earlier.carried:
        texts = _sections(earlier.path.read_text(encoding="utf-8-sig"))
        budget = [line for line in texts["privacy"].splitlines() if _BUDGET.match(line)] or budget
        if not earlier.restated:
            section = "\n".join(text for name, text in texts.items() if name not in ("", "data", "privacy", "output"))
            section = f"# As in {relative(earlier.path, out)}, so that both can be compared.\n{section.rstrip()}\n"
    config = _CONFIG.format(
        name=out.name,
        data="\n".join((*lines, *_columns(candidate, stated), *draft.data)),
        account="\n".join([*_account(candidate, draft, out, last), *_alternatives(beside)]),
        budget="\n".join(budget),
        neighbours="add_remove" if last is None else last.privacy.neighbours,
        replaced=draft.replaced,
        section=section,
        output="\n".join(_output(candidate, draft, out, earlier)),
    )
    return config + mapped


def _account(candidate: Candidate, draft: Draft, out: Path, earlier: Config | None) -> list[str]:
    """Return the lines of [privacy] that name the data and, where an earlier year has another, the ledger."""
    # It loads numpy, whose threads are limited before that, when a command begins.
    from coco_opt.histograms.texts import is_plain_name
    from coco_opt.releases.runs import ledger_path

    if earlier is not None:
        here, ledger = out.resolve().parent / "private" / "ledger.sqlite", ledger_path(earlier)
        lines = [
            _line("dataset", str(earlier.privacy.dataset), f"as in {earlier.name}: losses of the same persons add up")
        ]
        stated = _line("ledger", relative(ledger, out), "theirs. Of other persons: another dataset, without this line")
        return lines if ledger.resolve() == here else [*lines, stated]
    private = [candidate.files[key].path.stem for key in draft.files if key in candidate.private]
    dataset = next(filter(is_plain_name, (stem.strip() for stem in private[:1])), "")
    return [_line("dataset", dataset or "data", _DATASET), _TOTAL]


def _alternatives(beside: Mapping[Path, Config]) -> list[str]:
    """Return commented lines that join the account of other configurations, whose persons may be the same."""
    datasets = {str(config.privacy.dataset): path.name for path, config in beside.items()}
    return [f"# {_line('dataset', name, f'instead, if of the persons of {file}')}" for name, file in datasets.items()]


def level_lines(proposal: LevelProposal) -> list[str]:
    """Return the lines of [data] that name the levels, and the root where no column has it."""
    root = [_line("root", proposal.root, "the name of the region above all others")] if proposal.root else []
    return [_line("levels", list(proposal.levels), "columns of the hierarchy, root first: check them"), *root]


def missing_columns(candidate: Candidate) -> list[tuple[str, Header, str]]:
    """Return the columns that link the tables, or identify an entity, and that a file lacks, with what they hold."""
    own, header = candidate.persons or ("", None)
    lacking = [] if header is None or own != "entity_id" or own in header.columns else [(own, header)]
    missing = [(own, file, "one value for each entity") for own, file in lacking]
    for own, file, other in candidate.unlinked:
        missing.append((own, file, f"the ids by which {file.path.name} and {other.path.name} belong together"))
    return missing


def _columns(candidate: Candidate, stated: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the line with the files' own names of columns, where these differ, and what is to be filled in."""
    names: dict[str, list[str]] = {}
    for own, by_file in candidate.names.items():
        used = dict.fromkeys(by_file.values())
        names[own] = [name for name in stated.get(own, used) if name in used]
    listed = ", ".join(f"{own} = {_toml(some if len(some) > 1 else some[0])}" for own, some in names.items())
    lines = [f"columns = {{ {listed} }}   # of your files: check them"] if names else []
    for own, file, what in missing_columns(candidate):
        shown = ", ".join(map(_toml, map(file.name_in_file, file.columns[:_SHOWN])))
        lines += [
            f"# {own}: NOT FOUND in {file.path.name}. It holds {what}; look at {shown}. Add it to columns:",
            f'# {own} = "NAME". Or delete this file and write it again: coco-opt init ... --columns {own}=NAME',
        ]
    return lines


def _output(candidate: Candidate, draft: Draft, out: Path, earlier: Earlier | None) -> list[str]:
    """Return the lines of [output] for readers: a title, and what they call a group and an entity.

    They are those of another year; of a configuration of the same year only what groups and entities are called is, for
    it may count by something else.
    """
    from coco_opt.config.load import YEAR
    from coco_opt.config.sections import OutputConfig
    from coco_opt.releases.manifest import plural

    files, words = candidate.files, dict[str, str]()
    for word, key, own in (("group", "groups", "group_id"), ("entity", "entities", "entity_id")):
        if draft.attributes is None and key in files:
            words[word] = _unit(files[key], own)
    for key in {"records", "values"} & set(files):
        words["entity"] = _unit(files[key], "person_id")
    if "values" in files and (value := files["values"].name_in_file("value")) != "value":
        words["value"] = value
    words = {word: text for word, text in words.items() if text}
    again = OutputConfig() if earlier is None or not earlier.carried else earlier.config.output
    if earlier is not None and earlier.config.kind == candidate.kind.name:
        known = earlier.config.output.words.items()
        words.update((str(word), text) for word, text in known if earlier.carried or word != "value")
    for one, several in (("group", "groups"), ("entity", "entities")):
        if one in words:
            words.setdefault(several, plural(words[one]))
    by = f"number of {words['entities']}" if {"groups", "entities"} <= set(words) else words.get("value", "")
    by = ", ".join(draft.attributes[:_TITLED]) if draft.attributes else by
    what = words.get("groups", words.get("entities", ""))
    named = " ".join((*(files[key].path.stem for key in candidate.private), out.stem, out.resolve().parent.name))
    year = next((found[0] for found in YEAR.finditer(named)), "")
    title = f"{what.capitalize()} by {by}{year and f', {year}'}" if what and by else ""
    title, date = (YEAR.sub(year or r"\g<0>", text or "") for text in (again.title or title, again.date))
    stated = ", ".join(f"{word} = {_toml(text)}" for word, text in words.items())
    noted = "# when the counts were true"
    return [
        _line("title", title, "of the report: change it") if title else '# title = "Households of 2026"',
        f"date = {_toml(date)}   {noted}" if date else f'# date = "31 December {year or 2026}"   {noted}',
        f"words = {{ {stated} }}   # what readers call one and several: check" if words else f"# words = {_WORDS}",
    ]


def _unit(file: Header, own: str) -> str:
    """Return what an id's column, or else the file, calls what the id identifies, "" where they do not say."""
    from coco_opt.config.load import YEAR

    column, stem = file.name_in_file(own), YEAR.sub("", file.path.stem).strip("_ .-")
    named = _ID_OF.fullmatch(column) if column != own else None
    word = _SHORT.get(column.lower()) or (named[1] if named else stem).lower()
    word = _SHORT.get(word, word).removesuffix("s")
    return word if word.isalpha() else ""


def _line(key: str, value: str | list[str], note: str) -> str:
    return f"{f'{key} = {_toml(value)}':<29} # {note}"


def _toml(value: str | list[str]) -> str:
    # JSON strings and lists of strings are valid TOML.
    return json.dumps(value, ensure_ascii=False)


def relative(path: Path, out: Path) -> str:
    """Return a path as it is written in a configuration at ``out``."""
    return Path(os.path.relpath(path.resolve(), out.parent.resolve())).as_posix()
