"""Results of checks accumulate: what counts, what is checked anew, and what an interrupted run leaves."""

from __future__ import annotations

import importlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import jinja2
import pytest
from click.testing import CliRunner, Result

from mmsbgen.families import family
from mmsbgen.kernels import render
from mmsbgen.kernels.space import Traits, describe

KERNELS = ("update_beta", "edge_lookup")
CPU = Traits("opencl", "cpu", max_block_size=4096, local_memory=1 << 20, compute_units=2)


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_a_plan_takes_every_configuration_once_a_round() -> None:
    check, kernels = module("check_variants"), family()
    spec = kernels.kernel("theta_end")
    (asked,) = check.planned(kernels, CPU, ("theta_end",), (7, 64), 2).values()
    valid = [spec.space.configs(spec.check_problem(kernels.problem(K=k)), CPU) for k in (7, 64)]
    once = {describe(config) for configs in valid for config in configs}
    first, second = asked[: len(once)], asked[len(once) :]
    assert {describe(variant.config) for variant in first} == once
    assert {variant.key for variant in first}.isdisjoint(variant.key for variant in second)
    for variant in asked:
        problem = spec.check_problem(kernels.problem(**variant.problem))
        assert spec.space.refusal(variant.config, problem, CPU) is None
    fewer = check.planned(kernels, replace(CPU, max_block_size=64), ("theta_end",), (7, 64), 1)["theta_end"]
    assert {variant.key for variant in fewer} <= {variant.key for variant in first}, "whatever else there is"


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Replaces text in a template."""
    environment = render.environment()
    loader = environment.loader
    assert loader is not None

    def edit(name: str, before: str, after: str) -> None:
        text = loader.get_source(environment, name)[0]
        assert before in text
        other = jinja2.DictLoader({name: text.replace(before, after)})
        monkeypatch.setattr(environment, "loader", jinja2.ChoiceLoader([other, loader]))

    return edit


def test_a_file_whose_last_line_was_cut_off_goes_on(tmp_path: Path) -> None:
    check, result = module("check_variants"), module("_variant_worker").Result("ok", "", 0.1)
    one, other = (module("_variants").Variant("update_beta", {"K": 7}, {"block_size": size}) for size in (16, 32))
    path, tools = tmp_path / "deep" / "x.jsonl", {"device": "a", "driver": "1"}
    check.Results(path, tools, family(), CPU).add(one, result)
    with path.open("a") as out:
        out.write('{"key": "cut')
    check.Results(path, tools, family(), CPU).add(other, result)
    again = check.Results(path, tools, family(), CPU)
    assert None not in (again.of(one), again.of(other))
    assert check.Results(path, tools | {"driver": "2"}, family(), CPU).of(one) is None


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


def _journal(folder: Path) -> Path:
    return folder / "build" / "check-variants" / "pocl.jsonl"


def _checks(folder: Path) -> list[str]:
    """The variants of all results in the file, in their order."""
    return [json.loads(line)["key"] for line in _journal(folder).read_text().splitlines()[1:]]


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_a_later_run_goes_on_and_checks_what_changed(
    script: Callable[..., Result], tmp_path: Path, edited: Callable[[str, str, str], None]
) -> None:
    done = script("--sample", "2")
    assert done.exit_code == 0, done.output
    assert "4 of 38 variants checked, 0 failures" in done.output
    text = (tmp_path / "docs" / "reports" / "variants-pocl.md").read_text()
    assert "**4 of 38 variants checked, every configuration once, with the sources of " in text
    assert "0 failures;** 0.0 hours of checks altogether" in text
    assert "6 of 38 variants checked" in script("--sample", "3").output
    assert len(_checks(tmp_path)) == 6

    edited("mmsb/stages/update_beta.jinja", "{%", "/* a comment */\n{%")
    assert "6 of 38 variants checked" in script("--sample", "3").output
    assert len(_checks(tmp_path)) == 6, "a comment changes no program"
    edited("mmsb/stages/update_beta.jinja", "{%", "typedef real unheard_of;\n{%")
    assert "3 of 38 variants checked" in script("--sample", "3", "--seconds", "0.000001", "--no-report").output
    assert "6 of 38 variants checked" in script("--sample", "3").output
    assert len(_checks(tmp_path)) == 9

    done = script("--sample", "1", "--kernel", "edge_lookup")
    assert "3 of 19 variants checked" in done.output
    assert "6 of 38" in (tmp_path / "docs" / "reports" / "variants-pocl.md").read_text(), "left by a run of one kernel"


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_what_timed_out_is_tried_again_after_all_others(script: Callable[..., Result], tmp_path: Path) -> None:
    assert script("--sample", "1", "--no-report").exit_code == 0
    before = _checks(tmp_path)
    _journal(tmp_path).write_text(_journal(tmp_path).read_text().replace('"status": "ok"', '"status": "timeout"'))
    done = script("--sample", "2")
    assert done.exit_code == 0, done.output
    keys = _checks(tmp_path)[2:]
    assert keys[2:] == before
    assert len(set(keys)) == 4
    assert "4 of 38 variants checked, 0 failures" in done.output


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
    results = module("check_variants").Results
    add, workers = results.add, []
    start = module("_variant_worker").Worker._start

    def add_and_interrupt(self: Any, *result: Any) -> None:
        add(self, *result)
        os.kill(os.getpid(), how)

    def started(self: Any) -> Any:
        workers.append(start(self))
        return workers[-1]

    monkeypatch.setattr(results, "add", add_and_interrupt)
    monkeypatch.setattr(module("_variant_worker").Worker, "_start", started)
    done = script()
    assert done.exit_code == 0, done.output
    assert "interrupted: what has been checked is kept" in done.output
    checked = len(_checks(tmp_path))
    assert 1 <= checked <= 3
    assert f"**{checked} of 38 variants checked" in (tmp_path / "docs" / "reports" / "variants-pocl.md").read_text()
    assert workers
    assert all(worker.poll() is not None for worker in workers)
