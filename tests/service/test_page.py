"""The page in a real browser, against a real service with a real worker."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import networkx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from mmsbgen.service.app import STATIC
from tests.service.phone import fits
from tests.service.running import COMMAND, TOKEN, Service, serving

GRAPH = Path(__file__).parents[1] / "data" / "netscience.txt.gz"
EVIL = "<img src=x onerror=alert(1)>"
SOON = 30_000
"""Milliseconds that a small job may take on a machine with other work."""

pytestmark = [pytest.mark.browser, pytest.mark.opencl, pytest.mark.slow]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("page")
    options = ("--workers", "1", "--worker-device", "pocl", "--write-rate", "10000/second")
    with serving(str(folder / "page.sqlite3"), folder / "data", *options) as service:
        yield service


@pytest.fixture
def context(browser: Browser, served: Service) -> Iterator[BrowserContext]:
    made = browser.new_context(base_url=served.url, viewport={"width": 1280, "height": 900})
    made.set_default_timeout(SOON)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, served: Service) -> Iterator[Page]:
    """A page that has the token; what the browser complains of fails the test."""
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    asked: set[str] = set()
    opened.on("request", lambda request: asked.add(re.sub(r"^(\w+://[^/]+/|blob:).*", r"\1", request.url)))
    opened.goto("/")
    opened.get_by_label("Token").fill(TOKEN)
    yield opened
    assert asked <= {f"{served.url}/", "blob:"}
    # The browser itself logs every answer that is an error; which these are, tests say.
    assert [text for text in wrong if not text.startswith("Failed to load resource")] == []


def state(page: Page, text: str) -> None:
    """Wait until the job that is shown is in a state."""
    expect(page.get_by_role("heading", level=1).locator(".badge")).to_have_text(text, timeout=SOON)


def submit(page: Page, *, iterations: int, name: str = "netscience") -> str:
    """Submit a detection; the job's id."""
    page.goto("/#communities")
    page.get_by_label("Graph").set_input_files(GRAPH)
    page.get_by_label("Communities (K)").fill("20")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Iterations").fill(str(iterations))
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Find communities").click()
    page.wait_for_url("**/#job/*")
    return page.url.rpartition("/")[2]


def test_a_detection_is_submitted_followed_and_explored(page: Page, served: Service) -> None:
    job = submit(page, iterations=40, name=EVIL)
    state(page, "done")
    main = page.locator("main")
    expect(page.get_by_role("heading", level=1)).to_contain_text(EVIL)
    assert main.locator("img").count() == 0
    with served.client() as client:
        result = client.get(f"/api/v1/jobs/{job}/result").json()
        largest = client.get(f"/api/v1/jobs/{job}/communities/0").json()
        lines = client.get(f"/api/v1/jobs/{job}/files/communities.txt").content

    expect(main.get_by_text("1,461 vertices, 2,742 links")).to_be_visible()
    expect(main.get_by_text(result["verdict"]["sentence"])).to_be_visible()
    expect(main.get_by_text(result["convergence"]["text"])).to_be_visible()
    trace = main.locator("figure.chart path.line").get_attribute("d") or ""
    assert trace.count("L") == len(result["trace"]) - 1
    if len(result["communities"]) > 15:
        main.get_by_role("button", name=re.compile("^Show all")).click()
    rows = main.get_by_role("region", name=re.compile("^The largest first")).locator("tbody tr")
    expect(rows).to_have_count(len(result["communities"]))
    sizes = [int(text.replace(",", "")) for text in rows.locator("td:nth-child(2)").all_inner_texts()]
    assert sizes == [one["size"] for one in result["communities"]]
    assert main.locator("svg.matrix .shared").count() == 2 * len(result["shared"])

    main.get_by_role("button", name="Community 0", exact=True).click()
    members = main.get_by_role("region", name="Members", exact=True)
    expect(members).to_contain_text(f"1 to 50 of {result['communities'][0]['size']}")
    assert [text.split()[0] for text in members.locator("li").all_inner_texts()] == [
        member["id"] for member in largest["members"][:50]
    ]
    members.get_by_role("button", name="After").click()
    expect(members).to_contain_text("51 to")
    main.get_by_label("Id, as the graph has it").fill(largest["members"][0]["id"])
    main.get_by_role("button", name="Memberships", exact=True).click()
    vertex = main.get_by_role("region", name=f"Memberships of {largest['members'][0]['id']}")
    expect(vertex).to_contain_text("Community 0")
    with page.expect_download() as got:
        main.get_by_role("button", name=re.compile(r"^communities\.txt")).click()
    assert Path(got.value.path()).read_bytes() == lines
    assert got.value.suggested_filename == "communities.txt"
    fits(page)


