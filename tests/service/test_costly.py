"""What answers that take long to work out keep from others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import httpx
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.job_records import Job
from mmsbgen.service.app import create_app
from mmsbgen.service.detections import DetectionViews
from mmsbgen.service.http.service_settings import ServiceSettings
from tests.service.running import TOKEN

pytestmark = pytest.mark.slow


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
