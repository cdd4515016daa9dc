"""An index for long-lived processes, which follows the database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, func, select

from mmsbgen.db.records.tuning_records import Key
from mmsbgen.db.selection.index import SHIPPED, Group, Index
from mmsbgen.db.store.schema import KERNELS, QUARANTINE, TRIALS
from mmsbgen.db.store.tuning_store import Store

_MOST_KEYS = 64
"""Keys for which options are kept, with all configurations recorded for near problems."""
KernelName = tuple[str, str]
"""Family and name."""
Marks = dict[KernelName, list[tuple[int, int]]]
"""The number and the last id of a kernel's trials, and of its failures, each by its row."""


class LiveIndex(Index):
    """An :class:`Index` whose :meth:`update` forgets kernels with new records, stored by this or any other process.

    Not thread-safe.
    """

    def __init__(self, store: Store, *, shipped: Path | None = SHIPPED) -> None:
        super().__init__(store, shipped=shipped)
        self._live = store
        self._seen: Marks = {}

    def groups(self, key: Key) -> list[Group]:
        """As :meth:`Index.groups`."""
        kernel = (key.kernel.family, key.kernel.name)
        if kernel not in self._seen:  # the mark first: what is stored meanwhile is read again
            self._seen[kernel] = self._marks().get(kernel, [])
        return super().groups(key)

    def update(self) -> set[KernelName]:
        """Forget the records of kernels that have new ones, and return these kernels."""
        now = self._marks()
        changed = {kernel for kernel, seen in self._seen.items() if now.get(kernel, []) != seen}
        if changed or len(self._options) > _MOST_KEYS:
            self._options.clear()
        for kernel in changed:
            del self._seen[kernel]
            self._barred.pop(kernel, None)
        self._groups = {of: groups for of, groups in self._groups.items() if of[0] in self._seen}
        return changed

    def _marks(self) -> Marks:
        """The mark of every kernel that has records; reads database indexes only."""

        def work(connection: Connection) -> Marks:
            found: Marks = {}
            for table in (TRIALS, QUARANTINE):
                # A kernel has a row for each template digest.
                counted = select(table.c.kernel_id, func.count().label("number"), func.max(table.c.id).label("last"))
                each = counted.group_by(table.c.kernel_id).subquery()
                query = select(KERNELS.c.family, KERNELS.c.name, each.c.number, each.c.last)
                for *kernel, number, last in connection.execute(
                    query.join(each, each.c.kernel_id == KERNELS.c.id).order_by(KERNELS.c.id)
                ):
                    found.setdefault((kernel[0], kernel[1]), []).append((number, last))
            return found

        return self._live.database.read(work)
