"""Selects and builds the kernels of a run, each in its best known configuration."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mmsbgen.backends.base import Device, DeviceInfo, Event
from mmsbgen.base.errors import CompileError, ConfigError, InputError, LaunchError, LaunchLimitError, MmsbgenError
from mmsbgen.base.progress import stage
from mmsbgen.base.version import __version__
from mmsbgen.db.records.tuning_records import Key, QuarantineRecord
from mmsbgen.db.selection.index import Index, Selection
from mmsbgen.db.store.default_location import default_location
from mmsbgen.kernels.build import BoundKernel, build, compile_side_by_side, traits_of
from mmsbgen.kernels.family import KernelFamily
from mmsbgen.kernels.problem import Problem, Value, implied
from mmsbgen.kernels.record_key import key_of, program_digest
from mmsbgen.kernels.space import Config, Traits, describe

log = logging.getLogger(__name__)
_MESSAGE = 4000


@dataclass(frozen=True)
class KernelChoice:
    """The configuration selected for a kernel, and the reason."""

    kernel: str
    config: Config
    tier: str
    reason: str
    template_digest: str
    recorded: Config = field(default_factory=dict)
    """The configuration as recorded in the database, before the modes of the run are applied."""

    def as_dict(self) -> dict[str, Any]:
        """The fields that run records store."""
        return {name: value for name, value in vars(self).items() if name != "recorded"} | {"config": dict(self.config)}


#: Short reasons for kernels whose records are of another problem or device; run.json and -vv have the full ones.
_BRIEF = {
    "problem": "recorded on this device for other sizes; `mmsbgen tune` with this graph and K measures for these",
    "architecture": "recorded on this device with other software, or on one like it; `mmsbgen tune` measures here",
    "vendor": "recorded on another device of this vendor; `mmsbgen tune` measures on this one",
}


@dataclass
class Runtime:
    """Kernels of one family on one device.

    Attributes:
        index: Finds the best configuration; without it every kernel gets its built-in default.
        fixed: Configurations requested by the user, by kernel.  They are used unchanged or refused.
        kept: Configurations of a resumed run, by kernel.  Those that are no longer valid are looked up again.
        choices: The selected configurations so far, by kernel.
        refused: Messages about configurations that did not compile or launch, by kernel and problem, then by the
            configuration's description.
    """

    device: Device
    family: KernelFamily
    index: Index | None = None
    fixed: dict[str, Config] = field(default_factory=dict)
    kept: dict[str, Config] = field(default_factory=dict)
    choices: dict[str, KernelChoice] = field(default_factory=dict)
    refused: dict[tuple[str, Problem], dict[str, str]] = field(default_factory=dict)
    _loaded: dict[tuple[Any, ...], tuple[BoundKernel, KernelChoice]] = field(
        default_factory=dict, init=False, repr=False
    )

    def compile_ahead(self, names: Iterable[str], problem: Problem) -> None:
        """Compile the kernels called ``names`` for ``problem`` in parallel, if the device supports that.

        :meth:`kernel` then takes them from the cache, and raises the errors of those that do not compile.
        """
        if not self.device.side_by_side:
            return
        cases = []
        for name in names:
            with contextlib.suppress(MmsbgenError):
                cases.append((self.family.kernel(name), problem, self._select(name, problem, {})[0]))
        with stage(f"compiling {len(cases)} kernels"):
            compile_side_by_side(self.device, cases)

    def kernel(self, name: str, problem: Problem, **modes: Value) -> ChosenKernel:
        """The kernel called ``name``, built for ``problem``.

        ``modes`` are axis values that override those of the records.  Configurations in ``fixed`` and ``kept`` keep
        their own modes.

        A selected configuration that does not compile, or whose first launch is refused, is logged, quarantined in the
        database and replaced by the next best one, finally by the default.  It is replaced without a warning and not
        quarantined if a record of another problem or device has a block that is too large for this kernel.
        """
        with stage(f"compiling {name}"):
            bound, choice = self._built(name, problem, {} if name in self.fixed or name in self.kept else modes)
        self.choices[name] = choice
        log.debug("%s: tier %s: %s", name, choice.tier, choice.reason)
        return ChosenKernel(**vars(bound), runtime=self, choice=choice)

    def variant(self, name: str, problem: Problem, other: str = "", **values: Value) -> ChosenKernel:
        """A kernel in its selected configuration with other values of some modes.

        With ``other``, that kernel in the configuration of this one, whose space it shares.
        """
        if name not in self.choices:
            self.kernel(name, problem)
        chosen = self.choices[name]
        choice = replace(chosen, config=dict(chosen.config) | values)
        if other in self.fixed:
            return self.kernel(other, problem)
        bound = build(self.device, self.family.kernel(other or name), problem, choice.config)
        if other:
            choice = self.choices[other] = replace(choice, kernel=other, template_digest=bound.source.digest)
        return ChosenKernel(**vars(bound), runtime=self, choice=choice)

    def replacement(self, kernel: ChosenKernel, error: LaunchError) -> tuple[BoundKernel, KernelChoice]:
        """The next best build of a kernel whose launch was refused, in the same modes, and the choice behind it.

        Raises :class:`LaunchError` if there is none, or if the device can no longer be used.
        """
        name, choice = kernel.spec.name, kernel.choice
        try:
            self.device.synchronize()
        except LaunchError as lost:
            raise LaunchError(
                f"{error}. The device cannot be used any more in this process ({lost}): {self.advice(name)}"
            ) from error
        if choice.tier in ("default", "fixed"):
            raise LaunchError(f"{error}. To go on, {self.advice(name)}") from error
        self._refuse(choice, kernel.problem, error, "could not be launched")
        try:
            return self._built(name, kernel.problem, {mode: kernel.config[mode] for mode in kernel.spec.modes})
        except (CompileError, ConfigError) as other:
            raise LaunchError(f"{error}; nor can another one be used ({other}). {self.advice(name)}") from error

    def advice(self, name: str) -> str:
        """Instructions for choosing another configuration of a kernel, for messages."""
        return (
            f"choose another configuration of {name} by configs={{{name!r}: {{...}}}} of "
            f"mmsbgen.detection.detect.Request, or find one by `mmsbgen tune --device {self.device.info.spec} "
            f"--kernel {name} --database FILE` and name that database to `mmsbgen detect`"
        )

    def _built(self, name: str, problem: Problem, modes: dict[str, Value]) -> tuple[BoundKernel, KernelChoice]:
        # The search for K builds the same kernels for many splits; loading them takes as long as its chains.
        key = (name, problem, *sorted(modes.items()))
        if key not in self._loaded:
            self._loaded[key] = self._built_anew(name, problem, modes)
        return self._loaded[key]

    def _built_anew(self, name: str, problem: Problem, modes: dict[str, Value]) -> tuple[BoundKernel, KernelChoice]:
        spec = self.family.kernel(name)
        while True:
            config, tier, reason = self._select(name, problem, modes)
            choice = KernelChoice(name, dict(config) | modes, tier, reason, "", recorded=config)
            try:
                bound = build(self.device, spec, problem, choice.config)
                break
            except CompileError as error:
                if tier in ("default", "fixed"):
                    raise
                self._refuse(choice, problem, error, "did not compile")
        reason = "; ".join([reason, *self.refused.get((name, problem), {}).values()])
        return bound, replace(choice, reason=reason, template_digest=bound.source.digest)

    def _refuse(self, choice: KernelChoice, problem: Problem, error: Exception, what: str) -> None:
        self._loaded.clear()
        refused, text = self.refused.setdefault((choice.kernel, problem), {}), describe(choice.config)
        if text in refused:
            return
        if isinstance(error, LaunchLimitError) and choice.tier not in ("exact", "kept"):
            # The limit depends on the problem, so a record of another problem is not to blame.
            log.info("%s; it is of tier %s and passed over", error, choice.tier)
            refused[text] = f"one of tier {choice.tier} is above what this kernel can have: {text}"
        else:
            log.warning("%s; it is of tier %s, the next best configuration is tried instead", error, choice.tier)
            marked = self.quarantine(choice, problem, error)
            refused[text] = f"the configuration of tier {choice.tier} {what}: {text}{marked}"

    def quarantine(self, choice: KernelChoice, problem: Problem, error: Exception) -> str:
        """Quarantine a recorded configuration that fails here; returns a suffix for the message."""
        if self.index is None or choice.tier in ("default", "fixed") or self.device.info.backend == "fake":
            return ""
        key = key_of(self.device.info, self.family.kernel(choice.kernel), problem)
        program = program_digest(self.family, key, choice.config)
        failure = QuarantineRecord(
            key=key,
            config=choice.config,
            recorded=choice.recorded or choice.config,
            status="compile_error" if isinstance(error, CompileError) else "launch_error",
            message=str(error)[:_MESSAGE],
            extra={"tier": choice.tier, "mmsbgen": __version__, "program": program},
        )
        return ", which is quarantined until it is tuned again" if self.index.quarantine(failure) else ""

    def _select(self, name: str, problem: Problem, modes: dict[str, Value]) -> tuple[Config, str, str]:
        spec, traits = self.family.kernel(name), traits_of(self.device.info)
        if name in self.fixed:
            config = dict(self.fixed[name])
            if (reason := spec.space.refusal(config, problem, traits)) is not None:
                raise InputError(f"{name}: the configuration asked for ({describe(config)}) is refused: {reason}")
            return config, "fixed", "as asked for"
        refused = self.refused.get((name, problem), {})

        def valid(config: Config) -> bool:
            used = dict(config) | modes
            return describe(used) not in refused and spec.space.refusal(used, problem, traits) is None

        if name in self.kept and valid(self.kept[name]):
            return dict(self.kept[name]), "kept", "as in the run that goes on"
        default = spec.default(problem, traits)
        if self.index is None or self.device.info.backend == "fake":
            return default, "default", "no database was asked"
        selection = look_up(self.index, self.device.info, self.family, name, problem, valid=valid, modes=modes)
        return selection.config, selection.tier, selection.reason


@contextlib.contextmanager
def opened_runtime(
    device: Device,
    family: KernelFamily,
    database: str | Path | None,
    fixed: Mapping[str, Config] | None = None,
    kept: Mapping[str, Config] | None = None,
    on_missing: Callable[[str], None] = lambda location: None,
) -> Iterator[Runtime]:
    """A runtime that asks a tuning database, which is only read; closes the database.

    ``database`` is as for :func:`mmsbgen.db.store.tuning_store.open_store`; ``on_missing`` is called with the place of
    one that was named and does not exist.
    """
    given = dict(fixed or {}), dict(kept or {})
    if not is_asked(database):
        yield Runtime(device, family, Index(), *given)
        return
    # Imported here: SQLAlchemy takes half a second, and a chain is planned before any database is opened.
    from mmsbgen.db.store.tuning_store import open_store

    with open_store(database, read_only=True) as store:
        if database is not None and store.missing:
            on_missing(str(store.location))
        yield Runtime(device, family, Index(store), *given)


def is_asked(database: str | Path | None) -> bool:
    """Whether a run asks a database: not if it names none, and the user's own is a file that does not exist."""
    if database is not None or not isinstance(place := default_location(), Path):
        return True
    try:
        place.lstat()
    except OSError as error:  # any other reason why it cannot be read is told when it is opened
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def look_up(index: Index, info: DeviceInfo, family: KernelFamily, name: str, problem: Problem, **how: Any) -> Selection:
    """The best recorded configuration of a kernel for a problem on a device; ``how`` as for :func:`look_up_key`."""
    return look_up_key(index, key_of(info, family.kernel(name), problem), traits_of(info), family, problem, **how)


