"""An index for long-lived processes, with incremental updates from the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, func, select

from mmsbgen.db.records.ranking import Candidate, ranked
from mmsbgen.db.records.tuning_records import Key
from mmsbgen.db.selection.index import SHIPPED, Group, Index, Selection, shipped_groups, without
from mmsbgen.db.store import record_rows
from mmsbgen.db.store.schema import KernelRow, QuarantineRow, TrialRow
from mmsbgen.db.store.tuning_store import Store

_MOST_PLANS = 1024
#: An order is larger: it has all configurations recorded for the near problems.
_MOST_ORDERS = 64
KernelName = tuple[str, str]
"""Family and name."""
Changed = frozenset[Key] | None
"""Keys that have new trials with status 'ok'; None where anything may have changed."""


class Mark(NamedTuple):
    """State of a kernel's records: the last id and the number of its trials and of its failures."""

    trial: int = 0
    trials: int = 0
    failure: int = 0
    failures: int = 0


def marks(store: Store) -> dict[KernelName, Mark]:
    """The mark of every kernel that has records; reads database indexes only."""
    return store.database.read(lambda connection: _marks(connection))


class LiveIndex(Index):
    """An :class:`Index` whose :meth:`update` reads new records, stored by this or any other process.

    An update reads only the trials that are new since the last one.  Not thread-safe.
    """

    def __init__(self, store: Store, *, shipped: Path | None = SHIPPED) -> None:
        super().__init__(store, shipped=shipped)
        self._live = store
        self._own: dict[KernelName, defaultdict[Key, list[Candidate]]] = {}
        self._own_groups: dict[KernelName, dict[Key, Group]] = {}
        self._seen: dict[KernelName, Mark] = {}

    @property
    def kernels(self) -> tuple[KernelName, ...]:
        """The kernels whose records have been read."""
        return tuple(self._seen)

    def groups(self, key: Key) -> list[Group]:
        """As :meth:`Index.groups`."""
        kernel = (key.kernel.family, key.kernel.name)
        if kernel not in self._groups:
            self._read(kernel)
        return self._groups[kernel]

    def select(self, key: Key, **asked: Any) -> Selection:
        """As :meth:`Index.select`, with caches of bounded size."""
        if len(self._plans) > _MOST_PLANS:
            self._forget_plans()
        if len(self._orders) > _MOST_ORDERS:
            self._orders.clear()
        return super().select(key, **asked)

    def update(self) -> dict[KernelName, Changed]:
        """Read new records; return the keys with new trials by kernel, as their look-ups may change."""
        now = marks(self._live)
        changed: dict[KernelName, Changed] = {}
        for kernel, seen in list(self._seen.items()):
            mark = now.get(kernel, Mark())
            if mark != seen:
                keys = self._read(kernel)
                failed = (mark.failure, mark.failures) != (seen.failure, seen.failures)
                changed[kernel] = None if failed else keys
                self._barred.pop(kernel, None)
        if changed:
            self._forget_plans()
            for asked in [asked for asked in self._losses if self._concerned(asked, changed)]:
                del self._losses[asked]
        return changed

    def refresh(self) -> None:
        """Clear all caches and records."""
        super().refresh()
        for kept in (self._own, self._own_groups, self._seen):
            kept.clear()

    def _forget_plans(self) -> None:
        self._plans.clear()
        self._orders.clear()

    @staticmethod
    def _concerned(asked: tuple[Any, ...], changed: Mapping[KernelName, Changed]) -> bool:
        """Whether a cached result of :meth:`Index.loss` may have changed."""
        kernel, _, device, _ = asked
        keys = changed.get((kernel.family, kernel.name), frozenset())
        return keys is None or any(key.kernel == kernel and device in ("", key.device.key) for key in keys)

    def _read(self, kernel: KernelName) -> Changed:
        seen = self._seen.get(kernel, Mark())
        new, count, now = self._live.database.read(lambda c: _after(c, kernel, seen.trial))
        # On a server a trial may become visible after others with higher ids; then all are read again.
        if whole := seen.trials + count != now.trials:
            self._own.pop(kernel, None)
            self._own_groups.pop(kernel, None)
            new, _, now = self._live.database.read(lambda c: _after(c, kernel, 0))
        own = self._own.setdefault(kernel, defaultdict(list))
        groups = self._own_groups.setdefault(kernel, {})
        for key, found in new:
            own[key].append(found)
        for key in dict.fromkeys(key for key, _ in new):
            groups[key] = Group(key, "", ranked(own[key]))
        self._seen[kernel] = now
        self._groups[kernel] = [*groups.values(), *self._shipped_besides(kernel, own.values())]
        return None if whole else frozenset(key for key, _ in new)

    def _shipped_besides(self, kernel: KernelName, own: Iterable[list[Candidate]]) -> list[Group]:
        if self._shipped is None:
            return []
        shipped = shipped_groups(self._shipped).get(kernel, [])
        return without(shipped, {one.uid for found in own for one in found}) if shipped else []


def _after(connection: Connection, kernel: KernelName, last: int) -> tuple[list[tuple[Key, Candidate]], int, Mark]:
    """The candidates among a kernel's trials with ids above ``last``, the number of these trials, and the mark."""
    mark = _marks(connection, kernel).get(kernel, Mark())
    if mark.trial == last:
        return [], 0, mark
    query = select(TrialRow.status, *record_rows.KEY_COLUMNS, *record_rows.CANDIDATE_COLUMNS)
    query = query.where(TrialRow.kernel_id.in_(_ids(kernel)), TrialRow.id > last).order_by(TrialRow.id)
    parts = record_rows.Parts(connection)
    found, count = [], 0
    for row in connection.execute(query):
        count += 1
        status, device, toolchain, kernel_id, problem, *rest = tuple(row)
        if status == "ok":
            found.append((parts.key(device, toolchain, kernel_id, problem), parts.candidate(*rest)))
    return found, count, mark


def _marks(connection: Connection, kernel: KernelName | None = None) -> dict[KernelName, Mark]:
    found: dict[KernelName, Mark] = {}
    for table, name, number in ((TrialRow, "trial", "trials"), (QuarantineRow, "failure", "failures")):
        # A kernel has a row for each template digest.
        counted = select(table.kernel_id, func.max(table.id).label("last"), func.count().label("number"))
        if kernel is not None:
            counted = counted.where(table.kernel_id.in_(_ids(kernel)))
        each = counted.group_by(table.kernel_id).subquery()
        query = select(KernelRow.family, KernelRow.name, func.max(each.c.last), func.sum(each.c.number))
        query = query.join(each, each.c.kernel_id == KernelRow.id).group_by(KernelRow.family, KernelRow.name)
        for family, kernel_name, last, count in connection.execute(query):
            before = found.get((family, kernel_name), Mark())
            found[family, kernel_name] = before._replace(**{name: int(last), number: int(count)})
    return found


def _ids(kernel: KernelName) -> Select[Any]:
    return select(KernelRow.id).where(KernelRow.family == kernel[0], KernelRow.name == kernel[1])
