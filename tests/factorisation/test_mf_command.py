"""``mmsbgen mf``: from a CSV to recommendations, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from mmsbgen.cli import main
from mmsbgen.families.mf.generated import generated_ratings


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
    done = run("fit", ratings, "-k", 4, "-o", file, "--device", "pocl", "--deterministic")
    assert done.exit_code == 0, done.output
    assert "1500 ratings of 80 users and 50 items" in done.stdout
    assert "by tiles" in done.stdout
    assert "on held-out ratings; the mean alone has about 1.0" in done.stdout
    return file


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
    assert len({line.split(",")[0] for line in lines[1:]} & rated) <= 1  # held-out ones may be recommended


@pytest.mark.opencl
def test_least_squares_and_counts(ratings: Path, tmp_path: Path) -> None:
    for method in ("als", "implicit"):
        file = tmp_path / f"{method}.npz"
        done = run("fit", ratings, "--method", method, "-k", 4, "--epochs", 2, "-o", file, "--device", "pocl", "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["sweeps"] <= 2
        assert run("recommend", file, "--user", 0).exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("recommend", "{model}", "--user", "nobody"), "user 'nobody' is not in the model"),
        (("recommend", "{ratings}", "--user", "1"), "is no factorisation of mmsbgen"),
        (("fit", "{ratings}", "-o", "{out}", "--holdout", "7"), "holdout=7.0"),
        (("fit", "{ratings}", "-o", "{out}", "--method", "als", "--deterministic"), "is of the method sgd"),
        (("fit", "{twice}", "-o", "{out}"), "rates item 2 twice"),
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
    words = ("fit", file, "-o", out, "-k", 1, "--epochs", 1, "--device", "pocl", "--holdout", 0)
    assert run(*words).exit_code == 2
    done = run(*words, "--duplicates", "last")
    assert done.exit_code == 0, done.output
    assert "120 ratings" in done.stdout
    assert np.isfinite(np.load(out)["p"]).all()
