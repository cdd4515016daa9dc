"""What a family of kernels declares.  A second family is another module of these declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.kernels.problem import Parameter, Problem, Value
from mmsbgen.kernels.space import Config, Space, Traits

Array = npt.NDArray[Any]
Role = Literal["in", "out", "inout", "scalar"]


@dataclass(frozen=True)
class Argument:
    """One kernel argument: ``ctype`` is a type of the templates (real, u32, u64, double); ``doc`` has the shape."""

    name: str
    ctype: str
    role: Role
    doc: str


@dataclass(frozen=True)
class Launch:
    """A one-dimensional launch of ``grid`` blocks of ``block`` work-items.

    ``shared`` are bytes of shared memory a block beyond what the kernel declares (CUDA only).
    """

    grid: int
    block: int
    shared: int = 0


@dataclass(frozen=True)
class Demand:
    """What one configuration asks of a device in a call, as far as its declaration can tell; sizes are bytes.

    The tuner orders configurations by it before it has measured any (:mod:`mmsbgen.tuner.search.cost_model`).
    """

    moved: int
    """Between memory and the chip, what is moved twice counted twice."""
    units: int = 0
    """Work units of the launch; 0 where that is not known."""
    near: int = 0
    """Through caches, local memory and thread-local arrays beyond that."""
    local: int = 0
    """Local memory of a block."""
    private: int = 0
    """Registers and thread-local arrays of a work-item."""
    wanted: int = 16
    """What a work-item has asked for before it waits for the first of it."""
    barriers: int = 0
    """How often the work-items of a block wait for each other, over the life of a block."""
    busy: float = 1.0
    """Part of the work-items that has something to do."""


@dataclass(frozen=True)
class Expected:
    """The reference's answer for one output: ``|got - value| <= tolerance`` element by element.

    ``allowed`` is the fraction of elements that may lie outside, for outputs of acceptance-rejection draws,
    whose integers may flip on the last bit of an input.
    """

    value: Array
    tolerance: Array
    allowed: float = 0.0

    def errors(self, got: Array) -> str | None:
        """None when ``got`` agrees, else what is wrong with the worst element."""
        if got.shape != self.value.shape:
            return f"shape {got.shape} instead of {self.value.shape}"
        if not np.all(np.isfinite(got)):
            return f"{int(np.sum(~np.isfinite(got)))} of {got.size} elements are not finite"
        off = np.abs(got.astype(np.float64) - self.value)
        bad = off > self.tolerance
        if np.count_nonzero(bad) <= self.allowed * got.size:
            return None
        ratio = off / np.maximum(self.tolerance, 1e-300)
        worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        return (
            f"{int(np.count_nonzero(bad))} of {got.size} elements are off; worst at {tuple(map(int, worst))}: "
            f"{float(got[worst]):.9g} instead of {float(self.value[worst]):.9g}, "
            f"tolerance {float(np.broadcast_to(self.tolerance, got.shape)[worst]):.3g}"
        )


@dataclass
class Workload:
    """Inputs of one kernel and the reference's judgement of its outputs.

    ``arguments`` holds an array or a NumPy scalar for every argument by name; ``count`` is the number of work
    units (vertices, pairs) of the launch.  ``verify`` takes all outputs by name and the configuration and
    returns None, or what is wrong.  ``rotations`` are replacements of some arguments that a timing loop goes
    through in turns, so that no call finds its inputs in a cache.
    """

    arguments: dict[str, Any]
    count: int
    verify: Callable[[Mapping[str, Array], Config], str | None]
    rotations: list[dict[str, Array]] = field(default_factory=list)


@dataclass(frozen=True)
class Sweep:
    """How what was measured of a kernel is drawn.

    ``size`` is the parameter by which problems are laid out, ``sizes`` are those that agree within a picture, and
    ``variant`` says of a problem's parameters what else tells it from others.  ``lines`` is an axis each of whose
    values is a line along the axis ``along``; ``panels`` has those that go together.  Of the axis ``widths`` every
    value is compared with the least.  ``titles`` has names with units of parameters and axes.
    """

    size: str
    sizes: tuple[str, ...]
    lines: str
    along: str
    widths: str
    panels: Mapping[str, tuple[str, ...]]
    titles: Mapping[str, str]
    variant: Callable[[Mapping[str, Any]], str] = lambda params: ""


@dataclass(frozen=True)
class KernelSpec:
    """One kernel: its template, arguments, space, launch, cost and reference.

    ``parameters`` are the names of the problem on which source and time depend.  ``variables`` gives the
    template's names for a problem and a configuration; ``traffic`` the bytes that any implementation must
    move; ``check_problem`` a problem small enough for the reference that takes the same code path.  ``modes``
    are axes that say what the kernel does rather than how fast: tuning leaves them as ``default`` has them.
    ``carry`` takes a configuration recorded for another problem, that problem, the one at hand and the device, and
    gives one of the same proportions: it is asked where the configuration is not valid as it is.
    ``used_with`` has the values of the family's parameters with which a run uses the kernel; any where it is silent.
    ``demand`` says what a configuration asks of a device; without it only launch shape and ``traffic`` are known.
    ``dialects`` are the languages in which its template is written.  ``sweep`` says how its tuning is drawn.
    """

    name: str
    template: str
    doc: str
    arguments: tuple[Argument, ...]
    parameters: tuple[str, ...]
    space: Space
    default: Callable[[Problem, Traits], Config]
    variables: Callable[[Problem, Config, Traits], dict[str, Any]]
    launch: Callable[[Problem, Config, int, Traits], Launch]
    traffic: Callable[[Problem], int]
    flops: Callable[[Problem], int]
    workload: Callable[[Problem, int], Workload]
    check_problem: Callable[[Problem], Problem]
    modes: tuple[str, ...] = ()
    used_with: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    demand: Callable[[Problem, Config, Traits], Demand] | None = None
    carry: Callable[[Config, Problem, Problem, Traits], Config] | None = None
    dialects: tuple[str, ...] = ("cuda", "opencl")
    sweep: Sweep | None = None


@dataclass(frozen=True)
class KernelFamily:
    """A named set of kernels over one declared set of problem parameters.

    ``row_bytes`` gives the bytes of the rows that the family's dominant kernel gathers at random: the size for
    which a device's gather roof is measured.  ``tuned`` names the kernels that are worth tuning, the one that
    takes most of the time first; all of them where it is empty.  ``refusal`` says why values, each allowed by itself,
    make no problem together, or None; ``inputs_refusal`` why there are no inputs to measure a problem on, or None.
    """

    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    kernels: Mapping[str, KernelSpec]
    row_bytes: Callable[[Problem], int]
    tuned: tuple[str, ...] = ()
    refusal: Callable[[Problem], str | None] = lambda problem: None
    inputs_refusal: Callable[[Problem], str | None] = lambda problem: None

    def problem(self, **values: object) -> Problem:
        """A checked problem of this family; raises :class:`InputError`."""
        found = Problem.of(self.name, self.parameters, values)
        reason = self.refusal(found)
        if reason is not None:
            raise InputError(reason)
        return found

    def kernel(self, name: str) -> KernelSpec:
        """The kernel called ``name``; raises :class:`InputError` listing those there are."""
        try:
            return self.kernels[name]
        except KeyError:
            raise InputError(f"{self.name} has no kernel {name!r}; it has {', '.join(self.kernels)}") from None

    def written_in(self, dialect: str) -> dict[str, KernelSpec]:
        """The kernels that a language has."""
        return {name: spec for name, spec in self.kernels.items() if dialect in spec.dialects}

    def worth_tuning(self, problem: Problem) -> tuple[str, ...]:
        """Names of the kernels that a run of ``problem`` uses and that are worth tuning, in the order of ``tuned``."""
        defaults = {p.name: p.default for p in self.parameters}
        return tuple(
            name
            for name in self.tuned or self.kernels
            if all(problem.get(key, defaults[key]) in values for key, values in self.kernels[name].used_with.items())
        )

    @property
    def weights(self) -> dict[str, float]:
        """How much parameters count in the distance between two problems, for those that do not count once."""
        return {p.name: p.weight for p in self.parameters if p.weight != 1.0}

    def carried(self, kernel: str, traits: Traits) -> Callable[..., dict[str, Any]]:
        """What makes a configuration recorded for one problem into one for another: see :class:`KernelSpec`.

        It takes the configuration and the values of the two problems on which the kernel depends.  A configuration
        that is valid as it is, or that cannot be carried over, is returned unchanged.
        """
        spec = self.kernel(kernel)
        axes = {axis.name for axis in spec.space.axes}
        problems: dict[tuple[tuple[str, Value], ...], Problem] = {}

        def problem_of(values: Mapping[str, Value]) -> Problem:
            named = tuple(sorted(values.items()))
            if named not in problems:
                problems[named] = self.problem(**values)
            return problems[named]

        def carry(config: Config, before: Mapping[str, Value], after: Mapping[str, Value]) -> dict[str, Any]:
            if spec.carry is None or set(config) != axes:
                return dict(config)
            try:
                there, here = problem_of(before), problem_of(after)
            except InputError:  # a record of another version, with other parameters
                return dict(config)
            valid = spec.space.refusal(config, here, traits) is None
            return dict(config if valid else spec.carry(config, there, here, traits))

        return carry

    @property
    def soft_parameters(self) -> frozenset[str]:
        """Names in which two problems may differ and still share records."""
        return frozenset(p.name for p in self.parameters if p.soft)


def ordered(arguments: Sequence[Argument], values: Mapping[str, Any]) -> list[Any]:
    """The values of ``arguments`` in their order; raises KeyError for a missing one."""
    return [values[argument.name] for argument in arguments]
