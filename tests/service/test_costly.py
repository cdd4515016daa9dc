"""Answers that take long to work out: who may ask for them, and what they keep from others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.jobs import Job
from mmsbgen.service.app import create_app
from mmsbgen.service.detections import DetectionViews
from mmsbgen.service.http.service_settings import ServiceSettings
from tests.service.running import TOKEN, Service, serving

pytestmark = pytest.mark.slow

SOURCE = "/api/v1/source"
SEARCHED = {"kernel": "block_links", "backend": "cuda", "axis": "team=item"}
"""The default's other values do not go with this one: a search of a second."""
LONG = {"kernel": "block_links", "backend": "cuda", "axis": "vector_width=8"}
"""Nothing goes with this one, which a search of all configurations finds out in two seconds."""
EDGES = b"1 2\n2 3\n1 3\n"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("costly")
    with serving(str(folder / "t.sqlite3"), folder / "data") as service:
        yield service


def helpers(service: Service) -> list[psutil.Process]:
    children = psutil.Process(service.process.pid).children()
    return [one for one in children if one.status() != psutil.STATUS_ZOMBIE and "helper" in " ".join(one.cmdline())]


def test_only_who_has_the_token_may_have_a_configuration_searched(alone: Service) -> None:
    with alone.client(token=None) as client:
        refused = client.get(SOURCE, params=SEARCHED)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="mmsbgen"')
        assert "search" in refused.json()["detail"]
        assert client.get(SOURCE, params={"kernel": "block_links"}).status_code == 200
        assert not helpers(alone)
    with alone.client() as client:
        made = client.get(SOURCE, params=SEARCHED)
        assert (made.status_code, made.json()["configuration"]["team"]) == (200, "item")
        assert client.get(SOURCE, params=LONG).status_code == 422


def test_only_who_has_the_token_may_have_a_result_exported(alone: Service) -> None:
    with alone.client(token=None) as stranger, alone.client() as client:
        job = client.post("/api/v1/jobs/detect", params={"n_communities": 2}, content=b"1 2\n2 3\n").json()["id"]
        url = f"/api/v1/jobs/{job}/exports"
        refused = stranger.get(f"{url}/graph.gexf")
        assert (refused.status_code, "an export needs the token" in refused.json()["detail"]) == (401, True)
        waiting = client.get(f"{url}/graph.gexf")
        assert (waiting.status_code, "a detection that is done" in waiting.json()["detail"]) == (422, True)
        assert client.get(f"{url}/graph.dot").status_code == 422
        assert client.get(f"/api/v1/jobs/{'0' * 32}/exports/graph.gexf").status_code == 404
        assert client.post(f"/api/v1/jobs/{job}/cancel").status_code == 200


def test_an_upload_does_not_wait_for_sources(alone: Service) -> None:
    ended: list[tuple[str, int]] = []

    def ask(number: int) -> None:
        answer = client.get(SOURCE, params=LONG, timeout=120)
        ended.append(("source", answer.status_code))

    with alone.client() as client:
        client.post("/api/v1/jobs/detect", content=b"")  # the process that checks uploads is there
        crowd = [threading.Thread(target=ask, args=(n,)) for n in range(9)]
        for one in crowd:
            one.start()
        while len(ended) < 5:
            time.sleep(0.02)
        taken = client.post("/api/v1/jobs/detect", params={"device": "none"}, content=EDGES)
        ended.append(("upload", taken.status_code))
        for one in crowd:
            one.join()
    assert Counter(ended) == {("upload", 202): 1, ("source", 503): 5, ("source", 422): 4}
    assert ended.index(("upload", 202)) < len(ended) - 2


def test_a_search_ends_when_its_client_leaves(alone: Service) -> None:
    with alone.client() as client:
        assert client.get(SOURCE, params=SEARCHED).status_code == 200
        before = {one.pid for one in helpers(alone)}
        with pytest.raises(httpx.ReadTimeout):
            client.get(SOURCE, params=LONG, timeout=0.3)
        deadline = time.monotonic() + 3
        while before <= {one.pid for one in helpers(alone)}:
            assert time.monotonic() < deadline, "it goes on"
            time.sleep(0.02)
        assert client.get(SOURCE, params=SEARCHED).status_code == 200
    assert "Traceback" not in alone.log.read_text()


def test_results_that_are_read_leave_room_for_other_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a large result takes seconds; meanwhile others must get theirs."""
    release = threading.Event()

    def reading(self: DetectionViews, job: Job) -> None:
        release.wait(60)
        raise InputError("no result")

    async def ask() -> tuple[int, set[int]]:
        settings = ServiceSettings(database=str(tmp_path / "t.sqlite3"), data=tmp_path, token=TOKEN)
        app, core = create_app(settings)
        transport = httpx.ASGITransport(app)
        async with core.open(), httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            job = core.queue.submit("detect", {})
            paths = [f"/api/v1/jobs/{job}/{what}" for what in ("result", "communities/0", "vertices?id=1")]
            crowd = [asyncio.create_task(client.get(paths[n % 3])) for n in range(20)]
            await asyncio.sleep(1)
            try:
                async with asyncio.timeout(20):
                    other = await client.get("/api/v1/jobs")
            finally:
                release.set()
            return other.status_code, {answer.status_code for answer in await asyncio.gather(*crowd)}

    monkeypatch.setattr(DetectionViews, "get", reading)
    assert asyncio.run(ask()) == (200, {422})
