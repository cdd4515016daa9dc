from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

from mmsbgen.backends import Device
from mmsbgen.cli import main
from mmsbgen.cli.printing.tune_summary import certainty, late, note_earlier_winners
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.tuner.measure.noise import judge
from mmsbgen.tuner.run.tuning_report import KernelReport, TuneReport

GRAPH = Path(__file__).parents[1] / "data" / "netscience.txt.gz"
SMALL = ["-p", "K=20", "-p", "N=500", "-p", "m=64", "-p", "n=4", "--roof-mib", "16"]


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["tune", *words])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--device nowhere --kernel update_beta", "no device matches 'nowhere'"),
        ("--device fake --kernel nothing", "no kernel 'nothing'"),
        ("--device fake --strategy clever", "no strategy 'clever'"),
        ("--device fake -p K=many", "K='many' is not an integer"),
        ("--device fake -p N=500 -p m=501", "m=501 vertices of a mini-batch cannot be drawn from N=500"),
        ("--device fake -p K", "write it as NAME=VALUE"),
        ("--device fake -p K=32 -p K=33", "--problem K=32 and K=33: give K one value"),
        ("--device fake --fix vector_width=1 --fix vector_width=2", "--fix vector_width=1 and vector_width=2: give"),
        ("--device fake --graph nowhere.txt -k 3 -p K=5", "-k 3 and --problem K=5 both give the number"),
        ("--device fake -p colour=3", "no parameter 'colour'"),
        ("--device fake -p k=3", "no parameter 'k'; did you mean K?"),
        ("--device fake --kernel update_fi", "no kernel 'update_fi'; did you mean update_pi or update_phi?"),
        ("--device fake --fix colour=3", "no such axis"),
        ("--device fake --kernel update_phi --fix vector_width=3", "the values are 1, 2, 4, 8, 16"),
        ("--device fake --budget-trials 0", "0 is not in the range x>=1"),
        ("--device fake --family sgd", "no family 'sgd'"),
        ("--device fake --run-limit 0", "run_limit=0.0: it must be above 0"),
        ("--device fake --memory-limit -3", "-3 is not in the range x>=1"),
        ("--device fake --objective beauty", "'beauty' is not one of 'time', 'energy', 'edp'"),
        ("--device fake --budget-seconds -1", "budget_seconds=-1.0: it must be above 0"),
        ("--device fake --kernel update_phi -p N=10 -p m=100", "cannot be drawn from N=10"),
        ("--device fake --kernel update_phi --fix placement=XYZ", "--fix placement=XYZ: the values are"),
        ("--device fake --columns a,b", "say how --graph is read: give that too"),
        ("--workers nosuch", "no device matches 'nosuch'"),
        ("--workers all --budget-seconds -1", "budget_seconds=-1.0: it must be above 0"),
        ("--workers all --objective beauty", "'beauty' is not one of"),
        (f"--device fake --graph {GRAPH} -k 9 --budget-seconds 1e-9", "1e-09: that was spent on reading the graph"),
        (f"--device fake --graph {GRAPH} -k 9 --budget-seconds -1", "budget_seconds=-1.0: it must be above 0"),
        (f"--device fake --graph {GRAPH} -k 9 --budget-seconds 1e30", "budget_seconds=1e+30: it must be above 0"),
        (f"--workers all --graph {GRAPH} -k 9 --budget-seconds 1e-9", "1e-09: that was spent on reading the graph"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(words: str, message: str, tmp_path: Path) -> None:
    database = tmp_path / "tuning.sqlite3"
    result = call(*words.split(), "--database", str(database))
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == [], "no database and no lock"


def test_a_graph_is_read_as_detect_reads_it(pocl_device: Device, tmp_path: Path) -> None:
    graph = tmp_path / "people.csv"
    graph.write_text("n,person_a,person_b,weight\n0,ann,bob,3\n1,bob,eve,5\n2,ann,eve,2\n")
    words = ("--device", pocl_device.info.spec, "--graph", str(graph), "-k", "2", "--explain-space", "--json")
    assert "name them: --columns A,B" in call(*words).output
    found = call(*words, "--columns", "person_a,person_b")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)


