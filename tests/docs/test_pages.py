"""The README and every page of the documentation: each block of code is run, but those that are listed here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from sybil import Document

from mmsbgen.backends import find_device
from tests.docs.blocks import LANGUAGES, TITLES, Page, Shell, blocks, renewed
from tests.docs.preloaded import preloaded

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(page.relative_to(ROOT)) for page in DOCS.rglob("*.md"))]

CLONE = "needs the network"
GPU = "needs an NVIDIA GPU"
FLEET = "needs several machines"
DEVICES = "needs several devices"
MINUTES = "takes minutes"
SERVER = "needs a server and root"
MEMORY = "depends on the machine's memory"
STAYS = "runs until it is stopped"
#: The blocks that are not run, by page: first line and reason, in their order.
NOT_RUN: dict[str, list[tuple[str, str]]] = {
    "README.md": [("git clone https://github.com/mmsbgen/mmsbgen && cd mmsbgen", CLONE), ("scripts/test", MINUTES)],
    "CONTRIBUTING.md": [("git clone <your fork> && cd mmsbgen", CLONE)],
    "docs/how-to/large-graphs.md": [
        ("mmsbgen detect tests/data/CA-GrQc.txt.gz -k 500000 --rows dense --dtype float64 2>&1 | grep Error", MEMORY)
    ],
    "docs/how-to/serve-behind-nginx.md": [("mmsbgen serve --allow-host tuner.example.org", STAYS)],
    "docs/how-to/several-devices.md": [
        ("mmsbgen detect GRAPH -k 2000 --devices cuda:0,cuda:1 -o OUT", DEVICES),
        ("mpirun -n 8 --host a:4,b:4 mmsbgen detect GRAPH -k 2000 -o OUT", FLEET),
        ("mmsbgen tune --workers all", DEVICES),
        ("dask scheduler", FLEET),
    ],
    "docs/index.md": [("git clone https://github.com/mmsbgen/mmsbgen && cd mmsbgen", CLONE)],
    "docs/performance-methods.md": [("scripts/install --dev --cuda", GPU)],
    "docs/service.md": [
        ("pip install 'mmsbgen[serve,postgres]'", SERVER),
        ("export MMSBGEN_DATABASE_URL=postgresql://tuner@server/tuning", STAYS),
    ],
    "docs/tuning.md": [("mmsbgen tune --objective energy    # joules a call; edp: joules times seconds", GPU)],
    "docs/tutorials/new-gpu.md": [("scripts/install --cuda", GPU)],
}


def _document(page: str) -> Document:
    path = ROOT / page
    return Document(path.read_text(encoding="utf-8"), str(path))


def test_blocks_say_what_they_are() -> None:
    """Every block has a language that is known here, so that none is left out by its form."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        tokens = MarkdownIt().enable("table").parse(text)
        plain = [token.content for token in tokens if token.type == "code_block"]
        assert not plain, f"{page}: fence what is indented: {plain[0]!r}"
        found = [block for _, block in blocks(_document(page))]
        assert {block.language for block in found} <= set(LANGUAGES), page
        fences = sum(token.type == "fence" for token in tokens)
        assert len(found) == fences, page
        for block in found:
            if block.language == "text":
                assert block.title in ("", *TITLES, "layers of mmsbgen/, top to bottom"), block
                assert not block.first.startswith(("$ ", "mmsbgen ", "scripts/", "pip ", "import ")), block


def test_files_that_the_readme_names_are_there() -> None:
    named = re.findall(
        r"""(?:\]\(|src(?:set)?=")(?!https?:)([^)#"\s]+)""", (ROOT / "README.md").read_text(encoding="utf-8")
    )
    assert len(named) > 10
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_what_is_not_run() -> None:
    found = {}
    for page in PAGES:
        left_out = [(block.first, block.reason) for _, block in blocks(_document(page)) if block.reason is not None]
        if left_out:
            found[page] = left_out
    assert found == NOT_RUN


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tuning database as a user has it who has tuned for the graph of the pages that need one."""
    database = tmp_path_factory.mktemp("tuned") / "tuning.sqlite3"
    command = [
        str(Path(sys.executable).with_name("mmsbgen")),
        "tune",
        "--database",
        str(database),
        "--quiet",
        "--roof-mib",
        "64",
    ]
    command += ["--graph", str(ROOT / "tests/data/lfr-n1000-k28.txt.gz"), "-k", "28", "--budget-trials", "3"]
    # Finals take a tenth of a kernel's share of the seconds.
    command += ["--budget-seconds", "20"]
    command += ["--kernel", "block_shared", "--kernel", "block_links"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL, env=environment)
    return database


@pytest.fixture
def shell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell in a folder that has what a checkout has, and the user's graph that the pages speak of."""
    folder = tmp_path / "mmsbgen"
    folder.mkdir()
    for name in ("tests", "scripts", "docs", "mmsbgen", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    # The README shows no output of its run, which chooses K and so fits the graph many times: a small one serves.
    name = "fb_348" if "README" in request.node.name else "lfr-n1000-k28"
    graph = ROOT / f"tests/data/{name}.txt.gz"
    (folder / "my-graph.txt.gz").symlink_to(graph)
    (folder / "truth.txt.gz").symlink_to(graph.with_name(f"{name}.cmty.txt.gz"))
    data = tmp_path / "data"
    (data / "mmsbgen").mkdir(parents=True)
    if "tutorials" not in request.node.name:  # they begin with what a new user has
        shutil.copy(request.getfixturevalue("tuned"), data / "mmsbgen" / "tuning.sqlite3")
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    monkeypatch.setenv("PATH", f"{preloaded().program()}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(folder)
    here = {str(folder): "/home/you/mmsbgen", str(data): "/home/you/.local/share", find_device(None).name: "AMD EPYC"}
    opened = Shell(folder, dict(os.environ), tmp_path / "shell", here)
    yield opened
    opened.close()


def _runs(page: str) -> bool:
    return any(block.language != "text" and block.reason is None for _, block in blocks(_document(page)))


@pytest.mark.slow
@pytest.mark.opencl
@pytest.mark.parametrize("name", [page for page in PAGES if _runs(page)])
def test_blocks_run(name: str, shell: Shell, update_golden: bool) -> None:
    page, document = Page(shell, update_golden), _document(name)
    for region in page.parse(document):
        document.add(region)
    for example in document.examples():
        example.evaluate()
    assert page.ran
    if page.renewed:
        (ROOT / name).write_text(renewed(document.text, page.renewed), encoding="utf-8")