def test_a_result_is_numbered_as_its_files_which_are_for_convert(page: Page, tmp_path: Path) -> None:
    submit(page, iterations=40)
    state(page, "done")

    def downloaded(name: str) -> bytes:
        with page.expect_download(timeout=2 * SOON) as got:
            page.get_by_role("button", name=re.compile(rf"^{re.escape(name)}")).click()
        assert got.value.suggested_filename == name
        return Path(got.value.path()).read_bytes()

    lines = [line.split("\t") for line in downloaded("communities.txt").decode().splitlines()]
    table = page.get_by_role("region", name=re.compile("^The largest first"))
    if len(lines) > 15:
        page.get_by_role("button", name=re.compile("^Show all")).click()
    expect(table.locator("tbody tr")).to_have_count(len(lines))
    for number, row in enumerate(table.locator("tbody tr").all()):
        name, members, strength = row.locator("td").all_inner_texts()
        assert (name.split(" (")[0], int(members)) == (f"Community {number}", len(lines[number]))
        for cell, share in ((1, len(lines[number]) / len(lines[0])), (2, float(strength))):
            width = row.locator("td").nth(cell).locator(".bar .value").get_attribute("width") or ""
            assert float(width.rstrip("%")) == pytest.approx(100 * share, rel=0.01, abs=0.01)

    for name in ("graph", "communities.txt", "memberships.npz", "run.json"):
        (tmp_path / name).write_bytes(downloaded(name))
    subprocess.run([*COMMAND, "convert", tmp_path, "-o", tmp_path / "graph.gexf"], check=True, timeout=60)
    graph = networkx.read_gexf(tmp_path / "graph.gexf")
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (1461, 2742)


def test_a_detection_is_run_again_with_other_settings_and_deleted(page: Page, served: Service) -> None:
    first = submit(page, iterations=30)
    state(page, "done")
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url(f"**/#communities/{first}")
    expect(page.get_by_label("Iterations")).to_have_value("30")
    fits(page)
    page.get_by_label("Communities (K)").fill("12")
    page.get_by_role("button", name="Find communities").click()
    page.wait_for_url("**/#job/*")
    second = page.url.rpartition("/")[2]
    state(page, "done")
    with served.client() as client:
        before, after = (client.get(f"/api/v1/jobs/{job}").json() for job in (first, second))
        assert after["payload"] == before["payload"] | {"n_communities": 12}
        assert after["inputs"] == before["inputs"]
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Delete").click()
        page.wait_for_url("**/#communities")
        assert client.get(f"/api/v1/jobs/{second}").status_code == 404
        assert client.get(f"/api/v1/jobs/{first}").status_code == 200


