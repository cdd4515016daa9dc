"""Progress of stages longer than two seconds on standard error: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from mmsbgen.base.progress import Stage, listening
from mmsbgen.cli.shared.console import shown

#: Seconds before a stage is shown, between lines without a terminal, and between checks.
FIRST, BETWEEN_LINES, LOOK = 2.0, 10.0, 0.1


_DISPLAY = "mmsbgen.base.progress"


@contextmanager
def showing_stages(ctx: click.Context) -> Iterator[None]:
    """Show stages while a command runs, unless it is quiet or prints JSON."""
    from mmsbgen.cli.shared.logs import no_progress

    display = ctx.meta[_DISPLAY] = StageDisplay(lambda: no_progress(ctx))
    with listening(display):
        yield


def mute_stages() -> None:
    """Stop showing stages: the command draws its own progress from now on."""
    ctx = click.get_current_context(silent=True)
    if (display := None if ctx is None else ctx.meta.get(_DISPLAY)) is not None:
        display.muted = True


class StageDisplay:
    """Shows the innermost stage that has lasted two seconds, except while ``silent()`` is true."""

    def __init__(self, silent: Callable[[], bool] = lambda: False) -> None:
        self.silent = silent
        self.muted = False
        """Set while something else draws."""
        self._stages: list[Stage] = []
        self._lock, self._drawing = threading.Lock(), threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._bar: Any = None
        self._told: dict[int, float] = {}

    def begin(self, stage: Stage) -> None:
        """Add a stage; a thread shows progress as long as there are stages."""
        with self._lock:
            self._stages.append(stage)
        if stage.alone and not (self.muted or self.silent()):
            self._draw(stage) if sys.stderr.isatty() else click.echo(f"{shown(stage.name)} ...", err=True)
        if self._thread is None:
            self._over.clear()
            self._thread = threading.Thread(target=self._look, name="progress", daemon=True)
            self._thread.start()

    def end(self, stage: Stage) -> None:
        """Remove a stage; the thread ends with the last one."""
        with self._lock:
            self._stages.remove(stage)
            self._told.pop(id(stage), None)
            if self._stages:
                return
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _look(self) -> None:
        while not self._over.wait(LOOK):
            with self._lock:
                shown = next((one for one in reversed(self._stages) if one.seconds >= FIRST), None)
            if shown is None or self.muted or self.silent():
                continue
            if sys.stderr.isatty():
                self._draw(shown)
            elif (now := time.monotonic()) - self._told.get(id(shown), -math.inf) >= BETWEEN_LINES:
                self._told[id(shown)] = now
                click.echo(line(shown), err=True)

    def _draw(self, stage: Stage) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        with self._drawing:
            if self._bar is None:
                from mmsbgen.cli.shared.console import stderr

                name = TextColumn("{task.description}", markup=False)
                columns = (name, BarColumn(), TextColumn("{task.fields[note]}"))
                self._bar = Progress(*columns, TimeElapsedColumn(), console=stderr(), transient=True)
                self._bar.add_task("", total=None, note="")
                self._bar.start()
        self._bar.update(0, description=shown(stage.name), completed=stage.done, total=stage.total, note=_note(stage))


def line(stage: Stage) -> str:
    """The progress of a stage, such as ``reading g.txt: 34% done, 12.3 MB/s, about 5 s left``."""
    return f"{shown(stage.name)}: {_note(stage) or f'{stage.seconds:.0f} s so far'}"


def quantity(value: float, unit: str) -> str:
    """A readable number with a unit, such as ``12.3 MB`` or ``4.57k trials``."""
    prefixes = iter(("", "k", "M", "G", "T"))
    prefix = next(prefixes)
    while value >= 999.5 and (larger := next(prefixes, None)) is not None:
        value, prefix = value / 1000, larger
    return f"{value:.3g} {prefix}{unit}" if len(unit) == 1 else f"{value:.3g}{prefix} {unit}"


def _note(stage: Stage) -> str:
    parts = []
    if stage.total and stage.done:
        parts.append(f"{min(1.0, stage.done / stage.total):.0%} done")
    if stage.unit and stage.rate is not None:
        parts.append(f"{quantity(stage.rate, stage.unit)}/s")
    if stage.note:
        parts.append(stage.note)
    if stage.left is not None:
        parts.append(f"{'at most' if stage.early else 'about'} {stage.left:.0f} s left")
    return ", ".join(parts)
