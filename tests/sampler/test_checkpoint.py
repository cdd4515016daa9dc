"""Resuming bit for bit, and files that are no use."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import platform
import shutil
import zipfile

import numpy as np
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.kernels.record_key import toolchain_record
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.run.run import run
from mmsbgen.sampler.saved import checkpoint as checkpoints

MODES = [
    {"mini_batch": "random-node", "average": True, "partners": "stratified"},
    {"mini_batch": "random-node", "average": True, "partners": "shared"},
    {"mini_batch": "random-node", "average": True, "partners": "shared-uniform"},
    {"mini_batch": "random-node", "average": True, "storage": "bfloat16"},
    {"mini_batch": "random-node", "storage": "float16", "start": "communities", "average": True},
    {"mini_batch": "block", "average": True, "mini_batch_size": 17},
    {"mini_batch": "block", "average": True, "mini_batch_size": 17, "noise": None, "start": "random"},
]


def go(sampler, trace, until=None, before=0.0):
    """Run to the end, or have the run stopped after the iteration ``until``."""
    stop = StopRequest()

    def watch(running, _):
        stop.count = int(running.iteration == until)

    return run(sampler, trace, on_progress=watch, stop=stop, seconds_before=before)


def everything(sampler):
    n = sampler.split.graph.n_vertices
    return {
        **dict(zip(("pi", "row_sums"), sampler.rows(0, n), strict=True)),
        "mean": sampler.rows(0, n, mean=True)[0],
        "theta": sampler.state.theta(),
        "beta": sampler.state.beta(),
        "beta_sum": sampler.chain.beta_sum,
        "beta_squares": sampler.chain.beta_squares,
        **({"sd": sampler.moments(0, n)[1]} if sampler.chain.averaged > 1 and sampler.options.keeps_spread else {}),
        **({} if sampler.draws is None else sampler.draws.saved()),
        "published": sampler.chain.published_sum,
        "sums": sampler.device.download(sampler.held_values["sums"]),
        "counters": np.array([getattr(sampler.chain, name) for name in checkpoints.COUNTERS]),
    }


def plain(trace):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in trace]


@pytest.fixture
def saved(processor, chain, middling, tmp_path):
    """A checkpoint after 20 of 40 iterations."""
    sampler = chain(processor, middling, iterations=40)
    sampler.initialise()
    trace: list = []
    go(sampler, trace, 20)
    checkpoints.save(tmp_path / "checkpoint.npz", sampler, trace, 1.5)
    return tmp_path / "checkpoint.npz"


@pytest.mark.parametrize(
    "options",
    MODES,
    ids=lambda o: " ".join(str(o.get(name, "")) for name in ("mini_batch", "partners", "storage")).strip(),
)
def test_a_stopped_run_goes_on_bit_for_bit(processor, chain, middling, tmp_path, options):
    options = {"iterations": 40, "evaluate_every": 3, "burn_in": 0.2, **options}
    straight = chain(processor, middling, **options)
    straight.initialise()
    whole: list = []
    go(straight, whole)

    stopped, trace = chain(processor, middling, **options), []
    stopped.initialise()
    seconds = go(stopped, trace, 20)
    assert stopped.iteration == 20
    assert stopped.chain.averaged > 0
    assert stopped.chain.samples > 0
    assert (stopped.draws is None) == (options.get("noise", True) is None)
    assert stopped.draws is None or len(stopped.draws.draws()) > 1
    path = tmp_path / "checkpoint.npz"
    checkpoints.save(path, stopped, trace, seconds)
    before = everything(stopped)

    there = checkpoints.load(path)
    resumed = chain(
        processor, middling, **{f.name: getattr(there.options, f.name) for f in dataclasses.fields(Options)}
    )
    assert checkpoints.differences(there, resumed) == []
    checkpoints.restore(there, resumed)
    for name, value in everything(resumed).items():
        assert np.array_equal(value, before[name]), name
    trace = there.trace
    assert go(resumed, trace, before=seconds) >= seconds
    for name, value in everything(resumed).items():
        assert np.array_equal(value, everything(straight)[name]), name
    assert plain(trace) == plain(whole)


@pytest.mark.parametrize("every_seconds", [300.0, -1.0], ids=["at the end", "periodic"])
def test_a_finished_run_goes_on_as_if_it_had_not_ended(processor, chain, middling, tmp_path, every_seconds):
    """Its last evaluation, at iteration 10, is one that a longer run does not make."""
    options = {"evaluate_every": 4, "burn_in_iterations": 3, "average": True}

    def go_on(iterations, path=None):
        sampler, trace, seconds = chain(processor, middling, iterations=iterations, **options), [], 0.0
        if path is None:
            sampler.initialise()
        else:
            there = checkpoints.load(path)
            checkpoints.restore(there, sampler)
            trace, seconds = there.trace, there.meta["seconds"]

        def keep(*state):
            checkpoints.save(tmp_path / f"{iterations}.npz", *state)

        run(
            sampler,
            trace,
            on_checkpoint=keep,
            checkpoint_seconds=every_seconds,
            checkpoint_at_end=every_seconds > 0,
            seconds_before=seconds,
        )
        return everything(sampler), plain(trace)

    short, short_trace = go_on(10)
    again, again_trace = go_on(10, tmp_path / "10.npz")
    more, more_trace = go_on(18, tmp_path / "10.npz")
    straight, straight_trace = go_on(18)
    assert [row["iteration"] for row in short_trace] == [0, 4, 8, 10]
    assert [row["samples"] for row in short_trace] == [1, 1, 2, 3]
    assert [row["iteration"] for row in straight_trace] == [0, 4, 8, 12, 16, 18]
    assert (again_trace, more_trace) == (short_trace, straight_trace)
    for name, value in straight.items():
        assert np.array_equal(again[name], short[name]), name
        assert np.array_equal(more[name], value), name


def test_another_configuration_is_said(processor, chain, middling, saved):
    there = checkpoints.load(saved)
    config = there.configs["update_phi"] | {"vector_width": 2}
    sampler = chain(processor, middling, {"update_phi": config}, iterations=40)
    assert checkpoints.differences(there, sampler) == ["update_phi configuration"]
    checkpoints.restore(there, sampler)
    go(sampler, there.trace)
    assert sampler.iteration == 40


def test_another_device_is_said(processor, chain, middling, saved):
    there = checkpoints.load(saved)
    there.meta["fingerprint"]["device"] = "cuda NVIDIA something"
    there.meta["fingerprint"]["driver"] = "550"
    changed = checkpoints.differences(there, chain(processor, middling, iterations=40))
    assert changed == ["device", "driver"]


def test_what_the_future_of_a_chain_depends_on_is_kept(opencl_device, chain, middling):
    """Leiden's library where communities are refined, the compiler's options, and all that the platform tells."""
    stars = checkpoints.fingerprint(chain(opencl_device, middling))
    refining = checkpoints.fingerprint(chain(opencl_device, middling, mini_batch="block", noise=None))
    there = {"networkit": importlib.metadata.version("networkit"), "python": platform.python_version()}
    assert {name: refining.get(name) for name in there} == there
    assert not there.keys() & stars.keys(), "they draw nothing on the host but by NumPy"
    info = opencl_device.info
    for found in (stars, refining):
        assert found["compiler options"] == toolchain_record(info).options
        assert found["platform version"] == info.platform_version
    if "Portable" in info.platform:
        assert "LLVM" in info.platform_version


def test_a_checkpoint_from_before_an_entry_is_not_resumed_bit_for_bit(processor, chain, middling, saved):
    meta = checkpoints.load(saved).meta
    older = {name: text for name, text in meta["fingerprint"].items() if name != "platform version"}
    rewrite(saved, fingerprint=older)
    sampler = chain(processor, middling, iterations=40)
    assert checkpoints.differences(checkpoints.load(saved), sampler) == ["platform version"]


def rewrite(path, **changes):
    """Exchange values of the description."""
    with np.load(path) as archive:
        arrays = dict(archive)
    meta = json.loads(arrays["meta"].tobytes())
    for name, value in changes.items():
        if value is None:
            del meta[name]
        else:
            meta[name] = value
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(path, **arrays)


def test_files_that_are_no_checkpoint(processor, chain, middling, tmp_path):
    sampler = chain(processor, middling)
    sampler.initialise()
    good = tmp_path / "good.npz"
    checkpoints.save(good, sampler, [], 0.0)
    bad = tmp_path / "bad.npz"

    with pytest.raises(InputError, match="there is no checkpoint"):
        checkpoints.load(tmp_path / "absent.npz")
    with pytest.raises(InputError, match=r"no checkpoint of mmsbgen"):
        checkpoints.load(tmp_path)
    np.save(tmp_path / "array.npy", np.zeros(3))
    for content in (b"", b"PK", b"hello" * 1000, (tmp_path / "array.npy").read_bytes()):
        bad.write_bytes(content)
        with pytest.raises(InputError, match=r"bad\.npz is damaged or no checkpoint"):
            checkpoints.load(bad)
    np.savez(bad, pi=np.zeros(3))
    with pytest.raises(InputError, match="no checkpoint of mmsbgen"):
        checkpoints.load(bad)
    whole = good.read_bytes()
    for size in (len(whole) // 3, len(whole) - 30):
        bad.write_bytes(whole[:size])
        with pytest.raises(InputError, match="damaged"):
            checkpoints.load(bad)

    shutil.copy(good, bad)
    rewrite(bad, format=99, version="9.9", graph=None)
    with pytest.raises(InputError, match=r"written by mmsbgen 9\.9"):
        checkpoints.load(bad)
    for changes in ({"trace": None}, {"options": {"n_communities": 0, "eta": [1, 1]}}, {"iteration": "many"}):
        shutil.copy(good, bad)
        rewrite(bad, **changes)
        with pytest.raises(InputError):
            checkpoints.load(bad)


NAN, INF = float("nan"), float("inf")
FORGED = [
    ("seconds", NAN), ("seconds", -1.0), ("seconds", "x"), ("iteration", -1), ("iteration", 1.5), ("iteration", True),
    ("averaged", 10**30), ("samples", "7"), ("graph", 7), ("graph_name", None), ("version", {}), ("options", []),
    ("options", {"n_communities": 5}), ("trace", [NAN]), ("trace", [{}]), ("trace", {}), ("course", {"pruned": [1]}),
    ("course", {"pruned": {}}), ("course", {"end": "x"}), ("course", {"end": -1}), ("course", {"clock_at": {"a": 1}}),
    ("course", {"clock_from": 10**9}), ("course", {"refinements": [3]}), ("course", {"refinements": [{"filled": 1}]}),
    ("course", {"start": 5}), ("course", {"trials": "x"}), ("course", {"surprise": 1}), ("fingerprint", {"device": 7}),
    ("kernels", {"update_phi": 3}), ("kernels", {"update_phi": {}}), ("kernels", {"update_phi": {"config": None}}),
    ("kernels", {"update_phi": {"config": "x"}}), ("kernels", {"update_phi": {"config": {"block_size": [1]}}}),
    ("stage_seconds", {"theta": NAN}), ("stage_seconds", {"theta": "x"}), ("format", [2]), ("kept", "x"),
    ("held_out", {"validation": 3}), ("held_out", {"validation": 3, "test": -1}), ("held_out", 3),
]  # fmt: skip


def test_forged_descriptions(processor, chain, middling, tmp_path):
    """Archives with valid checksums whose entries are of other types, not finite, or out of range."""
    sampler = chain(processor, middling)
    sampler.initialise()
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    checkpoints.save(good, sampler, [], 0.0)
    for name, value in FORGED:
        shutil.copy(good, bad)
        rewrite(bad, **{name: value})
        with pytest.raises(InputError, match=r"bad\.npz"):
            checkpoints.load(bad)
    for content in (b"[" * 100_000, b"[2]", b"7", b"\xff", b""):
        with np.load(good) as archive:
            arrays = dict(archive)
        np.savez(bad, **arrays | {"meta": np.frombuffer(content, np.uint8)})
        with pytest.raises(InputError, match=r"bad\.npz"):
            checkpoints.load(bad)
    np.savez_compressed(bad, **arrays)
    with pytest.raises(InputError, match=r"bad\.npz.*compressed"):
        checkpoints.load(bad)


def leaves(value, place=()):
    """The places of all values in a description."""
    yield place
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*place, key))


@pytest.mark.slow
def test_any_changed_description_is_refused_or_works(processor, chain, middling, tmp_path):
    options = {"iterations": 12, "evaluate_every": 3, "average": True}
    sampler, trace = chain(processor, middling, **options), []
    sampler.initialise()
    go(sampler, trace, 9)
    path = tmp_path / "c.npz"
    checkpoints.save(path, sampler, trace, 1.0)
    with np.load(path) as archive:
        arrays = dict(archive)
    text = arrays["meta"].tobytes()
    places = [place for place in leaves(json.loads(text)) if place]
    rng, taken = np.random.default_rng(0), 0
    for place in (places[i] for i in rng.permutation(len(places))[:150]):
        meta = json.loads(text)
        *path_to, last = place
        at = functools.reduce(lambda value, key: value[key], path_to, meta)
        at[last] = [None, -1, 7, 10**30, 1.5, NAN, True, "x", [1], {"a": 1}][rng.integers(10)]
        np.savez(path, **arrays | {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)})
        try:
            there = checkpoints.load(path)
            checkpoints.differences(there, sampler)
            checkpoints.restore(there, sampler)
        except InputError:
            continue
        taken += 1
        run(sampler, there.trace, seconds_before=there.meta["seconds"])
    assert 0 < taken < 75


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("pi", lambda a: a * NAN, "pi"),
        ("pi", lambda a: np.where(np.arange(len(a))[:, None] == 59, NAN, a).astype(a.dtype), "pi"),
        ("pi", lambda a: -a, "pi"),
        ("pi", lambda a: 2 * a, "pi"),
        ("pi", lambda a: a.astype(np.float64), "pi"),
        ("mean", lambda a: a * INF, "mean"),
        ("mean", lambda a: a * 0, "mean"),
        ("row_sums", lambda a: a * NAN, "row_sums"),
        ("row_sums", lambda a: a * 0, "row_sums"),
        ("row_sums", lambda a: a.astype("U8"), "row_sums"),
        ("theta", lambda a: -a, "theta"),
        ("theta", lambda a: a.astype(complex), "theta"),
        ("beta", lambda a: a + 2, "beta"),
        ("sums", lambda a: a - 5, "sums"),
        ("sums", lambda a: a + 100, "sums"),
        ("published_sum", lambda a: a * NAN, "published_sum"),
        ("beta_sum", lambda a: a + 100, "beta_sum"),
        ("beta_sum", lambda a: a.astype(object), "beta_sum|Object arrays"),
    ],
)
def test_forged_arrays(processor, chain, middling, tmp_path, name, change, said):
    """Archives with valid checksums whose numbers no chain has."""
    sampler, trace = chain(processor, middling, iterations=10, average=True), []
    sampler.initialise()
    go(sampler, trace, 9)
    path = tmp_path / "c.npz"
    checkpoints.save(path, sampler, trace, 0.0)
    with np.load(path) as archive:
        arrays = dict(archive)
    with np.errstate(invalid="ignore"):
        np.savez(path, **arrays | {name: change(arrays[name])})
    with pytest.raises(InputError, match=rf"c\.npz is no checkpoint .*({said})"):
        checkpoints.restore(checkpoints.load(path), sampler)


@pytest.mark.parametrize("name", ["pi", "row_sums", "theta", "beta", "sums", "published_sum"])
def test_flipped_bits_and_missing_arrays(processor, chain, middling, tmp_path, name):
    sampler = chain(processor, middling)
    sampler.initialise()
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    checkpoints.save(good, sampler, [], 0.0)
    content = bytearray(good.read_bytes())
    with zipfile.ZipFile(good) as archive:
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as member:
            inside = member.read()
    at = bytes(content).index(inside) + len(inside) - 2
    content[at] ^= 0x10
    bad.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        checkpoints.restore(checkpoints.load(bad), sampler)
    with np.load(good) as archive:
        arrays = dict(archive)
    del arrays[name]
    np.savez(bad, **arrays)
    with pytest.raises(InputError, match="no checkpoint"):
        checkpoints.restore(checkpoints.load(bad), sampler)
    arrays[name] = np.zeros((2, 3, 4), np.float32)
    np.savez(bad, **arrays)
    with pytest.raises(InputError, match=name):
        checkpoints.restore(checkpoints.load(bad), sampler)


def test_another_graph(processor, chain, middling, awkward, tmp_path):
    sampler = chain(processor, middling)
    sampler.initialise()
    checkpoints.save(tmp_path / "c.npz", sampler, [], 0.0)
    with pytest.raises(InputError, match="another graph"):
        checkpoints.restore(checkpoints.load(tmp_path / "c.npz"), chain(processor, awkward))


@pytest.mark.parametrize("error", [RuntimeError("crash"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_crash_while_writing_leaves_the_older_checkpoint(processor, chain, middling, tmp_path, monkeypatch, error):
    sampler = chain(processor, middling)
    sampler.initialise()
    path = tmp_path / "c.npz"
    checkpoints.save(path, sampler, [], 0.0)
    older = path.read_bytes()
    sampler.step()

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(sampler, "rows", fail)
    with pytest.raises(InputError if isinstance(error, OSError) else type(error)):
        checkpoints.save(path, sampler, [], 0.0)
    assert path.read_bytes() == older
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]
    assert checkpoints.load(path).meta["iteration"] == 0