def test_a_detection_is_followed_as_it_goes_and_cancelled(page: Page, served: Service) -> None:
    job = submit(page, iterations=20_000)
    state(page, "running")
    going = page.get_by_text(re.compile(r"Iteration [\d,]+ of at most 20,000 · AUC 0\.\d+"))
    expect(going).to_be_visible(timeout=SOON)
    line = page.locator("figure.chart path.line")
    first = line.get_attribute("d")
    expect(line).not_to_have_attribute("d", first or "")
    assert 0 < float(page.get_by_role("progressbar").get_attribute("value") or 0) < 1
    page.get_by_role("button", name="Cancel").click()
    state(page, "cancelled")
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    expect(page.get_by_text("It was cancelled; there is no result.")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
    with served.client() as client:
        assert client.get(f"/api/v1/jobs/{job}").json()["state"] == "cancelled"
    page.goto("/#communities")
    newest = page.get_by_role("region", name="Newest first").locator("tbody tr").first
    expect(newest).to_contain_text("netscience, K\u00a0=\u00a020")
    expect(newest).to_contain_text("cancelled")


def test_a_connection_that_is_lost_is_said_and_comes_back(page: Page) -> None:
    page.route("**/events", lambda route: route.abort(), times=1)
    submit(page, iterations=40)
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer")
    state(page, "done")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_missing_token_is_said_in_words_and_a_given_one_is_kept(page: Page) -> None:
    page.get_by_label("Token").fill("")
    page.goto("/#communities")
    page.get_by_label("Graph").set_input_files(GRAPH)
    page.get_by_role("button", name="Find communities").click()
    expect(page.get_by_role("alert")).to_contain_text("needs the token of the service: enter it at the top")
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type("not-the-token-of-it")
    page.get_by_role("button", name="Find communities").click()
    expect(page.get_by_role("alert")).to_contain_text("does not take this token")
    page.get_by_label("Communities (K)").fill("7")
    page.get_by_label("Token").press("Enter")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_label("Communities (K)")).to_have_value("7")
    assert page.get_by_label("Graph").evaluate("input => input.files.length") == 1
    page.reload()
    expect(page.get_by_label("Token")).to_have_value("not-the-token-of-it")


