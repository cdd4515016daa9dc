"""Look up, render, compile: the kernels that a run uses, each in the best configuration that is known."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mmsbgen._version import __version__
from mmsbgen.backends.base import Device, DeviceInfo, Event
from mmsbgen.base.errors import CompileError, ConfigError, InputError, LaunchError, LaunchLimitError, MmsbgenError
from mmsbgen.base.progress import stage
from mmsbgen.db.records.tuning_records import Key, QuarantineRecord
from mmsbgen.db.selection.index import Index, Selection
from mmsbgen.kernels.build import BoundKernel, build, compiler_options, traits_of
from mmsbgen.kernels.family import KernelFamily
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.record_key import key_of, program_digest
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Config, Traits, describe

log = logging.getLogger(__name__)
_MESSAGE = 4000


@dataclass(frozen=True)
class KernelChoice:
    """Which configuration a kernel got, and why."""

    kernel: str
    config: Config
    tier: str
    reason: str
    template_digest: str
    recorded: Config = field(default_factory=dict)
    """As the database has it, without the modes of the run."""

    def as_dict(self) -> dict[str, Any]:
        """For run records."""
        return {
            "kernel": self.kernel,
            "config": dict(self.config),
            "tier": self.tier,
            "reason": self.reason,
            "template_digest": self.template_digest,
        }


#: What a run says of kernels that records of something else have answered for; run.json and the log have each reason.
_BRIEF = {
    "problem": "recorded on this device for other sizes; `mmsbgen tune` with this graph and K measures for these",
    "architecture": "recorded on this device with other software, or on one like it; `mmsbgen tune` measures here",
    "vendor": "recorded on another device of this vendor; `mmsbgen tune` measures on this one",
}


@dataclass
class Runtime:
    """Kernels of one family on one device.

    ``index`` answers which configuration is best; without it every kernel gets its built-in default.
    ``fixed`` names configurations that are taken as they are or refused; ``kept`` those of a run that goes on,
    which are looked up anew where they are no longer valid.  ``refused`` remembers what did not compile or launch,
    by kernel, problem and description of the configuration, with the words for it.
    """

    device: Device
    family: KernelFamily
    index: Index | None = None
    fixed: dict[str, Config] = field(default_factory=dict)
    kept: dict[str, Config] = field(default_factory=dict)
    choices: dict[str, KernelChoice] = field(default_factory=dict)
    refused: dict[tuple[str, Problem], dict[str, str]] = field(default_factory=dict)

    def compile_ahead(self, names: Iterable[str], problem: Problem) -> None:
        """Compile the kernels called ``names`` for ``problem`` side by side, where the device can.

        :meth:`kernel` then finds them compiled, and says what is wrong with those that are not.
        """
        if not self.device.side_by_side:
            return
        traits, sources = traits_of(self.device.info), []
        for name in names:
            with contextlib.suppress(MmsbgenError):
                config, _, _ = self._select(name, problem, {})
                sources.append(render(self.family.kernel(name), problem, config, traits).text)
        with stage(f"compiling {len(sources)} kernels"):
            self.device.compile_ahead(sources, compiler_options(traits))

    def kernel(self, name: str, problem: Problem, **modes: Value) -> ChosenKernel:
        """The kernel called ``name``, built for ``problem``.

        ``modes`` are axes that must have these values, whatever the records have: how fast another mode is says
        nothing of what is wanted. A configuration that was asked for, or that a run goes on with, keeps its own.
        A selected configuration that does not compile here, or whose first launch is refused, is reported, marked
        in the database and replaced by the next best one, at last by the default; without a word or a mark where a
        record of another problem or device has a block above what this kernel can have.
        """
        with stage(f"compiling {name}"):
            bound, choice = self._built(name, problem, {} if name in self.fixed or name in self.kept else modes)
        self.choices[name] = choice
        log.info("%s: tier %s: %s", name, choice.tier, choice.reason)
        return ChosenKernel(**vars(bound), runtime=self, choice=choice)

    def variant(self, name: str, problem: Problem, **values: Value) -> ChosenKernel:
        """A kernel in its chosen configuration but for some axes that are a mode rather than a matter of speed."""
        if name not in self.choices:
            self.kernel(name, problem)
        chosen = self.choices[name]
        choice = replace(chosen, config=dict(chosen.config) | values)
        bound = build(self.device, self.family.kernel(name), problem, choice.config)
        return ChosenKernel(**vars(bound), runtime=self, choice=choice)

    def replacement(self, kernel: ChosenKernel, error: LaunchError) -> tuple[BoundKernel, KernelChoice]:
        """The next best configuration of a kernel whose launch was refused, in the same modes, and why it is that.

        Raises :class:`LaunchError` where there is none, and where the device can no longer be used.
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
        """How another configuration of a kernel is chosen."""
        return (
            f"choose another configuration of {name} by configs={{{name!r}: {{...}}}} of "
            f"mmsbgen.detection.detect.Request, or find one by `mmsbgen tune --device {self.device.info.spec} "
            f"--kernel {name} --database FILE` and name that database to `mmsbgen detect`"
        )

    def _built(self, name: str, problem: Problem, modes: dict[str, Value]) -> tuple[BoundKernel, KernelChoice]:
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
        refused, text = self.refused.setdefault((choice.kernel, problem), {}), describe(choice.config)
        if text in refused:
            return
        if isinstance(error, LaunchLimitError) and choice.tier not in ("exact", "kept"):
            # What a kernel can have depends on the problem: that is no fault of a record of another one.
            log.info("%s; it is of tier %s and passed over", error, choice.tier)
            refused[text] = f"one of tier {choice.tier} is above what this kernel can have: {text}"
        else:
            log.warning("%s; it is of tier %s, the next best configuration is tried instead", error, choice.tier)
            marked = self.quarantine(choice, problem, error)
            refused[text] = f"the configuration of tier {choice.tier} {what}: {text}{marked}"

    def quarantine(self, choice: KernelChoice, problem: Problem, error: Exception) -> str:
        """Mark a configuration that the database had as one that fails here; returns what to add to the report."""
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
            reason = spec.space.refusal(config, problem, traits)
            if reason is not None:
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
        return selection.config, selection.tier, why(selection)


