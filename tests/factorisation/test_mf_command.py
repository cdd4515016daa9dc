"""``mmsbgen mf``: from a CSV to recommendations, and what it refuses."""

from __future__ import annotations

import gzip
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import Context, Option
from click.testing import CliRunner, Result

from mmsbgen.backends.opencl.opencl_device import OpenCLDevice
from mmsbgen.base.errors import DeviceMemoryError
from mmsbgen.cli import main
from mmsbgen.cli.shared.completed_names import schedule_names
from mmsbgen.factorisation.device_sweeps import DeviceSweeps, StochasticSweeps
from mmsbgen.families.mf.generated import generated_ratings
from mmsbgen.families.mf.reference import Factors
from mmsbgen.families.mf.schedules import PROMISES, SCHEDULES
from tests.devices import PROCESSOR


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["mf", *map(str, words)])


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("mf") / "ratings.csv"
    rows = zip(*generated_ratings(80, 50, 1500, 0), strict=True)
    file.write_text("userId,movieId,rating\n" + "".join(f"{u},film {v},{r}\n" for u, v, r in rows))
    return file


@pytest.fixture(scope="module")
def model(ratings: Path) -> Path:
    file = ratings.with_name("model.npz")
    done = run("fit", ratings, "-k", 4, "-o", file, "--device", PROCESSOR, "--deterministic")
    assert done.exit_code == 0, done.output
    assert "1500 ratings of 80 users and 50 items" in done.stdout
    assert "by tiles" in done.stdout
    assert "on held-out ratings, after the best sweep; the mean alone has about 1.0" in done.stdout
    return file


@pytest.mark.opencl
def test_no_result_replaces_what_is_read(ratings: Path, model: Path, tmp_path: Path) -> None:
    files = {file: file.read_bytes() for file in (ratings, model)}
    for words in (["fit", ratings, "-o", ratings], ["predict", model, ratings, "-o", ratings]):
        done = run(*words)
        assert done.exit_code == 2
        assert f"-o {ratings} would replace {ratings}, which the command reads" in done.stderr
    assert run("predict", model, ratings, "-o", model).exit_code == 2
    assert {file: file.read_bytes() for file in files} == files


@pytest.mark.opencl
def test_a_model_answers(ratings: Path, model: Path, tmp_path: Path) -> None:
    done = run("recommend", model, "--user", 7, "-n", 3)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "item,score"
    assert len(lines) == 4
    rated = {line.split(",")[1] for line in ratings.read_text().splitlines() if line.startswith("7,")}
    told = run("evaluate", model, ratings, "--json")
    assert 0.3 < json.loads(told.stdout)["rmse"] < 1.1
    assert "RMSE 0." in run("evaluate", model, ratings).stdout
    like = run("similar", model, "--item", "film 3", "-n", 2).stdout.splitlines()
    assert len(like) == 3
    assert "film 3," not in like[1]
    out = tmp_path / "p.csv"
    assert run("predict", model, ratings, "-o", out).exit_code == 0
    assert len(out.read_text().splitlines()) == 1501
    assert not {line.split(",")[0] for line in lines[1:]} & rated


def test_schedules_are_listed_and_those_of_fit() -> None:
    listed = json.loads(run("schedules", "--json").stdout)["schedules"]
    assert tuple(each["schedule"] for each in listed) == tuple(SCHEDULES)
    assert schedule_names(Context(main), Option(["--schedule"]), "match") == ["matching-nodes", "matchings"]
    text = run("schedules").stdout
    assert all(f"\n{name} " in text and each.doc in text for name, each in SCHEDULES.items())
    assert all(f"{name}: {meaning}\n" in text for name, meaning in PROMISES.items())


@pytest.mark.slow
@pytest.mark.opencl
def test_schedules_are_timed_on_ratings(ratings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run("schedules", ratings, "-k", 4, "--device", PROCESSOR, "--json").stdout)
    assert [found[name] for name in ("users", "items", "ratings")] == [80, 50, 1500]
    rows = {each["schedule"]: each for each in found["schedules"]}
    assert list(rows) == list(SCHEDULES)
    assert rows["matchings"]["steps"] >= found["degree"] > 20
    assert rows["hogwild"]["steps"] == rows["nodes"]["steps"] == 0
    for each in rows.values():
        assert each["ratings_per_second"] == pytest.approx(1500 / each["sweep"])
    sweep = StochasticSweeps.sweep

    def failing(on: StochasticSweeps, *given: float) -> None:
        if on.schedule == "diagonals":
            raise DeviceMemoryError("no memory left")
        sweep(on, *given)

    monkeypatch.setattr(StochasticSweeps, "sweep", failing)
    done = run("schedules", ratings, "-k", 4, "--device", PROCESSOR)
    assert done.exit_code == 0, done.output
    assert "diagonals: no memory left" in done.stderr
    assert f"1500 ratings of 80 users and 50 items, at most {found['degree']} of one; 4 factors" in done.stdout
    assert "\nblock-diagonals  repeats " in done.stdout
    assert "\ndiagonals " not in done.stdout


