from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from mmsbgen.backends.fake import FakeDevice
from mmsbgen.base.errors import InputError
from mmsbgen.db.exchange.jsonl import Bundle, lines
from mmsbgen.db.records.tuning_records import RunRecord, TrialRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.kernels.record_key import recorded_traits
from mmsbgen.kernels.render import render
from mmsbgen.kernels.runtime import look_up_key
from mmsbgen.service.device_list import Devices
from tests.records import program
from tests.service.running import MMSB, Service, device, key, records

BEST = "/api/v1/best"


def best(client: httpx.Client, of: str, *problem: str, kernel: str = "update_pi") -> httpx.Response:
    return client.get(BEST, params={"kernel": kernel, "device": of, "problem": list(problem)})


def test_it_is_alive_and_ready(client: httpx.Client) -> None:
    assert client.get("/health").json()["status"] == "ok"
    ready = client.get("/ready").json()
    assert (ready["status"], ready["database"]) == ("ready", "ok")
    metrics = client.get("/metrics").text
    assert 'mmsbgen_requests_total{method="GET",route="/health",status="200"}' in metrics
    assert "mmsbgen_ready 1.0" in metrics


def test_a_mistyped_parameter_is_refused(client: httpx.Client) -> None:
    found = client.get(BEST, params={"kernl": "update_pi", "device": "x", "kernel": "update_pi"})
    assert (found.status_code, found.json()["errors"][0]["where"]) == (422, "query.kernl")
    assert "no such parameter; there are kernel, " in found.json()["detail"]
    assert client.get("/health", params={"deep": 1}).status_code == 422


def test_devices(client: httpx.Client) -> None:
    found = client.get("/api/v1/devices").json()
    known = {one["name"]: one for one in found["known"]}
    assert known["Test GPU 0"]["key"] == device(0).key
    assert known["Test GPU 0"]["trials"] >= 121
    assert known["Test GPU 0"]["copy_gbps"] == 4000.0
    assert known["Test GPU 0"]["gather_gbps"] == {"4096": 3900.0}
    shipped = [one for one in found["known"] if one["name"] == "NVIDIA H200"]
    assert all(one["shipped"] and one["trials"] == 0 for one in shipped)
    # The shipped runs measured them: a GPU's copies are faster than its gathers of short rows.
    assert all(3000 < one["copy_gbps"] < 4800 for one in shipped)
    assert all(
        0 < one["gather_gbps"]["1024"] < one["gather_gbps"]["16384"] for one in shipped if one["driver"][-1] == ")"
    )


@pytest.mark.slow
def test_records_that_come_with_the_package_can_be_looked_at(client: httpx.Client) -> None:
    [h200] = [d for d in client.get("/api/v1/devices").json()["known"] if d["label"].startswith("cuda: NVIDIA H200")]
    shares = {}
    for kernel in ("init_pi", "update_pi", "update_beta"):
        answer = best(client, h200["key"], "K=1024", kernel=kernel).json()
        trial = client.get(f"/api/v1/trials/{answer['trial']}").json()
        assert (trial["device_key"], trial["kernel"], trial["configuration"]) == (
            h200["key"],
            kernel,
            answer["configuration"],
        )
        assert trial["roof_fraction"] == pytest.approx(trial["gbps"] / trial["roof_gbps"])
        shares[kernel] = trial["roof_fraction"]
    assert all(0 < share < 1.5 for share in shares.values()), shares
    assert client.get("/api/v1/trials", params={"device": "NVIDIA H200"}).json()["trials"] == [], "they are not ours"


@pytest.mark.parametrize(("k", "tier"), [(64, "exact"), (300, "problem")])
def test_the_best_configuration_is_what_a_run_would_take(
    service: Service, client: httpx.Client, k: int, tier: str
) -> None:
    answer = best(client, "Test GPU 1", f"K={k}").json()
    with open_store(service.database, read_only=True) as store:
        wanted = look_up_key(Index(store), key(device(1), K=k), recorded_traits(device(1)), MMSB, MMSB.problem(K=k))
    assert answer["configuration"] == wanted.config
    assert (answer["tier"], answer["reason"], answer["trial"]) == (tier, wanted.reason, wanted.trial_ref)
    assert answer["expected_s"] == wanted.expected_s
    assert (answer["device_key"], answer["problem"]["K"]) == (device(1).key, k)
    assert best(client, device(1).key, f"K={k}").json() == answer


def test_a_number_means_a_device_of_this_machine_and_never_a_part_of_a_name() -> None:
    devices = Devices()
    one = replace(FakeDevice().info, backend="opencl", index=0, name="skylake-avx512-AMD EPYC")
    other = replace(one, index=1, name="AMD EPYC", platform="another")
    devices.local = [other, one]
    devices.known = {known.key: known for known in (device(1), device(2))}
    assert [devices.target(text).info for text in ("0", "1", "AMD EPYC")] == [one, other, other]
    assert devices.target("GPU 2").record == device(2)
    for text in ("2", "512"):
        with pytest.raises(InputError, match=f"no device matches '{text}'"):
            devices.target(text)
    with pytest.raises(InputError, match="'epyc' may be several devices"):
        devices.target("epyc")