def look_up_key(
    index: Index,
    key: Key,
    traits: Traits,
    family: KernelFamily,
    problem: Problem,
    *,
    valid: Callable[[Config], bool] | None = None,
    modes: Mapping[str, Value] | None = None,
) -> Selection:
    """The best recorded configuration for a key and the traits of its device.

    ``valid`` decides which configurations may be used, by default those that satisfy the kernel's constraints.
    """
    name = key.kernel.name
    spec = family.kernel(name)
    return index.select(
        key,
        valid=valid or (lambda config: spec.space.refusal(config, problem, traits) is None),
        default=spec.default(problem, traits),
        irrelevant=family.soft_parameters,
        modes=modes,
        weights=family.weights,
        implied=implied(family.parameters),
        carry=family.carried(name, traits),
        program=partial(program_digest, family),
    )


@dataclass(eq=False)
class ChosenKernel(BoundKernel):
    """A kernel in the configuration that its runtime selected.

    If its first launch is refused, it takes the next best configuration with the same modes.
    """

    runtime: Runtime
    choice: KernelChoice
    launched: bool = False

    def launch(self, count: int, values: MutableMapping[str, Any]) -> Event:
        """Queue the kernel for ``count`` work units; wait for the first launch to end.

        Raises:
            LaunchError: No configuration can be launched, or the first launch failed while running and left undefined
                results.  The message names kernel and configuration, and how to choose another one.
        """
        if self.launched:
            return super().launch(count, values)
        while True:
            try:
                event = super().launch(count, values)
                break
            except LaunchError as error:
                if self.spec.program is not None:  # launches before this one may have changed the inputs
                    raise self._failed(error) from error
                self._take(*self.runtime.replacement(self, error))
        try:
            event.wait()
        except LaunchError as error:
            raise self._failed(error) from error
        self.launched = True
        return event

    def _failed(self, error: LaunchError) -> LaunchError:
        """The error of a call that left undefined results; the configuration is quarantined."""
        name = self.spec.name
        marked = self.runtime.quarantine(self.choice, self.problem, error)
        return LaunchError(
            f"{name} ({describe(self.config)}{marked}): {error}. Before another run, {self.runtime.advice(name)}"
        )

    def _take(self, bound: BoundKernel, choice: KernelChoice) -> None:
        if self.runtime.choices[choice.kernel] is self.choice:
            self.runtime.choices[choice.kernel] = choice
        for name, value in vars(bound).items():
            setattr(self, name, value)
        self.choice = choice


def by_tier(choices: Mapping[str, KernelChoice]) -> list[str]:
    """One line for all kernels of the same tier and reason: ``exact: update_phi, update_pi (tuned for ...)``.

    Kernels of the tiers between 'exact' and 'default' share one line with a short reason.
    """
    grouped: dict[tuple[str, str], list[str]] = {}
    for choice in choices.values():
        grouped.setdefault((choice.tier, _BRIEF.get(choice.tier, choice.reason)), []).append(choice.kernel)
    return [f"{tier}: {', '.join(names)} ({reason})" for (tier, reason), names in grouped.items()]
