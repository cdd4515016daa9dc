from __future__ import annotations

import gzip
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.jobs.queue import Queue
from mmsbgen.service.detections import DetectionViews
from tests.devices import PROCESSOR
from tests.service.running import Service, serving

GRAPH = Path(__file__).parents[1] / "data" / "netscience.txt.gz"
DETECT = "/api/v1/jobs/detect"
EDGES = b"1 2\n2 3\n1 3\n3 4\n"


def ended(client: httpx.Client, job: str, seconds: float = 90) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while True:
        found: dict[str, Any] = client.get(f"/api/v1/jobs/{job}").json()
        if found["state"] in ("done", "failed", "cancelled"):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def followed(client: httpx.Client, job: str, last: int | None = None) -> Iterator[dict[str, Any]]:
    """The events of a job until its end."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with client.stream("GET", f"/api/v1/jobs/{job}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        event: dict[str, Any] = {}
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name in ("id", "event", "data"):
                event[name] = json.loads(value) if name == "data" else value
            elif not line and "data" in event:
                yield event
                event = {}


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a worker beside it, as one command gives it."""
    folder = tmp_path_factory.mktemp("working")
    options = ("--workers", "1", "--worker-device", PROCESSOR, "--write-rate", "10000/second")
    with serving(str(folder / "jobs.sqlite3"), folder / "data", *options) as service:
        yield service


@pytest.mark.opencl
def test_a_detection_from_upload_to_results(working: Service) -> None:
    with working.client() as client:
        options = {"n_communities": 20, "iterations": 30, "seed": 1, "name": "netscience"}
        with GRAPH.open("rb") as file:
            answer = client.post(DETECT, params=options, files={"graph": ("../../x/graph.txt.gz", file)})
        assert answer.status_code == 202, answer.text
        made = answer.json()
        assert (made["vertices"], made["links"]) == (1461, 2742)
        events = list(followed(client, made["id"]))
        assert [e["data"]["state"] for e in events if e["event"] == "state"] == ["queued", "running", "done"]
        assert [e["event"] for e in events][-1] == "end"
        assert any(e["event"] == "progress" for e in events)
        numbers = [int(event["id"]) for event in events]
        assert numbers == sorted(numbers)
        assert [e["id"] for e in followed(client, made["id"], numbers[1])] == [e["id"] for e in events[2:]]
        url = f"/api/v1/jobs/{made['id']}"
        assert client.get(f"{url}/events", headers={"Last-Event-ID": str(numbers[-1])}).status_code == 204

        job = client.get(url).json()
        assert (job["state"], job["attempt"], job["kind"]) == ("done", 1, "detect")
        files = {name: client.get(f"{url}/files/{name}").content for name in job["outputs"]}
        assert {name: len(data) for name, data in files.items()} == {n: o["bytes"] for n, o in job["outputs"].items()}
        lines = [line.split("\t") for line in files["communities.txt"].decode().splitlines()]
        record = json.loads(files["run.json"])
        assert record["graph"]["name"] == "netscience"
        with np.load(io.BytesIO(files["memberships.npz"])) as archive:
            beta, ids = archive["beta"], archive["ids"]

        result = client.get(f"{url}/result").json()
        assert [c["size"] for c in result["communities"]] == [len(line) for line in lines]
        assert [c["strength"] for c in result["communities"]] == pytest.approx(beta[: len(lines)].tolist())
        assert result["trace"] == record["trace"]
        overlap = {frozenset((a, b)): n for a, b, n in result["shared"]}
        for a, b in ((0, 1), (0, 2), (3, 4)):
            assert overlap.get(frozenset((a, b)), 0) == len(set(lines[a]) & set(lines[b]))
        members, after = [], 0
        while after is not None:
            page = client.get(f"{url}/communities/0", params={"offset": after, "limit": 7}).json()
            members += page["members"]
            after = page["next"]
        assert [member["id"] for member in members] == lines[0]
        assert members[0]["id"] in map(str, ids.tolist())
        vertex = client.get(f"{url}/vertices", params={"id": members[0]["id"]}).json()
        shares = dict(map(tuple, vertex["memberships"]))
        assert shares[0] == members[0]["share"]
        assert sum(shares.values()) == pytest.approx(1)
        assert set(shares) == {number for number, line in enumerate(lines) if vertex["id"] in line}
        assert client.get(f"{url}/vertices", params={"id": "nobody"}).status_code == 404
        assert client.get(f"{url}/communities/{len(lines)}").status_code == 422
        assert client.get(f"{url}/files/other.txt").status_code == 404

        assert client.delete(url).status_code == 204
        assert client.get(url).status_code == 404


