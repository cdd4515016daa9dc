"""Results of checks accumulate: what counts, what is checked anew, and what an interrupted run leaves."""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import jinja2
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from mmsbgen.families import family
from mmsbgen.kernels import render
from mmsbgen.kernels.build import check_built
from mmsbgen.kernels.space import Traits

KERNELS = ("update_beta", "edge_lookup")
CPU = Traits("opencl", "cpu", max_block_size=4096, local_memory=1 << 20, native_vector_width=16, compute_units=2)
MODULES = {
    "judge": """
        import math
        from small import helper
        from small.helper import tolerance as allowed

        LIMIT = 3

        def workload(problem: "Problem") -> None:
            '''What it says.'''
            return math.sqrt(allowed() + helper.inputs() + LIMIT)

        def other():
            return 1
        """,
    "helper": """
        BASE = 2

        def tolerance():
            return BASE * 1e-3

        def inputs():
            # Why.
            return 7

        def unused():
            return tolerance
        """,
}


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


@given(st.sets(st.integers(0, 2**32 - 1)))
def test_fingerprints_as_text(values: set[int]) -> None:
    checked = module("_checked")
    assert checked.unpack(checked.pack(values)) == values
    assert json.loads(json.dumps(checked.pack(values))) == checked.pack(values)


def test_three_thousand_fingerprints_take_less_than_four_characters_each() -> None:
    spread = set(random.Random(1).sample(range(2**32), 3000))
    assert len(module("_checked").pack(spread)) < 4 * 3000


@pytest.fixture
def small_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes the package ``small`` with an edit, and gives the digest of what its workload rests on."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def digest_with(name: str = "", before: str = "", after: str = "") -> str:
        closure = module("_closure")
        for each in [each for each in sys.modules if each.partition(".")[0] == "small"]:
            monkeypatch.delitem(sys.modules, each)
        closure._module.cache_clear()
        closure._exists.cache_clear()
        importlib.invalidate_caches()
        (tmp_path / "small").mkdir(exist_ok=True)
        (tmp_path / "small" / "__init__.py").touch()
        for each, text in MODULES.items():
            lines = re.sub(r"\n {8}", "\n", text)
            assert each != name or before in lines
            (tmp_path / "small" / f"{each}.py").write_text(lines.replace(before, after) if each == name else lines)
        found: str = closure.digest([module("small.judge").workload], "small")
        return found

    return digest_with


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("judge", "LIMIT = 3", "LIMIT = 4"),
        ("judge", "math.sqrt(", "math.exp("),
        ("helper", "BASE = 2", "BASE = 3"),
        ("helper", "return 7", "return 8"),
        ("helper", "return BASE * 1e-3", "return BASE * 1e-2"),
        ("helper", "BASE = 2", "BASE = 2\nif BASE:\n    BASE += 1"),
    ],
)
def test_a_digest_knows_what_a_function_rests_on(
    small_package: Callable[..., str], name: str, before: str, after: str
) -> None:
    assert small_package() == small_package()
    assert small_package(name, before, after) != small_package()


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("judge", "What it says.", "What it says, in other words."),
        ("judge", "return 1", "return 2"),
        ("helper", "# Why.", "# Why not."),
        ("helper", "return tolerance", "return 0"),
        ("judge", 'problem: "Problem"', "problem"),
    ],
)
def test_a_digest_leaves_out_comments_and_what_is_not_used(
    small_package: Callable[..., str], name: str, before: str, after: str
) -> None:
    if "Problem" not in before:
        assert small_package(name, before, after) == small_package()
    else:
        assert small_package(name, before, after) != small_package(), "a signature is a part of the definition"


def test_every_kernel_rests_on_its_reference_and_tolerance() -> None:
    closure = module("_closure")
    for spec in family().kernels.values():
        found = closure.closure([spec.workload, spec.check_problem, check_built], "mmsbgen")
        names = {name for _, name in found}
        assert {spec.workload.__name__, spec.check_problem.__name__, "check_built", "_trespass", "Workload"} <= names
        if spec.name in ("update_phi", "block_links", "star_rows"):
            assert {"Expected", "drift", "end_row", "summing", "philox", "poisson", "Storage"} <= names, spec.name


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], None]]:
    """Replaces text in a template."""
    environment = render.environment()
    loader = environment.loader
    assert loader is not None

    def edit(name: str, before: str, after: str) -> None:
        text = loader.get_source(environment, name)[0]
        assert before in text
        other = jinja2.DictLoader({name: text.replace(before, after)})
        monkeypatch.setattr(environment, "loader", jinja2.ChoiceLoader([other, loader]))
        render.template_digest.cache_clear()

    # A template's text comes from the files, which here stay as they are: a plan is made anew.
    monkeypatch.setattr(module("check_variants"), "kept_plan", lambda path, *asked: module("_plan").plan(*asked))
    yield edit
    monkeypatch.undo()
    render.template_digest.cache_clear()


