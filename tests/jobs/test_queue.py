"""The queue's rules: leases, fencing, attempts, cancelling, files; on SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.job_records import Lease, LeaseLostError, RequestKeyError, UnknownJobError
from mmsbgen.db.store.schema import JOB_FILES
from mmsbgen.db.store.store_errors import StoreError
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.jobs.queue import Queue
from tests.records import GPU


def taken(queue: Queue, worker: str = "w1", **options: Any) -> Lease:
    lease = queue.claim(worker, 30.0, **options)
    assert lease is not None
    return lease


def kept(folder: Path) -> list[Path]:
    """The files of jobs beside the database ``tuning.sqlite3``."""
    return [path for path in (folder / "tuning.sqlite3.jobs").rglob("*") if not path.is_dir()]


def states(queue: Queue, id: str) -> list[str]:
    return [event.data["state"] for event in queue.events(id) if event.kind == "state"]


def test_a_job_goes_from_the_queue_to_its_result(queue: Queue, tmp_path: Path) -> None:
    graph = tmp_path / "g.txt"
    graph.write_bytes(b"1 2\n" * 700_000)
    id = queue.submit("detect", {"options": {"n": 3}}, inputs={"graph": graph, "empty": b""})
    job = queue.get(id)
    assert (job.state, job.attempt, job.payload) == ("queued", 0, {"options": {"n": 3}})
    assert {name: told["bytes"] for name, told in job.inputs.items()} == {"graph": 2_800_000, "empty": 0}
    lease = taken(queue)
    assert (lease.job.id, lease.attempt, lease.job.state, lease.job.worker) == (id, 1, "running", "w1")
    assert queue.claim("w2") is None
    queue.save(id, "input", "graph", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == graph.read_bytes()
    assert list(queue.read(id, "input", "empty")) == []
    queue.event(lease, {"done": 0.5})
    queue.event(lease, {"text": "half"}, "message")
    assert queue.get(id).progress == {"done": 0.5}
    assert queue.heartbeat(lease) is False
    queue.checkpoint(lease, {"chain": b"first"})
    queue.checkpoint(lease, {"chain": b"second"})
    assert b"".join(queue.read(id, "checkpoint", "chain")) == b"second"
    queue.finish(lease, {"communities": 2}, {"communities.txt": b"1\t2\n"})
    job = queue.get(id)
    assert (job.state, job.result, job.ended, job.checkpoint) == ("done", {"communities": 2}, True, None)
    assert b"".join(queue.read(id, "output", "communities.txt")) == b"1\t2\n"
    assert [event.kind for event in queue.events(id)] == ["state", "state", "progress", "message", "state"]
    assert states(queue, id) == ["queued", "running", "done"]
    assert queue.counts() == {"queued": 0, "running": 0, "done": 1, "failed": 0, "cancelled": 0}
    with pytest.raises(UnknownJobError, match="no checkpoint file 'chain'"):
        queue.read(id, "checkpoint", "chain")


def test_after_the_lease_ran_out_the_old_attempt_can_write_nothing(queue: Queue, clock: Any) -> None:
    id = queue.submit("tune", {})
    old = taken(queue, "w1")
    queue.checkpoint(old, {"chain": b"from the first"})
    clock.pass_seconds(29)
    assert queue.heartbeat(old) is False
    clock.pass_seconds(29)
    assert queue.claim("w2") is None, "the heartbeat kept it"
    clock.pass_seconds(2)
    new = taken(queue, "w2")
    assert (new.job.id, new.attempt, new.job.losses) == (id, 2, 1)
    assert b"".join(queue.read(id, "checkpoint", "chain")) == b"from the first"
    before = queue.get(id), queue.events(id)
    for write in (
        lambda: queue.heartbeat(old),
        lambda: queue.event(old, {"done": 1}),
        lambda: queue.checkpoint(old, {"chain": b"late"}),
        lambda: queue.finish(old, {"late": 1}, {"out": b"late"}),
        lambda: queue.fail(old, "late", retry=True),
        lambda: queue.fail(old, "late", retry=False),
        lambda: queue.release(old),
        lambda: queue.cancelled(old),
    ):
        with pytest.raises(LeaseLostError, match="attempt 1 of the job"):
            write()
    assert (queue.get(id), queue.events(id)) == before
    assert b"".join(queue.read(id, "checkpoint", "chain")) == b"from the first"
    queue.finish(new, {"by": "w2"}, {"out": b"new"})
    with pytest.raises(LeaseLostError, match="is done with attempt 2"):
        queue.finish(old, {"by": "w1"}, {"out": b"old"})
    with pytest.raises(LeaseLostError):
        queue.finish(new, {"by": "w2 again"})
    assert (queue.get(id).result, b"".join(queue.read(id, "output", "out"))) == ({"by": "w2"}, b"new")
    assert states(queue, id) == ["queued", "running", "queued", "running", "done"]


def test_a_late_attempt_that_nobody_followed_may_still_finish(queue: Queue, clock: Any) -> None:
    id = queue.submit("tune", {})
    lease = taken(queue)
    clock.pass_seconds(3600)
    queue.finish(lease, {})
    assert queue.get(id).state == "done"


def test_a_job_that_loses_worker_after_worker_fails_and_says_so(queue: Queue, clock: Any) -> None:
    id = queue.submit("tune", {})
    for number in range(12):
        assert taken(queue, f"w{number}").job.losses == number
        clock.pass_seconds(31)
    assert queue.claim("one more") is None
    job = queue.get(id)
    assert (job.state, job.attempt, job.losses) == ("failed", 12, 12)
    assert "12 attempts were lost, so it is not tried again: the worker w11 was not heard of" in str(job.error)


def test_workers_that_vanish_are_forgotten_where_the_job_got_further(queue: Queue, clock: Any) -> None:
    id = queue.submit("detect", {}, max_losses=1)
    for number in range(20):
        lease = taken(queue)
        if number % 3 == 2:  # in two of three attempts it does not get far enough
            queue.checkpoint(lease, {"chain": b"%d" % number})
        clock.pass_seconds(31)
    assert taken(queue).job.losses == 20
    clock.pass_seconds(31)
    assert queue.claim("w") is None
    assert "4 attempts were lost, so it is not tried again" in str(queue.get(id).error)


def test_a_process_that_dies_counts_whatever_became_of_workers(queue: Queue, clock: Any) -> None:
    id = queue.submit("detect", {}, max_losses=2)
    for _ in range(3):
        taken(queue)
        clock.pass_seconds(31)
    assert queue.fail(taken(queue), "it died", retry=True) == "queued"
    taken(queue)
    clock.pass_seconds(31)
    lease = taken(queue)
    queue.checkpoint(lease, {"chain": b"further"})
    assert queue.fail(lease, "it died", retry=True) == "failed"
    assert "2 attempts were lost, so it is not tried again: it died" in str(queue.get(id).error)
    assert queue.get(id).losses == 6


def test_errors_are_tried_again_only_where_that_may_help(queue: Queue) -> None:
    id = queue.submit("tune", {}, max_losses=2)
    assert queue.fail(taken(queue), "it died", retry=True) == "queued"
    assert queue.get(id).error == "it died"
    assert queue.fail(taken(queue), "it died \0 again", retry=True) == "failed"
    assert "2 attempts were lost, so it is not tried again: it died" in str(queue.get(id).error)
    wrong = queue.submit("tune", {})
    assert queue.fail(taken(queue), "bad input", retry=False) == "failed"
    assert (queue.get(wrong).error, queue.get(wrong).attempt) == ("bad input", 1)


def test_a_worker_that_ends_gives_back_without_loss(queue: Queue) -> None:
    id = queue.submit("tune", {}, max_losses=1)
    for _ in range(4):
        assert queue.release(taken(queue)) == "queued"
    assert (queue.get(id).losses, queue.get(id).attempt) == (0, 4)


def test_cancelling(queue: Queue, clock: Any) -> None:
    waiting = queue.submit("tune", {})
    assert queue.cancel(waiting).state == "cancelled"
    assert queue.claim("w1") is None
    running = queue.submit("tune", {})
    lease = taken(queue)
    assert queue.cancel(running).state == "running"
    assert queue.cancel(running).cancel_at is not None
    assert queue.heartbeat(lease) is True
    queue.cancelled(lease)
    assert states(queue, running) == ["queued", "running", "running", "cancelled"]
    for end in (lambda held: queue.release(held), lambda held: queue.fail(held, "died", retry=True)):
        id = queue.submit("tune", {})
        lease = taken(queue)
        queue.cancel(id)
        assert end(lease) == "cancelled"
    lost = queue.submit("tune", {})
    taken(queue)
    queue.cancel(lost)
    clock.pass_seconds(31)
    assert queue.expire() == 1
    assert queue.get(lost).state == "cancelled"
    done = queue.submit("tune", {})
    queue.finish(taken(queue), {})
    assert queue.cancel(done).state == "done"
    late = queue.submit("tune", {})
    lease = taken(queue)
    queue.cancel(late)
    queue.finish(lease, {"all": "done"})
    assert queue.get(late).state == "done", "what was done before the word came is not thrown away"


def test_workers_take_the_oldest_of_their_kind_and_device(queue: Queue) -> None:
    tune = queue.submit("tune", {}, device="h200")
    detect = queue.submit("detect", {})
    other = queue.submit("tune", {}, device="A100")
    assert queue.claim("w", kinds=["tune"]) is None, "it did not say which device it has"
    assert taken(queue, kinds=["detect"], device=GPU).job.id == detect
    assert taken(queue, device=GPU).job.id == tune
    assert queue.claim("w", device=GPU) is None
    assert queue.get(other).state == "queued"


def test_a_request_may_be_repeated(queue: Queue) -> None:
    first = queue.submit("detect", {"a": [1, 2]}, inputs={"graph": b"1 2"}, request_key="mine")
    assert queue.submit("detect", {"a": (1, 2)}, inputs={"graph": b"1 2"}, request_key="mine") == first
    for changed in ({"payload": {"a": 1}}, {"inputs": {"graph": b"1 3"}}, {"kind": "tune"}, {"device": "x"}):
        request = {"kind": "detect", "payload": {"a": [1, 2]}, "inputs": {"graph": b"1 2"}} | changed
        with pytest.raises(RequestKeyError, match=f"belongs to the job {first}, whose {next(iter(changed))} differs"):
            queue.submit(**request, request_key="mine")
    assert len(queue.list()) == 1


def test_lists_go_by_pages(queue: Queue) -> None:
    ids = [queue.submit(kind, {}) for kind in ("tune", "detect") * 5]
    pages, before = [], None
    while page := queue.list(limit=3, before=before):
        pages += [job.id for job in page]
        before = page[-1].id
    assert pages == ids[::-1]
    assert [job.id for job in queue.list(kind="tune", state="queued")] == ids[::2][::-1]
    assert {job.kind for job in queue.list(kind="tune")} == {"tune"}
    assert queue.list(state="done") == []
    events = queue.events(ids[0])
    assert queue.events(ids[0], after=events[-1].id) == []


@pytest.mark.parametrize("id", ["", "x", "../../etc/passwd", "0" * 32, "0" * 31 + "g", 5, None])
def test_what_is_no_id_is_no_job(queue: Queue, id: Any) -> None:
    for ask in (queue.get, queue.cancel, queue.events, queue.remove):
        with pytest.raises(UnknownJobError, match="there is no job"):
            ask(id)


def test_bad_submissions_leave_nothing(queue: Queue, tmp_path: Path) -> None:
    for request, words in (
        ({"kind": "sleep", "payload": {}}, "no jobs of kind 'sleep'"),
        ({"kind": "tune", "payload": {"a": float("nan")}}, "must be JSON"),
        ({"kind": "tune", "payload": {"a": object()}}, "must be JSON"),
        ({"kind": "tune", "payload": {}, "max_losses": 0}, "at least one attempt"),
        ({"kind": "tune", "payload": {}, "inputs": {"graph": tmp_path / "none"}}, "cannot be read"),
        ({"kind": "tune", "payload": {}, "inputs": {"../graph": b""}}, "cannot be the name"),
    ):
        with pytest.raises(InputError, match=words):
            queue.submit(**request)  # type: ignore[arg-type]
    assert queue.list() == []


def test_a_job_that_has_ended_may_be_forgotten(queue: Queue, store: Store) -> None:
    id = queue.submit("detect", {}, inputs={"graph": b"1 2"})
    with pytest.raises(InputError, match="is queued: cancel it first"):
        queue.remove(id)
    queue.finish(taken(queue), {}, {"out": b"x"})
    assert queue.stored() == 1
    queue.remove(id)
    with pytest.raises(UnknownJobError):
        queue.get(id)
    assert queue.stored() == 0


def test_a_damaged_file_is_not_handed_out(queue: Queue, store: Store, tmp_path: Path) -> None:
    id = queue.submit("detect", {}, inputs={"graph": b"1 2"})
    if store.database.location.path is None:
        store.database.write(lambda c: c.execute(update(JOB_FILES).values(data=b"1 3")))
    else:
        kept(tmp_path)[0].write_bytes(b"1 3")
    with pytest.raises(StoreError, match="damaged"):
        queue.save(id, "input", "graph", tmp_path / "graph")
    assert list(tmp_path.glob("*graph*")) == []


@pytest.mark.slow
def test_many_workers_at_once_share_the_jobs(url: str) -> None:
    with open_store(url) as store:
        ids = [Queue(store).submit("tune", {}) for _ in range(40)]
    done: list[str] = []

    def work(name: str) -> None:
        with open_store(url) as store:
            queue = Queue(store)
            while (lease := queue.claim(name)) is not None:
                queue.event(lease, {"by": name})
                queue.finish(lease, {"by": name})
                done.append(lease.job.id)

    threads = [threading.Thread(target=work, args=(f"w{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(done) == Counter(ids)
    with open_store(url) as store:
        queue = Queue(store)
        assert queue.counts()["done"] == 40
        assert all(states(queue, id) == ["queued", "running", "done"] for id in ids)


def test_the_same_request_from_many_at_once_makes_one_job(url: str) -> None:
    open_store(url).close()
    ids: list[str] = []

    def ask() -> None:
        with open_store(url) as store:
            ids.append(Queue(store).submit("tune", {"a": 1}, request_key="once"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(ids), len(set(ids))) == (8, 1)


def test_the_clock_of_the_database_counts(url: str) -> None:
    with open_store(url) as store:
        queue = Queue(store)
        id = queue.submit("tune", {})
        assert queue.claim("w1", 0.0) is not None
        lease = queue.claim("w2", 60.0)
        assert lease is not None
        assert lease.attempt == 2
        assert queue.expire() == 0
        job = queue.get(id)
        assert job.created_at < str(job.started_at) < str(job.lease_until)


def test_a_clock_that_is_set_back_keeps_no_dead_worker_s_job(queue: Queue, clock: Any) -> None:
    dead, alive = queue.submit("tune", {}), queue.submit("tune", {})
    taken(queue, "dead")
    lease = taken(queue, "alive")
    clock.pass_seconds(-7200)
    assert queue.expire() == 0, "a worker that lives has time to say so"
    clock.pass_seconds(20)
    assert queue.heartbeat(lease) is False
    clock.pass_seconds(11)
    assert queue.expire() == 1
    assert (queue.get(dead).state, queue.get(alive).state) == ("queued", "running")
    clock.pass_seconds(30)
    assert queue.expire() == 1
    assert queue.get(alive).state == "queued"


def test_a_long_lease_is_left_alone(queue: Queue, clock: Any) -> None:
    id = queue.submit("tune", {})
    assert queue.claim("w1", 6000.0) is not None
    clock.pass_seconds(5)
    until = queue.get(id).lease_until
    assert queue.expire() == 0
    assert queue.get(id).lease_until == until


@pytest.mark.parametrize("end", ["cancel", "cancelled", "fail", "finish"])
def test_input_files_go_when_the_job_ends(queue: Queue, tmp_path: Path, end: str) -> None:
    graph = b"1 2\n" * 700_000
    id = queue.submit("detect", {}, inputs={"graph": graph}, request_key="mine")
    assert queue.stored() == len(graph)
    if end == "cancel":
        queue.cancel(id)
    else:
        lease = taken(queue)
        queue.checkpoint(lease, {"chain": b"12345"})
        assert queue.stored() == len(graph) + 5
        {
            "cancelled": lambda: queue.cancelled(lease),
            "fail": lambda: queue.fail(lease, "bad input", retry=False),
            "finish": lambda: queue.finish(lease, {}, {"out": b"123"}),
        }[end]()
    assert queue.stored() == (3 if end == "finish" else 0)
    assert queue.get(id).inputs["graph"]["bytes"] == len(graph)
    for read in (lambda: queue.read(id, "input", "graph"), lambda: queue.save(id, "input", "graph", tmp_path / "g")):
        with pytest.raises(UnknownJobError, match="has ended: its input files are not kept"):
            read()
    assert queue.submit("detect", {}, inputs={"graph": graph}, request_key="mine") == id


def test_a_job_that_is_tried_again_keeps_its_input_files(queue: Queue) -> None:
    id = queue.submit("detect", {}, inputs={"graph": b"1 2"})
    queue.fail(taken(queue), "it died", retry=True)
    queue.release(taken(queue))
    assert b"".join(queue.read(id, "input", "graph")) == b"1 2"