@pytest.mark.opencl
def test_a_tune_adds_trials(working: Service) -> None:
    with working.client() as client:
        wanted = {"kernels": ["update_pi"], "problem": {"K": 64, "N": 4096, "m": 256}, "budget_trials": 3}
        answer = client.post("/api/v1/jobs/tune", json=wanted)
        assert answer.status_code == 202, answer.text
        job = ended(client, answer.json()["id"])
        assert job["state"] == "done", job
        assert job["payload"] == wanted
        page = client.get("/api/v1/trials", params={"kernel": "update_pi", "limit": 500}).json()
        assert {trial["run"] for trial in page["trials"]} == {job["result"]["run"]}
        deadline = time.monotonic() + 15
        params = {"kernel": "update_pi", "device": PROCESSOR, "problem": ["K=64", "N=4096", "m=256"]}
        while client.get("/api/v1/best", params=params).json()["tier"] != "exact":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert client.get(f"/api/v1/jobs/{job['id']}/result").status_code == 422


@pytest.mark.opencl
def test_a_running_job_is_cancelled(working: Service) -> None:
    with working.client() as client:
        options = {"n_communities": 64, "iterations": 2**31}
        made = client.post(DETECT, params=options, content=GRAPH.read_bytes()).json()
        for event in followed(client, made["id"]):
            if event["event"] == "progress":
                answer = client.post(f"/api/v1/jobs/{made['id']}/cancel").json()
                assert answer["state"] == "cancelled" or answer["cancelling"]
                break
        assert ended(client, made["id"])["state"] == "cancelled"


@pytest.mark.slow
def test_jobs_wait_where_no_worker_is(service: Service, client: httpx.Client) -> None:
    made = [
        client.post(DETECT, params={"n_communities": "auto", "device": f"GPU {n}"}, content=EDGES).json()["id"]
        for n in range(3)
    ]
    first = client.get("/api/v1/jobs", params={"limit": 2, "state": "queued"}).json()
    second = client.get("/api/v1/jobs", params={"limit": 2, "state": "queued", "before": first["next"]}).json()
    assert [job["id"] for job in first["jobs"] + second["jobs"]][:3] == made[::-1]
    assert first["counts"]["queued"] >= 3
    assert f'mmsbgen_jobs{{state="queued"}} {first["counts"]["queued"]}' in client.get("/metrics").text
    with open_store(service.database) as store:
        queue = Queue(store)
        job = queue.get(made[0])
        assert (job.payload, job.device) == ({"n_communities": "auto"}, "GPU 0")
        assert gzip.decompress(b"".join(queue.read(made[0], "input", "graph"))) == EDGES
    assert client.delete(f"/api/v1/jobs/{made[0]}").status_code == 409
    for job_id in made:
        assert client.post(f"/api/v1/jobs/{job_id}/cancel").json()["state"] == "cancelled"
        assert client.delete(f"/api/v1/jobs/{job_id}").status_code == 204


@pytest.mark.slow
def test_a_job_that_is_cancelled_ends_where_its_worker_is_dead(service: Service, client: httpx.Client) -> None:
    with open_store(service.database) as store:
        queue = Queue(store)
        job = queue.submit("tune", {"seed": time.time_ns()})
        while (lease := queue.claim("dies", 1.0)) is not None and lease.job.id != job:
            pass
        assert lease is not None
    assert client.post(f"/api/v1/jobs/{job}/cancel").status_code == 200
    assert ended(client, job)["state"] == "cancelled"
    assert client.delete(f"/api/v1/jobs/{job}").status_code == 204


def test_ids_may_have_signs_that_end_lines_elsewhere() -> None:
    ids = ["a\u2028b", "c\u0085d", "e\x1cf"]
    with io.BytesIO() as file, open_store("sqlite://") as store:
        arrays = {"ids": np.array(ids), "beta": np.array([0.5, 0.25]), "columns": np.arange(2), "spread": np.zeros(2)}
        arrays |= {"rest": np.zeros(3), "unlinked": np.zeros(0, int), "codes": np.zeros((0, 0), np.uint8)}
        arrays["calibration"] = np.zeros((2, 0))
        np.savez(file, communities=np.array([[0, 1]] * 3), shares=np.array([[0.75, 0.25]] * 3), **arrays)
        told = {"communities": {"background": []}, "options": {"delta": 1e-3}}
        queue = Queue(store)
        job = queue.submit("detect", {})
        lease = queue.claim("w")
        assert lease is not None
        lines = "".join("\t".join(members) + "\n" for members in (ids, ids[:1]))
        outputs = {"communities.txt": lines.encode(), "memberships.npz": file.getvalue()}
        queue.finish(lease, {}, outputs | {"run.json": json.dumps(told).encode()})
        found = DetectionViews(queue).get(queue.get(job))
        assert [[found.names[v] for v in one] for one in found.found.cover.members] == [ids, ids[:1]]
        assert [member.id for member in found.page(0, 0, 10).members] == ids


def test_a_request_that_is_repeated_makes_one_job(service: Service, client: httpx.Client) -> None:
    headers = {"Idempotency-Key": f"once-{time.time()}"}
    made = [
        client.post(DETECT, params={"n_communities": 5}, content=EDGES, headers=headers).json()["id"] for _ in range(2)
    ]
    assert made[0] == made[1]
    other = client.post(DETECT, params={"n_communities": 6}, content=EDGES, headers=headers)
    assert (other.status_code, made[0] in other.json()["detail"]) == (409, True)
    client.post(f"/api/v1/jobs/{made[0]}/cancel")


