"""Pages of runs: whole, self-contained, with the record's numbers, whatever the run was like."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from click.testing import CliRunner, Result
from matplotlib.collections import LineCollection, PatchCollection

from mmsbgen.base.errors import InputError
from mmsbgen.cli import main
from mmsbgen.detection.detect import Detection, detect
from mmsbgen.report.page import HtmlPage, Section, write
from mmsbgen.report.run.run_page import run_page
from mmsbgen.report.style import Picture
from tests.devices import PROCESSOR
from tests.report.conftest import DATA, check_self_contained, parsed

pytestmark = pytest.mark.opencl
Run = tuple[Path, Detection]


def called(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def drawn(folder: Path, **how: Any) -> dict[str, Picture]:
    return {picture.name: picture for picture in run_page(folder, **how).pictures}


@pytest.fixture(scope="module")
def pictures(run: Run) -> dict[str, Picture]:
    """The pictures of a run by their names."""
    return drawn(run[0])


def changed(run: Path, to: Path, change: Any) -> Path:
    """A copy of a run with another record."""
    shutil.copytree(run, to)
    record = json.loads((to / "run.json").read_text())
    change(record)
    (to / "run.json").write_text(json.dumps(record))
    return to


def test_one_command_writes_a_page_that_needs_nothing_else(run: Run, tmp_path: Path) -> None:
    folder, found = run
    done = called(folder, "-o", tmp_path / "out")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}/out/report.html; pictures beside it: 7\n")
    page = check_self_contained(tmp_path / "out" / "report.html")
    pictures = ["community-graph", "held-out", "memberships", "overlaps", "reliability", "row-sums", "sizes"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "community-graph.png", "held-out.png", "memberships.png", "overlaps.png", "reliability.png",
        "report.html", "row-sums.png", "sizes.png",
    ]  # fmt: skip
    for name in pictures:
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert len(page.all("svg")) == len(page.all("figcaption")) == len(pictures)
    assert page.texts("title")[0] == "Communities of CA-GrQc"
    # The numbers are the record's.
    record = found.record
    assert page.tiles["vertices"] == "5,242"
    assert page.tiles["links"] == "14,484"
    assert page.tiles["communities found (K = 20)"] == f"{len(found.communities)}"
    assert page.tiles["of the vertices are in a community"] == f"{record['communities']['coverage']:.1%}"
    assert page.tiles["AUC of the memberships, test pairs"].startswith(f"{record['held_out']['test']['auc']:.3f} ±")
    cells = page.texts("td")
    graph = nx.Graph(found.graph.ids[found.graph.links].tolist())
    cores, ranks = nx.core_number(graph), nx.pagerank(graph)
    for label, members in enumerate(found.communities[:50]):  # those that the page lists
        at = cells.index("0") + 6 * label
        assert cells[at + 1 : at + 3] == [f"{len(members):,}", f"{found.memberships.beta[label]:.3g}"]
        linked, core, names = cells[at + 3 : at + 6]
        assert linked == f"{nx.transitivity(graph.subgraph(members)):.2f}"
        assert int(core) == max(cores[member] for member in members)
        central = sorted(members, key=ranks.__getitem__, reverse=True)
        assert ranks[int(names.split(", ")[0])] == pytest.approx(ranks[central[0]], rel=1e-3)
    for choice in record["kernels"]:
        at = cells.index(choice["kernel"])
        assert cells[at + 1] == choice["tier"]
        assert all(f"{name}={value}" in cells[at + 2] for name, value in choice["config"].items())
    for stage, seconds in record["stage_seconds"].items():
        assert cells[cells.index(stage) + 1] == f"{seconds:.4g}"
    assert record["convergence"]["text"] in page.texts("p")
    # It leads with the verdict, a drawing and the table of communities, which is open.
    text = (tmp_path / "out" / "report.html").read_text()
    verdict, drawing, table = (text.index(what) for what in ('class="notice', "<svg", "Largest communities</caption>"))
    assert verdict < drawing < table < text.index("<h2", text.index('id="communities"'))
    assert page.texts("h3")[0] == "Communities and what leads between them"
    assert [re.findall(r'<svg style="max-width: (\d+)px; min-width: (\d+)px"', text)[at] for at in (0, 1)] == [
        ("873", "0"),
        ("1015", "710"),
    ], "the drawing shrinks on a telephone"
    assert not [text for text in page.texts("h2") if "Sampling" in text], "it optimises"
    low, high = record["held_out"]["test"]["auc_interval"]
    assert f"{low:.4f} to {high:.4f}" in cells


def test_the_reliability_diagram_is_of_the_test_pairs(run: Run, pictures: dict[str, Picture], tmp_path: Path) -> None:
    folder, found = run
    note = found.record["calibration"]
    (axes,) = pictures["reliability"].figure.axes
    _, model, calibrated = axes.lines[:3]
    rows = note["test"]["bins"]
    assert [list(zip(*line.get_data(), strict=True)) for line in (model, calibrated)] == [
        [(row[name], row["observed"]) for row in rows] for name in ("before", "p")
    ]
    (section,) = (one for one in run_page(folder).sections if one.title == "Link probabilities")
    assert section.text.startswith(note["text"])
    assert f"{note['test']['ece']:.3f} ± {note['test']['ece_error']:.2g} on average" in section.text

    def unjudged(record: Any) -> None:
        record["calibration"]["test"] = None

    page = run_page(changed(folder, tmp_path / "unjudged", unjudged))
    assert "reliability" not in {picture.name for picture in page.pictures}
    assert note["text"] in {section.text for section in page.sections}


def test_what_the_pictures_of_a_run_show(run: Run, pictures: dict[str, Picture]) -> None:
    found = run[1]
    panels = pictures["held-out"].figure.axes
    assert [axes.get_ylabel() for axes in panels] == ["log-likelihood\n(nats a pair)", "AUC", "balanced perplexity"]
    assert panels[-1].get_xlabel() == "updates of a vertex, in the mean"
    rows = [row for row in found.record["trace"] if "auc" in row]
    x, y = panels[0].lines[0].get_data()
    np.testing.assert_array_equal(x, [row["updates_per_vertex"] for row in rows])
    np.testing.assert_array_equal(y, [row["sample_log_likelihood"] for row in rows])
    left, right = pictures["sizes"].figure.axes
    # Bars, or a line on a logarithmic axis where sizes differ much.
    heights = [patch.get_height() for patch in left.patches] or left.lines[0].get_ydata().tolist()
    assert heights == found.record["communities"]["sizes"]
    at = right.collections[0].get_offsets()
    strengths = found.memberships.beta[: len(found.communities)]
    np.testing.assert_allclose(at, np.stack([found.record["communities"]["sizes"], strengths], axis=1))
    sums, steps = pictures["row-sums"].figure.axes
    assert sums.lines[0].get_ydata()[-1] == found.record["convergence"]["mean_row_sum"]
    assert steps.get_ylabel() == "step size"


def test_the_overlap_matrix_has_the_shares(run: Run, pictures: dict[str, Picture]) -> None:
    found = run[1]
    axes = pictures["overlaps"].figure.axes[0]
    order = [label.get_text() for label in axes.get_yticklabels()]
    members = {str(label): set(ids) for label, ids in enumerate(found.communities)}
    matrix = np.ma.filled(axes.images[0].get_array(), 0.0)
    wanted = [[len(members[a] & members[b]) / len(members[a]) * (a != b) for b in order] for a in order]
    np.testing.assert_allclose(matrix, wanted)


def test_the_drawing_of_communities_has_their_sizes_and_the_links_between(
    run: Run, pictures: dict[str, Picture]
) -> None:
    found, picture = run[1], pictures["community-graph"]
    axes = picture.figure.axes[0]
    (discs,) = [c for c in axes.collections if isinstance(c, PatchCollection)]
    areas = [np.ptp(path.vertices[:, 0]) ** 2 for path in discs.get_paths()]
    sizes = np.array(found.record["communities"]["sizes"], float)[:50]  # those that are drawn
    np.testing.assert_allclose(areas / areas[0], np.maximum(sizes / sizes[0], (0.16 / 0.85) ** 2), rtol=0.02)
    (lines,) = [c for c in axes.collections if isinstance(c, LineCollection)]
    assert len(lines.get_segments()) > 0
    assert "lines are links between the two" in picture.caption
    assert [text.get_text() for text in axes.texts] == [str(label) for label in range(50)]


def test_a_small_graph_is_drawn_whole_and_a_run_without_held_out_pairs_says_so(small_run: Run, tmp_path: Path) -> None:
    folder, found = small_run
    page = run_page(folder)
    pictures = {picture.name: picture for picture in page.pictures}
    assert "held-out" not in pictures
    axes = pictures["graph"].figure.axes[0]
    (dots,) = [c for c in axes.collections if isinstance(c, PatchCollection)]
    inside = found.cover.members
    linked = 52
    several = sum(sum(v in members for members in inside) - 1 for v in set(np.concatenate(inside).tolist()))
    assert len(dots.get_paths()) == linked + several, "a slice for every further community"
    names = {text.get_text() for text in axes.texts}
    assert len(names & {str(i) for i in found.memberships.ids}) >= linked - len(inside)
    assert "7 vertices without a link are left out" in pictures["graph"].caption
    written = check_self_contained(write(page, tmp_path))
    assert any("No pairs were held out" in text for text in written.texts("p"))
    assert any(text.startswith("Not known whether the run has converged") for text in written.texts("p"))


def test_a_run_that_did_not_converge_or_was_interrupted_warns(run: Run, tmp_path: Path) -> None:
    def change(record: Any) -> None:
        record["interrupted"] = True
        record["verdict"] |= {"kind": "none", "sentence": "No structure found."}
        record["convergence"] |= {"settled": False, "text": "Warning: the run has not converged. Give it more."}

    page = parsed(write(run_page(changed(run[0], tmp_path / "run", change)), tmp_path / "out"))
    alerts = [" ".join(e.text.split()) for e in page.elements if e.attributes.get("role") == "alert"]
    assert alerts == [
        f"This run was interrupted after iteration {run[1].record['iterations']}; it can be resumed.",
        "No structure found.",
        "Warning: the run has not converged. Give it more.",
    ]
    cells = page.texts("td")
    assert cells[cells.index("held-out log-likelihood settled") + 1] == "no"


@pytest.mark.parametrize("count", [0, 1])
def test_no_community_or_one(count: int, tmp_path: Path) -> None:
    # A share above 90 % for none; two separate cliques of which the smaller falls below for one.
    clique = [(a, b) for a in range(12) for b in range(a)]
    rule = {"rule": "threshold", "threshold": 0.999999} if count == 0 else {"rule": "top", "threshold": 1}
    found = detect(
        np.array(clique), 2 if count == 0 else 1, device=PROCESSOR, iterations=4, out=tmp_path / "run", **rule
    )
    assert len(found.communities) == count
    page = check_self_contained(write(run_page(tmp_path / "run"), tmp_path / "out"))
    assert page.tiles[f"communities found (K = {2 if count == 0 else 1})"] == str(count)
    warned = any("No community has members" in text for text in page.texts("p"))
    assert warned == (count == 0)
    assert not (tmp_path / "out" / "overlaps.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("chains", "more"), [(1, {}), (3, {}), (1, {"validation": 0.0}), (1, {"iterations": 5})])
def test_a_run_that_samples_shows_its_draws(chains: int, more: dict[str, Any], tmp_path: Path) -> None:
    options = {"iterations": 60, "noise": True, "evaluate_every": 1, "start": "random", "chains": chains, **more}
    found = detect(DATA / "fb_3980.txt.gz", 4, device=PROCESSOR, out=tmp_path / "run", **options)
    told = found.record["sampling"]
    shown = run_page(tmp_path / "run")
    page = check_self_contained(write(shown, tmp_path / "out"))
    assert told["text"] in page.texts("p")
    cells = page.texts("td")
    at = cells.index("effective communities", cells.index("log-likelihood of held-out pairs"))
    assert cells[at + 1] == "1"
    assert ("link probabilities of held-out pairs" in cells) == (not more)
    pictures = [picture for picture in shown.pictures if picture.name == "draws"]
    if told["draws"] < 4:
        assert not pictures
        return
    r_hat = told["effective_communities"]["r_hat"]
    assert cells[at + 2] == (f"{r_hat:.3f}" if r_hat < 10 else f"{r_hat:.0f}")
    left, right = pictures[0].figure.axes[-2:]
    draws = found.memberships.all_draws
    assert len(left.lines) == chains == len(draws)
    for line, one in zip(left.lines, draws, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), one.effective_communities)
    # Each draw has one rank; those of one chain are compared by its halves.
    parts = [patch.get_data().values for patch in right.patches]
    assert len(parts) == max(2, chains)
    assert np.sum(parts) == chains * told["draws"] - (chains == 1 and told["draws"] % 2)
    assert ("Warning: " in told["text"]) == any(told["text"] == notice.text for notice in shown.notices)


def test_hostile_ids_stay_text(tmp_path: Path) -> None:
    names = [
        "<script>alert(1)</script>", "$\\frac{1}{0}$", "</svg><img/src=x>", "&amp;&#x3c;&amp", "\u202egnp.exe",
        "{{7*7}}", "url(#a)", "名前", "'\"><b>", "x" * 5000,
    ]  # fmt: skip
    file = tmp_path / "a$b<i>.txt"
    file.write_text("".join(f"{a}\t{b}\n" for i, a in enumerate(names) for b in names[:i]))
    options: dict[str, Any] = {"rule": "top", "threshold": 1, "iterations": 4, "device": PROCESSOR}
    detect(file, 1, out=tmp_path / "run", **options)
    page = check_self_contained(write(run_page(tmp_path / "run"), tmp_path / "out"))
    assert page.texts("title")[0] == "Communities of a$b<i>"
    drawn_names = page.texts("svg")
    assert not page.all("i")
    assert not page.all("b")
    text = (tmp_path / "out" / "report.html").read_text()
    assert "\u202e" not in text
    assert "x" * 100 not in text
    assert "{{7*7}}" in text
    assert any("$\\frac{1}{0}$" in svg for svg in drawn_names), "no formula, and in the drawing"


def test_without_the_graph_communities_are_joined_by_shared_members(run: Run, tmp_path: Path) -> None:
    moved = changed(run[0], tmp_path / "run", lambda record: record["graph"].update(file="/nowhere/CA-GrQc.txt"))
    page = run_page(moved)
    assert any("Give it with --graph" in notice.text for notice in page.notices)
    (picture,) = [picture for picture in page.pictures if picture.name == "community-graph"]
    assert "lines are shared members" in picture.caption
    given = drawn(moved, graph=DATA / "CA-GrQc.txt.gz")["community-graph"]
    assert "links between the two" in given.caption
    other = called(moved, "--graph", DATA / "netscience.txt.gz")
    assert other.exit_code == 2
    assert "is not the graph of the run" in other.output


def test_all_of_pi_gives_the_same_page(tmp_path: Path) -> None:
    pages = []
    for whole in (False, True):
        out = tmp_path / str(whole)
        detect(DATA / "fb_3980.txt.gz", 5, device=PROCESSOR, iterations=20, whole=whole, out=out)
        pages.append([(p.name, p.alt) for p in run_page(out).pictures])
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "run.json").unlink(), "has no run.json: name the folder that"),
        (lambda d: (d / "run.json").write_text("{"), "damaged"),
        (lambda d: (d / "run.json").write_text("[]"), "damaged"),
        (lambda d: (d / "memberships.npz").write_bytes(b"PK\3\4"), "damaged"),
        (lambda d: (d / "communities.txt").unlink(), "has no communities.txt"),
        (lambda d: (d / "communities.txt").write_text("no such id\n"), "'no such id' is no vertex"),
        (lambda d: (d / "communities.txt").write_text("1\t2\n"), "communities are not those of run.json"),
    ],
)
def test_damaged_results_are_refused(small_run: Run, tmp_path: Path, damage: Any, message: str) -> None:
    shutil.copytree(small_run[0], tmp_path / "run")
    damage(tmp_path / "run")
    done = called(tmp_path / "run", "-o", tmp_path / "out")
    assert (done.exit_code, message in done.output) == (2, True), done.output
    assert not (tmp_path / "out").exists()


def test_a_run_of_no_iteration(tmp_path: Path) -> None:
    detect(DATA / "fb_3980.txt.gz", 4, device=PROCESSOR, iterations=0, out=tmp_path / "run")
    page = check_self_contained(write(run_page(tmp_path / "run"), tmp_path / "out"))
    assert "held-out.png" in {path.name for path in (tmp_path / "out").iterdir()}
    assert page.texts("td")[page.texts("td").index("iterations") + 1] == "0"


def test_for_scripts(small_run: Run, tmp_path: Path) -> None:
    done = called(small_run[0], "-o", tmp_path, "--json")
    names = ["graph", "sizes", "memberships", "overlaps", "row-sums"]
    assert json.loads(done.stdout) == {"page": str(tmp_path / "report.html"), "pictures": names}
    quiet = called(small_run[0], "-o", tmp_path, "--quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")


def test_a_folder_that_cannot_be_written_is_named(small_run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = called(small_run[0], "-o", tmp_path / "file" / "out")
    assert (done.exit_code, "name another folder with -o" in done.output) == (2, True), done.output


def page_of(pictures: dict[str, Picture], *names: str) -> HtmlPage:
    return HtmlPage("A run", "", sections=[Section("All", pictures=[pictures[name] for name in names])])


def test_pictures_of_the_report_before_go(pictures: dict[str, Picture], tmp_path: Path) -> None:
    write(page_of(pictures, "sizes", "row-sums"), tmp_path)
    (tmp_path / "mine.png").write_text("of the user")
    write(page_of(pictures, "row-sums"), tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == {"row-sums", "report", "mine"}


def test_a_report_is_written_whole_or_not_at_all(pictures: dict[str, Picture], tmp_path: Path) -> None:
    """What the last of its files cannot be put over keeps all of them away."""
    (tmp_path / "report.html").mkdir()
    with pytest.raises(InputError, match=f"cannot write the report to {tmp_path}: Is a directory"):
        write(page_of(pictures, "row-sums"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
