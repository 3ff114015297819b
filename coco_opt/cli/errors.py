"""``coco-opt errors``: what every code of an error means, and what to do."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

import coco_opt.errors
from coco_opt.cli.console import write, write_json
from coco_opt.cli.options import Json, Version
from coco_opt.errors import CocoOptError, InputError

_OPENING = """\
Every error has a stable code: in brackets at the end of its line, and as `error.code` with `--json`. No message holds
a private value. Exit codes: 1 a check failed; 2 bad usage, configuration, input or output; 3 budget refused; 4 a
solver missed its tolerance; 130 interrupted. Nothing that was paid for is lost by any of them."""
_KINDS: Final = [kind for kind in vars(coco_opt.errors).values() if isinstance(kind, type)]
_IDS = "Ids are compared as texts, letter by letter: 007 and 7 are two ids."
_ROWS = "Correct the rows that the message names; rows count from the header, which is row 1."

EXPLANATIONS: Final[dict[str, tuple[str, str]]] = {
    "bad-config": (
        "A key of the configuration is unknown, missing or has a value that it cannot take.",
        "Correct the key that the message names. `coco-opt keys SECTION` prints all keys with what they mean.",
    ),
    "bad-constraint": (
        "A constraint cannot be read, or names a count or a value that does not exist.",
        'It reads "householders >= spouses + partners" or "[age = minor] = 0"; correct what the message names.',
    ),
    "bad-dtype": (
        "An array of leaf values has another type than int64 or float64.",
        "Convert it with `.astype(numpy.int64)`.",
    ),
    "bad-facility": (
        "The smallest number of persons in a type of facility is negative or above the largest.",
        "Correct both numbers under [topdown.facilities].",
    ),
    "bad-frame": (
        "A column of a data frame has values of several types, or of a type that Arrow does not know.",
        "Convert the column that the message names to strings or to integers.",
    ),
    "bad-geocode": (
        "Geocodes of a noisy measurement file do not form a tree: a lower code begins with that of its region above.",
        "Read the files of all levels together, and leave out those of other regions.",
    ),
    "bad-key": (
        "A file is no Ed25519 key in PEM form without a password.",
        "`openssl genpkey -algorithm ed25519 -out key.pem` makes one.",
    ),
    "bad-manifest": (
        "The manifest of a release folder cannot be read or written, or states too little for its kind.",
        "Restore the folder, or release again.",
    ),
    "bad-name": (
        "A name is empty, has characters that do not print, or is one that queries use.",
        "Choose another name.",
    ),
    "bad-option": (
        "An option of the command line does not fit.",
        "The message shows how to write it; `coco-opt VERB --help` lists the options.",
    ),
    "bad-order": (
        "Regions stand in another order than that of the tree, level by level.",
        "Use `Hierarchy.from_parents` or `from_paths`, which sort them; restore a file that was changed.",
    ),
    "bad-path": (
        "A region is given by a text where its path is needed.",
        'Give a sequence of names, such as ("nation", "north").',
    ),
    "bad-problem": (
        "The data of an optimisation problem are not valid: a shape, a sign, or bounds that nothing can meet.",
        "The message names the array.",
    ),
    "bad-query": (
        'A query is an attribute, a product of attributes such as "sex * age", "total" or "detail".',
        "Use the names under [topdown.attributes] and [topdown.groupings].",
    ),
    "bad-range": (
        "A range of values ends before it begins.",
        "Write the value first that stands first in the list of the attribute.",
    ),
    "bad-release": (
        "A file of a release of ranges does not hold what the manifest says.",
        "Restore the folder, or release again from the measurement.",
    ),
    "bad-rule": (
        'A rule reads "age = child & work = yes", with != for all other values and | between values.',
        "Correct the rule that the message names.",
    ),
    "bad-runs": (
        "Counts by leaf do not stand in order, or are not positive.",
        "Sort sizes or cells within each leaf, and leave out counts of 0.",
    ),
    "bad-schema": (
        "Attributes, groupings or values do not fit together, or make too many cells.",
        "Correct the name that the message gives; take fewer attributes or values if there are too many cells.",
    ),
    "bad-shape": (
        "Arrays that belong together have different lengths, or an array has the wrong number of dimensions.",
        "The message names both.",
    ),
    "bad-sign": ("A constraint of a noisy measurement file has a sign other than =, <= and >=.", "Correct the row."),
    "bad-size": ("A size lies outside 0 to max_size.", "Ask for a size of the release."),
    "bad-variance": (
        "The variance of a noisy answer is not a number from 1/25 to 2^80.",
        "State an exact answer as a constraint with the sign '='.",
    ),
    "broken-release": (
        "An earlier release with which this one is to agree fails one of its checks.",
        "Restore its folder, or name another.",
    ),
    "budget": (
        "The dataset's account does not allow what the measurement would cost. Nothing was paid.",
        "Lower epsilon or rho, or see with `coco-opt ledger CONFIG` what was spent on what. An account counts for "
        "one kind of neighbours: keep privacy.neighbours, and leave out exact answers if that is add_remove.",
    ),
    "cannot-read": (
        "A file of the private folder cannot be read.",
        "Correct its permissions; what was paid for is kept.",
    ),
    "cannot-write": ("A file cannot be written.", "Free some disk, or choose a folder that you may write to."),
    "check-failed": (
        "A release folder does not hold what its manifest promises: a file was changed, or is missing.",
        "Do not publish the folder. The run is kept: `coco-opt release CONFIG` makes the release again for free.",
    ),
    "code-out-of-range": (
        "A record has a code of no value of its attribute.",
        "Codes count from 0 in the order of the list of values.",
    ),
    "control-in-id": (
        "A text holds a character that nobody sees, such as a zero-width space, a filler or a byte order mark amid the "
        "file, or a blank that is no plain space: it looks like another text.",
        f"Remove it in the file; copied web pages and merged files are where it comes from. {_ROWS}",
    ),
    "cycle": ("A region lies below itself.", "Correct the parent of a region that the message names."),
    "damaged-file": (
        "A file of the private folder is not what was written.",
        "Restore it from a copy of the private folder; going on is free then.",
    ),
    "damaged-measurement": (
        "A measurement is not what was sealed, or its rows do not name the planned answers, each once.",
        "Restore its folder from a backup, unchanged; publish it again; or correct the row if you wrote it yourself.",
    ),
    "duplicate-answer": ("A noisy measurement file has two rows of the same answer.", "Leave one of them out."),
    "duplicate-bound": (
        "Two rows bound the same answer of the same region.",
        "Keep one row with both sides; lower and upper stand in one row.",
    ),
    "duplicate-cell": ("A cell of a table of counts occurs in two rows.", "Add up its counts in one row."),
    "duplicate-column": ("Two columns of a file have one name.", "Rename one of them in the file."),
    "duplicate-entity": (
        "A person occurs in two rows, but the guarantee is about one row a person.",
        "Remove the repeated rows, or give tables of persons rows_a_person if a person may have several.",
    ),
    "duplicate-group": ("A group, such as a household, occurs in two rows.", f"Give each group one row. {_ROWS}"),
    "duplicate-region": ("A region occurs in two rows.", f"Give each region one row. {_ROWS}"),
    "duplicate-row": ("A region and size occur in two rows of a table of sizes.", "Add up their groups in one row."),
    "empty-file": (
        "A file has no rows below its header, or nothing at all.",
        "Check its path, and that its export is finished.",
    ),
    "false-fact": (
        "A constraint that is declared as taken from the data does not hold in them.",
        "Correct it, or its source.",
    ),
    "file-error": (
        "The operating system refused to read or write a file.",
        "The message has its words; nothing that was paid for is lost.",
    ),
    "file-exists": ("A file of this name exists and is never overwritten.", "Give another --out, or move the file."),
    "file-not-found": ("There is no file of this name.", "Paths count from the folder of the configuration."),
    "folder-exists": (
        "A folder of this name exists and holds something else.",
        "Give another --out; releases are never overwritten.",
    ),
    "foreign-file": (
        "A private file is a link, belongs to somebody else or is open to others.",
        "Move it, or correct owner and permissions (`chmod go= FILE`).",
    ),
    "group-count-mismatch": (
        "The number of groups of a region is not the public one, or not the sum of its children.",
        "Correct the public number, or read a table that did not change meanwhile.",
    ),
    "group-in-two-leaves": (
        "A group, such as a household, lies in two regions.",
        "Keep the row with the right region. A household that moved has one region at the day of the count.",
    ),
    "groups-lost": ("The private table has other groups than the public counts say.", "Pass both from the same table."),
    "inconsistent-bounds": (
        "A lower bound is above the upper bound, or no table can meet the bounds together.",
        "Correct the rows that the message names: parts that add up to more than their region are the usual reason.",
    ),
    "inconsistent-facts": (
        "Constraints contradict each other, or an earlier release: no table can meet them all.",
        "Drop or correct one of those that the message names.",
    ),
    "input-changed": (
        "These queries were paid for on other data: the private table has changed since.",
        "Restore the table and go on for free. If it was meant to change, `coco-opt measure CONFIG --again` pays for "
        "the new data; other data, such as another year, get another privacy.dataset.",
    ),
    "internal": (
        "A file could not be read for a reason that coco-opt does not know.",
        "Please report it, without your data.",
    ),
    "interrupted": (
        "The command was stopped, by Ctrl-C or by a signal.",
        "Give the same command again: what was paid for is kept, and goes on for free.",
    ),
    "lost-key": (
        "The key of the noise of a paid run is gone from the private folder.",
        "Restore the folder, or give the run up with `coco-opt ledger CONFIG --abandon RUN`.",
    ),
    "malformed-row": (
        "A row has more or fewer fields than the header, or a quote that is not closed.",
        f"Look for a separator or a quote inside a text, and quote that text. {_ROWS}",
    ),
    "masked-array": ("An array has masked entries, of which nothing says what they count.", "Fill or drop them first."),
    "measurement-gone": (
        "A run was paid for, and its files are no longer in the private folder.",
        "Restore the folder from a backup, or measure again, which pays.",
    ),
    "measurement-twice": ("The same measurement is given twice, which adds nothing.", "Leave it out."),
    "measurements-differ": (
        "Measurements that are to be estimated together are not of the same data and queries.",
        "Give those of one dataset and one configuration.",
    ),
    "missing-column": (
        "A table lacks a column that it needs, or the column has another name.",
        'If it has another name, state it: columns = { region_id = "area" } in [data], or `coco-opt init --columns '
        "region_id=area`. If several files call it differently, give a list of names.",
    ),
    "missing-package": ("An optional package is not installed.", "The message says how to install it."),
    "missing-region": (
        "Regions lack answers to a query that other regions have.",
        "Read the missing rows too, or leave the query out.",
    ),
    "missing-root": (
        "No column has the one region above all others.",
        'Name it: root = "country" in [data].',
    ),
    "missing-type": ("The file of facilities lacks a column of a type.", "Add it, with 0 where there are none."),
    "negative-bound": ("A bound is negative, and no count is.", "Write an integer of at least 0, or leave it empty."),
    "negative-count": ("A count is negative.", _ROWS),
    "negative-size": ("A size is negative.", _ROWS),
    "no-cells": ("The structural zeros rule out every cell.", "Remove or narrow a rule."),
    "no-columns": (
        "A Parquet file is to be written from nothing, so that its columns are not known.",
        "Pass an empty table.",
    ),
    "no-entities": ("All counts of a table are 0.", "Check that it is the right file."),
    "no-header": (
        "The first row does not hold the column names that are needed.",
        "Put the names into the first row, or say what columns are called by columns = { ... } in [data].",
    ),
    "no-intervals": (
        "The release has no intervals of this name.",
        "State them under `intervals` and estimate again, which is free.",
    ),
    "no-root": ("A hierarchy has no region.", "Give at least the root."),
    "no-unbiased": (
        "The release has no unbiased counts.",
        "Set `unbiased` in [groups] and estimate again, which is free.",
    ),
    "nonpositive-count": ("A count of a histogram is 0 or negative.", "`CountOfCounts.from_runs` drops zeros."),
    "not-a-level": (
        "A column of the hierarchy divides no region of the level above it, or holds decimal numbers: it describes "
        "regions, such as an area in km2, and is no level.",
        'Name the levels, root first: levels = ["country", "province", "town"] in [data].',
    ),
    "not-a-list": (
        "A column has too many values for a closed list of an attribute.",
        "Count integers by ranges (--ranges age=0..17,18..64,65..), or leave the column out.",
    ),
    "not-an-integer": (
        "A number must be written plainly, such as 0 or 12: no decimal point, spaces, signs or separators.",
        "Save the column as integers. 1.234 for a thousand is a number with a point here.",
    ),
    "not-comparable": (
        "Two releases are not of one kind, or have no regions, sizes, cells or answers in common.",
        "Compare releases with the same attributes or max_size. For regions of other ids, make both files name regions "
        "alike: `docs/howto/compare-years.md` shows how.",
    ),
    "not-degrees": (
        "A file of outlines holds positions that are no longitudes and latitudes: it is projected, such as in metres.",
        "Convert it to degrees: `mapshaper areas.geojson -proj wgs84 -o degrees.geojson`, or in QGIS export it in "
        "EPSG:4326.",
    ),
    "not-geojson": (
        "A file of outlines must be GeoJSON: a FeatureCollection whose features are Polygons or MultiPolygons.",
        "Convert shapefiles and TopoJSON first: `mapshaper areas.shp -o areas.geojson`.",
    ),
    "not-increasing": ("The sizes of a histogram do not increase.", "`CountOfCounts.from_runs` takes any order."),
    "not-integer": (
        "An array that counts something holds other numbers than integers.",
        "Convert it to an integer type.",
    ),
    "not-measured": (
        "The level of a region was not measured, so that it has no unbiased count.",
        "Add up those of the regions below it.",
    ),
    "nothing-new": ("The earlier release has published every cell of every region.", "Add an attribute or a level."),
    "null-id": ("An entry that may not be empty is empty.", _ROWS),
    "null-value": ("A column that must be full has an empty entry.", "Fill it in, or restore a file that was changed."),
    "one-measurement": ("Several measurements are given where one is needed.", "Give one of them."),
    "orphan": ("A region's parent is not among the regions.", "Add the parent's row, or correct its name."),
    "other-domain": (
        "An attribute has other values than in the earlier release.",
        "Use the same values, or a grouping that makes them the same.",
    ),
    "other-level": (
        "A renamed region has another level in the later release, or a row of hierarchy.parquet states another level "
        "than that of its region.",
        "Give the later name of a region of the same level, or leave the row out. Restore a file that was changed.",
    ),
    "other-levels": (
        "A public table has another number of levels than the data to release.",
        "Use a table of as many levels.",
    ),
    "other-regions": (
        "Regions of this release and of the earlier one do not fit together.",
        "Use the same names; one hierarchy may end at an upper level of the other.",
    ),
    "other-release": (
        "A release folder is of another kind than is needed.",
        "Name a folder of the kind that the message asks for.",
    ),
    "out-of-memory": (
        "There was not enough memory, or disk for temporary storage.",
        "Save the table as Parquet, which needs less, or free some disk. What was paid is kept.",
    ),
    "outside-domain": (
        "A value lies outside the public domain.",
        'Correct it, widen the domain, or set outside = "clamp". The domain must not be read from the private table.',
    ),
    "refused": ("An error without a code of its own.", "Its message says what to do."),
    "region-differs": (
        "A person's row states another region than the row of the person's group, such as the household.",
        "The group's region counts. Correct one of them; rename the person's column if it means another region.",
    ),
    "repeated-region": (
        "A region is named twice in a sum, whose noise would be the same both times.",
        "Name each region once.",
    ),
    "rows-lost": (
        "Not every row of the private table was counted once. Nothing was paid.",
        "If the file did not change meanwhile, please report it, without your data.",
    ),
    "several-roots": (
        "The first level has several names, so that no region is above all others.",
        'Name that region: root = "country" in [data]; or correct the rows whose first name is misspelt.',
    ),
    "size-above-bound": ("A group is larger than max_size.", "Clamp it first, or raise max_size."),
    "solver": (
        "A solver did not reach its tolerance. What was measured is kept.",
        "Set another solver in [solvers], or leave it out for the exact solver; `coco-opt solvers` lists them.",
    ),
    "space-in-id": ("A text begins or ends with a space, so that it only looks like another text.", _ROWS),
    "structural-zero": (
        "Rows have a combination of values that a structural zero rules out.",
        "Correct the rows, or remove or narrow the rule in structural_zeros if the combination does occur.",
    ),
    "swapped-columns": ("The columns of a table stand in another order than they must.", "Reorder them in the file."),
    "too-large": ("A number is larger than any count of people.", _ROWS),
    "too-long-text": (
        "A text is longer than a cell of an Excel workbook can be, 32,767 characters.",
        "Leave out --xlsx: CSV files have texts of any length.",
    ),
    "too-many-cells": ("A wide table has more columns than a spreadsheet takes.", "Leave out --wide."),
    "too-many-groups": ("The number of groups does not fit into 64 bits.", "Check the counts."),
    "too-many-people": ("Counts sum to more than 2^53, beyond which sums are not exact.", "Check the counts."),
    "too-many-rows": (
        "A person has more rows than the public maximum rows_a_person.",
        "Correct the rows, or raise topdown.rows_a_person: the noise grows with it.",
    ),
    "two-estimators": (
        "Two installed packages define an estimator of the same name for one kind.",
        "Uninstall one of them.",
    ),
    "two-kinds": ("Two installed packages define a kind of release of the same name.", "Uninstall one of them."),
    "two-parents": ("A region lies below two others.", "Give each region one row, with one region above it."),
    "two-tables": (
        "Headers leave it open which file is which table.",
        "Name the files to use, or what each is: --data records=persons.csv --data hierarchy=areas.csv.",
    ),
    "unequal-groups": (
        "The distance of two histograms is defined only for the same number of groups.",
        "Compare histograms of the same region.",
    ),
    "uneven-depth": (
        "A row does not name a region at every level.",
        "Fill in the region in which it lies; a region without subregions repeats its name below.",
    ),
    "unexpected": (
        "A fault of coco-opt itself. Its text is withheld, because it may hold private values.",
        "Set COCO_OPT_DEBUG=1 to see it, and report it without your data. What was paid for is kept.",
    ),
    "unexpected-column": (
        "A table has a column that is not expected.",
        "Remove it, or name the levels by levels = [...].",
    ),
    "unknown-answer": (
        "A bound names an answer that its query does not have.",
        "Answers read as in the tables of a release, such as sex = female; the message lists the first of them.",
    ),
    "unknown-attribute": (
        "A query or rule names an attribute that is not under [topdown.attributes].",
        "Correct the name; upper and lower case count.",
    ),
    "unknown-code": ("There is no error of this code.", "`coco-opt errors` lists them all."),
    "unknown-cost": (
        "A stored cost is not one that this version writes.",
        "Restore the file that was changed, or read it with the version that wrote it.",
    ),
    "unknown-format": (
        "A file has none of the formats that are read.",
        "Tables are .csv, .tsv, .tab or .parquet files, or folders of such files of one format and nothing else; save "
        "an Excel workbook as CSV.",
    ),
    "unknown-group": (
        "A person names a group, such as a household, that the groups table does not list.",
        f"Add the group with its region, or correct the id. {_IDS} {_ROWS}",
    ),
    "unknown-kind": (
        "There is no kind of release of this name.",
        "Correct the name, or install the package that defines it.",
    ),
    "unknown-law": (
        "A stored noise distribution is not one that this version writes.",
        "Restore the file that was changed, or read it with the version that wrote it.",
    ),
    "unknown-level": (
        "There is no level of this name.",
        "Levels are the columns of the hierarchy, root first: `coco-opt check CONFIG` prints them.",
    ),
    "unknown-name": ("No section, key or method has this name.", "`coco-opt keys` and `coco-opt cite` list them."),
    "unknown-query": (
        "A query of a noisy measurement file is none of these attributes and groupings.",
        "Correct its name, or add the grouping; leave out rows of other queries.",
    ),
    "unknown-region": (
        "A row names a region that the hierarchy does not list.",
        f"Add the region to the hierarchy, or correct the id. {_IDS} In a second year, a region that was merged or got "
        f"a new id needs the new file of regions. {_ROWS}",
    ),
    "unknown-solver": (
        "No solver has this name, or this solver cannot express the problem.",
        "`coco-opt solvers` lists which solver answers what.",
    ),
    "unknown-table": ("A release has no table of this name.", "The message lists its tables."),
    "unknown-type": ("The file of facilities has a column that is no type.", "Correct its name, or delete it."),
    "unknown-value": (
        "A row has a value that is not in the attribute's list under [topdown.attributes], or in none of its ranges.",
        f"Correct the row, or add the value if it can occur; upper and lower case count. {_ROWS}",
    ),
    "unlike-parts": (
        "The files of a folder that is one table differ in their columns, or in what a column holds.",
        "Give all files of the folder the same columns, ids as texts in all of them or as integers in all, and "
        "sub-folders of the same column names. A file that is no part of the table belongs elsewhere.",
    ),
    "unreadable-file": (
        "A file is damaged, not of the format that its name says, or not UTF-8.",
        "Save it again as UTF-8 CSV or as Parquet. Excel workbooks must be saved as CSV.",
    ),
    "usage": (
        "The command line cannot be read.",
        "`coco-opt --help` lists the verbs, `coco-opt VERB --help` its options.",
    ),
    "workers": (
        "Work cannot be run as requested: an unknown executor, workers that die, or a folder that they do not see.",
        "Correct [engine]; what was paid for is kept.",
    ),
    "wrong-type": (
        "A column of a Parquet file or a frame has a type that ids and names cannot have.",
        "Store ids and names as strings or integers.",
    ),
}
"""By code: what it means, and what to do."""

EXIT_CODES: Final[dict[str, int]] = dict.fromkeys(EXPLANATIONS, CocoOptError.exit_code) | {
    **{kind.code: kind.exit_code for kind in _KINDS if issubclass(kind, CocoOptError)},
    "interrupted": 130,
    "unexpected": 1,
}
"""By code: what the command line returns."""


def errors(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", help="A code; all of them by default.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Say what the code of an error means and what to do, or print the catalogue of all codes."""
    if code is not None and code not in EXPLANATIONS:
        raise InputError("unknown-code", f"there is no error {code!r}: coco-opt errors lists them all")
    shown = EXPLANATIONS if code is None else {code: EXPLANATIONS[code]}
    if json:
        write_json([_entry(code) for code in shown])
    elif code is None:
        write("\n\n".join(["# Errors", _OPENING, *map(_text_of, shown)]))
    else:
        write(_text_of(code))
    return 0


def _entry(code: str) -> dict[str, Any]:
    meaning, advice = EXPLANATIONS[code]
    return {"code": code, "exit_code": EXIT_CODES[code], "meaning": meaning, "advice": advice}


def _text_of(code: str) -> str:
    """Return what a code means and what to do."""
    meaning, advice = EXPLANATIONS[code]
    return f"{code} (exit code {EXIT_CODES[code]}): {meaning}\nWhat to do: {advice}"
