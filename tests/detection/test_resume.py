"""Runs that were stopped: what they leave, and how they go on from it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import mmsbgen
from mmsbgen.base.errors import InputError
from mmsbgen.base.progress import Stage
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.detection import detect
from mmsbgen.detection.run_chains import CheckpointError
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.saved import checkpoint
from tests.conftest import open_or_skip
from tests.detection.detections import FAST, cli
from tests.sampler.test_checkpoint import rewrite

pytestmark = pytest.mark.opencl


def test_resuming_to_more_iterations(ring, tmp_path):
    out = tmp_path / "out"
    cli(ring, "-k", 3, "-n", 20, "-o", out, "--checkpoint", "--average")
    saved = out / "checkpoint.npz"
    more = cli(ring, "--resume", saved, "-n", 40, "-o", tmp_path / "more")
    assert "goes to iteration 40 instead of 20" in more.stderr
    assert "evaluated every 1 iterations, and means still begin at iteration 10" in more.stderr
    other = "A run of 40 iterations from the beginning may give other results, since its length says how long it tries"
    assert f"{other} starts and until when it refills empty communities." in more.stderr
    assert "Resumed after iteration 20, bit for bit" in more.stderr
    record = json.loads((tmp_path / "more" / "run.json").read_text())
    assert record["iterations"] == 40
    assert [row["iteration"] for row in record["trace"]] == list(range(41))
    assert record["samples_averaged"] == 31
    assert {kernel["tier"] for kernel in record["kernels"]} == {"kept"}
    same = cli(ring, "--resume", saved, "-o", tmp_path / "same")
    assert json.loads((tmp_path / "same" / "run.json").read_text())["iterations"] == 20, "not the default of -n"
    assert "goes to" not in same.stderr

    assert "already done 20; give more" in cli(ring, "--resume", saved, "-n", 5, code=2).stderr
    assert "n_communities=4 is not that of the run" in cli(ring, "--resume", saved, "-k", 4, code=2).stderr
    cli(ring, "--resume", saved, "-k", 3, "--seed", 0, "--checkpoint", "--rule", "threshold")
    assert "step=published" in cli(ring, "--resume", saved, "--step", "published", code=2).stderr
    other = tmp_path / "other.txt"
    other.write_text("1 2\n2 3\n")
    assert "another graph" in cli(other, "--resume", saved, code=2).stderr


def test_pairs_are_held_out_as_before_whatever_the_defaults_are_now(tmp_path, monkeypatch):
    graph, saved = tmp_path / "ring.txt", tmp_path / "out" / "checkpoint.npz"
    graph.write_text("".join(f"{a} {(a + step) % 300}\n" for a in range(300) for step in (1, 2, 3, 4)))
    cli(graph, "-k", 3, "-n", 4, "--start", "random", "-o", tmp_path / "out", "--checkpoint")
    cli(graph, "--resume", saved, "-n", 8, "-o", tmp_path / "before")
    monkeypatch.setattr("mmsbgen.sampler.options.options.MOST_HELD_OUT", 5)
    said = cli(graph, "--resume", saved, "-n", 8, "-o", tmp_path / "after").stderr
    assert "Resumed after iteration 4, bit for bit" in said
    before, after = (tmp_path / where / "memberships.npz" for where in ("before", "after"))
    assert before.read_bytes() == after.read_bytes()
    record = json.loads((tmp_path / "after" / "run.json").read_text())
    assert [record["held_out"][part]["links"] for part in ("validation", "test")] == [60, 12]


def test_texts_of_a_forged_checkpoint_are_shown_without_what_a_terminal_obeys(ring, tmp_path):
    cli(ring, "-k", 3, "-n", 2, "-o", tmp_path / "out", "--checkpoint")
    saved, other, log = tmp_path / "forged.npz", tmp_path / "other.txt", tmp_path / "log"
    other.write_text("1 2\n2 3\n1 3\n")
    text = "one\x1b[2Jtwo\nERROR forged\x07\u202e"
    forged = ({"format": 99, "version": text}, {"options": {text: 1}}, {"graph": text}, {"graph_name": text})
    for changes in forged:
        shutil.copy(tmp_path / "out" / "checkpoint.npz", saved)
        rewrite(saved, **changes)
        said = cli(other, "--resume", saved, "--log-file", log, code=2).output
        for told in (said, log.read_text()):
            assert "forged.npz" in told
            assert not {"\x1b", "\x07", "\u202e"} & set(told)
            assert not any(line.startswith("ERROR forged") for line in told.splitlines())
        log.unlink()


@pytest.fixture
def stopped(ring, tmp_path, monkeypatch) -> Path:
    """The folder of a run of 20 iterations that was interrupted after 10."""

    out = tmp_path / "stopped"

    class AfterTen(StopRequest):
        checks = 0

        def __bool__(self) -> bool:
            self.checks += 1
            return self.checks > 10

    with monkeypatch.context() as patch:
        patch.setattr(detect, "StopRequest", AfterTen)
        said = cli(ring, "-k", 3, "-n", 20, "--start", "random", "-o", out, code=130).stderr
    assert f"--resume {out / 'checkpoint.npz'}" in said
    return out


def test_interrupted_before_there_is_a_chain_nothing_is_left(ring, tmp_path, monkeypatch):
    """While starts are tried; folders that were there stay."""

    class Asked(StopRequest):
        def __bool__(self) -> bool:
            return True

    monkeypatch.setattr(detect, "StopRequest", Asked)
    before = tmp_path / "before"
    before.mkdir()
    for out in (tmp_path / "new" / "folder", before, before / "below"):
        said = cli(ring, "-k", 3, "-o", out, code=130).stderr
        assert "Interrupted; no results were written." in said
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["before", "ring.txt"]


def test_what_ends_the_making_of_communities_leaves_the_chain(ring, tmp_path, monkeypatch):
    """Ctrl-C, and an error, once a finished chain's links are looked at: what is resumed gives the same results."""
    cli(ring, "-k", 3, "-n", 20, "-o", tmp_path / "straight")
    for end, code in ((KeyboardInterrupt(), 130), (InputError("no more"), 2)):
        out = tmp_path / str(code)
        made: list[str] = []

        def rename(self, name, made=made, end=end):
            made.append(name)
            if name != "making memberships":
                raise end

        with monkeypatch.context() as patch:
            patch.setattr(Stage, "rename", rename)
            said = cli(ring, "-k", 3, "-n", 20, "-o", out, code=code).stderr
        assert f"The chain is kept: go on with --resume {out / 'checkpoint.npz'} -o {out}" in said
        assert made == ["making memberships", "making communities by the rule evidence"]
        assert os.listdir(out) == ["checkpoint.npz"]
        more = cli(ring, "--resume", out / "checkpoint.npz", "-o", out)
        assert "Resumed after iteration 20, bit for bit" in more.stderr
        assert sorted(os.listdir(out)) == ["communities.txt", "memberships.npz", "run.json"]
        for name in ("communities.txt", "memberships.npz"):
            assert (out / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def test_results_are_made_where_the_chain_cannot_be_kept(ring, tmp_path, monkeypatch):
    """A full disk may still have room for them; a checkpoint that was asked for must be there."""

    def full(*_: object) -> None:
        raise InputError("cannot write: no space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    found = cli(ring, "-k", 3, "-n", 5, "-o", tmp_path / "out")
    assert "Going on without a checkpoint: cannot write" in found.stderr
    assert sorted(os.listdir(tmp_path / "out")) == ["communities.txt", "memberships.npz", "run.json"]
    assert "no space" in cli(ring, "-k", 3, "-n", 5, "-o", tmp_path / "two", "--checkpoint", code=2).stderr
    assert sorted(os.listdir(tmp_path / "two")) == ["communities.txt", "memberships.npz", "run.json"]


def test_a_disk_that_is_full_for_a_moment_does_not_end_a_run(ring, tmp_path, monkeypatch):
    """Checkpoints are tried again; only one that is needed at the end ends the run with an error."""
    real, calls, said, full_at = checkpoint.save, [], [], {1, 2}

    def full(*given: object) -> None:
        calls.append(given)
        if len(calls) in full_at:
            raise InputError("cannot write: no space left on device")
        real(*given)

    monkeypatch.setattr(checkpoint, "save", full)
    given = {**FAST, "n_communities": 3, "iterations": 20, "evaluate_every": 5}
    device = given.pop("device")
    request = detect.Request(given, device=device, out=tmp_path / "out", checkpoint_seconds=0.0)
    request.on_message = said.append
    found = detect.perform(ring, request)
    assert found.record["iterations"] == 20
    assert len(calls) >= 4
    assert [text for text in said if "no space" in text] == [
        "Going on without a checkpoint: cannot write: no space left on device"
    ] * 2

    class AfterTwo(StopRequest):
        def __bool__(self) -> bool:
            return len(calls) >= 2

    monkeypatch.setattr(detect, "StopRequest", AfterTwo)
    for failing, kept in (({2, 3}, True), ({1, 2, 3}, False)):
        calls.clear()
        full_at |= failing
        full_at &= failing
        request.out = tmp_path / f"stopped {kept}"
        with pytest.raises(CheckpointError, match="no space") as raised:
            detect.perform(ring, request)
        assert (request.out / "checkpoint.npz").exists() == kept
        assert (
            any("The chain is kept: go on with --resume" in note for note in getattr(raised.value, "__notes__", ()))
            == kept
        )
        assert json.loads((request.out / "run.json").read_text())["interrupted"] is True


def test_a_new_run_keeps_the_checkpoint_of_an_interrupted_one(ring, stopped, tmp_path, monkeypatch):
    saved = stopped / "checkpoint.npz"
    before = {path.name: path.read_bytes() for path in stopped.iterdir()}
    other = tmp_path / "other.npz"
    other.write_bytes(saved.read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "step", lambda self: pytest.fail("sampled before looking for a checkpoint"))
        for more in (["-k", 3], ["-k", 3, "--checkpoint"], ["--resume", other]):
            said = cli(ring, *more, "-o", stopped, code=2).stderr
            assert f"--resume {saved}" in said
            assert "--overwrite" in said
        with pytest.raises(InputError, match="--overwrite"):
            mmsbgen.detect(ring, 3, out=stopped, **FAST)
    assert {path.name: path.read_bytes() for path in stopped.iterdir()} == before

    cli(ring, "-k", 3, "-n", 5, "-o", stopped, "--overwrite", "--checkpoint")
    assert saved.read_bytes() != before["checkpoint.npz"]
    mmsbgen.detect(ring, 3, out=stopped, overwrite=True, **FAST)
    assert not saved.exists(), "results of one run beside the checkpoint of another"


def test_a_run_that_finishes_removes_its_checkpoint(ring, stopped):
    from_elsewhere = stopped.parent / "elsewhere"
    cli(ring, "--resume", stopped / "checkpoint.npz", "-o", from_elsewhere)
    assert not (from_elsewhere / "checkpoint.npz").exists()
    assert (stopped / "checkpoint.npz").exists(), "only that in its own folder"
    same = stopped.parent / "elsewhere" / ".." / "stopped"
    cli(ring, "--resume", stopped / "checkpoint.npz", "-o", same)
    assert not (stopped / "checkpoint.npz").exists()
    assert json.loads((stopped / "run.json").read_text())["iterations"] == 20
    request = detect.Request(FAST | {"n_communities": 3}, device="pocl", out=stopped, checkpoint_seconds=0.0)
    del request.options["device"]
    written: list[bool] = []
    request.on_progress = lambda sampler, trace: written.append(request.saved.exists())
    detect.perform(ring, request)
    assert any(written)
    assert not request.saved.exists()


def test_resuming_writes_into_the_folder_of_the_checkpoint(ring, stopped):
    cli(ring, "--resume", stopped / "checkpoint.npz", "--checkpoint")
    record = json.loads((stopped / "run.json").read_text())
    assert (record["iterations"], record["interrupted"]) == (20, False)
    assert sorted(os.listdir(stopped)) == ["checkpoint.npz", "communities.txt", "memberships.npz", "run.json"]
    cli(ring, "--resume", stopped / "checkpoint.npz", "-n", 25)
    assert json.loads((stopped / "run.json").read_text())["iterations"] == 25
    assert sorted(os.listdir(stopped)) == ["checkpoint.npz", "communities.txt", "memberships.npz", "run.json"], (
        "it stays"
    )
    cli(ring, "--resume", stopped, "-n", 30)
    assert "Resumed after iteration 30" in cli(ring, "--resume", stopped, "-n", 35).stderr, "each at the last one's end"


@pytest.mark.parametrize("finished", [True, False])
def test_a_resume_that_has_nothing_to_do_is_refused_and_the_checkpoint_kept(ring, stopped, tmp_path, finished):
    out, done, more = stopped, 10, ["-n", 10]
    if finished:
        out, done, more = tmp_path / "whole", 20, []
        cli(ring, "-k", 3, "-n", 20, "-o", out, "--checkpoint", "-q")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    said = cli(ring, "--resume", out / "checkpoint.npz", "-o", out, *more, code=2).stderr
    assert f"is already at iteration {done}, and {out} has its results: give -n above it" in said
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    # Other results of the same chain are something to do.
    cli(ring, "--resume", out, "-o", tmp_path / "elsewhere", *more)
    assert sorted(os.listdir(tmp_path / "elsewhere")) == ["communities.txt", "memberships.npz", "run.json"]
    cli(ring, "--resume", out, "-n", 40)
    assert (out / "checkpoint.npz").exists() == finished, "only what was asked for stays"


@pytest.mark.parametrize("lost", ["communities.txt", "run.json"])
def test_results_that_are_gone_are_made_anew(ring, tmp_path, lost):
    """A kill may have come before all were there."""
    cli(ring, "-k", 3, "-n", 20, "-o", tmp_path, "--checkpoint", "-q")
    communities = (tmp_path / "communities.txt").read_bytes()
    (tmp_path / lost).unlink()
    cli(ring, "--resume", tmp_path)
    assert (tmp_path / lost).exists()
    assert (tmp_path / "communities.txt").read_bytes() == communities


def test_another_graph_is_refused_before_anything_is_said_of_the_run(stopped, tmp_path):
    (tmp_path / "other.txt").write_text("1 2\n2 3\n")
    said = cli(tmp_path / "other.txt", "--resume", stopped, "-n", 40, code=2).stderr
    assert "another graph" in said
    assert "goes to iteration" not in said


def test_another_constant_in_a_kernels_source_is_said(ring, stopped, monkeypatch):
    """Constants that Python works out are in no template."""
    import dataclasses

    from mmsbgen.kernels import build

    real = build.render

    def changed(spec, *args):
        source = real(spec, *args)
        if spec.name != "block_links":  # another comment at the head is no other source
            return dataclasses.replace(source, text="/* another " + source.text.removeprefix("/*"))
        return dataclasses.replace(source, text=source.text + "#define ANOTHER_CONSTANT 1\n")

    monkeypatch.setattr(build, "render", changed)
    said = cli(ring, "--resume", stopped / "checkpoint.npz").stderr
    assert "not bitwise, since these differ: block_links source." in said


def test_a_run_of_own_start_without_refinement_is_extended_to_a_longer_one(ring, tmp_path):
    """And nothing is said of other results."""
    options = [ring, "-k", 3, "--start", "communities", "--no-refine"]
    cli(*options, "-n", 20, "-o", tmp_path, "--checkpoint")
    more = cli(ring, "--resume", tmp_path / "checkpoint.npz", "-n", 40, "-o", tmp_path / "more")
    assert "goes to iteration 40 instead of 20" in more.stderr
    assert "other results" not in more.stderr
    cli(*options, "-n", 40, "-o", tmp_path / "whole")
    with (
        np.load(tmp_path / "more" / "memberships.npz") as there,
        np.load(tmp_path / "whole" / "memberships.npz") as right,
    ):
        for name in right:
            assert np.array_equal(there[name], right[name]), name


def rewrite_fingerprint(saved: Path, **changes: str) -> None:
    """Exchange what a checkpoint tells of the libraries that its chain ran with."""
    with np.load(saved) as archive:
        arrays = dict(archive)
    told = json.loads(arrays["meta"].tobytes())
    assert changes.keys() <= told["fingerprint"].keys()
    told["fingerprint"] |= changes
    arrays["meta"] = np.frombuffer(json.dumps(told).encode(), np.uint8)
    np.savez(saved, **arrays)


def test_another_networkit_is_said_where_it_moves_communities(ring, stopped):
    saved = stopped / "checkpoint.npz"
    rewrite_fingerprint(saved, networkit="10.0")
    assert "not bitwise, since these differ: networkit." in cli(ring, "--resume", saved).stderr


@pytest.mark.parametrize("mini_batch", ["random-node", "block"])
def test_the_step_size_of_a_run_may_be_given_again(ring, tmp_path, mini_batch):
    saved = tmp_path / "checkpoint.npz"
    step = ["--step-size", 0.02]
    cli(ring, "-k", 3, "-n", 20, "--mini-batch", mini_batch, *step, "-o", tmp_path, "--checkpoint")
    more = cli(ring, "--resume", saved, "-n", 25, *step, "--checkpoint")
    assert "Resumed after iteration 20, bit for bit" in more.stderr
    cli(ring, "--resume", tmp_path, "-n", 30, *step, "--checkpoint")
    cli(ring, "--resume", saved, "-n", 35, *step, "--mini-batch", mini_batch, "--checkpoint")
    said = cli(ring, "--resume", saved, "--step-size", 0.03, code=2).stderr
    assert "schedule=Schedule(a=0.03" in said
    other = "block" if mini_batch != "block" else "random-node"
    assert "mini_batch=" in cli(ring, "--resume", saved, *step, "--mini-batch", other, code=2).stderr


def test_resuming_on_another_device(ring, tmp_path):
    for name in ("pocl", "intel"):
        open_or_skip(name).close()
    cli(ring, "-k", 3, "-n", 20, "-o", tmp_path, "--checkpoint")
    messages: list[str] = []
    request = detect.Request(
        {"iterations": 25}, device="pocl", resume=tmp_path / "checkpoint.npz", on_message=messages.append
    )
    found = detect.perform(ring, request)
    assert found.record["iterations"] == 25
    assert any("not bitwise, since these differ: " in text and "device" in text for text in messages)


def test_a_checkpoint_of_a_version_with_other_options_is_refused_by_their_names(ring, stopped):
    saved = stopped / "checkpoint.npz"
    with np.load(saved) as archive:
        arrays = dict(archive)
    told = json.loads(arrays["meta"].tobytes())
    told["options"]["cooling"] = 3
    arrays["meta"] = np.frombuffer(json.dumps(told | {"version": "0.0.1"}).encode(), np.uint8)
    np.savez(saved, **arrays)
    said = cli(ring, "--resume", saved, code=2).stderr
    assert "was written by mmsbgen 0.0.1, with the options cooling, and this is" in said
