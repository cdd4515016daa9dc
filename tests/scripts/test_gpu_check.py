from __future__ import annotations

import importlib
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mmsbgen.families import family
from mmsbgen.kernels.space import Traits
from tests.devices import PROCESSOR

GPU = Traits("cuda", "gpu", sub_group_size=32, compute_units=132)
CPU = Traits("opencl", "cpu", max_block_size=4096, local_memory=1 << 19)
MEMCHECK = "========= COMPUTE-SANITIZER\nok defaults: draws K=7 block_size=1\n========= ERROR SUMMARY: {} errors\n"
RACECHECK = "ok defaults: draws K=7\n========= RACECHECK SUMMARY: {0} hazards displayed ({0} errors, {1} warnings)\n"


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.parametrize("placement", ["RRS", "SHARED", "THREAD", "NAIVE"])
def test_a_sample_is_valid_spread_and_the_same_every_time(placement: str) -> None:
    kernels, ks = family(), (1, 7, 64, 100, 1000, 1024, 2048)
    spec = kernels.kernel("update_phi")

    def sample() -> list[Any]:
        return list(islice(module("_variants").spread(kernels, spec, GPU, ks, {"placement": placement}), 60))

    found = sample()
    assert found == sample()
    assert len({variant.key for variant in found}) == 60
    for variant in found:
        problem = spec.check_problem(kernels.problem(**variant.problem))
        assert spec.space.refusal(variant.config, problem, GPU) is None
        assert variant.config["placement"] == placement
    assert {variant.problem["K"] for variant in found} == set(ks)
    assert {variant.problem["noise"] for variant in found} == {"on", "off"}
    assert {variant.problem["dtype"] for variant in found} == {"float32", "float64"}
    assert {variant.problem["storage"] for variant in found} == {"float32", "bfloat16", "float16"}
    for variant in found:
        assert variant.problem["storage"] == "float32" or variant.problem["dtype"] == "float32"
    wide = {variant.problem["storage"] != "float32" for variant in found if variant.config["vector_width"] == 8}
    assert {variant.config["vector_width"] for variant in found} == {1, 2, 4, 8}
    assert wide == {True}
    assert len({variant.config["block_size"] for variant in found}) > 8


def test_a_small_space_ends() -> None:
    kernels = family()
    found = list(module("_variants").spread(kernels, kernels.kernel("edge_lookup"), GPU, (1,), {}))
    assert 1 < len(found) == len({variant.key for variant in found})


@pytest.mark.parametrize(
    ("said", "status", "verdict"),
    [
        (MEMCHECK.format(0), 0, "clean"),
        (MEMCHECK.format(3), 9, "errors"),
        (MEMCHECK.format(0), 1, "wrong answers"),
        (RACECHECK.format(0, 0), 0, "clean"),
        (RACECHECK.format(2, 0), 9, "errors"),
        (MEMCHECK.format(0), None, "not finished"),
        ("cannot attach\n", 1, "did not run"),
        ("========= ERROR SUMMARY: 0 errors\n", 0, "did not run"),
    ],
)
def test_what_the_sanitizer_says_in_one_word(said: str, status: int | None, verdict: str) -> None:
    found = module("_sanitizer").verdict_of("memcheck", said, status, 5.0)
    assert found.verdict == verdict
    assert found.failed == (verdict != "clean")


def _fake_sanitizer(folder: Path, end: str) -> str:
    """A program that is called as compute-sanitizer is, runs what it is given, and ends as told."""
    path = folder / "compute-sanitizer"
    path.write_text(f'#!/bin/sh\nwhile [ "${{1#*python}}" = "$1" ]; do shift; done\n"$@" || exit 1\n{end}\n')
    path.chmod(0o755)
    return str(path)


def test_the_program_for_the_sanitizer_has_every_kernel_and_placement() -> None:
    written = family().written_in("opencl").values()
    cases = list(module("_sanitized").chosen(family(), CPU, 7))
    placements = {
        f"placements of {spec.name}": [*axis.values]
        for spec in written
        for axis in spec.space.axes
        if axis.name == "placement"
    }
    assert set(placements) == {f"placements of {name}" for name in ("update_phi", "star_rows", "block_links")}
    assert [case.spec.name for case in cases if case.group == "defaults"] == [spec.name for spec in written]
    for group, values in placements.items():
        assert [case.config["placement"] for case in cases if case.group == group] == values
    assert {case.group for case in cases} == {"defaults", *placements}


