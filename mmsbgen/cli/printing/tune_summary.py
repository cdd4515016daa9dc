"""The report of a tune as tables and sentences, and its progress while it runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from mmsbgen.cli.shared.common import print_table, seconds
from mmsbgen.cli.shared.console import shown
from mmsbgen.kernels.roof import of_roof

if TYPE_CHECKING:
    from rich.live import Live

    from mmsbgen.db.records.tuning_records import TrialRecord
    from mmsbgen.db.store.tuning_store import Store
    from mmsbgen.tuner.measure.noise import FinalsVerdict
    from mmsbgen.tuner.measure.roofs import Roofs
    from mmsbgen.tuner.run.tuning_report import KernelReport, TuneReport


def print_report(report: TuneReport) -> None:
    """Print a report as tables and sentences."""
    from mmsbgen.kernels.space import describe

    info, roofs = report.info, report.roofs
    click.echo(f"{info.spec}: {info.name} ({info.platform})")
    if roofs is not None:
        click.echo(_roofs(roofs))
    if done := [kernel for kernel in report.kernels if kernel.trials]:
        sides = dict.fromkeys(("kernel", "trials"), "left")
        numbers = "median", "prepare", "energy", "of roof", "barriers", "vs default", "margin"
        sides |= dict.fromkeys(numbers, "right")
        rows = [_row(kernel) for kernel in done]
        click.echo()
        print_table({name: side for name, side in sides.items() if any(name in row for row in rows)}, rows)
        click.echo()
        for kernel in done:
            if kernel.best is not None:
                click.echo(f"{kernel.kernel}: {describe(kernel.best.config)}")
            if kernel.verdict is not None and kernel.rival is not None:
                click.echo(f"  {certainty(kernel.verdict, describe(kernel.rival.config))}")
            if kernel.best is None:
                last = next((trial for trial in reversed(kernel.trials) if trial.message), None)
                why = f"; the last: {shown(last.message)}" if last else ""
                click.echo(f"{kernel.kernel}: no configuration worked{why}")
            if why := ", ".join(f"{n} {status}" for status, n in kernel.statuses.most_common() if status != "ok"):
                click.echo(f"  Failed: {why}")
            if kernel.note:
                click.echo(f"{kernel.kernel}: {kernel.note}")
    if not report.interrupted and (told := late(report)):
        fewer = ", or --kernel for fewer kernels" if len(report.asked) > 1 else ""
        click.echo(f"{told}: give a larger --budget-seconds{fewer}.")


def note_earlier_winners(report: TuneReport, store: Store) -> None:
    """Note at each kernel the configuration of an earlier run that the database ranks before this run's winner."""
    from mmsbgen.kernels.space import describe

    for kernel in report.kernels:
        best = None if kernel.best is None else store.best(kernel.key, kernel.objective)
        if best is not None and kernel.best is not None and best.config_digest != kernel.best.config_digest:
            told = f"the database prefers one of another run, {seconds(best.median_s)}: {describe(best.config)}"
            kernel.note = "; ".join(filter(None, (kernel.note, told)))


def late(report: TuneReport) -> str:
    """What a budget of seconds left no time for; empty if there was time for more than each kernel's default."""
    tried = [kernel for kernel in report.kernels if kernel.trials]
    defaults = [
        kernel.kernel
        for kernel in tried
        if kernel.deadline is not None
        and [trial.config for trial in kernel.trials] == [kernel.space.default]
        and len(kernel.space.configs) > 1
    ]
    of = "" if len(defaults) == len(tried) else f" of {', '.join(defaults)}"
    told = [f"there was time for the defaults{of} only"] if defaults else []
    begun = [kernel.kernel for kernel in report.kernels if not kernel.trials and kernel.deadline is not None]
    told += [f"the default of {name} was not done in time" for name in begun]
    if left := [name for name in report.untried if name not in begun]:
        told.append(f"there was no time to try {', '.join(left) if tried or begun else 'any kernel'}")
    text = "; ".join(told)
    return text[:1].upper() + text[1:]


def _roofs(roofs: Roofs) -> str:
    """The rates, and how old they are or which shape reached them."""
    if roofs.age_s is None:
        return f"roofs: {roofs.rates} ({roofs.shape})"
    age = f"{roofs.age_s / 3600:.0f} h" if roofs.age_s >= 3600 else f"{roofs.age_s / 60:.0f} min"
    return f"roofs: {roofs.rates}, measured {age} ago (--retune measures again)"


def certainty(verdict: FinalsVerdict, rival: str) -> str:
    """The winner's margin over the other finalists, or that they tie, in a sentence."""
    measured = f"(± {verdict.noise:.1%}, {verdict.rounds} rounds)"
    if verdict.decided:
        longer = "longer" if verdict.margin >= 0 else "less time"
        return f"The next one takes {abs(verdict.margin):.1%} {longer} {measured}: {rival}"
    tied, near = len(verdict.tied), len(verdict.near)
    chosen = f"the simplest of the {near} within 1% of the fastest"
    if near == tied:
        chosen = "the simplest of them"
    elif near == 1:
        chosen = "the fastest, compared round by round"
    return f"{tied} finalists cannot be told apart {measured}; this is {chosen}."