@pytest.mark.slow
def test_what_others_store_counts_soon(service: Service, client: httpx.Client) -> None:
    of = device(7, name=f"Fresh {time.time()}")
    with open_store(service.database) as store:
        run = RunRecord(strategy="random")
        store.begin_run(run)
        configs = MMSB.kernel("update_pi").space.configs(MMSB.problem(), recorded_traits(of))[:3]
        for place, config in enumerate(configs):
            extra, times = program(key(of), config), (1e-3 / (place + 1),)
            store.add_trial(
                TrialRecord(run=run.uuid, key=key(of), config=config, status="ok", times=times, extra=extra)
            )
            deadline = time.monotonic() + 15
            while (found := best(client, of.key)).status_code != 200 or found.json()["configuration"] != config:
                assert time.monotonic() < deadline, found.text
                time.sleep(0.1)


@pytest.mark.slow
def test_a_device_is_known_from_its_first_records_on(service: Service, client: httpx.Client) -> None:
    """Whichever kernel they are of, and whichever was looked up before."""
    stored, uploaded = (device(8 + n, name=f"New {n} {time.time()}") for n in range(2))
    run = RunRecord(strategy="random")
    trial = {"run": run.uuid, "config": {}, "status": "crashed", "message": "nothing that was ever looked up"}
    with open_store(service.database) as store:
        store.begin_run(run)
        store.add_trial(TrialRecord(key=key(stored, "theta_end"), **trial))
    deadline = time.monotonic() + 5
    while (found := best(client, stored.key)).status_code != 200:
        assert time.monotonic() < deadline, found.text
        time.sleep(0.1)
    assert best(client, stored.name).json()["device_key"] == stored.key
    body = "\n".join(lines(Bundle([run], [], [TrialRecord(key=key(uploaded, "theta_end"), **trial)], [])))
    assert client.post("/api/v1/records", content=body.encode()).status_code == 200
    assert best(client, uploaded.key).status_code == 200, "what is uploaded here counts at once"
    source = client.get("/api/v1/source", params={"kernel": "update_pi", "device": uploaded.key})
    assert source.status_code == 200


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kernel": "update_pj"}, "mmsb has no kernel 'update_pj'; did you mean update_pi"),
        ({"kernel": "update_pi", "family": "os"}, "no family 'os'"),
        ({"kernel": "update_pi", "problem": "K=0"}, "K=0 is outside 1 to"),
        ({"kernel": "update_pi", "problem": "K=nan"}, "K='nan' is not an integer"),
        ({"kernel": "update_pi", "problem": "Q=1"}, "mmsb has no parameter 'Q'"),
        ({"kernel": "update_pi", "problem": ["K=1", "K=2"]}, "the parameter K is given twice"),
        ({"kernel": "update_pi", "device": "0" * 32}, "no device has the key 000"),
        ({"kernel": "update_pi", "device": "Test GPU"}, "may be several devices"),
        ({"kernel": "update_pi", "device": "cuda:77"}, "nor is there a record of such a device"),
        ({"kernel": "block_strike", "device": "opencl:0"}, "is not written in opencl"),
        ({"kernel": "../../etc/passwd"}, "query.kernel: '../../etc/passwd' should match pattern"),
    ],
)
def test_what_cannot_be_looked_up_is_said(sqlite_service: Service, params: dict[str, object], message: str) -> None:
    with sqlite_service.client() as client:
        answer = client.get(BEST, params={"device": "Test GPU 0", **params})  # type: ignore[arg-type]
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert message in answer.json()["detail"]


def test_kernels_and_sources(sqlite_service: Service) -> None:
    with sqlite_service.client() as client:
        listed = client.get("/api/v1/kernels").json()
        assert [one["name"] for one in listed["kernels"]] == list(MMSB.kernels)
        (one,) = [one for one in listed["kernels"] if one["name"] == "update_phi"]
        assert [axis["name"] for axis in one["axes"]] == [a.name for a in MMSB.kernel("update_phi").space.axes]

        params = {"kernel": "update_pi", "device": "Test GPU 0", "problem": ["K=256"]}
        made = client.get("/api/v1/source", params=params).json()
        config = best(client, "Test GPU 0", "K=256").json()["configuration"]
        spec, traits = MMSB.kernel("update_pi"), recorded_traits(device(0))
        assert made["text"] == render(spec, MMSB.problem(K=256), config, traits).text
        assert made["selected"].startswith("exact: tuned for this device")

        params = {"kernel": "update_phi", "backend": "cuda", "axis": ["placement=SSS"]}
        made = client.get("/api/v1/source", params=params).json()
        assert made["configuration"]["placement"] == "SSS"
        assert "placement" not in made["filled"]
        assert 'extern "C"' in made["text"]
        refused = client.get("/api/v1/source", params={**params, "axis": ["placement=SSS", "team=item"]})
        assert (refused.status_code, "these axes do not go with the others" in refused.json()["detail"]) == (422, True)
        refused = client.get("/api/v1/source", params={"kernel": "update_pi", "axis": ["vector_width=3"]})
        assert (refused.status_code, "vector_width=3 is not one of" in refused.json()["detail"]) == (422, True)