@pytest.mark.opencl
@pytest.mark.parametrize("once", [False, True])
def test_a_device_without_room_for_the_best_factors(
    ratings: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    """They go to the host, and the model is the same."""
    keep, asked = DeviceSweeps.keep, []

    def full(device: OpenCLDevice, shape: tuple[int, ...], dtype: Any) -> None:
        asked.append(shape)
        raise DeviceMemoryError("no memory left")

    def kept(on: DeviceSweeps) -> None:
        with monkeypatch.context() as here:
            if not (once and asked):
                here.setattr(OpenCLDevice, "alloc", full)
            keep(on)

    monkeypatch.setattr(DeviceSweeps, "keep", kept)
    file = tmp_path / "again.npz"
    done = run("fit", ratings, "-k", 4, "-o", file, "--device", PROCESSOR, "--deterministic")
    assert done.exit_code == 0, done.output
    assert {shape[0] for shape in asked} == {80}
    with np.load(model) as before, np.load(file) as again:
        for name in ("p", "q", "b", "c"):
            assert np.array_equal(before[name], again[name]), name


@pytest.mark.opencl
def test_least_squares_and_counts(ratings: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("0,film 3\nme,film 9\n")
    for method, solver, unknown in (("als", "auto", "by the mean and"), ("implicit", "cg", "as 0\n")):
        file = tmp_path / f"{method}.npz"
        sizes = "--factors", 4, "--epochs", 2, "--solver", solver
        done = run("fit", ratings, "--method", method, *sizes, "-o", file, "--device", PROCESSOR, "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["sweeps"] <= 2
        assert run("recommend", file, "--user", 0).exit_code == 0
        assert (
            f"users not in the model: 1, items: 0; they are predicted {unknown}" in run("predict", file, pairs).stderr
        )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("recommend", "{model}", "--user", "nobody"), "user 'nobody' is not in the model"),
        (("recommend", "{ratings}", "--user", "1"), "is no factorisation of mmsbgen"),
        (("fit", "{ratings}", "-o", "{out}", "--holdout", "7"), "holdout=7.0"),
        (("fit", "{ratings}", "-o", "{out}", "--method", "als", "--deterministic"), "is of the method sgd"),
        (("fit", "{ratings}", "-o", "{out}", "--method", "als", "--schedule", "locks"), "is of the method sgd"),
        (("fit", "{ratings}", "-o", "{out}", "--solver", "cg"), "is of the methods als and implicit"),
        (("fit", "{ratings}", "-o", "{out}", "--method", "implicit", "--test", "{ratings}"), "are for ratings"),
        (("fit", "{ratings}", "-o", "{out}", "--holdout", "0.2", "--test", "{ratings}"), "give one of them"),
        (("fit", "{ratings}", "-o", "{out}", "--method", "als", "--storage", "bfloat16"), "is of the method sgd"),
        (("fit", "{twice}", "-o", "{out}"), "rates item 2 twice"),
        (("fit", "{twice}", "-o", "{out}", "--schedule", "lock"), "--schedule 'lock': give one of auto, tiles"),
        (("evaluate", "{model}", "{ratings}", "--columns", "a,b,c"), "has no column 'a'"),
    ],
)
@pytest.mark.opencl
def test_what_is_wrong_is_told(
    words: tuple[str, ...], message: str, ratings: Path, model: Path, tmp_path: Path
) -> None:
    twice, out = tmp_path / "twice.csv", tmp_path / "out.npz"
    twice.write_text("1,2,3\n1,2,4\n")
    places = {"model": model, "ratings": ratings, "out": out, "twice": twice}
    done = run(*(word.format(**places) for word in words))
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert not out.exists()


@pytest.mark.opencl
def test_duplicates_are_joined_as_asked(tmp_path: Path) -> None:
    file, out = tmp_path / "twice.csv", tmp_path / "m.npz"
    file.write_text("".join(f"{u},{v},{u % 5}\n" for u in range(20) for v in range(6)) + "1,2,3\n")
    words = ("fit", file, "-o", out, "-k", 1, "--epochs", 1, "--device", PROCESSOR, "--holdout", 0)
    assert run(*words).exit_code == 2
    done = run(*words, "--duplicates", "last")
    assert done.exit_code == 0, done.output
    assert "120 ratings" in done.stdout
    assert np.load(out)["seen_items"].size == 120


