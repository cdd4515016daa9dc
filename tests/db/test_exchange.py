from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmsbgen.base.errors import InputError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import (
    TRIAL_STATUSES,
    DeviceRecord,
    KernelRecord,
    Key,
    ProblemRecord,
    RoofRecord,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
)
from mmsbgen.db.store.tuning_store import Store, open_store

any_text = st.text(st.characters(exclude_categories=[]), max_size=8)
texts = st.text(max_size=4)
counts = st.integers(0, 2**63 - 1)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
json_objects = st.dictionaries(
    texts, st.recursive(st.none() | st.booleans() | numbers | texts, lambda x: st.lists(x, max_size=2)), max_size=3
)
configs = st.dictionaries(texts, st.booleans() | st.integers() | texts, max_size=3)
moments = st.datetimes().map(lambda moment: moment.isoformat() + "+00:00")
seconds = st.floats(1e-12, 1e8)

devices = st.builds(
    DeviceRecord,
    backend=st.sampled_from(["opencl", "cuda"]),
    platform=texts,
    vendor=any_text,
    name=any_text,
    architecture=texts,
    driver=texts,
    kind=st.sampled_from(["cpu", "gpu"]),
    compute_units=counts,
    memory_bytes=counts,
    extra=json_objects,
)
runs = st.builds(
    RunRecord,
    uuid=st.uuids().map(lambda u: u.hex),
    started=moments,
    finished=st.none() | moments,
    strategy=any_text,
    budget=json_objects,
    seed=counts,
    host=texts,
    versions=json_objects,
    status=st.sampled_from(["running", "finished", "interrupted", "failed"]),
    extra=json_objects,
)


@st.composite
def bundles(draw: st.DrawFn) -> Bundle:
    some_runs = draw(st.lists(runs, min_size=1, max_size=3, unique_by=lambda r: r.uuid))
    some_devices = draw(st.lists(devices, min_size=1, max_size=3, unique_by=lambda d: d.key))
    run_names = st.sampled_from([run.uuid for run in some_runs])
    keys = st.builds(
        Key,
        st.sampled_from(some_devices),
        st.builds(ToolchainRecord, texts, texts, texts),
        st.builds(KernelRecord, texts, texts, texts),
        st.builds(ProblemRecord, texts, json_objects),
    )
    roofs = st.builds(
        RoofRecord,
        run=run_names,
        device=st.sampled_from(some_devices),
        kind=st.sampled_from(["gather", "counts in 2 MiB"]),
        row_bytes=counts,
        gbps=st.floats(1e-9, 1e9),
        measured_at=moments,
    )
    trials = st.builds(
        TrialRecord,
        run=run_names,
        key=keys,
        config=configs,
        status=st.sampled_from(TRIAL_STATUSES),
        message=any_text,
        times=st.lists(seconds, min_size=1, max_size=4).map(tuple),
        bytes_moved=st.none() | counts,
        roof_gbps=st.none() | st.floats(1e-9, 1e9),
        registers=st.none() | counts,
        spill_bytes=st.none() | counts,
        shared_bytes=st.none() | counts,
        compile_s=st.none() | st.floats(0, 1e9),
        energy_j=st.none() | st.floats(0, 1e9),
        round=st.integers(0, 3),
        extra=json_objects,
        created_at=moments,
    )
    return Bundle(
        runs=some_runs,
        roofs=draw(st.lists(roofs, max_size=3, unique_by=lambda r: r.uid)),
        trials=draw(st.lists(trials, max_size=5, unique_by=lambda t: t.uid)),
    )


def text_of(bundle: Bundle) -> list[str]:
    return list(jsonl.lines(bundle))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bundle=bundles())