def test_one_community_or_none_is_taken_as_the_command_takes_it(sqlite_service: Service) -> None:
    with sqlite_service.client() as client:
        for k in ({"n_communities": 1}, {}):
            answer = client.post(DETECT, params={**k, "device": "no such device"}, content=EDGES)
            assert answer.status_code == 202, answer.text
            client.post(f"/api/v1/jobs/{answer.json()['id']}/cancel")
        assert client.post(DETECT, params={"n_communities": 0}, content=EDGES).status_code == 422


@pytest.mark.parametrize(
    ("params", "body", "status", "message"),
    [
        ({"n_communities": "nan"}, EDGES, 422, "query.n_communities: 'nan' should be a valid integer, or be 'auto'"),
        ({"n_communities": "1e9"}, EDGES, 422, "query.n_communities"),
        ({"n_communities": 5000}, EDGES, 422, "n_communities=5000: at most 4096"),
        ({"n_communities": 5, "threshold": "NaN"}, EDGES, 422, "query.threshold"),
        ({"n_communities": 5, "out": "/etc/x"}, EDGES, 422, "query.out: no such field"),
        ({"n_communities": 5, "mini_batch": "nothing"}, EDGES, 422, "query.mini_batch: 'nothing' should be 'block'"),
        ({"n_communities": 5, "seed": -1}, EDGES, 422, "query.seed"),
        ({"n_communities": 5, "columns": "a"}, b"a,b,c\n1,2,3\n", 422, "columns=['a']: name two"),
        ({"n_communities": 5}, b"a,b,c\n1,2,3\n", 422, "name them: columns=A,B, by names"),
        ({"n_communities": 5}, b"source,target,weight\n1,2,3\n", 422, "weights=ignore counts every row as a link"),
        ({"n_communities": 5}, b"", 422, "the upload is empty"),
        ({"n_communities": 5}, b"1 2 3\n", 422, "the upload, line 1"),
        ({"n_communities": 5}, b"1 2\n\xff\xfe\n", 422, "the upload, line 2"),
        ({"n_communities": 5}, gzip.compress(EDGES, mtime=0)[:-6], 422, "cut off"),
        ({"n_communities": 5}, gzip.compress(gzip.compress(EDGES, mtime=0), mtime=0), 422, "gzip twice"),
        ({"n_communities": 5}, b"\x1f\x8b" + bytes(50), 422, "damaged gzip"),
        ({"n_communities": 5}, b"PK\x03\x04" + bytes(50), 422, "zip archive"),
    ],
)
def test_detections_that_cannot_be(
    sqlite_service: Service, params: dict[str, Any], body: bytes, status: int, message: str
) -> None:
    with sqlite_service.client() as client:
        before = client.get("/api/v1/jobs").json()["counts"]
        answer = client.post(DETECT, params=params, content=body)
        assert (answer.status_code, message in answer.json()["detail"]) == (status, True), answer.text
        assert client.get("/api/v1/jobs").json()["counts"] == before


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is no JSON: mend it"),
        (b'{"budget_trials": NaN}', "budget_trials"),
        (b'{"budget_seconds": Infinity}', "budget_seconds"),
        (b'{"budget_trials": true}', "budget_trials"),
        (b'{"budget_trials": 1e99}', "budget_trials"),
        (b'{"seed": 99999999999999999999999}', "seed"),
        (b'{"family": "os:system"}', "Files and modules are run on the command line only"),
        (b'{"family": "/tmp/vector_add.py"}', "Files and modules are run on the command line only"),
        (b'{"family": "other"}', "no family 'other'"),
        (b'{"kernels": ["nothing"]}', "mmsb has no kernel 'nothing'"),
        (b'{"problem": {"K": -1}}', "K=-1 is outside"),
        (b'{"problem": {"N": 4000, "m": 4096}}', "give an m of at most 4000"),
        (b'{"problem": {"../x": 1}}', "problem"),
        (b'{"fixed": {"vector_width": [3]}}', "vector_width"),
        (b'{"strategy": "__import__"}', "strategy"),
        (b'{"database": "sqlite:///x"}', "body.database: no such field"),
        (b"[" * 100_000, "body"),
        (b'{"device": "' + b"x" * 300 + b'"}', "device"),
    ],
)
def test_tunes_that_cannot_be(sqlite_service: Service, body: bytes, message: str) -> None:
    with sqlite_service.client() as client:
        before = client.get("/api/v1/jobs").json()["counts"]
        answer = client.post("/api/v1/jobs/tune", content=body, headers={"Content-Type": "application/json"})
        assert 400 <= answer.status_code < 500, answer.text
        assert message in answer.json()["detail"] or answer.status_code in (400, 413)
        assert client.get("/api/v1/jobs").json()["counts"] == before
