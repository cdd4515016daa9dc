"""The page of a matrix factorisation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mmsbgen.cli import main
from mmsbgen.factorisation import ALS, MatrixFactorization
from mmsbgen.families.mf.generated import generated_ratings
from tests.devices import PROCESSOR
from tests.report.conftest import check_self_contained

pytestmark = pytest.mark.opencl


def called(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.fixture
def model(processor: Any, tmp_path: Path) -> Path:
    fitted = MatrixFactorization(3, n_epochs=12, holdout=0.2, patience=2, device=PROCESSOR)
    fitted.fit(generated_ratings(80, 50, 1500, 1)).save(tmp_path / "films.npz")
    return tmp_path / "films.npz"


def test_it_shows_how_the_fit_learnt(model: Path) -> None:
    done = called(model)
    assert (done.exit_code, done.stdout) == (
        0,
        f"{model.parent}/films-report/report.html; pictures beside it: 1\n",
    )
    page = check_self_contained(model.parent / "films-report" / "report.html")
    assert sorted(path.name for path in (model.parent / "films-report").iterdir()) == ["learning.png", "report.html"]
    tiles = [each.text.strip() for each in page.all("div")]
    assert {"users80", "items50", "ratings1,500", "factors3"} <= set(tiles)
    assert any(text.startswith("RMSE of the factors") for text in tiles)
    assert any("learning_rate" in row.text and "0.02" in row.text for row in page.all("tr"))


def test_counts_have_no_error_to_draw(processor: Any, tmp_path: Path) -> None:
    ALS(2, n_epochs=2, implicit=True, device=PROCESSOR).fit(generated_ratings(40, 30, 300, 3)).save(tmp_path / "m.npz")
    done = called(tmp_path / "m.npz", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_what_is_no_model_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2,3\n")
    (tmp_path / "run.json").write_text("{}")
    for arguments, message in (
        ((tmp_path / "x.csv",), "is no factorisation of mmsbgen"),
        ((tmp_path / "run.json", "--graph", model), f"is one of the files of a run: name their folder, {tmp_path}"),
        ((model, "--graph", tmp_path / "x.csv"), "--graph is for the folder of a detection: leave it out"),
    ):
        done = called(*arguments)
        assert done.exit_code == 2
        assert message in done.stderr
