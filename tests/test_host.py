"""What processes hold in memory, from a real /proc and from ones that tell less."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mmsbgen.base.host_memory import resident_bytes

PAGE = os.sysconf("SC_PAGE_SIZE")
HELD = 100 << 20

_OWNER = f"""
import subprocess, sys, threading

holder = "held = b'x' * {HELD}; print('held', flush=True); input()"

def start():
    subprocess.run([sys.executable, "-c", holder])

threading.Thread(target=start).start()
"""


def test_what_a_thread_other_than_the_first_has_started_counts() -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        assert HELD < resident_bytes(owner.pid) < 2 * HELD
    finally:
        owner.communicate("\n")
    assert resident_bytes(owner.pid) == 0, "it is gone"


def process(proc: Path, pid: int, pages: int, threads: dict[int, str | None]) -> None:
    """A process as /proc has it: its pages in memory, and what each of its threads has started, where that is told."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "statm").write_text(f"{9 * pages} {pages} 1 1 0 1 0\n")
    for thread, children in threads.items():
        (proc / str(pid) / "task" / str(thread)).mkdir(parents=True)
        if children is not None:
            (proc / str(pid) / "task" / str(thread) / "children").write_text(children)


def test_all_threads_and_generations_are_added_up(tmp_path: Path) -> None:
    process(tmp_path, 1, 100, {1: "2 ", 7: "3 4 "})
    process(tmp_path, 2, 20, {2: ""})
    process(tmp_path, 3, 3, {3: "5 "})
    process(tmp_path, 5, 1000, {5: ""})
    assert resident_bytes(1, tmp_path) == 1123 * PAGE, "the fourth has ended meanwhile"


def test_a_system_that_does_not_tell_children_tells_the_process(tmp_path: Path) -> None:
    process(tmp_path, 1, 100, {1: None})
    process(tmp_path, 2, 50, {})
    assert resident_bytes(1, tmp_path) == 100 * PAGE
    assert resident_bytes(2, tmp_path) == 50 * PAGE
    assert resident_bytes(3, tmp_path) == 0
