#!/usr/bin/env python
"""The page of the database's schema with its picture, from the declarations of its tables.

    scripts/pages/schema_page.py [--output docs]

Writes reference/schema.md and pictures/schema.svg into the output folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from _svg import BLUE, GREEN, PALE, YELLOW, Drawing
from sqlalchemy import Column, Table
from sqlalchemy.dialects import postgresql, sqlite

from mmsbgen.db.store import schema

ROOT = Path(__file__).resolve().parents[2]
INTRO = """\
# Database schema

Every table and column of the tuning database at revision {revision}, on SQLite and PostgreSQL. `scripts/docs --update`
makes this page from `mmsbgen/db/store/schema.py`.

![Tables and what they refer to](../pictures/schema.svg)

| what | how it is stored |
|---|---|
| tables that describe | unique by `key`, a digest of their content |
| tables that report | unique by `uid` or `uuid` |
| tables of jobs | for [workers](../service.md); no export has them |
| times | text, UTC in ISO 8601 |
| JSON | as canonical text (sorted keys, no spaces): equal values are equal bytes |
| types | as on SQLite; on PostgreSQL {others} |
| units | seconds, bytes, joules; `gbps` is 1e9 bytes a second, of `launch` and `barrier` 1e9 of them |
| revision | in `{version}` |

Read it with any SQL client ([tutorial](../tutorials/database.md#4-sql)). To write, use
[`mmsbgen db import`](../how-to/exchange-records.md), which keeps digests right.

Two views save joins. `all_trials` has every trial, and `best_trials` the fastest one of each device, compiler, kernel
and problem. `mmsbgen db best` may name another one, because it prefers what was timed again in turns. Columns are id,
created_at, run, backend, device, platform, driver, compiler, compiler_version, compiler_options, family, kernel,
template_digest, problem, config, status, message, median_s, spread_s, gbps, roof_gbps, roof_fraction, energy_j.
`all_trials` also has quarantined.
"""


def tables() -> list[Table]:
    """The tables in the order of their declaration."""
    return list(schema.METADATA.tables.values())


def type_of(column: Column[Any], of: Any = sqlite) -> str:
    """The column's type, as SQLite or the given module of a dialect names it."""
    if isinstance(column.type, schema.CanonicalJson):
        return "JSON"
    return str(column.type.compile(dialect=of.dialect()))


def other_types() -> str:
    """The types that PostgreSQL names otherwise than SQLite."""
    columns = [column for table in tables() for column in table.columns]
    names = dict.fromkeys((type_of(column), type_of(column, postgresql)) for column in columns)
    return ", ".join(f"{ours} is {theirs}" for ours, theirs in names if ours != theirs)


def meaning(column: Column[Any]) -> str:
    """Keys and references."""
    words = ["primary key"] if column.primary_key else []
    words += ["unique"] if column.unique else []
    words += [f"of [{key.column.table.name}](#{key.column.table.name})" for key in sorted(column.foreign_keys, key=str)]
    words += ["may be NULL"] if column.nullable else []
    return ", ".join(words)


def page() -> str:
    """The whole page."""
    parts = [INTRO.format(revision=schema.REVISION, version=schema.VERSION_TABLE, others=other_types())]
    for table in tables():
        parts.append(f"## {table.name}\n\n{table.info['doc']}\n")
        rows = [f"| `{c.name}` | {', '.join(filter(None, (type_of(c), meaning(c))))} |" for c in table.columns]
        parts.append("\n".join(["| column | type |", "|---|---|", *rows]) + "\n")
        indexes = sorted(", ".join(f"`{c.name}`" for c in index.columns) for index in table.indexes)
        if indexes:
            parts.append(f"Indexes: {'; '.join(indexes)}.\n")
    return "\n".join(parts)


def picture() -> Drawing:
    """Describing tables above, reporting ones below, a line for every reference."""
    step, width, line = 210.0, 176.0, 15.5
    above = [table for table in tables() if not table.foreign_keys]
    below = [table for table in tables() if table.foreign_keys]
    tall = {table: 30 + line * len(table.columns) for table in (*above, *below)}
    top, space = 20.0, 36.0 + 13 * sum(len(table.foreign_keys) for table in below)
    start = top + max(tall[table] for table in above) + space
    drawing = Drawing(
        20 + step * max(len(above), len(below)),
        start + max(tall[t] for t in below) + 20,
        "Tables of the tuning database",
    )
    places: dict[Table, tuple[float, float]] = {table: (20 + step * i, top) for i, table in enumerate(above)}
    shift = step * (len(above) - len(below)) / 2
    places |= {table: (20 + shift + step * i, start) for i, table in enumerate(below)}
    for table, (x, y) in places.items():
        drawing.box(x, y, width, tall[table], "white")
        drawing.label(
            x, y, width, 22, table.name, GREEN if table in above else BLUE if table.name != "trials" else YELLOW
        )
        for row, column in enumerate(table.columns):
            bold = column.primary_key or bool(column.foreign_keys)
            drawing.words(x + 8, y + 38 + line * row, column.name, 11.5, bold=bold)
            drawing.words(x + width - 6, y + 38 + line * row, type_of(column), 9.5, "end", ink=PALE)
    level = start - 22
    arrivals = dict.fromkeys(above, 0)
    for table in below:
        leave = places[table][0] + 20
        for reference in sorted(table.foreign_keys, key=lambda key: places[key.column.table][0]):
            to = reference.column.table
            arrivals[to] += 1
            end_x, end_y = places[to][0] + 26 + 34 * arrivals[to], places[to][1] + tall[to]
            drawing.line([(leave, start), (leave, level), (end_x, level), (end_x, end_y + 2)])
            leave, level = leave + 30, level - 13
    return drawing


@click.command(help=__doc__)
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=ROOT / "docs")
def main(output: Path) -> None:
    """Write page and picture."""
    for folder in ("reference", "pictures"):
        (output / folder).mkdir(parents=True, exist_ok=True)
    (output / "reference" / "schema.md").write_text(page(), encoding="utf-8")
    picture().save(output / "pictures" / "schema.svg")


if __name__ == "__main__":
    main()