def look_up(
    index: Index,
    info: DeviceInfo,
    family: KernelFamily,
    name: str,
    problem: Problem,
    *,
    valid: Callable[[Config], bool] | None = None,
    modes: Mapping[str, Value] | None = None,
) -> Selection:
    """What the records have for a kernel and problem on a device, by the family's measure of near problems.

    ``valid`` says which configurations may be used, by default those that the kernel's constraints allow.
    """
    key = key_of(info, family.kernel(name), problem)
    return look_up_key(index, key, traits_of(info), family, problem, valid=valid, modes=modes)


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
    """As :func:`look_up`, for the key of any device, with what its constraints see of it."""
    name = key.kernel.name
    spec = family.kernel(name)
    return index.select(
        key,
        valid=valid or (lambda config: spec.space.refusal(config, problem, traits) is None),
        default=spec.default(problem, traits),
        irrelevant=family.soft_parameters,
        modes=modes,
        weights=family.weights,
        carry=family.carried(name, traits),
        program=partial(program_digest, family),
    )


def why(selection: Selection) -> str:
    """Why a configuration was selected and what that is expected to cost, on one line."""
    return "; ".join(filter(None, (selection.reason, "" if selection.tier == "default" else selection.outlook)))


@dataclass(eq=False)
class ChosenKernel(BoundKernel):
    """A kernel in the configuration that its runtime chose; where the first launch of that is refused, in the next.

    Callers go by the modes of a configuration, so those stay.
    """

    runtime: Runtime
    choice: KernelChoice
    launched: bool = False

    def launch(self, count: int, values: Mapping[str, Any]) -> Event:
        """Queue the kernel for ``count`` work units, as :meth:`BoundKernel.launch` does; the first time, wait for it.

        Raises :class:`LaunchError` naming kernel and configuration, and how another one is chosen, where none can be
        launched or the first launch fails while running: what that has left behind is not known.
        """
        if self.launched:
            return super().launch(count, values)
        while True:
            try:
                event = super().launch(count, values)
                break
            except LaunchError as error:
                self._take(*self.runtime.replacement(self, error))
        try:
            event.wait()
        except LaunchError as error:
            name = self.spec.name
            marked = self.runtime.quarantine(self.choice, self.problem, error)
            raise LaunchError(
                f"{name} ({describe(self.config)}{marked}): {error}. Before another run, {self.runtime.advice(name)}"
            ) from error
        self.launched = True
        return event

    def _take(self, bound: BoundKernel, choice: KernelChoice) -> None:
        if self.runtime.choices[choice.kernel] is self.choice:
            self.runtime.choices[choice.kernel] = choice
        for name, value in vars(bound).items():
            setattr(self, name, value)
        self.choice = choice


def by_tier(choices: Mapping[str, KernelChoice]) -> list[str]:
    """One line for all kernels of the same tier and reason: ``exact: update_phi, update_pi (tuned for ...)``.

    Where records of something else answer, each kernel has a reason of its own: all of such a tier have one line.
    """
    grouped: dict[tuple[str, str], list[str]] = {}
    for choice in choices.values():
        grouped.setdefault((choice.tier, _BRIEF.get(choice.tier, choice.reason)), []).append(choice.kernel)
    return [f"{tier}: {', '.join(names)} ({reason})" for (tier, reason), names in grouped.items()]
