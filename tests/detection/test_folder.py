"""The folder of a run's results: what is there of others, and what a failed run leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import mmsbgen
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.sampler.chain.sampler import Sampler
from tests.detection.detections import FAST, cli
from tests.disks import MMSBGEN, in_a_file_system_of_its_own

pytestmark = pytest.mark.opencl

RESULTS = ["communities.txt", "memberships.npz", "run.json"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_full_disk_leaves_the_results_before_as_they_were(ring, tmp_path):
    """Of the second run there is room for the communities alone."""
    (tmp_path / "disk").mkdir()
    detect = f"{MMSBGEN} detect {ring} -k 3 -n 3 --device pocl -q"
    done = in_a_file_system_of_its_own(
        f"""
        mount -t tmpfs -o size=128k none disk || exit 99
        {detect} -o disk/o || exit 98
        cp -r disk/o before
        dd if=/dev/zero of=disk/rest bs=1k count=400 2> /dev/null
        truncate -s -4096 disk/rest
        {detect} -o disk/o --seed 5 2> second.err; echo $? > second.code
        {detect} -o disk/new 2> third.err; echo $? > third.code
        cp -r disk/o after; ls -A disk > there; ls -A disk/o > left
        """,
        tmp_path,
    )
    if done.returncode == 99:
        pytest.skip(f"this system lets no test mount a file system: {done.stderr}")
    assert done.returncode == 0, done.stderr
    for run in ("second", "third"):
        assert (tmp_path / f"{run}.code").read_text() == "2\n"
        assert "No space left" in (tmp_path / f"{run}.err").read_text()
    assert contents(tmp_path / "after") == contents(tmp_path / "before")
    assert (tmp_path / "left").read_text().split() == RESULTS, "no part of the second"
    assert (tmp_path / "there").read_text().split() == ["o", "rest"], "no empty folder of the third"


def test_a_run_that_fails_leaves_no_folder(ring, tmp_path):
    from mmsbgen.sampler.options.schedule import Schedule

    options = {"step": "published", "iterations": 400, "schedule": Schedule(1e30, 1.0, 0.0), "delta": 1e-7}
    with pytest.raises(MmsbgenError, match="left the range"):
        mmsbgen.detect(ring, 3, device="pocl", out=tmp_path / "made" / "below", **options)
    assert not (tmp_path / "made").exists()


def test_what_lies_in_the_way_of_one_file_keeps_all(ring, tmp_path):
    mmsbgen.detect(ring, 3, out=tmp_path / "o", **FAST)
    (tmp_path / "o" / "memberships.npz").unlink()
    (tmp_path / "o" / "memberships.npz").mkdir()
    before = (tmp_path / "o" / "communities.txt").read_bytes()
    with pytest.raises(InputError, match="cannot write .*memberships.npz: Is a directory"):
        mmsbgen.detect(ring, 4, out=tmp_path / "o", **FAST)
    assert (tmp_path / "o" / "communities.txt").read_bytes() == before
    assert sorted(os.listdir(tmp_path / "o")) == ["checkpoint.npz", *RESULTS], "the chain is kept"


def test_results_of_another_graph_are_kept(ring, tmp_path):
    out, other = tmp_path / "o", tmp_path / "square.txt"
    other.write_text("1 2\n2 3\n3 4\n4 1\n")
    assert "replaced" not in cli(ring, "-k", 3, "-n", 2, "-o", out).stderr
    record = json.loads((out / "run.json").read_text())
    (out / "report").mkdir()
    (out / "report" / "report.html").write_text("of the ring")
    before = (out / "memberships.npz").read_bytes()
    of_ring = f"ring from {record['finished'][:16].replace('T', ' ')} UTC"
    said = cli(other, "-k", 2, "-n", 2, "-o", out, code=2).stderr
    assert f"{out} has results of another graph, {of_ring}, which would be lost: name another folder" in said
    with pytest.raises(InputError, match="--overwrite"):
        mmsbgen.detect(other, 2, out=out, **FAST)
    assert (out / "memberships.npz").read_bytes() == before
    said = cli(ring, "-k", 2, "-n", 2, "-o", out).stderr
    assert f"The results in {out}, of {of_ring}, will be replaced." in said
    said = cli(other, "-k", 2, "-n", 2, "-o", out, "--overwrite").stderr
    assert f"{out / 'report'} shows the results before: make it anew by `mmsbgen report {out}`." in said
    assert json.loads((out / "run.json").read_text())["graph"]["name"] == "square"


def test_files_of_no_run_are_not_overwritten(ring, tmp_path, monkeypatch):
    mine = tmp_path / "o" / "communities.txt"
    mine.parent.mkdir()
    for name, text in (("communities.txt", "1 2 3\n"), ("run.json", '{"miles": 5}')):
        (mine.parent / name).write_text(text)
        with monkeypatch.context() as patch:
            patch.setattr(Sampler, "step", lambda self: pytest.fail("sampled before looking at the folder"))
            said = cli(ring, "-k", 3, "-o", mine.parent, code=2).stderr
        assert f"{mine} is not of a run of mmsbgen" in said
        assert "--overwrite" in said
    assert mine.read_text() == "1 2 3\n"
    cli(ring, "-k", 3, "-n", 2, "-o", mine.parent, "--overwrite")
    assert sorted(os.listdir(mine.parent)) == RESULTS


@pytest.mark.parametrize("option", ["-o", "--resume", "--log-file"])
def test_an_empty_name_is_no_folder(ring, tmp_path, monkeypatch, option):
    """What an unset variable of the shell leaves: not the folder where one happens to be."""
    monkeypatch.chdir(tmp_path)
    before = os.listdir(tmp_path)
    assert "the name is empty" in cli(ring, "-k", 3, "-n", 2, option, "", code=2).stderr
    assert os.listdir(tmp_path) == before
    for name in ("out", "resume"):
        with pytest.raises(InputError, match=f"{name}='': the name is empty"):
            mmsbgen.detect(ring, 3, **{name: ""}, **FAST)
