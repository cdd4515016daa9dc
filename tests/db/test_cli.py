from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import click
import pytest
from click.testing import CliRunner, Result

from mmsbgen.backends import discover
from mmsbgen.cli.db.commands import db
from mmsbgen.cli.shared.common import LazyCommand, MmsbgenGroup, seconds
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import QuarantineRecord, RoofRecord, RunRecord
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.kernels.record_key import device_record
from tests import records

QUERIES = ["best", "trials", "devices", "runs"]
ALL_QUERIES = [*QUERIES, "quarantine"]


def call(*arguments: object) -> Result:
    result = CliRunner().invoke(db, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def filled(tmp_path: Path, make: Any) -> Path:
    path = tmp_path / "filled.sqlite3"
    with open_store(path) as store:
        store.begin_run(make.run)
        for n in range(3):
            store.add_trial(make.trial(config={"n": n}, time=1e-3 * (3 - n), bytes_moved=10**9, roof_gbps=2000.0))
        store.add_trial(make.trial(make.key(name="H[bold]100"), config={"n": 9}, time=2e-6))
        failed = make.trial(config={"n": 3}, status="compile_error", time=None, message="error: no\nsecond line")
        store.add_trial(failed)
        store.add_roofs([RoofRecord(run=make.run.uuid, device=make.device(), kind="copy", gbps=4272.0)])
        store.add_roofs(
            [RoofRecord(run=make.run.uuid, device=make.device(), kind="gather", row_bytes=4096, gbps=4323.0)]
        )
        store.finish_run(make.run.uuid)
    return path


def test_best_shows_each_key_once(filled: Path) -> None:
    rows = json.loads(call("--database", filled, "best", "--json").stdout)
    assert [(row["device"], row["config"], row["worked"]) for row in rows] == [
        ("H200", {"n": 2}, 3),
        ("H[bold]100", {"n": 9}, 1),
    ]
    assert rows[0]["median_s"] == 1e-3
    assert rows[0]["roof_fraction"] == pytest.approx(0.5)
    table = call("--database", filled, "best").stdout
    assert "H[bold]100" in table
    assert "1 ms" in table
    assert "50%" in table
    assert "width=1024" in table


def test_a_configuration_that_was_timed_again_counts_once(filled: Path, make: Any) -> None:
    with open_store(filled) as store:
        for n in range(3):
            store.add_trial(make.trial(config={"n": n}, time=1e-3 * (3 - n), round=1))
    best = json.loads(call("--database", filled, "best", "--device", "H200", "--json").stdout)
    explained = json.loads(call("--database", filled, "explain", "--kernel", "gather", "--json").stdout)
    (near,) = (row for row in explained if row["device"] == "H200" and not row["shipped"])
    assert [row["worked"] for row in (*best, near)] == [3, 3]


def test_a_parameter_has_one_value(filled: Path) -> None:
    result = call("--database", filled, "best", "--problem", "width=1024", "--problem", "width=16")
    assert result.exit_code == 2
    assert "--problem width=1024 and width=16: give width one value" in result.stderr


def test_filters(filled: Path) -> None:
    def count(*arguments: object) -> int:
        return len(json.loads(call("--database", filled, "trials", "--json", *arguments).stdout))

    assert count() == 5
    assert count("--status", "compile_error") == 1
    assert count("--device", "h200", "--status", "ok") == 3
    assert count("--kernel", "gather") == count("--kernel", "rows/gather") == 5
    assert count("--kernel", "update_phi") == count("--kernel", "mmsb/update_phi") == 0
    assert count("--problem", "K=5") == 0
    assert count("-p", "width=1024", "--problem", "dtype=float32") == 5
    assert count("--problem", 'dtype="float64"') == 0
    assert count("--limit", "2") == 2
    assert len(json.loads(call("--database", filled, "best", "--json", "--device", "H200").stdout)) == 1


def test_a_run_may_be_named_by_its_first_digits(filled: Path, make: Any) -> None:
    def trials(run: str) -> Result:
        return call("--database", filled, "trials", "--json", "--run", run)

    uuid = make.run.uuid
    with open_store(filled) as store:
        store.begin_run(RunRecord(uuid=uuid[:11] + ("0" if uuid[11] != "0" else "1") * 21, strategy="random"))
    for text in (uuid, uuid[:12], uuid[:12].upper(), str(UUID(uuid))):
        assert len(json.loads(trials(text).stdout)) == 5
    for text, message in (
        (uuid[:11], f"--run: '{uuid[:11]}' may be several tuning runs, give more digits: "),
        (
            "00000000dead",
            f"--run: there is no tuning run 00000000dead; the newest are (mmsbgen db runs has all):\n  {uuid[:11]}",
        ),
        ("zzz", "--run: 'zzz' names no tuning run: give the first 8 digits of its name or more"),
    ):
        refused = trials(text)
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr


@pytest.mark.opencl
def test_a_device_of_this_machine_may_be_named_as_elsewhere(
    filled: Path, make: Any, pocl_device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, key = pocl_device.info, make.key()
    with open_store(filled) as store:
        key = replace(key, device=replace(device_record(info), driver="of before"))
        store.add_trial(make.trial(key, config={"n": 7}))

    def best(*words: str) -> Result:
        return call("--database", filled, *words)

    for text in (info.spec, info.spec.upper(), info.name, "pocl", *([] if sole(info) is None else [sole(info)])):
        assert [row["device"] for row in json.loads(best("best", "--json", "--device", text).stdout)] == [info.name], (
            text
        )
    assert best("explain", "--kernel", "update_phi", "--device", "NVIDIA H200", "--json").exit_code == 0, "shipped"
    for words in (["best"], ["trials"], ["explain", "--kernel", "gather"]):
        refused = best(*words, "--device", "nosuch")
        assert refused.exit_code == 2
        assert "--device 'nosuch' is no device of the records or here; there are:" in refused.stderr
        assert f"{make.device().label}\n" in refused.stderr
        assert f"  {info.spec}  {info.name} ({info.platform}), of this machine" in refused.stderr
    assert best("best", "--device", "97").exit_code == 2, "a number is no part of a name"
    missing = filled.parent / "none.sqlite3"
    monkeypatch.setenv("MMSBGEN_DATABASE_URL", str(missing))
    assert call("best", "--device", "nosuch").stderr == nothing_at(missing)


def nothing_at(path: Path) -> str:
    return f"There is no tuning database at {path} yet: mmsbgen tune makes one.\n"


def sole(info: Any) -> str | None:
    """The number alone, where no other backend has it."""
    return str(info.index) if [one.index for one in discover()[0]].count(info.index) == 1 else None


def test_an_empty_result_says_why(filled: Path, tmp_path: Path) -> None:
    with open_store(tmp_path / "empty.sqlite3"):
        pass
    for command in ALL_QUERIES:
        none = call("--database", tmp_path / "empty.sqlite3", command)
        assert none.stderr == f"{tmp_path / 'empty.sqlite3'} has no records yet: mmsbgen tune makes some.\n"
    none = call("--database", filled, "best", "--kernel", "update_phi")
    assert (none.stdout, none.stderr) == ("", f"No record of {filled} matches.\n")
    assert call("--database", filled, "best", "--kernel", "update_phi", "--csv").stdout.count("\n") == 1


@pytest.mark.parametrize("command", ["best", "trials", "quarantine", "explain"])
def test_a_record_has_at_most_four_lines_of_80_characters(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    config = {f"an_axis_{n}": f"value_{n}" for n in range(20)}
    with open_store(tmp_path / "t.sqlite3") as store:
        store.begin_run(make.run)
        for n in range(3):
            key = make.key(name=f"A device with a long name {n // 2}")
            found = {"bytes_moved": 10**9, "roof_gbps": 2000.0}
            store.add_trial(make.trial(key, config={"n": n, **config}, time=1e-3, **found))
            failed = {"status": "launch_error", "message": "a reason " * 50}
            store.add_trial(make.trial(key, config={"n": n + 10, **config}, time=None, **failed))
            store.quarantine(QuarantineRecord(key=key, config={"n": n + 10}, recorded={"n": n + 10}, **failed))
    more = ["--kernel", "gather"] if command == "explain" else []

    def shown(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        done = call("--database", tmp_path / "t.sqlite3", command, *more)
        assert ("was cut" in done.stderr) == any(line.endswith("…") for line in done.stdout.splitlines())
        return done.stdout.splitlines()

    lines = shown(80)
    assert max(map(len, lines)) <= 80
    begins = [at for at, line in enumerate(lines) if "gather" in line and not line.startswith(" ")]
    records = {"best": 2, "trials": 6, "quarantine": 3, "explain": 2}[command]
    assert len(begins) == records
    for begin in begins:
        record = [line for line in lines[begin:] if line][:6]
        rest = next(at for at, line in enumerate([*record[1:], "end"]) if not line.startswith("    "))
        assert 2 <= rest + 1 <= 4, record
    assert sum(line.startswith("A device with a long name") for line in lines) >= 2, "headings"
    wide = shown(2000)
    assert "problem" in wide[0]
    assert len(wide) == records + 1, "a table where there is room"


def test_csv_and_json_are_not_cut(filled: Path, make: Any) -> None:
    with open_store(filled) as store:
        for n in range(60):
            store.add_trial(make.trial(config={"n": 100 + n}, time=1e-3 * (n + 1)))
    table = call("--database", filled, "trials")
    assert len(table.stdout.splitlines()) == 1 + 50
    assert table.stderr == "These are 50; --limit N shows more, --csv and --json have all.\n"
    assert len(list(csv.reader(io.StringIO(call("--database", filled, "trials", "--csv").stdout)))) == 1 + 65
    assert len(json.loads(call("--database", filled, "trials", "--json").stdout)) == 65
    assert len(call("--database", filled, "trials", "--limit", 55).stdout.splitlines()) == 1 + 55
    assert len(call("--database", filled, "trials", "--csv", "--limit", 7).stdout.splitlines()) == 1 + 7
    slowest = call("--database", filled, "trials", "--sort", "-time", "--columns", "time", "--limit", 2)
    assert slowest.stdout.split() == ["time", "60", "ms", "59", "ms"], "the slowest of all, not of the newest"


@pytest.mark.parametrize("command", [*QUERIES, "explain"])
def test_rows_are_sorted_by_any_column_and_columns_picked(filled: Path, command: str) -> None:
    more = ["--kernel", "gather"] if command == "explain" else []

    def rows(*words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(call("--database", filled, command, *more, "--json", *words).stdout)
        return found

    everything = rows()
    for field in everything[0]:
        if field == "extra" and command == "best":
            continue
        for sign in ("", "-"):
            found = rows("--sort", sign + field)
            assert sorted(map(str, found)) == sorted(map(str, everything))
            values = [row[field] for row in found if row[field] is not None]
            assert [row[field] for row in found][: len(values)] == values, "without a value last"
            if all(isinstance(value, int | float | str) for value in values):
                assert values == sorted(values, reverse=bool(sign))
    first = "uuid" if command == "runs" else "device"
    last = "started" if command == "runs" else "driver"
    assert rows("--columns", f"{last}, {first}") == [{last: row[last], first: row[first]} for row in everything]
    header = call("--database", filled, command, *more, "--csv", "--columns", f"{last},{first}").stdout.splitlines()[0]
    assert header == f"{last},{first}"
    for option in ("--sort", "--columns"):
        refused = call("--database", filled, command, *more, option, "nosuch")
        assert refused.exit_code == 2
        assert f"{option} 'nosuch': there is no such column; there are " in refused.stderr


def test_parts_of_problem_and_configuration_are_columns(filled: Path) -> None:
    asked = ("trials", "--device", "H200", "--status", "ok", "--columns", "n,width,status")
    rows = json.loads(call("--database", filled, *asked, "--sort", "-n", "--json").stdout)
    assert [row["n"] for row in rows] == sorted((row["n"] for row in rows), reverse=True)
    assert {row["width"] for row in rows} == {1024}
    assert len({row["n"] for row in rows}) > 1
    assert {tuple(row) for row in rows} == {("n", "width", "status")}
    assert call("--database", filled, *asked, "--csv").stdout.splitlines()[0] == "n,width,status"
    plain = json.loads(call("--database", filled, "trials", "--json").stdout)
    by_part = json.loads(call("--database", filled, "trials", "--json", "--sort", "n").stdout)
    assert {row["trial"]: row for row in by_part} == {row["trial"]: row for row in plain}
    assert call("--database", filled, "runs", "--columns", "n").exit_code == 2
    none = call("--database", filled, *asked, "--kernel", "update_phi", "--csv")
    assert (none.exit_code, none.stdout) == (0, "n,width,status\n")


@pytest.mark.parametrize("command", QUERIES)
def test_csv_has_the_fields_of_json(filled: Path, command: str) -> None:
    as_json = json.loads(call("--database", filled, command, "--json").stdout)
    as_csv = list(csv.DictReader(io.StringIO(call("--database", filled, command, "--csv").stdout)))
    assert len(as_csv) == len(as_json) > 0
    names = set(as_json[0])
    assert names - set(as_csv[0]) <= ({"extra"} if command in ("trials", "best") else set())
    assert set(as_csv[0]) <= names


def test_devices_show_their_roofs(filled: Path) -> None:
    table = call("--database", filled, "devices").stdout
    assert "4272.0" in table
    assert "4096=4323.0" in table
    assert "128.0 GiB" in table


def test_failed_trials_show_the_first_line_of_why(filled: Path) -> None:
    table = call("--database", filled, "trials", "--status", "compile_error").stdout
    assert "error: no" in table
    assert "second line" not in table
    every = json.loads(call("--database", filled, "trials", "--json").stdout)
    failed = json.loads(call("--database", filled, "trials", "--status", "failed", "--json").stdout)
    assert failed == [row for row in every if row["status"] != "ok"] != []


@pytest.mark.parametrize("error", ["mine.cl:1:9: error: no type 'flot'", "error: mine.cl:1:9: no type 'flot'"])
def test_a_failed_compilation_shows_the_first_error(filled: Path, make: Any, error: str) -> None:
    message = f"it does not compile, options ['-O3']:\nstarted\n{error}\nmine.cl:2:1: error: x"
    with open_store(filled) as store:
        store.add_trial(make.trial(config={"n": 77}, time=None, status="compile_error", message=message))
    table = call("--database", filled, "trials", "--limit", 1).stdout
    assert error in table
    assert "options" not in table


def test_explain(filled: Path) -> None:
    words = ("--database", filled, "explain", "--kernel", "gather", "--device", "H200", "--problem", "width=512")
    assert "width=1024 (wanted width=512)" in call(*words).stdout
    rows = json.loads(call(*words, "--json").stdout)
    assert rows[0]["config"] == {"n": 2}
    assert rows[0]["differences"] == [{"part": "problem.width", "wanted": 512, "found": 1024}]
    result = call("--database", filled, "explain")
    assert result.exit_code == 2
    assert result.stderr == "Error: name the kernel to explain: --kernel NAME\n"


def test_quarantined_configurations_are_shown(filled: Path, make: Any) -> None:
    config = {"n": 2}
    with open_store(filled) as store:
        store.quarantine(
            QuarantineRecord(
                key=make.key(), config=config, recorded=config, status="launch_error", message="too many\nregisters"
            )
        )
    best = json.loads(call("--database", filled, "best", "--json", "--device", "H200").stdout)
    assert [(row["config"], row["quarantined"]) for row in best] == [
        ({"n": 1}, [{"config": config, "reason": "launch_error: too many registers"}])
    ], "the best that may be selected"
    assert "n=2 (launch_error: too many registers)" in call("--database", filled, "best").stdout
    trials = json.loads(call("--database", filled, "trials", "--json", "--device", "H200").stdout)
    assert [row["config"] for row in trials if row["quarantined"]] == [config]
    near = call("--database", filled, "explain", "--kernel", "gather", "--device", "H200").stdout
    assert "n=2 (launch_error: too many registers)" in near
    (row,) = json.loads(call("--database", filled, "quarantine", "--json", "--kernel", "gather").stdout)
    assert (row["config"], row["status"], row["message"]) == (config, "launch_error", "too many\nregisters")
    assert "too many" in call("--database", filled, "quarantine").stdout
    none = call("--database", filled, "quarantine", "--kernel", "update_phi")
    assert (none.stdout, none.stderr) == ("", "No configuration of update_phi is in quarantine.\n")


def test_merge(filled: Path, tmp_path: Path, url: str, make: Any) -> None:
    assert f"5 of 5 trials of {filled} added" in call("--database", url, "merge", filled).stderr
    assert "0 of 5 trials" in call("--database", url, "merge", filled).stderr
    with open_store(url) as store:
        before = text_of(store.bundle())
        store.add_trial(make.trial(config={"n": 100}))
    with open_store(filled, read_only=True) as store:
        assert text_of(store.bundle()) == before
    assert "1 of 6 trials" in call("--database", filled, "merge", url).stderr
    missing = call("--database", url, "merge", tmp_path / "nothing.sqlite3")
    assert (missing.exit_code, "there is no tuning database at" in missing.stderr) == (2, True)
    assert not (tmp_path / "nothing.sqlite3").exists()
    unread = call("--database", tmp_path / "new.sqlite3", "merge", "postgresql://127.0.0.1:1/x")
    assert (unread.exit_code, "cannot connect" in unread.stderr) == (2, True)
    assert not (tmp_path / "new.sqlite3").exists()


def text_of(bundle: Bundle) -> list[str]:
    return list(jsonl.lines(bundle))


def test_export_and_import(filled: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "e.jsonl.gz", tmp_path / "other.sqlite3"
    assert "5 trials written" in call("--database", filled, "export", file).stderr
    assert "5 of 5 trials added" in call("--database", other, "import", file).stderr
    assert "0 of 5 trials added" in call("--database", other, "import", file).stderr
    assert call("--database", other, "best", "--json").stdout == call("--database", filled, "best", "--json").stdout


def test_the_suffix_says_the_format_of_an_export(filled: Path, tmp_path: Path) -> None:
    def begin(name: str, *words: str) -> str:
        assert call("--database", filled, "export", tmp_path / name, *words).exit_code == 0
        packed = (tmp_path / name).read_bytes()
        return (gzip.decompress(packed) if name.endswith(".gz") else packed).decode()

    assert begin("e.jsonl") == begin("named")
    refused = call("--database", filled, "export", tmp_path / "e.xls.gz")
    assert (refused.exit_code, "has the suffix .xls: write to .jsonl or .csv" in refused.stderr) == (2, True)
    assert "e.xls.gz" not in os.listdir(tmp_path)
    rows = list(csv.DictReader(io.StringIO(begin("e.csv.gz"))))
    assert len(rows) == 5
    assert rows[0]["device"] in ("H200", "H[bold]100")
    assert "5 of 5 trials" in call("--database", tmp_path / "e.sqlite3", "import", tmp_path / "e.jsonl").stderr


def test_what_moved_is_told_as_json(filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    call("--database", filled, "export", file)
    table = tmp_path / "e.csv"
    for number, words in enumerate((["export", table], ["import", file], ["merge", filled])):
        database = filled if words[0] == "export" else tmp_path / f"other{number}.sqlite3"
        told = json.loads(call("--database", database, *words, "--json").stdout)
        assert told.get("added", 5) == told["trials"] == 5
        assert {"file", "database"} & set(told)


def test_csv_has_no_formulas_for_spreadsheets(tmp_path: Path) -> None:
    """Texts that others have written; JSON has them as they are."""
    run = replace(records.RUN, strategy="=1+1", host="@SUM(A1)", extra={"who": '=HYPERLINK("http://x")'})
    device = replace(records.GPU, name="+cmd|' /C calc'!A0", driver="\tx", vendor="-2+3", memory_bytes=5)
    made = records.trial(1e-3, device=device)
    toolchain = replace(made.key.toolchain, options="-O3")
    made = replace(made, key=replace(made.key, toolchain=toolchain), status="timeout", times=(), message="-1.5e3")
    with open_store(tmp_path / "t.sqlite3") as store:
        store.add_bundle(Bundle([run], [], [made]))
    for words in (["runs"], ["devices"], ["trials"]):
        text = call("--database", tmp_path / "t.sqlite3", *words, "--csv").stdout
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        begin = [cell for cell in cells if cell[:1] in set("=+-@\t\r")]
        assert begin == (["-1.5e3"] if words == ["trials"] else []), "but for numbers"
    assert "'-O3" in cells
    assert "'+cmd|' /C calc'!A0" in cells
    told = json.loads(call("--database", tmp_path / "t.sqlite3", "runs", "--json").stdout)
    assert told[0]["strategy"] == "=1+1"


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("trial", {"vector_width": True}, "vector_width=True of update_phi: a whole number is expected"),
        ("trial", {"block_size": "64"}, "block_size='64' of update_phi: a whole number is expected"),
        ("trial", {"placement": 3}, "placement=3 of update_phi: a text is expected"),
        ("trial", {"normalise": 1}, "normalise=1 of update_phi: true or false is expected"),
        ("problem", {"K": "many"}, "K='many' of update_phi: a whole number is expected"),
        ("problem", {"K": 1024.0}, "K=1024.0 of update_phi: a whole number is expected"),
        ("problem", {"dtype": 32}, "dtype=32 of update_phi: a text is expected"),
        ("device", {"local_memory": "much"}, "the limits of NVIDIA H200 in 'extra'"),
        ("device", {"sub_group_sizes": 32}, "the limits of NVIDIA H200 in 'extra'"),
    ],
    ids=str,
)
def test_import_refuses_values_of_other_types_than_the_kernels_declare(
    tmp_path: Path, kind: str, changes: dict[str, Any], words: str
) -> None:
    made = records.trial(1e-3)
    if kind == "trial":
        made = replace(made, config={**made.config, **changes})
    elif kind == "problem":
        problem = made.key.problem
        made = replace(made, key=replace(made.key, problem=replace(problem, params={**problem.params, **changes})))
    else:
        device = replace(made.key.device, extra={**made.key.device.extra, **changes})
        made = replace(made, key=replace(made.key, device=device))
    jsonl.write(Bundle([records.RUN], [], [made]), tmp_path / "odd.jsonl")
    result = call("--database", tmp_path / "t.sqlite3", "import", tmp_path / "odd.jsonl")
    assert result.exit_code == 2, result.output
    assert f"odd.jsonl: {words}" in result.stderr
    assert not (tmp_path / "t.sqlite3").exists()
    jsonl.write(Bundle([records.RUN], [], [records.trial(1e-3)]), tmp_path / "even.jsonl")
    assert "1 of 1 trials added" in call("--database", tmp_path / "t.sqlite3", "import", tmp_path / "even.jsonl").stderr


def test_import_of_a_malformed_file_makes_no_database(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{}\n")
    result = call("--database", tmp_path / "t.sqlite3", "import", tmp_path / "bad.jsonl")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert "bad.jsonl, line 1" in result.stderr
    assert not (tmp_path / "t.sqlite3").exists()


@pytest.mark.parametrize("command", [*ALL_QUERIES, "explain"])
def test_without_a_database_all_is_empty_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    path = tmp_path / "none" / "t.sqlite3"
    monkeypatch.setenv("MMSBGEN_DATABASE_URL", str(path))
    # Of explain's kernel no records come with the package either.
    arguments = ["--kernel", "exchange_slots"] if command == "explain" else []
    result = call(command, "--json", *arguments)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == []
    assert "mmsbgen tune" in result.stderr
    assert call(command, *arguments).stderr == nothing_at(path)
    named = call("--database", path, command, *arguments)
    assert (named.exit_code, f"there is no tuning database at {path}: name another" in named.stderr) == (2, True)
    assert not path.parent.exists()


def test_numbers_of_problems_are_sorted_as_numbers(filled: Path, make: Any) -> None:
    with open_store(filled) as store:
        for width in (96, 8):
            key = make.key(params={"width": width, "count": 4096, "dtype": "float32"})
            store.add_trial(make.trial(key, config={"n": 1}, time=1e-3))
    for words, expected in (((), [8, 96, 1024]), (("--sort", "-problem"), [1024, 96, 8])):
        found = call("--database", filled, "best", "--device", "H200", "--json", *words).stdout
        assert [row["problem"]["width"] for row in json.loads(found)] == expected


def test_environment_names_the_database(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMSBGEN_DATABASE_URL", f"sqlite:///{filled}")
    assert len(json.loads(call("runs", "--json").stdout)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["best", "--json", "--csv"], "exclude each other"),
        (["best", "--problem", "width"], "write it as NAME=VALUE"),
        (["best", "--problem", "k=100"], "did you mean K?"),
        (["best", "--kernel", "update_fi"], "did you mean update_pi or update_phi?"),
        (["bset"], "There is no command 'bset'; did you mean best?"),
    ],
)
def test_wrong_options(filled: Path, arguments: list[str], message: str) -> None:
    result = call("--database", filled, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize("command", ["best", "trials", "quarantine", "export", "explain", "report"])
@pytest.mark.parametrize("kernel", ["zzz", "nosuch/update_phi", "mmsb/gather", "rows/update_phi"])
def test_a_kernel_that_nothing_has_is_refused_by_name(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, kernel: str
) -> None:
    out = {"export": [tmp_path / "out.jsonl"], "report": ["-o", tmp_path / "out"]}.get(command, [])
    for database in (filled, tmp_path / "none.sqlite3"):
        monkeypatch.setenv("MMSBGEN_DATABASE_URL", str(database))
        result = call(command, "--kernel", kernel, *out)
        assert result.exit_code == 2
        message = result.stderr.splitlines()[-1]
        assert message.startswith(f"Error: --kernel {kernel!r}: there is no such kernel, and no record of one in ")
        assert "update_phi" in message
        assert message.endswith("rows/gather") == (database == filled)
    assert list(tmp_path.glob("out*")) == list(tmp_path.glob("none*")) == []


@pytest.mark.parametrize("command", ["best", "trials", "export", "explain", "report"])
def test_a_parameter_that_nothing_has_is_refused_by_name(filled: Path, tmp_path: Path, command: str) -> None:
    out = {"export": [tmp_path / "out.jsonl"], "report": ["-o", tmp_path / "out"], "explain": ["--kernel", "gather"]}
    result = call("--database", filled, command, "--problem", "width=3", "--problem", "Q=3", *out.get(command, []))
    assert result.exit_code == 2
    assert "Error: --problem Q=3: there is no such parameter, and no record with it in " in result.stderr
    assert "there are n, mean_degree, " in result.stderr
    assert ", N, m, pairs, " in result.stderr
    assert "K" in result.stderr.split("there are ")[1].replace(";", ",").split(", ")
    assert result.stderr.endswith(", count, width\n")
    assert list(tmp_path.glob("out*")) == list(tmp_path.glob("none*")) == []


def test_wrong_database_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("not a database at all")
    result = call("--database", tmp_path / "x", "best")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


def test_every_command_has_help() -> None:
    for name, command in db.commands.items():
        assert command.get_short_help_str(), name
        assert call(name, "--help").exit_code == 0
        assert all(p.help for p in command.params if isinstance(p, click.Option)), name
        moves = name in ("merge", "export", "import", "report")
        assert ({"as_json"} if moves else {"as_json", "as_csv"}) <= {p.name for p in command.params}, name


def test_lazy_commands_are_imported_when_they_run() -> None:
    lazy = {
        "bomb": LazyCommand("no.such.module:x", "Explode."),
        "db": LazyCommand("mmsbgen.cli.db.commands:db", "Ask."),
    }
    group = MmsbgenGroup("root", lazy=lazy)
    shown = CliRunner().invoke(group, ["--help"]).stdout
    assert "bomb  Explode." in shown
    assert "db    Ask." in shown
    assert CliRunner().invoke(group, ["db", "--help"]).exit_code == 0
    assert isinstance(CliRunner().invoke(group, ["bomb"]).exception, ModuleNotFoundError)


def test_help_imports_no_database_library() -> None:
    code = "import mmsbgen.cli.db.commands, sys; print(sorted({'sqlalchemy', 'rich', 'alembic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("value", "shown"), [(None, ""), (2.0, "2 s"), (0.0157, "15.7 ms"), (1.5721e-4, "157.2 us"), (5e-9, "5 ns")]
)
def test_times_for_readers(value: float | None, shown: str) -> None:
    assert seconds(value) == shown
