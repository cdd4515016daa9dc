"""The page of a tuning database: every kind of picture, the records' numbers, and databases that have little."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from click.testing import CliRunner, Result

from mmsbgen.base.id_text import plain
from mmsbgen.cli import main
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.report.page import HtmlPage, write
from mmsbgen.report.style import Picture, drawing, slug
from mmsbgen.report.tuning import database_pictures
from mmsbgen.report.tuning.cases import cases_of
from mmsbgen.report.tuning.tuning_page import tuning_page
from tests import records
from tests.report.conftest import check_self_contained, parsed


def called(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["db", *map(str, arguments)])


@pytest.fixture(scope="module")
def page(bundle: Bundle) -> HtmlPage:
    return tuning_page(bundle, "here.sqlite3")


@pytest.fixture(scope="module")
def pictures(page: HtmlPage) -> dict[str, Picture]:
    return {picture.name: picture for picture in page.pictures}


@pytest.mark.slow
def test_records_of_any_types_that_are_in_the_database_make_a_page(tmp_path: Path) -> None:
    """Import refuses them; a version without that check may have stored them."""
    plain_trials = [records.trial(1e-3 * (n + 1), block_size=64 << n, vector_width=8) for n in range(4)]
    odd = [{"vector_width": 8.0}, {"block_size": True}, {"placement": [1]}, {"team": {"a": None}}, {"prefetch": "x"}]
    trials = plain_trials + [replace(plain_trials[0], config={**plain_trials[0].config, **change}) for change in odd]
    key = plain_trials[0].key
    for params in ({"K": "many"}, {"K": None}, {"m": [1]}, {"K": 1024.0}):
        problem = replace(key.problem, params={**key.problem.params, **params})
        trials.append(replace(plain_trials[0], key=replace(key, problem=problem)))
    device = replace(key.device, name="odd", extra={"local_memory": "much", "sub_group_sizes": 5})
    trials += [replace(trial, key=replace(key, device=device)) for trial in plain_trials]
    with open_store(tmp_path / "odd.sqlite3") as store:
        store.add_bundle(Bundle([records.RUN], [], trials))
    for words in (["report", "-o", tmp_path / "out"], ["best"], ["trials"], ["explain", "--kernel", "update_phi"]):
        done = called("--database", tmp_path / "odd.sqlite3", *words)
        assert done.exit_code == 0, done.output + repr(done.exception)
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.slow
def test_one_command_makes_the_page_of_a_database(bundle: Bundle, tmp_path: Path) -> None:
    url = tmp_path / "tuning.sqlite3"
    kept = [trial for trial in bundle.trials if "OpenCL" in trial.key.device.platform or trial.status != "ok"]
    with open_store(url) as store:
        store.add_bundle(replace(bundle, trials=kept))
    done = called("--database", url, "report", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    found = check_self_contained(tmp_path / "out" / "report.html")
    names = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert names >= {
        "roofline",
        "configurations-update-phi-amd-epyc-2-cores-intel-opencl",
    }
    assert len(names) == len(found.all("svg"))
    assert found.tiles["trials"] == f"{len(kept):,}"
    assert found.tiles["devices"] == str(len({trial.key.device.identity for trial in kept}))
    assert found.tiles["runs"] == str(len(bundle.runs))
    cells = found.texts("td")
    for case in cases_of(kept):
        share, worst = f"{case.best.roof_fraction:.0%}", f"{case.worst_s / case.best_s:.3g}x"
        at = [i for i, cell in enumerate(cells) if cell == f"{case.best_s * 1e3:.4g}"]
        assert any(cells[i + 1] == share and cells[i + 3] == worst for i in at), case.title


def test_the_tiles_and_failures_are_those_of_the_records(page: HtmlPage, bundle: Bundle) -> None:
    tiles = {tile.name: tile.value for tile in page.tiles}
    assert tiles["of the trials failed (51)"] == f"{51 / len(bundle.trials):.1%}"
    found = database_pictures.reasons(bundle.trials)
    assert [row[:3] for row in found] == [
        ("compile_error", "Unresolved extern function 'sub_group_reduce_add'", 39),
        ("launch_error", "a block of # is above the # that this kernel can have", 9),
        ("timeout", "not done after # s (running)", 2),
        ("launch_error", "needs # bytes of shared memory a block, NVIDIA H# has #", 1),
    ]


def test_the_roofline_has_every_trial(pictures: dict[str, Picture], bundle: Bundle) -> None:
    figure = pictures["roofline"].figure
    shown = [axes for axes in figure.axes if axes.get_visible()]
    marks = sum(len(c.get_offsets()) for axes in shown for c in axes.collections)
    assert marks == sum(trial.status == "ok" for trial in bundle.trials)
    for axes in shown:
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert axes.get_xlabel() == "bytes that a call must move"
        label = axes.get_title().rpartition(" (")[0]
        of_device = [roof for roof in bundle.roofs if plain(database_pictures.device_label(roof.device), 46) == label]
        copy = max(roof.gbps for roof in of_device if roof.kind == "copy")
        assert copy in [line.get_ydata()[0] for line in axes.lines]
    heights = np.concatenate([c.get_offsets()[:, 1] for axes in shown for c in axes.collections])
    assert sorted(heights) == pytest.approx(sorted(t.gbps for t in bundle.trials if t.gbps is not None))


def test_searches_go_down_to_their_best(pictures: dict[str, Picture]) -> None:
    for line in pictures["search"].figure.axes[0].lines:
        best = np.asarray(line.get_ydata())
        assert best[-1] == 1.0
        assert (np.diff(best) <= 0).all()
        assert best.size > 5


def test_every_configuration_is_a_dot_in_every_axis_panel(pictures: dict[str, Picture], bundle: Bundle) -> None:
    found = [name for name in pictures if name.startswith("configurations-")]
    assert 1 <= len(found) <= 6
    case = max(cases_of(bundle.trials), key=lambda case: len(case.times))
    picture = pictures[f"configurations-{slug(case.kernel.name)}-{slug(case.label)}"]
    for axes in picture.figure.axes:
        if axes.get_visible():
            times = axes.collections[0].get_offsets()[:, 1]
            assert sorted(times) == pytest.approx(sorted(case.times.values()))
            assert min(axes.lines[0].get_ydata()) == pytest.approx(case.best_s)


def test_in_parallel_coordinates_lines_end_at_their_times_the_fastest_last(
    pictures: dict[str, Picture], bundle: Bundle
) -> None:
    case = max(cases_of(bundle.trials), key=lambda case: len(case.times))
    axes = pictures[f"parallel-{slug(case.kernel.name)}-{slug(case.label)}"].figure.axes[0]
    (lines,) = axes.collections
    ends = [float(points[-1, 1]) for points in lines.get_segments()]
    assert 3 < len(ends) <= 300
    assert ends == sorted(ends, reverse=True)
    slow = np.log(np.array([*case.times.values()]) / case.best_s) / np.log(case.worst_s / case.best_s)
    assert ends[-1] == 0.0
    assert all(np.isclose(slow, end).any() for end in ends)
    assert len(axes.get_xticks()) == len(lines.get_segments()[0])


def test_history_tells_drivers_apart(bundle: Bundle) -> None:
    first = next(trial for trial in bundle.trials if trial.status == "ok")
    run = next(run for run in bundle.runs if run.uuid == first.run)
    later_run = replace(run, uuid="0" * 31 + "1", started="2027-01-01T00:00:00Z")
    device = replace(first.key.device, driver="newer")
    slower = tuple(2 * t for t in first.times)
    later = replace(first, run=later_run.uuid, key=replace(first.key, device=device), times=slower)
    found = database_pictures.history_of([later, first], [run, later_run])
    ends = [(first.key.device.driver, first.median_s), ("newer", 2 * (first.median_s or 0))]
    assert [row[2:] for row in found] == ends
    history = tuning_page(Bundle([run, later_run], [], [later, first]), "x").sections[-1]
    rows = [(row[2], row[3]) for row in history.tables[0].rows]
    assert rows == [(driver, f"{(seconds or 0) * 1e3:.4g}") for driver, seconds in ends]


@pytest.mark.slow
def test_hostile_records_stay_text(bundle: Bundle, tmp_path: Path) -> None:
    some = [trial for trial in bundle.trials if "PoCL" in database_pictures.device_label(trial.key.device)][:8]
    name = "<script>alert(1)</script>$x^2$\u202e"

    def hostile(trial: Any) -> Any:
        key = replace(trial.key, device=replace(trial.key.device, name=name, platform="</svg>"))
        key = replace(key, kernel=replace(key.kernel, name="$k$<b>\u202e"))
        return replace(trial, key=key, config={**trial.config, "<i>": "$y$"})

    found = Bundle(bundle.runs, [], [hostile(trial) for trial in some])
    failed = replace(found.trials[0], status="crashed", message="<img src=x onerror=alert(1)>", round=9)
    found.trials.append(failed)
    written = check_self_contained(write(tuning_page(found, "<b>"), tmp_path))
    assert not {"b", "i"} & {element.tag for element in written.elements}
    assert any("<script>alert(1)</script>$x^2$" in cell for cell in written.texts("td"))
    assert any("$x^2$" in svg for svg in written.texts("svg"))
    assert "\u202e" not in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_devices_of_one_name_have_pictures_of_their_own(bundle: Bundle, tmp_path: Path) -> None:
    every = [trial for trial in bundle.trials if trial.key.kernel.name == "update_phi"]
    some = [trial for trial in every if "PoCL" in database_pictures.device_label(trial.key.device)]

    def of(trial: Any, name: str) -> Any:
        return replace(trial, key=replace(trial.key, device=replace(trial.key.device, name=name)))

    page = tuning_page(Bundle(bundle.runs, [], [of(trial, name) for name in ("Ж", "И") for trial in some]), "x")
    names = [picture.name for picture in page.pictures]
    assert len(names) == len(set(names))
    assert {"configurations-update-phi-2-cores-pocl", "configurations-update-phi-2-cores-pocl-2"} <= set(names)
    check_self_contained(write(page, tmp_path))


@pytest.mark.slow
def test_the_users_settings_of_matplotlib_do_not_count(bundle: Bundle) -> None:
    with matplotlib.rc_context({"text.usetex": True, "svg.fonttype": "path", "axes.facecolor": "red"}):
        with drawing():
            picture = database_pictures.roofline(bundle.trials, bundle.roofs)
        assert picture is not None
        svg = picture.svg()
        assert matplotlib.rcParams["text.usetex"], "and are back afterwards"
    assert ">update_phi</text>" in svg
    assert "currentColor" in svg
    assert picture.png().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("command", [["report", "RUN"], ["db", "--database", "NONE", "report"]])
def test_without_matplotlib_the_extra_is_named(command: list[str], tmp_path: Path) -> None:
    script = f"import sys; sys.modules['matplotlib'] = None; from mmsbgen.cli import main; main({command})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'mmsbgen[report]'" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_only_failures(bundle: Bundle, tmp_path: Path) -> None:
    failed = [trial for trial in bundle.trials if trial.status != "ok"]
    page = tuning_page(Bundle(bundle.runs, [], failed), "x")
    assert [notice.kind for notice in page.notices] == ["warning"]
    assert not page.pictures
    cells = [cell for row in page.sections[0].tables[1].rows for cell in row[1:] if cell]
    assert sum(int(str(cell).partition(" / ")[0]) for cell in cells) == len(failed)
    assert "No configuration worked" in " ".join(parsed(write(page, tmp_path)).texts("p"))


def test_an_empty_database_gives_a_clear_message_and_no_page(bundle: Bundle, tmp_path: Path) -> None:
    with open_store(tmp_path / "none.sqlite3"):
        done = called("--database", tmp_path / "none.sqlite3", "report", "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert "no report was written" in done.output
    with open_store(tmp_path / "some.sqlite3") as store:
        store.add_bundle(Bundle(bundle.runs, [], bundle.trials[:3]))
    done = called("--database", tmp_path / "some.sqlite3", "report", "--kernel", "draws", "-o", tmp_path / "out")
    assert (done.exit_code, "filter less" in done.output) == (2, True)
    assert not (tmp_path / "out").exists()


def test_the_line_of_gathers_is_of_gathers() -> None:
    """Of trials alone, without the roofs of their run; one is compared with another kind, and above both."""
    own = records.trial(1e-6)
    trials = [replace(own, roof_gbps=3000.0), replace(own, extra={"roof": "adds in 4 MiB"})]
    picture = database_pictures.roofline(trials, [])
    assert picture is not None
    assert [text.get_text() for text in picture.figure.axes[0].texts] == ["gather 3,000 GB/s"]
    assert "at 100.00% to 100% of their roofs" in picture.alt


@pytest.mark.slow
def test_many_trials_stay_a_small_page(bundle: Bundle) -> None:
    trials = [trial for trial in bundle.trials if trial.status == "ok" and trial.key.kernel.name == "update_phi"]
    more = [
        replace(trial, config={**trial.config, "block_size": 1 + i}, created_at="2026-11-21T12:00:00Z")
        for i in range(8)
        for trial in trials
    ]
    picture = next(
        p for p in tuning_page(Bundle(bundle.runs, bundle.roofs, more), "x").pictures if p.name == "roofline"
    )
    assert len(picture.svg()) < 600_000
