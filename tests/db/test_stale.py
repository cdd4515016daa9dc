"""Each part of a key, changed on a real device: the old record is a miss, explained, kept and marked."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import pytest
from click.testing import CliRunner

from mmsbgen.backends import find_device, open_device
from mmsbgen.cli.db.commands import db
from mmsbgen.db.records.tuning_records import QuarantineRecord, RunRecord, TrialRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels import build, record_key, render
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.record_key import key_of, program_digest
from mmsbgen.sampler.chain.chain_problem import problem_of_graph
from mmsbgen.sampler.options.options import Options
from mmsbgen.tuner.run.changed_keys import Present
from tests.records import program

pytestmark = pytest.mark.opencl

SPEC = MMSB.kernel("update_beta")
PROBLEM = MMSB.problem(K=64)
CONFIG = {"block_size": 4}


@pytest.fixture(scope="module")
def info() -> Any:
    with open_device("pocl") as device:
        return device.info


def rows(database: Path, *arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(db, ["--database", str(database), *arguments, "--json"])
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def recorded(tmp_path: Path, info: Any, **changes: Any) -> tuple[Path, Any]:
    """A database with one record, of this device but for the changes."""
    path, run = tmp_path / "t.sqlite3", RunRecord(strategy="exhaustive")
    key = key_of(replace(info, **changes), SPEC, PROBLEM)
    with open_store(path) as store:
        store.begin_run(run)
        extra = program(key, CONFIG)
        store.add_trial(TrialRecord(run=run.uuid, key=key, config=CONFIG, status="ok", times=(1e-6,), extra=extra))
    return path, key


def look_up(path: Path, key: Any) -> Any:
    with open_store(path, read_only=True) as store:
        index, present = Index(store, shipped=None), partial(program_digest, MMSB)
        return index.select(key, valid=lambda config: True, default={"block_size": 1}, program=present)


def told(path: Path, key: Any) -> list[str]:
    """The parts in which `db explain` says that the nearest record differs from ``key``."""
    arguments = ["explain", "--kernel", SPEC.name, "--on", "pocl", "--device", key.device.platform]
    arguments += [word for name, value in key.problem.params.items() for word in ("--problem", f"{name}={value}")]
    near = rows(path, *arguments)[0]
    assert near["device"] == key.device.name
    return [difference["part"] for difference in near["differences"]]


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("driver", {"driver": "3.0+old"}),
        ("compiler", {"compiler": "Another 3.1+debian"}),
        ("compiler version", {"compiler": "Portable Computing Language 3.0"}),
        ("compiler options", {"sub_group_sizes": (32,)}),
    ],
)
def test_another_driver_compiler_or_option(tmp_path: Path, info: Any, part: str, changes: dict[str, Any]) -> None:
    path, old = recorded(tmp_path, info, **changes)
    key = key_of(info, SPEC, PROBLEM)
    chosen = look_up(path, key)
    assert chosen.tier == "architecture", "a miss: offered as what it is"
    assert f"no record for {part} " in chosen.reason
    assert told(path, key) == [part]
    assert look_up(path, old).tier == "exact", "kept as it was"
    for command in ("best", "trials"):
        (row,) = rows(path, command)
        assert [(d["part"], d["found"]) for d in row["stale"]] == [(part, _found(old, part))]


def _found(key: Any, part: str) -> str:
    chain = key.toolchain
    parts = {"driver": key.device.driver, "compiler": chain.compiler, "compiler version": chain.version}
    return str((parts | {"compiler options": chain.options})[part])


def test_an_edited_template_even_an_included_one(tmp_path: Path, info: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, key = recorded(tmp_path, info)
    assert [row["stale"] for row in rows(path, "best")] == [[]]
    environment = render.environment()
    loader = environment.loader
    assert loader is not None
    text = loader.get_source(environment, "common/prelude.jinja")[0]

    def edit(end: str) -> None:
        edited = jinja2.DictLoader({"common/prelude.jinja": text + end})
        monkeypatch.setattr(environment, "loader", jinja2.ChoiceLoader([edited, loader]))

    edit("\n/* edited */\n")
    assert look_up(path, key).tier == "exact"
    assert told(path, key) == []
    assert [row["stale"] for row in rows(path, "best")] == [[]]
    edit("\ntypedef int unheard_of;\n")
    chosen = look_up(path, key)
    assert (chosen.tier, chosen.config) == ("default", {"block_size": 1}), "never used"
    assert "1 record has another template digest: stale" in chosen.reason
    assert told(path, key) == ["template digest"]
    for command in ("best", "trials"):
        (row,) = rows(path, command)
        assert [d["part"] for d in row["stale"]] == ["template digest"]
    shown = CliRunner(env={"COLUMNS": "1000"}).invoke(db, ["--database", str(path), "best"]).stdout
    assert f"template digest {row['template_digest']} (wanted template digest" in shown
    monkeypatch.undo()
    assert row["template_digest"] == program(key, CONFIG)["program"]
    assert look_up(path, key).tier == "exact"


def test_a_record_of_an_older_version_is_a_miss_that_names_the_digest(tmp_path: Path, info: Any) -> None:
    path, run, key = tmp_path / "t.sqlite3", RunRecord(strategy="exhaustive"), key_of(info, SPEC, PROBLEM)
    older = replace(key, kernel=replace(key.kernel, template_digest="0123456789abcdef"))
    with open_store(path) as store:
        store.begin_run(run)
        store.add_trial(TrialRecord(run=run.uuid, key=older, config=CONFIG, status="ok", times=(1e-6,)))
    assert look_up(path, key).tier == "default"
    assert told(path, key) == ["template digest"]
    (row,) = rows(path, "best")
    assert [(d["part"], d["found"]) for d in row["stale"]] == [("template digest", "0123456789abcdef")]


def test_a_failure_of_another_program_is_no_quarantine(tmp_path: Path, info: Any) -> None:
    path, key = recorded(tmp_path, info)
    failed = QuarantineRecord(key=key, config=CONFIG, recorded=CONFIG, status="launch_error", message="too wide")
    with open_store(path) as store:
        store.quarantine(replace(failed, extra={"program": "another"}))
    assert look_up(path, key).tier == "exact"
    with open_store(path) as store:
        store.quarantine(replace(failed, extra=program(key, CONFIG), created_at="2100-01-01T00:00:00Z"))
    assert look_up(path, key).tier == "default"


def test_other_compiler_options_of_the_package(tmp_path: Path, info: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = recorded(tmp_path, info)
    monkeypatch.setattr(record_key, "compiler_options", lambda traits: (*build.compiler_options(traits), "-w"))
    assert look_up(path, key_of(info, SPEC, PROBLEM)).tier == "architecture"
    assert [d["part"] for d in rows(path, "best")[0]["stale"]] == ["compiler options"]


def test_another_device_or_problem_is_a_miss_but_not_stale(tmp_path: Path, info: Any) -> None:
    path, _ = recorded(tmp_path, info, name="another")
    chosen = look_up(path, key_of(info, SPEC, PROBLEM))
    assert (chosen.tier, chosen.reason) == (
        "architecture",
        f"no record for device {info.name}: nearest has device another",
    )
    assert rows(path, "best")[0]["stale"] == []
    (tmp_path / "more").mkdir()
    path, _ = recorded(tmp_path / "more", info)
    other = key_of(info, SPEC, MMSB.problem(K=128))
    chosen = look_up(path, other)
    assert (chosen.tier, chosen.reason) == ("problem", "no record for K=128: nearest has K=64")
    assert told(path, other) == ["problem.K"]
    assert rows(path, "best")[0]["stale"] == []


def test_explain_says_what_a_run_on_a_device_would_use(tmp_path: Path, info: Any) -> None:
    path, _ = recorded(tmp_path, info, driver="3.0+old")
    arguments = ["--database", str(path), "explain", "--kernel", SPEC.name, "--on", "pocl", "--problem", "K=64"]
    done = CliRunner().invoke(db, [*arguments, "--json"])
    assert f"update_beta on {info.name} ({info.platform}) would use: block_size=4\n" in done.stderr
    assert f"tier architecture: no record for driver {info.driver}: nearest has driver 3.0+old" in done.stderr
    assert "as by default" not in done.stderr, "of this kernel, K is the only size"
    other = [*arguments[:3], "--kernel", "update_phi", "--on", "pocl", "--problem", "K=64"]
    assert "\n  other sizes as by default: N=317080, m=" in CliRunner().invoke(db, other).stdout
    near = json.loads(done.stdout)[0]
    assert [d["part"] for d in near["differences"]] == ["driver"]
    here = key_of(info, SPEC, PROBLEM)
    with open_store(path) as store:
        store.quarantine(
            QuarantineRecord(key=here, config=CONFIG, recorded=CONFIG, status="launch_error", message="too wide")
        )
    done = CliRunner().invoke(db, arguments)
    said = done.stdout
    assert done.stderr == ""
    assert "block_size=4\n" not in said
    assert "1 record is quarantined" in said
    assert "quarantined here: block_size=4 (launch_error: too wide)" in said
    wrong = CliRunner().invoke(db, [*arguments[:-1], "L=1"])
    assert (wrong.exit_code, "--problem L=1: there is no such parameter" in wrong.stderr) == (2, True)


def test_explain_takes_the_problem_from_a_graph(tmp_path: Path, info: Any) -> None:
    path, _ = recorded(tmp_path, info)
    graph = str(Path(__file__).parents[1] / "data" / "CA-GrQc.txt.gz")
    arguments = ["--database", str(path), "explain", "--kernel", "block_shared", "-k", "20", "--graph", graph]
    done = CliRunner().invoke(db, [*arguments, "--on", "pocl"])
    assert done.exit_code == 0, done.output
    with open_store(path) as store:
        kernel = MMSB.kernel("block_shared")
        problem = problem_of_graph(graph, Options(n_communities=20), "pocl")
        record = TrialRecord(
            run=store.runs()[0].uuid,
            key=key_of(info, kernel, problem),
            config=kernel.default(problem, traits_of(info)),
            status="ok",
            times=(1e-6,),
        )
        store.add_trial(replace(record, extra=program(record.key, record.config)))
    done = CliRunner().invoke(db, [*arguments, "--on", "pocl"])
    assert "tier exact" in done.stdout
    done = CliRunner().invoke(db, arguments)
    assert done.exit_code == 0, done.stderr
    assert f" on {find_device(None).name} " in done.stdout.partition(" would use: ")[0]
    table = tmp_path / "friends.csv"
    table.write_text("person,friend,since\n" + "".join(f"a{n},a{n % 7},1999\n" for n in range(60)))
    arguments = [*arguments[:-1], str(table), "--on", "pocl"]
    wrong = CliRunner().invoke(db, arguments)
    assert (wrong.exit_code, "name them: --graph-columns A,B" in wrong.stderr) == (2, True)
    done = CliRunner().invoke(db, [*arguments, "--graph-columns", "person,friend"])
    assert (done.exit_code, "would use" in done.stdout) == (0, True)


def test_a_kernel_that_is_gone_and_a_family_that_is_not_known(info: Any) -> None:
    key, run = key_of(info, SPEC, PROBLEM), RunRecord(strategy="exhaustive")
    for name, parts in (({"name": "gone"}, ["kernel"]), ({"family": "unknown"}, [])):
        other = replace(key, kernel=replace(key.kernel, **name))
        trial = TrialRecord(run=run.uuid, key=other, config=CONFIG, status="ok", times=(1e-6,))
        assert [d.part for d in Present().differences(trial)] == parts
