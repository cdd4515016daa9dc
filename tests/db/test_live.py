from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy import update

from mmsbgen.base.errors import InputError
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import Key, QuarantineRecord, RunRecord
from mmsbgen.db.selection import index, transfer
from mmsbgen.db.selection.index import Index, Selection
from mmsbgen.db.selection.live_index import LiveIndex
from mmsbgen.db.store import paging
from mmsbgen.db.store.schema import TRIALS
from mmsbgen.db.store.tuning_store import Store, open_store


def selected(index: Index, key: Key) -> Selection:
    return index.select(key, valid=lambda config: True, default={"block": 0})


def keys(make: Any) -> list[Key]:
    return [make.key(name=name, params={"width": width}) for name in ("A", "B") for width in (64, 128, 256)]


@pytest.mark.slow
def test_it_always_answers_as_a_new_index_would(store: Store, make: Any) -> None:
    live, chance = LiveIndex(store), random.Random(3)
    all_keys = keys(make)
    asked = [*all_keys, make.key(name="A", params={"width": 100}), make.key(name="C", params={"width": 64})]
    for step in range(12):
        run = RunRecord(strategy="random")
        trials = [
            make.trial(chance.choice(all_keys), chance.uniform(1e-4, 1e-3), config={"block": n}, run=run.uuid)
            for n in chance.sample(range(20), 5)
        ]
        store.add_bundle(Bundle([run], [], trials, []))
        if step % 4 == 3:
            key = chance.choice(all_keys)
            config = selected(live, key).config
            store.quarantine(
                QuarantineRecord(key=key, config=config, recorded=config, status="launch_error", message="no")
            )
        changed = live.update()
        assert changed == ({("rows", "gather")} if step else set()), "nothing is read before it is asked for"
        assert [selected(live, key) for key in asked] == [selected(Index(store), key) for key in asked]
        assert live.update() == set()


def test_a_trial_that_comes_to_light_late_is_not_missed(store: Store, make: Any) -> None:
    live = LiveIndex(store)
    key = make.key(params={"width": 64})
    for n in range(3):
        store.add_trial(make.trial(key, 1e-3, config={"block": n}))
    store.database.write(lambda c: c.execute(update(TRIALS).values(id=TRIALS.c.id + 10)))
    assert selected(live, key).expected_s == 1e-3
    # As a server shows it: committed after others whose numbers are higher.
    store.add_trial(make.trial(key, 5e-4, config={"block": 9}))
    store.database.write(lambda c: c.execute(update(TRIALS).where(TRIALS.c.median_s == 5e-4).values(id=7)))
    store.add_trial(make.trial(key, 2e-3, config={"block": 10}))
    assert live.update() == {("rows", "gather")}
    assert selected(live, key).config == {"block": 9}


def test_what_it_keeps_for_problems_is_bounded(memory: Store, make: Any) -> None:
    memory.add_trial(make.trial(make.key(params={"width": 64}), 1e-3))
    live = LiveIndex(memory, shipped=None)
    for width in range(1, 150):
        live.update()
        assert selected(live, make.key(params={"width": width})).config == {"block": 64}
    assert len(live._options) <= 65


def test_the_same_question_again_sorts_nothing_again(memory: Store, make: Any, monkeypatch: Any) -> None:
    for width in (64, 256):
        memory.add_trial(make.trial(make.key(params={"width": width}), 1e-3))
    live, asked = LiveIndex(memory, shipped=None), []
    monkeypatch.setattr(index, "ordered", lambda *of: asked.append(of) or transfer.ordered(*of))
    first, second = (selected(live, make.key(params={"width": 128})) for _ in range(2))
    assert first == second
    assert len(asked) == 1
    memory.add_trial(make.trial(make.key(params={"width": 64}), 1e-4, config={"block": 8}))
    live.update()
    assert selected(live, make.key(params={"width": 128})) != first
    assert len(asked) == 2


def test_pages_are_stable_while_records_are_added(store: Store, make: Any) -> None:
    for n in range(7):
        store.add_trial(make.trial(config={"block": n}, created_at="2026-01-01T00:00:00Z"))
    first = paging.trials(store, limit=3)
    store.add_trial(make.trial(config={"block": 100}))
    second = paging.trials(store, limit=3, cursor=first.cursor)
    third = paging.trials(store, limit=3, cursor=second.cursor)
    found = [trial.config["block"] for page in (first, second, third) for trial in page.records]
    assert (found, third.cursor) == ([6, 5, 4, 3, 2, 1, 0], None)
    assert len(store.trials()) == 8
    with pytest.raises(InputError, match="the cursor 'x' is none"):
        paging.trials(store, limit=3, cursor="x")


def test_an_empty_database_has_empty_pages(url: str) -> None:
    with open_store(url) as store:
        assert paging.trials(store, limit=1) == ([], None)
        assert paging.count_by_device(store) == []
        assert LiveIndex(store).update() == set()


def test_a_new_program_of_a_known_configuration_is_found(store: Store, make: Any) -> None:
    runs = [RunRecord(strategy="random") for _ in range(2)]
    key = make.key(params={"width": 64})
    stamps = ("2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
    old, new = (
        make.trial(key, time, run=run.uuid, round=round_, created_at=stamp, extra={"program": name})
        for run, time, round_, stamp, name in zip(runs, (1e-3, 2e-3), (1, 0), stamps, ("old", "new"), strict=True)
    )
    live = LiveIndex(store, shipped=None)

    def ask() -> Selection:
        return live.select(key, valid=lambda config: True, default={}, program=lambda key, config: "new")

    store.add_bundle(Bundle([runs[0]], [], [old], []))
    assert ask().tier == "default"
    store.add_bundle(Bundle([runs[1]], [], [new], []))
    live.update()
    assert (ask().tier, ask().trial_ref) == ("exact", new.uid)
    best = store.best(key)
    assert best is not None
    assert best.uid == new.uid