def test_a_fingerprint_is_of_what_the_check_does(edited: Callable[[str, str, str], None]) -> None:
    checked, variants, kernels = module("_checked"), module("_variants"), family()
    one = variants.Variant("update_beta", {"K": 7, "dtype": "float32"}, {"block_size": 16})
    others = [
        one._replace(problem={"K": 64, "dtype": "float32"}),
        one._replace(problem={"K": 7, "dtype": "float64"}),
        one._replace(config={"block_size": 32}),
    ]

    def numbers() -> list[int]:
        fingerprints = checked.Fingerprints(kernels, CPU)
        return [fingerprints.of(variant) for variant in (one, *others)]

    before = numbers()
    assert len(set(before)) == 4
    assert numbers() == before
    edited("mmsb/stages/update_beta.jinja", "{%", "/* a comment\n over lines */\n{%")
    assert numbers() == before
    edited("mmsb/stages/update_beta.jinja", "{%", "typedef real unheard_of;\n{%")
    assert set(numbers()).isdisjoint(before)


def _record(number: int, status: str = "ok", seconds: float = 1.0) -> dict[str, Any]:
    key = json.dumps(["draws", {"K": 7}, {"block_size": number}])
    return {
        "key": key,
        "group": "draws",
        "fingerprint": number,
        "status": status,
        "message": "why",
        "seconds": seconds,
    }


def test_what_counts_twice_what_no_more_and_what_is_tried_again() -> None:
    found = module("_checked").Checked()
    no_answer = [_record(3, "timeout"), _record(5, "launch_error")]
    for record in [_record(1), _record(1), _record(2, "crashed", 3.0), *no_answer, _record(4)]:
        found.add(record)
    assert found.known["draws"] == {1, 2, 4}
    assert (found.seconds["draws"], set(found.failures)) == (7.0, {2, 3, 5})
    found.add(_record(3))
    found.add(_record(5))
    assert (found.known["draws"], set(found.failures)) == ({1, 2, 3, 4, 5}, {2})
    kept = found.only({"draws": {1, 3, 9}})
    assert (kept.known["draws"], kept.failures, kept.seconds["draws"]) == ({1, 3}, {}, pytest.approx(9 * 2 / 5))