@pytest.mark.opencl
@pytest.mark.parametrize("where", ["--device", "--workers"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--kernel update_beta --objective energy", "tells no energy"),
        ("--kernel star_sums", "no configuration suits this device: tensor cores"),
        ("--kernel update_beta --fix block_size=1,3", "the values are"),
    ],
)
def test_what_the_device_cannot_do_is_told_and_nothing_is_written(
    words: str, message: str, where: str, pocl_device: Device, tmp_path: Path
) -> None:
    before = set(os.environ)
    result = call(where, pocl_device.info.spec, *words.split(), "--database", str(tmp_path / "tuning.sqlite3"))
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert set(os.environ) == before
    assert list(tmp_path.iterdir()) == [], "no database and no lock"


@pytest.mark.opencl
@pytest.mark.parametrize(
    ("partners", "kernels"), [("uniform", {"update_phi", "sample_partners"}), ("shared", {"star_shared", "star_rows"})]
)
def test_a_graph_and_how_its_partners_are_drawn_choose_the_kernels(
    pocl_device: Device, partners: str, kernels: set[str], tmp_path: Path
) -> None:
    graph = tmp_path / "ring.txt"
    graph.write_text("".join(f"{v} {(v + 1) % 60}\n" for v in range(60)))
    words = ["--device", "pocl", "--graph", str(graph), "-k", "3", "--mini-batch", "random-node"]
    found = call(*words, "--partners", partners, "--explain-space", "--json")
    named = {row["kernel"] for row in json.loads(found.stdout)["spaces"]}
    others = {"update_phi", "sample_partners", "star_shared", "star_rows"} - kernels
    assert kernels <= named
    assert not others & named
    assert "partners='all'" in call(*words, "--partners", "all").output


def test_a_run_is_told_as_a_table_and_as_json(processor: Device, tmp_path: Path) -> None:
    words = ["--device", processor.info.spec, "--kernel", "update_beta", *SMALL, "--budget-trials", "4"]
    # At random: what the default strategy tries depends on times.
    words += ["--strategy", "random", "--database", str(tmp_path / "tuning.sqlite3")]
    result = call(*words)
    assert result.exit_code == 0, result.output
    assert "4 ok" in result.output
    assert "vs default" in result.output
    with open_store(tmp_path / "tuning.sqlite3", read_only=True) as store:
        # Those timed to the end, in the search or in the finals.
        whole = len({trial.config_digest for trial in store.trials() if not trial.extra.get("given_up")})
    again = call(*words, "--json")
    report = json.loads(again.stdout)
    (kernel,) = report["kernels"]
    assert (kernel["kernel"], kernel["trials"]) == ("update_beta", {"ok": 4})
    assert whole <= kernel["reused"] <= 4
    assert report["roofs"]["age_s"] < 300
    assert "measured 0 min ago (--retune measures again)" in call(*words).output
    # Of those that cannot be told apart the simplest wins, so its median may lie above the default's.
    assert kernel["speedup_over_default"] == pytest.approx(kernel["default_s"] / kernel["median_s"])
    assert report["status"] == "finished"
    assert report["roofs"]["gather"] > 0


_SCATTERED = (0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4, 1.5)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (([1.0] * 9, [1.2] * 9), "The next one takes 20.0% longer (± 0.0%, 9 rounds): rival"),
        (([1.0] * 9, [1.005, 0.995] * 4 + [1.001]), "; this is the simplest of them."),
        (([1.0] * 9, _SCATTERED), "; this is the fastest, compared round by round."),
        (
            ([1.0] * 9, [1.005, 0.995] * 4 + [1.001], _SCATTERED),
            "; this is the simplest of the 2 within 1% of the fastest.",
        ),
    ],
)
def test_it_is_said_among_which_the_winner_was_chosen(times: tuple[Sequence[float], ...], said: str) -> None:
    simpler_later = list(range(len(times), 0, -1))
    text = certainty(judge(times, simpler_later), "rival")
    assert text.endswith(said)
    assert text.startswith(f"{len(times)} finalists cannot be told apart (± ") == (text != said)


def test_a_budget_that_leaves_no_time_for_any_kernel_is_told(tmp_path: Path) -> None:
    words = "--device fake --kernel theta_end --budget-seconds 1e-6 --quiet"
    result = call(*words.split(), "--database", str(tmp_path / "tuning.sqlite3"))
    assert (result.exit_code, result.exception is not None) == (2, True), result.output
    assert "--budget-seconds 1e-06: no kernel was tried; give more" in result.output