def test_the_link_in_a_terminal_signs_in_and_leaves_no_token(browser: Browser, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*COMMAND, "serve", "--port", "0", "--workers", "0", "--data", str(tmp_path / "data")]
    environment = {name: text for name, text in os.environ.items() if name != "MMSBGEN_TOKEN"}
    with subprocess.Popen(
        [*command, "--database", str(tmp_path / "d.sqlite3")], stdin=subprocess.DEVNULL, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        said = ""
        while not (link := re.search(r"(http://\S+/)#token=(\S+)", said)):
            said += os.read(ours, 4096).decode()  # raises if the service ends
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(link[0])
        expect(page.get_by_role("heading", level=1)).to_have_text("Communities of a graph")
        expect(page.get_by_label("Token")).to_have_value(link[2])
        assert page.url == f"{link[1]}#communities"
        assert link[2] not in "".join(asked)
        page.get_by_label("Graph").set_input_files(GRAPH)
        page.get_by_role("button", name="Find communities").click()
        expect(page.get_by_text("Waiting for a worker")).to_be_visible(timeout=SOON)
        page.go_back()
        assert "token" not in page.url
        page.close()
        process.terminate()
    os.close(ours)
    assert link[2] == (tmp_path / "data" / "service-token").read_text().strip()


def test_a_log_gets_no_token(tmp_path: Path) -> None:
    with serving(str(tmp_path / "d.sqlite3"), tmp_path / "data", token=None) as service:
        token = (service.data / "service-token").read_text().strip()
        assert "service-token" in service.log.read_text()
    assert token not in service.log.read_text()


def test_what_the_service_refuses_is_said(page: Page, tmp_path: Path) -> None:
    bad = tmp_path / "graph.txt"
    bad.write_text("one,two,three\n1,2,3\n")
    page.goto("/#communities")
    page.get_by_label("Graph").set_input_files(bad)
    page.get_by_role("button", name="Find communities").click()
    expect(page.get_by_role("alert")).to_contain_text("name them: columns=A,B")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Columns").fill("one,two")
    page.get_by_role("button", name="Find communities").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("graph, K\u00a0=\u00a0auto")
    page.goto(f"/#job/{'0' * 32}")
    expect(page.get_by_role("alert")).to_contain_text("0" * 32)


def test_the_page_is_packaged_and_needs_nothing_from_elsewhere(served: Service) -> None:
    from importlib.resources import files

    static = files("mmsbgen.service").joinpath("static")
    packaged = {entry.name for entry in static.iterdir() if entry.is_file()}
    packaged |= {f"pages/{entry.name}" for entry in static.joinpath("pages").iterdir()}
    assert {"index.html", "app.js", "style.css", "icon.svg", "pages/job.js"} <= packaged
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        for name in packaged:
            answer = client.get(f"/{name}").raise_for_status()
            assert answer.headers["cache-control"] == "no-cache"
            text = answer.text
            assert not re.search(
                r"https?://(?!www\.w3\.org/2000/svg)|<script>|<style|\bstyle=|innerHTML|\bon\w+=\"", text
            )
    assert all(len(file.read_text().splitlines()) < 400 for file in STATIC.rglob("*.js"))


def test_a_tune_is_submitted_followed_and_its_winner_compared_across_devices(page: Page, served: Service) -> None:
    page.goto("/#tune")
    page.get_by_label("Kernel").select_option("update_pi")
    for name, value in (("K", "64"), ("N", "4096"), ("m", "256")):
        page.get_by_label(name, exact=True).fill(value)
    page.get_by_label("Trials").fill("6")
    page.get_by_role("button", name="Tune", exact=True).click()
    page.wait_for_url("**/#job/*")
    job = page.url.rpartition("/")[2]
    expect(page.get_by_text(re.compile(r"update_pi: [1-9]\d* of 6 configurations"))).to_be_visible(timeout=2 * SOON)
    expect(page.get_by_text("Best so far:")).to_be_visible()
    state(page, "done")
    with served.client() as client:
        won = client.get(f"/api/v1/jobs/{job}").json()["result"]["kernels"][0]
        trials = client.get("/api/v1/trials", params={"kernel": "update_pi", "status": "ok"}).json()["trials"]
    expect(page.locator("figure.chart circle.dot.first")).to_have_count(len(trials))
    winner = " ".join(f"{name}={str(value).lower()}" for name, value in won["best"].items())
    expect(page.get_by_role("region", name="Winners")).to_contain_text(winner)
    tried = {str(trial["configuration"]) for trial in trials}
    expect(page.get_by_role("region", name="Parallel coordinates").locator("path")).to_have_count(len(tried))
    expect(page.get_by_role("region", name=re.compile(f"^Importance.*{len(tried)} configurations"))).to_be_visible()
    fits(page)

    page.goto("/#devices")
    page.get_by_label("Kernel").select_option("update_pi")
    for name, value in (("K", "64"), ("N", "4096"), ("m", "256")):
        page.get_by_label(name, exact=True).fill(value)
        page.get_by_label(name, exact=True).press("Enter")
    rows = page.get_by_role("region", name=re.compile("^Best known configurations")).locator("tbody tr")
    mine = rows.filter(has_text="Portable Computing Language")
    expect(mine.locator(".badge")).to_have_text("exact")
    expect(mine).to_contain_text(winner)
    expect(mine.locator("td[data-label='Of its roof']")).to_have_text(re.compile(r"^>?\d+%$"))
    shipped = rows.filter(has_text="cuda: NVIDIA H200")
    expect(shipped).to_have_count(1)
    expect(shipped.locator("td[data-label='Of its roof']")).to_have_text(re.compile(r"^\d+ ?%$"))
    fits(page)


def test_a_tune_is_cancelled_and_run_again(page: Page, served: Service) -> None:
    page.goto("/#tune")
    page.get_by_label("Trials").fill("5000")
    page.get_by_role("button", name="Tune", exact=True).click()
    page.wait_for_url("**/#job/*")
    first = page.url
    state(page, "running")
    page.get_by_role("button", name="Cancel").click()
    state(page, "cancelled")
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url(lambda url: url != first)
    with served.client() as client:
        before, after = (client.get(f"/api/v1/jobs/{url.rpartition('/')[2]}").json() for url in (first, page.url))
    assert after["payload"] == before["payload"]
    page.get_by_role("button", name="Cancel").click()
    state(page, "cancelled")
