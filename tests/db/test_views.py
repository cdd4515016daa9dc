"""The views for people who ask by SQL have what `mmsbgen db` shows."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner
from sqlalchemy import text

from mmsbgen.cli.db.commands import db
from mmsbgen.db.records.tuning_records import QuarantineRecord
from mmsbgen.db.store.tuning_store import Store, open_store


def rows(store: Store, query: str) -> list[dict[str, Any]]:
    return store.database.read(lambda c: [dict(row) for row in c.execute(text(query)).mappings()])


def filled(url: str, make: Any) -> None:
    with open_store(url) as store:
        store.begin_run(make.run)
        for name in ("H200", "H100"):
            for n, seconds in enumerate((3e-3, 1e-3, 2e-3)):
                store.add_trial(make.trial(make.key(name=name), config={"n": n}, time=seconds))
            store.add_trial(make.trial(make.key(name=name), config={"n": 9}, status="timeout", time=None))
        failed = {"n": 1}
        store.quarantine(
            QuarantineRecord(
                key=make.key(name="H100"), config=failed, recorded=failed, status="launch_error", message="refused"
            )
        )


def test_the_views_have_what_the_commands_show(url: str, make: Any) -> None:
    filled(url, make)

    def told(command: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(CliRunner().invoke(db, ["--database", url, command, "--json"]).stdout)
        return found

    with open_store(url, read_only=True) as store:
        best, everything = rows(store, "SELECT * FROM best_trials"), rows(store, "SELECT * FROM all_trials")

    def short(row: dict[str, Any], config: str) -> tuple[Any, ...]:
        value = row[config]
        return row["device"], row["kernel"], row["median_s"], value if isinstance(value, dict) else json.loads(value)

    def by_text(found: list[Any]) -> list[Any]:
        return sorted(found, key=str)

    assert by_text([short(row, "config") for row in best]) == by_text([short(row, "config") for row in told("best")])
    assert by_text([short(row, "config") for row in everything]) == by_text(
        [short(row, "config") for row in told("trials")]
    )
    assert {(row["device"], row["config"]) for row in everything if row["quarantined"]} == {("H100", '{"n":1}')}
    assert {(row["device"], row["config"]) for row in best} == {("H200", '{"n":1}'), ("H100", '{"n":2}')}
    assert all(json.loads(row["problem"]) == make.key().problem.params for row in everything)
