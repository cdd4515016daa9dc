"""Files and copies of the estimator, and the chain that goes with them."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmsbgen import MMSB
from mmsbgen.base.errors import InputError
from mmsbgen.sampler.options.schedule import Schedule
from tests.detection.estimators import RING, fast, of_four_shares

pytestmark = pytest.mark.opencl


@pytest.fixture(scope="module")
def fitted() -> MMSB:
    return of_four_shares()


def test_save_and_load(fitted, tmp_path):
    path = fitted.save(tmp_path / "model.npz")
    back = MMSB.load(str(path))
    assert back.get_params() == fitted.get_params()
    for name in ("memberships_", "labels_", "strengths_", "ids_"):
        assert np.array_equal(getattr(back, name), getattr(fitted, name)), name
        assert getattr(back, name).dtype == getattr(fitted, name).dtype, name
    for name in ("communities_", "n_iter_", "seed_", "trace_", "record_", "interrupted_"):
        assert getattr(back, name) == getattr(fitted, name), name
    assert back.get_communities("link", 0.01) == fitted.get_communities("link", 0.01)
    assert np.array_equal(back.predict_link_proba([(0, 1)]), fitted.predict_link_proba([(0, 1)]))
    straight = fast(20, top=4, random_state=3, iterations=9, evaluate_every=1).fit(RING)
    on = fast(20, top=4, random_state=3, evaluate_every=1).fit(RING)
    on = MMSB.load(on.save(tmp_path / "on.npz")).partial_fit(iterations=3)
    assert np.array_equal(on.memberships_, straight.memberships_)
    small = fitted.save(tmp_path / "small.npz", chain=False)
    with np.load(path) as whole, np.load(small) as archive:
        assert set(whole) - set(archive) == {"chain"}
    with pytest.raises(InputError, match="the chain was not kept"):
        MMSB.load(small).partial_fit()
    odd = fast(3, schedule=(0.2, 100, 0.6), eta=[1, 2], random_state=np.random.default_rng(0), database=tmp_path / "db")
    back = MMSB.load(odd.fit(RING).save(tmp_path / "odd.npz"))
    assert (back.schedule, back.eta, back.random_state) == (Schedule(0.2, 100, 0.6), (1.0, 2.0), odd.seed_)
    assert back.partial_fit(iterations=1).n_iter_ == 7


def changed(path: Path, name: str, change: Any) -> Path:
    """A copy of a model with another array ``name``."""
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays[name] = change(arrays[name])
    np.savez(path.with_name("changed.npz"), **arrays)
    return path.with_name("changed.npz")


def meta(**new: Any) -> Any:
    """What puts other values into the description of a model."""
    return lambda old: np.frombuffer(json.dumps(json.loads(old.tobytes()) | new).encode(), np.uint8)


def test_models_of_versions_with_other_parameters(tmp_path):
    """What came later has its default, in a chain that goes on too; what is gone is refused by its name."""
    path = fast(3).fit(RING).save(tmp_path / "model.npz")
    with np.load(path) as archive:
        told = json.loads(archive["meta"].tobytes())

    def of(**new: Any) -> Path:
        return changed(path, "meta", meta(version="0.0.1", **new))

    for name in ("alpha", "eta", "schedule"):
        old = {what: {k: v for k, v in told[what].items() if k != name} for what in ("params", "fitted_params")}
        back = MMSB.load(of(**old))
        assert getattr(back, name) == getattr(MMSB(), name)
        assert back.partial_fit(iterations=1).n_iter_ == 7
    for what in ("params", "fitted_params"):
        new = {what: told[what] | {"cooling": 3, "beam": "wide"}}
        with pytest.raises(InputError, match="mmsbgen 0.0.1, with the parameters beam, cooling, and this is "):
            MMSB.load(of(**new))
    record = {name: value for name, value in told["record"].items() if name != "samples_averaged"}
    with pytest.raises(InputError, match="its run record has no samples_averaged"):
        MMSB.load(of(record=record))


def test_files_that_are_no_models(fitted, tmp_path):
    path = fitted.save(tmp_path / "model.npz")
    whole = path.read_bytes()
    with pytest.raises(InputError, match="there is no file"):
        MMSB.load(tmp_path / "absent")
    for name, content in (("text", b"hello"), ("empty", b""), ("cut", whole[: len(whole) // 2])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="no model of mmsbgen"):
            MMSB.load(tmp_path / name)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(InputError, match="no model of mmsbgen"):
        MMSB.load(tmp_path / "other.npz")
    with pytest.raises(InputError, match="no model of mmsbgen"):
        MMSB.load(tmp_path)

    with pytest.raises(InputError, match=r"written by mmsbgen 99\.0, .* this is .*: load it with that version"):
        MMSB.load(changed(path, "meta", meta(format=3, version="99.0")))
    with pytest.raises(InputError, match="it is a cake"):
        MMSB.load(changed(path, "meta", meta(kind="cake")))
    for name, change in (
        ("links", lambda a: a[:-1]),
        ("links", lambda a: a + 100),
        ("ids", lambda a: a + 1),
        ("ids", lambda a: a.astype(object)),
        ("communities", lambda a: a + 20),
        ("shares", lambda a: a[:, :2]),
        ("cover_members", lambda a: a + 30),
        ("cover_sizes", lambda a: a[1:]),
        ("cover_background", lambda a: np.array([20])),
        ("calibration", lambda a: np.ones((2, 2))),
    ):
        with pytest.raises(InputError, match="no model of mmsbgen"):
            MMSB.load(changed(path, name, change))
    damaged = bytearray(whole)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("shares.npy").header_offset
    damaged[at + 200] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    with pytest.raises(InputError, match="damaged or no model"):
        MMSB.load(tmp_path / "damaged")


def test_saving_is_whole_or_not_at_all(fitted, tmp_path):
    class Odd:
        def __repr__(self) -> str:
            return "odd"

    thing = Odd()
    model = fast(3).fit([(thing, 1), (1, 2), (2, 3), (3, thing)])
    assert thing in model.ids_.tolist()
    (tmp_path / "before").write_text("mine")
    with pytest.raises(InputError, match="id odd is a .*Odd, which cannot be written to a file"):
        model.save(tmp_path / "before")
    assert (tmp_path / "before").read_text() == "mine"
    with pytest.raises(InputError, match="cannot write"):
        fitted.save(tmp_path / "before" / "below")
    assert [p.name for p in tmp_path.iterdir()] == ["before"]


def test_copies_and_pickles_have_chains_of_their_own(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = fast(3).fit(RING)
    (folder,) = tmp_path.iterdir()
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)]
    assert len(list(tmp_path.iterdir())) == 3, "a shallow copy shares its chain"
    expected = copy.deepcopy(model).partial_fit(iterations=2).memberships_
    del model
    for other in copies:
        assert np.array_equal(other.partial_fit(iterations=2).memberships_, expected)
    gc.collect()
    assert not folder.exists(), "the chain that nobody goes on from is gone"
    del copies, other
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_forked_process_leaves_the_chain_to_its_parent(tmp_path):
    """In an interpreter of its own, as forking a process with threads is no good."""
    code = (
        "import os, sys, numpy as np\n"
        "from mmsbgen.sampler.saved.saved_chain import SavedChain\n"
        "chain = SavedChain.new()\n"
        "chain.path.write_bytes(b'rows')\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "print(chain.written, len(os.listdir(sys.argv[1])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True 1\n"
    assert not list(tmp_path.iterdir()), "the parent has taken it away at its end"


def test_without_a_folder_for_the_chain_nothing_begins(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(InputError, match=r"no place for the chain .*TMPDIR.*keep_chain=False"):
        fast(3).fit(RING)
    assert fast(3, keep_chain=False).fit(RING).n_iter_ == 6


def test_a_fit_that_fails_leaves_no_chain_and_promises_none(monkeypatch, tmp_path):
    def ended(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("mmsbgen.detection.publish.cover", ended)
    with pytest.raises(KeyboardInterrupt) as raised:
        fast().fit(RING)
    assert not getattr(raised.value, "__notes__", ())
    del raised
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_without_room_for_the_chain_there_is_a_result(monkeypatch, tmp_path, capsys):
    from mmsbgen.sampler.saved import checkpoint

    def full(*args: Any) -> None:
        raise InputError("cannot write it: no space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    model = fast(3, verbose=True).fit(RING)
    assert model.n_iter_ == 6
    assert "Going on without a checkpoint: cannot write it: no space" in capsys.readouterr().err
    with pytest.raises(InputError, match="the chain was not kept"):
        model.partial_fit()