def test_what_is_written_is_read(bundle: Bundle) -> None:
    wanted = text_of(bundle)
    back = jsonl.parse((line.encode() + b"\n" for line in wanted), "memory")
    assert sorted(back.trials, key=lambda t: t.uid) == sorted(bundle.trials, key=lambda t: t.uid)
    assert sorted(back.roofs, key=lambda r: r.uid) == sorted(bundle.roofs, key=lambda r: r.uid)
    assert sorted(back.runs, key=lambda r: r.uuid) == sorted(bundle.runs, key=lambda r: r.uuid)
    assert text_of(back) == wanted


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(bundle=bundles())
def test_round_trip_through_databases(bundle: Bundle, tmp_path: Path) -> None:
    with open_store("sqlite://") as one, open_store("sqlite://") as two:
        assert one.add_bundle(bundle) == len(bundle.trials)
        assert text_of(one.bundle()) == text_of(bundle)
        assert one.export_jsonl(tmp_path / "one.jsonl") == len(bundle.trials)
        assert two.import_jsonl(tmp_path / "one.jsonl") == len(bundle.trials)
        assert two.import_jsonl(tmp_path / "one.jsonl") == 0
        two.export_jsonl(tmp_path / "two.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    for trial in bundle.trials:
        assert all(value is None or math.isfinite(value) for value in (trial.median_s, trial.spread_s, trial.gbps))


@pytest.mark.postgres
def test_round_trip_through_postgres(postgres_url: str) -> None:
    with open_store(postgres_url) as store:

        @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(bundle=bundles())
        def check(bundle: Bundle) -> None:
            before = {trial.uid for trial in store.trials()}
            added = {trial.uid for trial in bundle.trials} - before
            assert store.add_bundle(bundle) == len(added)
            assert store.add_bundle(bundle) == 0
            found = {trial.uid: trial for trial in store.trials()}
            assert all(found[t.uid].times == t.times and found[t.uid].config == t.config for t in bundle.trials)

        check()


@pytest.fixture
def exported(store: Store, make: Any, tmp_path: Path) -> list[str]:
    """The lines of a small export."""
    store.add_trial(make.trial())
    store.add_trial(make.trial(config={"n": 1}, status="crashed", time=None, message="signal 11"))
    store.add_roofs([RoofRecord(run=make.run.uuid, device=make.device(), kind="copy", gbps=4.0)])
    store.export_jsonl(tmp_path / "e.jsonl")
    return (tmp_path / "e.jsonl").read_text().splitlines()


def test_packed_and_plain_hold_the_same(memory: Store, make: Any, tmp_path: Path) -> None:
    memory.add_trial(make.trial())
    memory.export_jsonl(tmp_path / "e.jsonl")
    memory.export_jsonl(tmp_path / "e.jsonl.gz")
    assert gzip.decompress((tmp_path / "e.jsonl.gz").read_bytes()) == (tmp_path / "e.jsonl").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.jsonl", "e.jsonl.gz"]
    with open_store("sqlite://") as other:
        assert other.import_jsonl(tmp_path / "e.jsonl.gz") == 1


def change(lines: list[str], kind: str, **values: Any) -> list[str]:
    changed = []
    for line in lines:
        entry = json.loads(line)
        if entry.get("type") == kind:
            entry |= values
        changed.append(json.dumps(entry))
    return changed


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: lines[1:], "line 1: .*must name the format"),
        (lambda lines: ['{"format":"mmsbgen-tuning","version":3}'], "line 1: format version 3 is not known"),
        (lambda lines: lines[:-1], "cut short: it has 1 of 2 trials"),
        (lambda lines: [*lines[:-1], lines[-1][:30]], "line 9: "),
        (lambda lines: [*lines, "[1, 2]"], "line 10: a JSON object"),
        (lambda lines: [*lines, '{"type": "surprise"}'], "line 10: unknown type 'surprise'"),
        (lambda lines: [line for line in lines if '"type":"device"' not in line], "no earlier line has the device"),
        (lambda lines: [line for line in lines if '"type":"run"' not in line], "no earlier line has the run"),
        (lambda lines: change(lines, "device", driver="2"), "line 2: the key of this device does not match"),
        (lambda lines: change(lines, "trial", status="good"), "line 8: status must be one of"),
        (lambda lines: change(lines, "trial", times=[math.nan]), "line 8: NaN is not a number"),
        (lambda lines: change(lines, "trial", times="x"), "line 8: "),
        (lambda lines: change(lines, "trial", times=None), "line 8: "),
        (lambda lines: change(lines, "trial", config=3), "line 8: config must be a mapping"),
        (lambda lines: change(lines, "trial", registers=[]), "line 8: registers"),
        (
            lambda lines: change(lines, "trial", config={"block": 8.0}),
            "line 8: block=8.0 of the .* is a float",
        ),
        (
            lambda lines: change(lines, "trial", config={"block": [1]}),
            "line 8: block=.1. of the .* is a list",
        ),
        (lambda lines: change(lines, "trial", config={"block": None}), "line 8: block=None of the "),
        (lambda lines: change(lines, "trial", created_at=5), "line 8: "),
        (lambda lines: change(lines, "trial", surprise=1), "line 8: unknown field 'surprise'"),
        (lambda lines: change(lines, "run", uuid=5), "line 6: "),
        (lambda lines: change(lines, "roof", gbps="fast"), "line 7: "),
    ],
)
def test_malformed_files_change_nothing(
    memory: Store, exported: list[str], tmp_path: Path, break_it: Any, message: str
) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text("\n".join(break_it(exported)))
    before = text_of(memory.bundle())
    with pytest.raises(InputError, match=message) as refused:
        memory.import_jsonl(path)
    assert "broken.jsonl" in str(refused.value)
    assert text_of(memory.bundle()) == before


def test_files_that_cannot_be_read_or_written(memory: Store, make: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.jsonl: no such file; check the path"):
        memory.import_jsonl(tmp_path / "nothing.jsonl")
    with pytest.raises(InputError, match=r"cannot write .*: No such file"):
        memory.export_jsonl(tmp_path / "no" / "folder.jsonl")
    memory.add_trial(make.trial())
    memory.export_jsonl(tmp_path / "e.gz")
    (tmp_path / "cut.gz").write_bytes((tmp_path / "e.gz").read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged or cut-off gzip"):
        memory.import_jsonl(tmp_path / "cut.gz")
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"line 1: .*utf-8"):
        memory.import_jsonl(tmp_path / "latin")


def test_import_ends_a_run_that_was_still_running(memory: Store, make: Any) -> None:
    ended = RunRecord(uuid=UUID(int=1).hex, strategy="exhaustive", status="finished", finished="2026-01-01T00:00:00Z")
    assert [run.status for run in memory.runs()] == ["running"]
    memory.add_bundle(Bundle(runs=[ended]))
    (run,) = memory.runs()
    assert run.status == "finished"
    assert run.host == make.run.host
    memory.add_bundle(Bundle(runs=[make.run]))
    assert [run.status for run in memory.runs()] == ["finished"]