@pytest.mark.opencl
@pytest.mark.usefixtures("processor")
def test_the_program_for_the_sanitizer_runs_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of its cases, as there is nothing to it that differs from kernel to kernel."""
    sanitizer, program = module("_sanitizer"), tmp_path / "program.py"
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(sanitizer._PROGRAM.parent)!r})\nimport _sanitized\n"
        "every, few = _sanitized.chosen, (('draws', None), ('star_rows', 'THREAD'), ('star_rows', 'SHARED'))\n"
        "_sanitized.chosen = lambda *given: (\n"
        "    case for case in every(*given) if (case.spec.name, case.config.get('placement')) in few\n"
        ")\n"
        "sys.exit(_sanitized.main(sys.argv[1], tuple(map(int, sys.argv[2:]))))\n"
    )
    monkeypatch.setattr(sanitizer, "_PROGRAM", program)
    path = _fake_sanitizer(tmp_path, "echo '========= ERROR SUMMARY: 0 errors'")
    found = sanitizer.sanitize(path, "memcheck", PROCESSOR, 240.0, (7,))
    assert (found.verdict, found.lines) == ("clean", [])
    assert found.counts == {"defaults": 2, "placements of star_rows": 2}
    assert [text.partition(":")[0] for text in found.skipped] == ["fused chain"]


def test_a_sanitizer_that_is_cut_off_or_missing(tmp_path: Path) -> None:
    sanitizer = module("_sanitizer")
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\necho 'ok defaults: draws K=7'\nsleep 60\n")
    slow.chmod(0o755)
    cut = sanitizer.sanitize(str(slow), "memcheck", "pocl", 1.0)
    assert cut[:4] == ("memcheck", "not finished", "cut off after 1 s", {"defaults": 1})
    assert sanitizer.sanitize(str(tmp_path / "none"), "memcheck", "pocl", 1.0).verdict == "did not run"


def test_what_the_sanitizers_program_needs_is_compiled_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs by itself, and then under each tool; a tool that is there alone would compile all of it."""
    log, gpu_check = tmp_path / "log", module("gpu_check")
    path = tmp_path / "compute-sanitizer"
    path.write_text(f'#!/bin/sh\necho "$2" >> {log}\necho "ok defaults: x"\necho "========= ERROR SUMMARY: 0 errors"\n')
    path.chmod(0o755)
    monkeypatch.setattr(gpu_check, "compile_first", lambda *given: log.write_text("by itself\n"))
    verdicts = gpu_check._sanitize(str(path), "cuda:0", 60.0)
    assert [(one.tool, one.verdict) for one in verdicts] == [("memcheck", "clean"), ("racecheck", "clean")]
    assert log.read_text().splitlines()[0] == "by itself"
    assert sorted(log.read_text().splitlines()[1:]) == ["memcheck", "racecheck"]


def test_it_compiles_by_running_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sanitizer = module("_sanitizer")
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nopen({str(tmp_path / 'given')!r}, 'w').write(' '.join(sys.argv[1:]))\n")
    monkeypatch.setattr(sanitizer, "_PROGRAM", program)
    sanitizer.compile_first("cuda:1", 60.0, (7, 100))
    assert (tmp_path / "given").read_text() == "cuda:1 7 100"


def _call(scripts: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(scripts / "gpu_check.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.opencl
@pytest.mark.usefixtures("processor")
def test_the_script_writes_its_report(scripts: Path, tmp_path: Path) -> None:
    arguments = ["--device", PROCESSOR, "--output", str(tmp_path / "new"), "--jobs", "1", "--sample", "2", "-k", "7"]
    done = _call(scripts, *arguments, "--kernel", "update_beta", "--kernel", "draws", "--seconds", "100")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "new" / "gpu-check.json").read_text())
    assert [(row["group"], row["checked"], row["ok"]) for row in report["rows"]] == [
        ("draws", 2, 2),
        ("update_beta", 2, 2),
    ]
    assert report["about"]["driver"]
    assert "4 variants checked, 0 failures" in report["verdict"]
    assert "compute-sanitizer is for CUDA devices" in done.stdout
    assert report["star_loop"] == {"asked": 0, "rows": [], "why": "Not run: star_loop needs CUDA"}


@pytest.mark.opencl
@pytest.mark.usefixtures("processor")
def test_the_script_takes_a_family_of_users(scripts: Path, tmp_path: Path) -> None:
    file = Path(__file__).parents[1] / "data/own/vector_add.py"
    arguments = ["--device", PROCESSOR, "--output", str(tmp_path), "--jobs", "1", "--family", str(file)]
    done = _call(scripts, *arguments, "--seconds", "100")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "gpu-check.json").read_text())
    assert [(row["group"], row["checked"], row["ok"]) for row in report["rows"]] == [("vector_add", 7, 7)]


@pytest.mark.opencl
def test_failures_are_counted_and_told(pocl_device: Any) -> None:
    check, variants, worker = module("gpu_check"), module("_variants"), module("_variant_worker")
    none = module("_loops").Loops(0, [], "Not run: switched off")
    one = variants.Variant("update_phi", {"K": 7, "noise": "on"}, {"placement": "RRS", "block_size": 64})
    verdict = module("_sanitizer").verdict_of("racecheck", RACECHECK.format(2, 0), 9, 5.0)
    good, bad = worker.Result("ok", "", 0.1), worker.Result("wrong_result", "off by one\nand more", 0.2)

    def report(results: list[Any], verdicts: list[Any], loops: Any = none) -> dict[str, Any]:
        checked = [check.Checked(one, result) for result in results]
        found: dict[str, Any] = check.as_dict(pocl_device.info, family(), (7,), checked, verdicts, "", loops)
        return found

    assert not report([good], [])["failed"]
    assert report([], [])["failed"], "nothing was checked"
    assert report([good], [verdict])["failed"]
    failed = report([good, bad], [verdict])
    assert failed["failed"]
    assert [(row["group"], row["checked"], row["ok"]) for row in failed["rows"]] == [("update_phi RRS", 2, 1)]
    (told,) = failed["failures"]
    assert (told["status"], told["message"]) == ("wrong_result", "off by one\nand more")
    assert told["variant"] == "update_phi K=7 noise=on block_size=64 placement=RRS"
    assert failed["sanitizer"]["verdicts"][0]["counts"] == {"defaults": 1}
    assert "racecheck errors" in failed["verdict"]

    row = {"K": 7, "step": "split", "dtype": "float32", "noise": False, "same_bits": True, "worst": 0.0}
    row |= {"wrong": None, "iterations": 70, "seconds": 1.0}
    loops = module("_loops").Loops
    assert not report([], [], loops(1, [row]))["failed"], "star_loop alone was asked for"
    assert report([good], [], loops(2, [row], "cut off after 5 s"))["failed"]
    wrong = row | {"same_bits": False, "worst": 3.0, "wrong": "1.0% are off, the worst by 3 tolerances"}
    failed = report([good], [], loops(2, [row, wrong]))
    assert failed["failed"]
    assert "1 of 2 chains of star_loop agree with single launches" in failed["verdict"]