def test_a_journal_whose_last_line_was_cut_off_goes_on(tmp_path: Path) -> None:
    checked, one = module("_checked"), module("_variants").Variant("draws", {"K": 7}, {"block_size": 1})
    path, tools = tmp_path / "deep" / "x.jsonl", {"device": "a", "driver": "1"}
    ok = module("_variant_worker").Result("ok", "", 0.1)
    first = checked.Journal(path, tools)
    first.add(one, 1, ok)
    with path.open("a") as out:
        out.write('{"key": "cut')
    second = checked.Journal(path, tools)
    second.add(one, 2, ok)
    assert [record["fingerprint"] for record in checked.Journal(path, tools).records] == [1, 2]
    assert checked.Journal(path, tools | {"driver": "2"}).records == []


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The script on PoCL for two small kernels, with a folder of its own for reports and results."""
    check, few = module("check_variants"), family()
    few = replace(few, kernels={name: few.kernel(name) for name in KERNELS})
    monkeypatch.setattr(check, "family", lambda: few)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def call(*arguments: str) -> Result:
        try:
            return CliRunner().invoke(check.main, ["--device", "pocl", *arguments])
        finally:
            signal.signal(signal.SIGTERM, before)

    return call


def _report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "docs" / "reports" / "variants-pocl.json").read_text())
    return found


def _counts(folder: Path) -> dict[str, int]:
    return {row["group"]: row["checked"] for row in _report(folder)["rows"]}


def _checks(folder: Path) -> int:
    """How many results are in the journal."""
    lines = (folder / "build" / "check-variants" / "pocl.jsonl").read_text().splitlines()
    return len(lines) - 1


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_a_later_run_goes_on_from_the_report_and_checks_what_changed(
    script: Callable[..., Result], tmp_path: Path, edited: Callable[[str, str, str], None]
) -> None:
    done = script("--sample", "2")
    assert done.exit_code == 0, done.output
    assert _counts(tmp_path) == {"edge_lookup": 2, "update_beta": 2}
    text = (tmp_path / "docs" / "reports" / "variants-pocl.md").read_text()
    total = sum(row["configurations"] for row in _report(tmp_path)["rows"])
    assert f"**4 of {total} configurations checked once with the sources of " in text
    assert "0 failures;** 0.0 hours of checks altogether" in text

    journal = tmp_path / "build" / "check-variants" / "pocl.jsonl"
    journal.unlink()  # another machine with the same device
    assert script("--sample", "3").exit_code == 0
    assert (_counts(tmp_path), _checks(tmp_path)) == ({"edge_lookup": 3, "update_beta": 3}, 2)

    edited("mmsb/stages/update_beta.jinja", "{%", "typedef real unheard_of;\n{%")
    done = script("--sample", "3", "--seconds", "0.000001")
    assert "3 of 38 variants are checked as they are today" in done.output
    assert _counts(tmp_path) == {"edge_lookup": 3, "update_beta": 0}
    assert script("--sample", "3").exit_code == 0
    assert (_counts(tmp_path), _checks(tmp_path)) == ({"edge_lookup": 3, "update_beta": 3}, 5)


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_what_timed_out_is_tried_again_after_all_others(script: Callable[..., Result], tmp_path: Path) -> None:
    assert script("--sample", "1", "--no-report").exit_code == 0
    journal = tmp_path / "build" / "check-variants" / "pocl.jsonl"
    before = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    journal.write_text(journal.read_text().replace('"status": "ok"', '"status": "timeout"'))
    done = script("--sample", "2")
    assert done.exit_code == 0, done.output
    keys = [json.loads(line)["key"] for line in journal.read_text().splitlines()[3:]]
    assert keys[2:] == [record["key"] for record in before]
    assert len(set(keys)) == 4
    assert (_counts(tmp_path), _report(tmp_path)["failures"]) == ({"edge_lookup": 2, "update_beta": 2}, [])


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_a_report_of_another_driver_does_not_count_nor_one_that_is_none(
    script: Callable[..., Result], tmp_path: Path
) -> None:
    assert script("--sample", "1").exit_code == 0
    path = tmp_path / "other.json"
    report = _report(tmp_path)
    path.write_text(json.dumps(report | {"about": report["about"] | {"driver": "0.1"}}))
    (tmp_path / "build" / "check-variants" / "pocl.jsonl").unlink()
    done = script("--sample", "1", "--seconds", "0.000001", "--no-report", "--resume-from", str(path))
    assert "other.json is of another driver '0.1': nothing of it counts" in done.output
    assert "0 of 38 variants are checked" in done.output
    done = script("--sample", "1", "--kernel", "edge_lookup")
    assert "1 of 19 variants are checked" in done.output
    assert _counts(tmp_path) == {"edge_lookup": 1, "update_beta": 1}, "a run of one kernel leaves the report"
    path.write_text("{}")
    done = script("--resume-from", str(path))
    assert done.exit_code == 2
    assert "other.json is no report of this script" in done.output
    assert "--resume-from" in done.output


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, where a background job would ignore it; handlers of before are put back."""
    before = {how: signal.getsignal(how) for how in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for how, handler in before.items():
        signal.signal(how, handler)


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device", "interrupts")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_it_has_and_writes_its_report(
    script: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    checked = module("_checked")
    add, workers = checked.Journal.add, []
    start = module("_variant_worker").Worker._start

    def add_and_interrupt(self: Any, *result: Any) -> dict[str, Any]:
        record: dict[str, Any] = add(self, *result)
        os.kill(os.getpid(), how)
        return record

    def started(self: Any) -> Any:
        workers.append(start(self))
        return workers[-1]

    monkeypatch.setattr(checked.Journal, "add", add_and_interrupt)
    monkeypatch.setattr(module("_variant_worker").Worker, "_start", started)
    done = script()
    assert done.exit_code == 0, done.output
    assert "interrupted: what has been checked is kept" in done.output
    assert 1 <= sum(_counts(tmp_path).values()) == _checks(tmp_path) <= 3
    assert _report(tmp_path)["failures"] == []
    assert workers
    assert all(worker.poll() is not None for worker in workers)


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_what_is_checked_after_an_edit_does_not_count(
    script: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter(range(100))
    monkeypatch.setattr(module("_plan").Watch, "edited", lambda self: next(asked) >= 2)
    done = script("--sample", "9")
    assert done.exit_code == 0, done.output
    assert "stopped, for code or templates were edited: run it again" in done.output
    assert sum(_counts(tmp_path).values()) == _checks(tmp_path) == 2
