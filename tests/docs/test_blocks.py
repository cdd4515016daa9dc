"""What runs the pages finds what is wrong with them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil
import pytest
from sybil import Document

from tests.docs.blocks import Page, Shell, same


def _run(text: str, folder: Path) -> int:
    shell = Shell(folder, dict(os.environ), folder / "state")
    page, document = Page(shell), Document(text, str(folder / "page.md"))
    for region in page.parse(document):
        document.add(region)
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        shell.close()
    return page.ran


def test_a_page_that_holds(tmp_path: Path) -> None:
    text = """
```bash
mkdir here && cd here
export WHO=you
```

```console
$ echo "$WHO in $(basename "$PWD")"
you in here
$ echo one; echo two
one
...
$ echo "Error: no" >&2; exit 2
Error: no
```

```python
print(6 * 7)
```

```text title="output"
42
```
"""
    assert _run(text, tmp_path) == 3


@pytest.mark.parametrize(
    "text",
    [
        "```bash\nfalse\n```",
        "```console\n$ echo 1\n2\n```",
        "```console\n$ echo 1; exit 1\n1\n```",
        "```console\n$ echo Error\nError\n```",
        '```python\nprint(1)\n```\n\n```text title="output"\n2\n```',
        '```python\nprint("1 a")\n```\n\n```text title="numbers vary"\n2 b\n```',
        "```\necho\n```",
        "```fish\necho\n```",
    ],
)
def test_a_page_that_does_not(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        _run(text + "\n", tmp_path)


def test_numbers_may_vary() -> None:
    assert same("took 1.5 s, AUC 0.91", "took 312 ms, AUC 0.905", numbers_vary=True)
    assert not same("took 1.5 s, AUC 0.91", "took 312 ms, AUC 0.905", numbers_vary=False)
    assert not same("took 1.5 s", "lasted 1.5 s", numbers_vary=True)


@pytest.mark.slow
def test_what_goes_on_in_the_background_ends_with_the_page(tmp_path: Path) -> None:
    assert _run("```bash\nsleep 60 & echo $! >pid\n```\n", tmp_path) == 1
    pid = int((tmp_path / "pid").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(10)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
