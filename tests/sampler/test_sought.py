"""Starts that a process of its own finds: the same ones, whoever finds them, and no process left behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.starts import background_search, start_methods
from mmsbgen.sampler.starts.background_search import StartSearch, searcher_ahead, searching_for_starts
from mmsbgen.sampler.starts.start_methods import STARTS, Start

NAMES = ("communities", "ego")


def same(one: Start, other: Start) -> bool:
    return (
        one.name == other.name
        and np.array_equal(one.vertices, other.vertices)
        and np.array_equal(one.communities, other.communities)
        and one.vertices.dtype == other.vertices.dtype == np.int64
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 2**64 - 1])
def test_a_process_finds_what_would_be_found_here(middling, seed, caplog):
    one = StartSearch(middling, 7, seed, NAMES)
    try:
        for name in (*reversed(NAMES), "random"):
            assert same(one.start(name), STARTS[name](middling, 7, seed))
    finally:
        one.close()
    assert not caplog.records


@pytest.mark.parametrize("start", ["auto", *STARTS, None])
@pytest.mark.parametrize("mini_batch", ["block", "random-node"])
def test_what_is_sought_is_what_a_run_may_begin_from(middling, monkeypatch, start, mini_batch):
    if start == "auto" and mini_batch != "block":
        return
    monkeypatch.setattr(background_search, "MANY", 10)
    given = start or ("auto" if mini_batch == "block" else "random")
    with searching_for_starts(middling, Options(5, start=start, mini_batch=mini_batch)) as one:
        names = NAMES if given == "auto" else tuple({given} - {"random"})
        assert (() if one is None else one.names) == names


def test_in_small_graphs_nothing_is_sought_beside(middling):
    assert middling.n_training_links <= start_methods.MANY
    with searching_for_starts(middling, Options(5)) as one:
        assert one is None


def test_the_process_ends_with_the_context(middling, monkeypatch):
    monkeypatch.setattr(background_search, "MANY", 10)
    with searching_for_starts(middling, Options(5)) as one:
        process = one._process
    assert process.exit_code() is not None
    one.close()


def test_a_process_can_wait_for_the_graph(middling, monkeypatch, tmp_path):
    monkeypatch.setattr(background_search, "MANY", 10)
    file = tmp_path / "links.txt"
    file.write_text("1 2\n" * 30)
    with searcher_ahead(file, Options(5)) as ahead:
        assert ahead is not None
    with searching_for_starts(middling, Options(5, start="ego"), None, ahead) as one:
        assert one._process is ahead.process
        assert same(one.start("ego"), STARTS["ego"](middling, 5, 0))
    assert ahead.process.exit_code() is not None


def test_a_process_that_waits_ends_if_it_gets_no_graph(middling, monkeypatch, tmp_path):
    file = tmp_path / "links.txt"
    file.write_text("1 2\n" * 30)
    with searcher_ahead(file, Options(5)) as ahead:
        assert ahead is None
    monkeypatch.setattr(background_search, "MANY", 10)
    for source, start in ((tmp_path / "missing", None), ([(1, 2)], None), (file, "random")):
        with searcher_ahead(source, Options(5, start=start)) as ahead:
            assert ahead is None
    with pytest.raises(InputError), searcher_ahead(file, Options(5)) as ahead:
        raise InputError("no graph")
    assert ahead.process.exit_code() is not None
    with searcher_ahead(file, Options(5)) as ahead:
        pass
    monkeypatch.setattr(background_search, "MANY", middling.n_training_links)
    with searching_for_starts(middling, Options(5), None, ahead) as one:
        assert one is None
    assert ahead.process.exit_code() is not None


def test_who_asks_to_stop_does_not_wait(middling):
    one = StartSearch(middling, 7, 0, NAMES)
    try:
        with pytest.raises(KeyboardInterrupt):
            one.start("ego", lambda: True)
    finally:
        one.close()


@pytest.mark.parametrize("how", ["no program", "no memory", "no room"])
def test_without_a_process_starts_are_found_here(middling, monkeypatch, caplog, tmp_path, how):
    if how == "no program":
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    elif how == "no memory":
        (tmp_path / "python").write_text("#!/bin/sh\nkill -9 $$\n")
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    else:
        monkeypatch.setattr(background_search.np, "save", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    one = StartSearch(middling, 7, 1, NAMES)
    try:
        assert same(one.start("ego"), STARTS["ego"](middling, 7, 1))
    finally:
        one.close()
    (record,) = caplog.records
    assert "found in this process" in record.getMessage()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a child of its parent's end")
def test_the_process_ends_with_the_run(tmp_path):
    """However the run ends: a graph would be waited for for ever otherwise."""
    program = """
import time
from mmsbgen.sampler.starts.background_search import Searcher
searcher = Searcher()
print(searcher.process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        child = Path("/proc") / run.stdout.readline().strip() / "stat"
        time.sleep(0.5)
        assert lives(child)
        run.kill()
    deadline = time.monotonic() + 20
    while lives(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not lives(child)


def lives(stat: Path) -> bool:
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