def test_only_a_budget_of_seconds_leaves_no_time() -> None:
    space = SimpleNamespace(default={"lanes": 1}, configs=[{"lanes": 1}, {"lanes": 2}])
    kernel: Any = KernelReport("draws", None, space, "", 1)  # type: ignore[arg-type]
    kernel.trials.append(SimpleNamespace(config=space.default))
    report: Any = SimpleNamespace(kernels=[kernel], untried=[])
    assert late(report) == ""
    kernel.deadline = 1.0
    assert late(report) == "There was time for the defaults only"
    report.untried = ["draws", "sums"]
    kernel.trials.clear()
    assert late(report) == "The default of draws was not done in time; there was no time to try sums"


def test_what_the_database_prefers_to_the_winner_is_told() -> None:
    """Another run may have a better configuration that this search did not try; ``db best`` and runs take that."""
    ours, theirs = (SimpleNamespace(config={"lanes": n}, config_digest=str(n), median_s=0.5 / n) for n in (1, 2))
    kernel: Any = SimpleNamespace(best=ours, key=None, objective="time", note="")
    for preferred, told in ((ours, ""), (theirs, "the database prefers one of another run, 250 ms: lanes=2")):
        store: Any = SimpleNamespace(best=lambda *given, found=preferred: found)
        note_earlier_winners(SimpleNamespace(kernels=[kernel]), store)  # type: ignore[arg-type]
        assert kernel.note == told


def test_a_run_in_which_nothing_worked_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial: Any = SimpleNamespace(status="compile_error", message="no such word", config={}, config_digest="1")
    space: Any = SimpleNamespace(default={}, configs=[{}, {}])
    kernel: Any = KernelReport("draws", None, space, "", 1, trials=[trial])  # type: ignore[arg-type]
    device: Any = SimpleNamespace(spec="fake:0", name="fake", platform="none")
    monkeypatch.setattr(
        "mmsbgen.tuner.run.tune.tune",
        lambda *given, **options: TuneReport("1", device, kernels=[kernel], status="finished"),
    )
    monkeypatch.setattr("mmsbgen.cli.tune.note_earlier_winners", lambda *given: setattr(kernel, "note", "known"))
    result = call("--device", "fake", "--database", str(tmp_path / "tuning.sqlite3"))
    assert (result.exit_code, "no configuration of any kernel worked" in result.stderr) == (1, True), result.output
    assert "draws: no configuration worked; the last: no such word" in result.stdout
    assert "draws: known" in result.stdout

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    after: Any = SimpleNamespace(recorded=lambda *given: contextlib.nullcontext(), gain=interrupted)
    monkeypatch.setattr("mmsbgen.cli.tune.graph_run", lambda *given: SimpleNamespace(problem=lambda device: {}))
    monkeypatch.setattr("mmsbgen.cli.tune.GraphTuning", lambda *given: after)
    result = call("--device", "fake", "--database", str(tmp_path / "tuning.sqlite3"))
    assert (result.exit_code, "draws: no configuration worked" in result.stdout) == (130, True), "sweeps come last"
    assert "Interrupted: whole sweeps were not compared" in result.stdout


def test_a_kernel_that_is_named_twice_is_tuned_once(tmp_path: Path) -> None:
    words = "--device fake --kernel theta_end --kernel theta_end --explain-space --json"
    rows = json.loads(call(*words.split()).stdout)["spaces"]
    assert [row["what"] for row in rows].count("valid") == 1


@pytest.mark.slow
def test_the_space_is_explained() -> None:
    result = call("--device", "fake", "--kernel", "update_phi", "--explain-space")
    assert result.exit_code == 0, result.output
    assert "refused: team" in result.output
    rows = json.loads(call("--device", "fake", "--kernel", "update_phi", "--explain-space", "--json").stdout)["spaces"]
    assert rows[0]["what"] == "valid"
    assert rows[0]["count"] > 100


@pytest.mark.opencl
def test_ctrl_c_keeps_what_was_measured(processor: Device, tmp_path: Path) -> None:
    database = tmp_path / "tuning.sqlite3"
    command = [sys.executable, "-c", "from mmsbgen.cli import main; main()", "tune", "--device", processor.info.spec]
    command += ["--kernel", "update_pi", *SMALL, "--database", str(database)]
    environment = os.environ | {"TUNING_MARK": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 60
    trials = 0
    while trials < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.2)
        if database.exists():
            with open_store(database, read_only=True) as store:
                trials = len(store.trials())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in out
    for left in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            assert left.environ().get("TUNING_MARK") != str(tmp_path), "all of its processes are gone"
    with open_store(database) as store:
        (run,) = store.runs()
        assert run.status == "interrupted"
        assert len(store.trials()) >= trials >= 2
        assert all(trial.round == 0 for trial in store.trials())