@pytest.mark.opencl
def test_every_line_of_pairs_is_predicted_in_order(model: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "pairs.csv", tmp_path / "new" / "p.csv"
    file.write_text("who,what\n7,film 3\n2,film 9\n7,film 3\n")
    done = run("predict", model, file, "-o", out)
    assert done.exit_code == 0, done.output
    rows = [line.split(",") for line in out.read_text().splitlines()]
    assert [row[:2] for row in rows[1:]] == [["7", "film 3"], ["2", "film 9"], ["7", "film 3"]]
    assert rows[1][2] == rows[3][2] != rows[2][2]
    assert done.stderr == f"{out}: 3 predicted ratings\n"
    assert run("predict", model, file, "-o", tmp_path / "p.csv.gz").exit_code == 0
    assert gzip.decompress((tmp_path / "p.csv.gz").read_bytes()) == out.read_bytes()
    file.write_text("who,what\n7,film 3\nme,film 9\n")
    done = run("predict", model, file)
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["user", "who", "7", "me"]
    assert "users not in the model: 2, items: 1; they are predicted by the mean" in done.stderr
    assert "the first row was read as a pair: who, what; if it is a header, give --columns" in done.stderr
    assert "the first row" not in run("predict", model, file, "--columns", "who,what").stderr
    file.write_text("userId,what,movie\n7,-,film 3\n")
    done = run("predict", model, file, "--columns", "1,3")
    assert done.stdout.splitlines()[1].startswith("7,film 3,")
    assert done.stderr == ""
    file.write_text("a,b\nc,d\n")
    done = run("predict", model, file)
    assert done.exit_code == 2
    assert "users not in the model: 2, items: 2, that is all of them" in done.stderr
    file.write_text("a,b,1\nc,d,2\n")
    done = run("evaluate", model, file)
    assert (done.exit_code, "no user and no item is in the model" in done.stderr) == (2, True), done.output


@pytest.mark.opencl
def test_where_the_model_goes_is_tried_first(ratings: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("fit", tmp_path / "none.csv", "-o", tmp_path / "file" / "m.npz")
    assert done.exit_code == 2
    assert "cannot write" in done.stderr
    done = run("fit", tmp_path / "none.csv", "-o", tmp_path / "new" / "m.npz")
    assert done.exit_code == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.opencl
def test_ratings_to_stop_by_that_are_left_out_are_told(ratings: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.csv"
    test.write_text("".join(ratings.read_text().splitlines(keepends=True)[:50]) + "nobody,film 1,3\n1,nothing,3\n")
    out = tmp_path / "m.npz"
    done = run("fit", ratings, "--test", test, "-k", 2, "--epochs", 2, "-o", out, "--device", PROCESSOR)
    assert done.exit_code == 0, done.output
    assert "2 held-out ratings by unknown users or of unknown items were left out" in done.stdout
    assert "Warning: 49 of the held-out ratings are among the fitted; give others to --test" in done.stdout


@pytest.mark.opencl
@pytest.mark.filterwarnings("default::mmsbgen.factorisation.fit_loop.InterruptedFactorisation")
def test_ctrl_c_saves_and_exits_with_130(ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = DeviceSweeps.errors

    def interrupted(sweeps: DeviceSweeps) -> tuple[float, float]:
        signal.raise_signal(signal.SIGINT)
        return errors(sweeps)

    monkeypatch.setattr(DeviceSweeps, "errors", interrupted)
    out = tmp_path / "m.npz"
    done = run("fit", ratings, "-k", 4, "-o", out, "--device", PROCESSOR)
    assert done.exit_code == 130
    assert "stopped in sweep 1, with the best factors so far" in done.stderr
    assert "; 1 sweep, " in done.stdout
    assert run("recommend", out, "--user", 7).exit_code == 0


@pytest.mark.opencl
def test_ctrl_c_after_the_last_sweep_loses_nothing(
    ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = DeviceSweeps.factors

    def interrupted(sweeps: DeviceSweeps) -> Factors:
        signal.raise_signal(signal.SIGINT)
        return factors(sweeps)

    monkeypatch.setattr(DeviceSweeps, "factors", interrupted)
    out = tmp_path / "m.npz"
    done = run("fit", ratings, "-k", 4, "--epochs", 2, "-o", out, "--device", PROCESSOR)
    assert done.exit_code == 0, done.output
    assert run("recommend", out, "--user", 7).exit_code == 0


@pytest.mark.opencl
def test_a_user_who_rated_all_is_told(tmp_path: Path) -> None:
    file, out = tmp_path / "all.csv", tmp_path / "m.npz"
    file.write_text("ann,x,1\nann,y,2\n")
    assert run("fit", file, "-k", 1, "--epochs", 1, "-o", out, "--device", PROCESSOR).exit_code == 0
    done = run("recommend", out, "--user", "ann")
    assert (done.stdout, done.stderr) == ("item,score\n", "user ann has rated every item of the model\n")
    assert run("recommend", out, "--user", "ann", "--quiet").stderr == ""