def _of_roof(kernel: KernelReport) -> str:
    """The share, and of which roof if not of gathers; empty if that is not known."""
    share = of_roof(kernel.roof_fraction)
    return f"{share} {kernel.roof.partition(' in ')[0]}".rstrip() if share else ""


def _row(kernel: KernelReport) -> dict[str, str]:
    best = kernel.best
    failed = len(kernel.trials) - kernel.statuses["ok"]
    counts = f"{kernel.statuses['ok']} ok" + (f", {failed} failed" if failed else "")
    row = {"kernel": kernel.kernel, "trials": counts + (f" ({kernel.reused} known)" if kernel.reused else "")}
    if best is not None:
        row |= {
            "median": seconds(best.median_s),
            **({} if "prepare_s" not in best.extra else {"prepare": seconds(best.extra["prepare_s"])}),
            **({} if best.energy_j is None else {"energy": f"{best.energy_j:.4g} J"}),
            "of roof": _of_roof(kernel),
            **({} if kernel.barrier_fraction is None else {"barriers": of_roof(kernel.barrier_fraction)}),
            "vs default": _times(kernel.speedup_over_default),
            "margin": "" if kernel.margin is None else f"{kernel.margin:.1%}".replace("-0.0%", "0.0%"),
        }
    return row


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}x"


def progress_display(*, live: bool) -> Any:
    """A display on standard error: a live line on a terminal, a line per kernel elsewhere."""
    from rich.live import Live
    from rich.text import Text

    from mmsbgen.cli.shared.console import stderr
    from mmsbgen.cli.shared.progress_display import mute_stages
    from mmsbgen.tuner.run.tuning_report import Progress

    console = stderr()

    class Display(Progress):
        def __init__(self, live: bool = live, name: str = "") -> None:
            self.name, self.waited = name, False
            mute_stages()
            self.live: Live | None = Live(console=console, transient=True) if console.is_terminal and live else None
            self.began = time.monotonic()
            if self.live is not None:
                self.live.start()

        def close(self) -> None:
            if self.live is not None:
                self.live.stop()

        def of(self, device: str) -> Display:
            """A display for one of several devices."""
            return Display(live=False, name=f"{device}: ")

        def show(self, text: str, *, keep: bool = False) -> None:
            if self.live is not None and not keep:
                self.live.update(Text(shown(text)))
            elif keep:
                console.print(shown(self.name + text), highlight=False, markup=False, soft_wrap=True)

        def started(self, report: TuneReport) -> None:
            where = f"{report.info.spec}: {report.info.name} ({report.info.platform})"
            self.show(f"tuning on {where}; Ctrl-C ends it without loss", keep=True)
            self.show("finding what the device's memory can do ...")

        def roofs(self, roofs: Roofs) -> None:
            self.show(_roofs(roofs), keep=True)

        def kernel(self, report: KernelReport) -> None:
            self.began = time.monotonic()
            valid, total = len(report.space.configs), report.space.total
            self.show(f"{report.kernel}: {valid} of {total} configurations are valid here", keep=True)
            self.show(f"{report.kernel}: making inputs ...")

        def trial(self, report: KernelReport, trial: TrialRecord) -> None:
            self.show(_status_line(report, trial, time.monotonic() - self.began))

        def finished(self, report: KernelReport) -> None:
            self.show(_status_line(report, None, time.monotonic() - self.began), keep=True)

        def waiting(self, device: str) -> None:
            self.show(f"waiting for another measurement on {device} ...", keep=not self.waited)
            self.waited = True

        def interrupted(self) -> None:
            self.show("ending after this configuration; Ctrl-C again ends at once", keep=True)

    return Display()


def _status_line(report: KernelReport, trial: TrialRecord | None, elapsed: float) -> str:
    planned = min(report.budget or len(report.space.configs), len(report.space.configs))
    parts = [f"{report.kernel} {(done := len(report.trials))}/{planned}"]
    if (best := report.best) is not None:
        rate = f"{best.gbps:.3g} GB/s, of the roof: {_of_roof(report)}"
        parts.append(f"best {seconds(best.median_s)}, {rate}")
    if trial is not None:
        measured = done - report.reused
        left = elapsed / measured * (planned - done) if measured else 0.0
        if report.deadline is not None:
            left = min(left, max(0.0, report.deadline - time.monotonic()))
        parts.append(f"last {seconds(trial.median_s) if trial.status == 'ok' else trial.status}")
        parts.append(f"{left:.0f} s left" if measured else "")
    return "  ".join(filter(None, parts))
