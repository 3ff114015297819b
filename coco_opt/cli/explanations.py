"""What the codes of errors that people meet mean, and what to do; a message adds the file, the row and the column."""

from __future__ import annotations

from typing import Final

_IDS = "Ids are compared as texts, letter by letter: 007 and 7 are two ids."
_ROWS = "Correct the rows that the message names; rows count from the header, which is row 1."

EXPLANATIONS: Final[dict[str, tuple[str, str]]] = {
    "bad-config": (
        "A key of the configuration is unknown, missing or has a value that it cannot take.",
        "Correct the key that the message names. `coco-opt keys SECTION` prints all keys with what they mean.",
    ),
    "bad-option": (
        "An option of the command line does not fit.",
        "The message shows how to write it; `coco-opt VERB --help` lists the options.",
    ),
    "bad-query": (
        'A query is an attribute, a product of attributes such as "sex * age", "total" or "detail".',
        "Use the names under [topdown.attributes] and [topdown.groupings].",
    ),
    "bad-rule": (
        'A rule reads "age = child & work = yes", with != for all other values and | between values.',
        "Correct the rule that the message names.",
    ),
    "budget": (
        "The dataset's account does not allow what the measurement would cost. Nothing was paid.",
        "Lower epsilon or rho, or see with `coco-opt ledger CONFIG` what was spent on what. An account counts for "
        "one kind of neighbours: keep privacy.neighbours, and leave out exact answers if that is add_remove.",
    ),
    "check-failed": (
        "A release folder does not hold what its manifest promises: a file was changed, or is missing.",
        "Do not publish the folder. The run is kept: `coco-opt release CONFIG` makes the release again for free.",
    ),
    "control-in-id": (
        "A text holds a character that nobody sees, such as a zero-width space, a filler or a byte order mark amid the "
        "file, or a blank that is no plain space: it looks like another text.",
        f"Remove it in the file; copied web pages and merged files are where it comes from. {_ROWS}",
    ),
    "damaged-measurement": (
        "A measurement is not what was sealed, or its rows do not name the planned answers, each once.",
        "Restore its folder from a backup, unchanged; publish it again; or correct the row if you wrote it yourself.",
    ),
    "duplicate-bound": (
        "Two rows bound the same answer of the same region.",
        "Keep one row with both sides; lower and upper stand in one row.",
    ),
    "duplicate-column": ("Two columns of a file have one name.", "Rename one of them in the file."),
    "duplicate-entity": (
        "A person occurs in two rows, but the guarantee is about one row a person.",
        "Remove the repeated rows, or give tables of persons rows_a_person if a person may have several.",
    ),
    "duplicate-group": ("A group, such as a household, occurs in two rows.", f"Give each group one row. {_ROWS}"),
    "duplicate-region": ("A region occurs in two rows.", f"Give each region one row. {_ROWS}"),
    "empty-file": (
        "A file has no rows below its header, or nothing at all.",
        "Check its path, and that its export is finished.",
    ),
    "file-exists": ("A file of this name exists and is never overwritten.", "Give another --out, or move the file."),
    "file-not-found": ("There is no file of this name.", "Paths count from the folder of the configuration."),
    "folder-exists": (
        "A folder of this name exists and holds something else.",
        "Give another --out; releases are never overwritten.",
    ),
    "group-in-two-leaves": (
        "A group, such as a household, lies in two regions.",
        "Keep the row with the right region. A household that moved has one region at the day of the count.",
    ),
    "inconsistent-bounds": (
        "A lower bound is above the upper bound, or no table can meet the bounds together.",
        "Correct the rows that the message names: parts that add up to more than their region are the usual reason.",
    ),
    "input-changed": (
        "These queries were paid for on other data: the private table has changed since.",
        "Restore the table and go on for free. If it was meant to change, `coco-opt measure CONFIG --again` pays for "
        "the new data; other data, such as another year, get another privacy.dataset.",
    ),
    "interrupted": (
        "The command was stopped, by Ctrl-C or by a signal.",
        "Give the same command again: what was paid for is kept, and goes on for free.",
    ),
    "malformed-row": (
        "A row has more or fewer fields than the header, or a quote that is not closed.",
        f"Look for a separator or a quote inside a text, and quote that text. {_ROWS}",
    ),
    "measurement-gone": (
        "A run was paid for, and its files are no longer in the private folder.",
        "Restore the folder from a backup, or measure again, which pays.",
    ),
    "missing-column": (
        "A table lacks a column that it needs, or the column has another name.",
        'If it has another name, state it: columns = { region_id = "area" } in [data], or `coco-opt init --columns '
        "region_id=area`. If several files call it differently, give a list of names.",
    ),
    "missing-root": (
        "No column has the one region above all others.",
        'Name it: root = "country" in [data].',
    ),
    "negative-bound": ("A bound is negative, and no count is.", "Write an integer of at least 0, or leave it empty."),
    "negative-count": ("A count is negative.", _ROWS),
    "negative-size": ("A size is negative.", _ROWS),
    "no-header": (
        "The first row does not hold the column names that are needed.",
        "Put the names into the first row, or say what columns are called by columns = { ... } in [data].",
    ),
    "not-a-level": (
        "A column of the hierarchy divides no region of the level above it, or holds decimal numbers: it describes "
        "regions, such as an area in km2, and is no level.",
        'Name the levels, root first: levels = ["country", "province", "town"] in [data].',
    ),
    "not-a-list": (
        "A column has too many values for a closed list of an attribute.",
        "Count integers by ranges (--ranges age=0..17,18..64,65..), or leave the column out.",
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
    "not-an-integer": (
        "A number must be written plainly, such as 0 or 12: no decimal point, spaces, signs or separators.",
        "Save the column as integers. 1.234 for a thousand is a number with a point here.",
    ),
    "not-comparable": (
        "Two releases are not of one kind, or have no regions, sizes, cells or answers in common.",
        "Compare releases with the same attributes or max_size. For regions of other ids, make both files name regions "
        "alike: `docs/howto/compare-years.md` shows how.",
    ),
    "null-id": ("An entry that may not be empty is empty.", _ROWS),
    "other-level": (
        "A renamed region has another level in the later release, or a row of hierarchy.parquet states another level "
        "than that of its region.",
        "Give the later name of a region of the same level, or leave the row out. Restore a file that was changed.",
    ),
    "orphan": ("A region's parent is not among the regions.", "Add the parent's row, or correct its name."),
    "out-of-memory": (
        "There was not enough memory, or disk for temporary storage.",
        "Save the table as Parquet, which needs less, or free some disk. What was paid is kept.",
    ),
    "outside-domain": (
        "A value lies outside the public domain.",
        'Correct it, widen the domain, or set outside = "clamp". The domain must not be read from the private table.',
    ),
    "region-differs": (
        "A person's row states another region than the row of the person's group, such as the household.",
        "The group's region counts. Correct one of them; rename the person's column if it means another region.",
    ),
    "several-roots": (
        "The first level has several names, so that no region is above all others.",
        'Name that region: root = "country" in [data]; or correct the rows whose first name is misspelt.',
    ),
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
    "too-many-rows": (
        "A person has more rows than the public maximum rows_a_person.",
        "Correct the rows, or raise topdown.rows_a_person: the noise grows with it.",
    ),
    "two-parents": ("A region lies below two others.", "Give each region one row, with one region above it."),
    "two-tables": (
        "Headers leave it open which file is which table.",
        "Name the files to use, or what each is: --data records=persons.csv --data hierarchy=areas.csv.",
    ),
    "unexpected-column": (
        "A table has a column that is not expected.",
        "Remove it, or name the levels by levels = [...].",
    ),
    "uneven-depth": (
        "A row does not name a region at every level.",
        "Fill in the region in which it lies; a region without subregions repeats its name below.",
    ),
    "unexpected": (
        "A fault of coco-opt itself. Its text is withheld, because it may hold private values.",
        "Set COCO_OPT_DEBUG=1 to see it, and report it without your data. What was paid for is kept.",
    ),
    "unknown-answer": (
        "A bound names an answer that its query does not have.",
        "Answers read as in the tables of a release, such as sex = female; the message lists the first of them.",
    ),
    "unknown-attribute": (
        "A query or rule names an attribute that is not under [topdown.attributes].",
        "Correct the name; upper and lower case count.",
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
    "unknown-level": (
        "There is no level of this name.",
        "Levels are the columns of the hierarchy, root first: `coco-opt check CONFIG` prints them.",
    ),
    "unknown-region": (
        "A row names a region that the hierarchy does not list.",
        f"Add the region to the hierarchy, or correct the id. {_IDS} In a second year, a region that was merged or got "
        f"a new id needs the new file of regions. {_ROWS}",
    ),
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
    "wrong-type": (
        "A column of a Parquet file or a frame has a type that ids and names cannot have.",
        "Store ids and names as strings or integers.",
    ),
}
"""By code: what it means, and what to do."""