def test_trials_a_page_at_a_time(service: Service, client: httpx.Client) -> None:
    with open_store(service.database, read_only=True) as store:
        wanted = [t.uid for t in store.trials(kernel="update_pi", device="Test GPU 0", problem={"K": 64})]
    params: dict[str, object] = {"kernel": "mmsb/update_pi", "device": "test gpu 0", "problem": "K=64", "limit": 13}
    found: list[str] = []
    while True:
        page = client.get("/api/v1/trials", params=params).json()  # type: ignore[arg-type]
        found += [trial["trial"] for trial in page["trials"]]
        if page["next"] is None:
            break
        assert len(page["trials"]) == 13
        params["cursor"] = page["next"]
    assert found == wanted
    one = client.get(f"/api/v1/trials/{wanted[0]}").json()
    assert (one["trial"], one["stale"], one["problem"]["K"]) == (wanted[0], False, 64)
    assert client.get(f"/api/v1/trials/{'0' * 32}").status_code == 404
    failed = client.get("/api/v1/trials", params={"status": "compile_error", "run": one["run"]}).json()["trials"]
    assert [trial["message"] for trial in failed] == ["error: no\nsecond line"]


def test_a_run_may_be_named_by_its_first_digits(service: Service, client: httpx.Client) -> None:
    same = "5a3e0000"
    with open_store(service.database) as store:
        long = store.runs()[-1].uuid
        for end in ("a", "b"):
            store.begin_run(RunRecord(uuid=f"{same}{end * 24}", strategy="random"))

    def of_run(text: str) -> httpx.Response:
        return client.get("/api/v1/trials", params={"run": text, "limit": 3})

    assert {trial["run"] for trial in of_run(long[:12]).json()["trials"]} == {long}
    assert of_run(same + "b").json()["trials"] == []
    for text, message in (
        (same, "may be several tuning runs, give more digits: 5a3e0000"),
        ("00000000dead", "there is no tuning run 00000000dead"),
        ("zzz", "'zzz' names no tuning run: give the first 8 digits"),
        (long[:7], "names no tuning run: give the first 8 digits"),
    ):
        answer = of_run(text)
        assert (answer.status_code, message in answer.json()["detail"]) == (404, True), answer.text


def test_the_page_needs_no_other_host(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page.text)
    for path in ("/../pyproject.toml", "/%2e%2e/%2e%2e/pyproject.toml", "/..%2f..%2f__init__.py", "//etc/passwd"):
        assert client.get(path).status_code == 404, path


def test_records_are_added_all_or_nothing(service: Service, client: httpx.Client, tmp_path: Path) -> None:
    run = RunRecord(strategy="random")
    bundle = records(run, devices=1, most=5, sizes=(77,))
    with open_store(tmp_path / "other.sqlite3") as store:
        store.add_bundle(bundle)
        store.export_jsonl(tmp_path / "r.jsonl.gz")
        store.export_jsonl(tmp_path / "r.jsonl")
    plain, packed = (tmp_path / "r.jsonl").read_bytes(), (tmp_path / "r.jsonl.gz").read_bytes()

    def post(body: bytes, **params: object) -> httpx.Response:
        return client.post("/api/v1/records", content=body, params=params)  # type: ignore[arg-type]

    checked = post(plain, dry_run=True)
    assert (checked.json()["trials"], checked.json()["of_trials"]) == (0, 6)
    lines = plain.splitlines(keepends=True)
    for wrong, message in (
        (b"".join([*lines[:-1], lines[-1].replace(b'"round":0', b'"round":NaN')]), f"line {len(lines)}"),
        (b"".join(lines[:-1]), "cut short"),
        (b"".join([*lines[:-1], b'{"type":"trial"}\n']), f"the upload, line {len(lines)}"),
        (packed[:-20], "cut off"),
        (b"", "empty"),
    ):
        refused = post(wrong)
        assert (refused.status_code, message in refused.json()["detail"]) == (422, True), refused.text
    assert client.get("/api/v1/trials", params={"run": run.uuid}).status_code == 404, "nothing was added"
    assert best(client, "Test GPU 0", "K=77").json()["tier"] == "problem"
    added = post(packed)
    assert added.json() == {"runs": 1, "roofs": 2, "trials": 6, "quarantined": 0, "of_trials": 6}
    assert best(client, "Test GPU 0", "K=77").json()["tier"] == "exact", "the next look-up knows them"
    assert post(plain).json()["trials"] == 0
    assert not list((service.data / "uploads").iterdir())
