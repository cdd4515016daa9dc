"""Declarations of kernels and of families of kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError, did_you_mean
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.problem import Parameter, Problem, Value
from mmsbgen.kernels.roof import RoofKind
from mmsbgen.kernels.space import Config, Space, Sweep, Traits

Array = npt.NDArray[Any]
# What a call makes of inputs for later calls is "kept": no result, and not restored.
Role = Literal["in", "out", "inout", "kept", "scalar"]
Repeats = Literal["same", "continued", "restored"]


@dataclass(frozen=True)
class Argument:
    """One kernel argument: ``ctype`` is a type of the templates (real, u32, u64, double); ``doc`` has the shape."""

    name: str
    ctype: str
    role: Role
    doc: str


def named(known: Iterable[Argument], *given: str | Argument) -> tuple[Argument, ...]:
    """Arguments in order: those of ``known`` whose names a text has, ``name:role`` in another role, and others."""
    by_name, found = {one.name: one for one in known}, list[Argument]()
    for one in given:
        if isinstance(one, Argument):
            found.append(one)
            continue
        for name, _, role in (word.partition(":") for word in one.split()):
            found.append(replace(by_name[name], role=cast(Role, role)) if role else by_name[name])
    return tuple(found)


@dataclass(frozen=True, init=False)
class Launch:
    """A launch of one to three dimensions.

    It is made from ``grid``, the number of blocks, and ``block``, the work-items of a block: each a number, or a tuple
    in the order x, y, z.  ``shared`` is the dynamic shared memory in bytes a block, beyond what the kernel declares
    (CUDA only).

    Attributes:
        shape: Grid and block as tuples.
    """

    shape: tuple[tuple[int, ...], tuple[int, ...]]
    shared: int

    def __init__(self, grid: int | tuple[int, ...], block: int | tuple[int, ...], shared: int = 0) -> None:
        dimensions = tuple((each,) if isinstance(each, int) else tuple(each) for each in (grid, block))
        object.__setattr__(self, "shape", dimensions)
        object.__setattr__(self, "shared", shared)

    @property
    def grid(self) -> int:
        """The number of blocks, over all dimensions."""
        return math.prod(self.shape[0])

    @property
    def block(self) -> int:
        """The number of work-items of a block, over all dimensions."""
        return math.prod(self.shape[1])


@dataclass(frozen=True)
class Demand:
    """An estimate of the resources that one call with a configuration needs; sizes are bytes.

    The cost model orders unmeasured configurations by it (:mod:`mmsbgen.tuner.search.candidates`).
    """

    moved: int
    """Traffic between memory and the chip; repeated transfers count again."""
    units: int = 0
    """Work units of the launch; 0 if unknown."""
    near: int = 0
    """Additional traffic through caches, local memory and thread-local arrays."""
    local: int = 0
    """Local memory of a block."""
    private: int = 0
    """Registers and thread-local arrays of a work-item."""
    wanted: int = 16
    """Bytes in flight for each work-item: requested before it waits for the first of them."""
    barriers: int = 0
    """Barriers that a block passes in its lifetime."""
    busy: float = 1.0
    """Fraction of the work-items that have work."""


@dataclass(frozen=True)
class Expected:
    """The reference value of one output; it must hold that ``|got - value| <= tolerance`` element by element.

    ``allowed`` is the fraction of elements that may violate it, for acceptance-rejection draws, whose integers may
    change with the last bit of an input.  ``name`` begins error messages.
    """

    value: Array
    tolerance: Array
    allowed: float = 0.0
    name: str = ""

    def errors(self, got: Array) -> str | None:
        """An error message that names the worst element, or None when ``got`` agrees."""
        begin = f"{self.name}: " if self.name else ""
        if got.shape != self.value.shape:
            return f"{begin}shape {got.shape} instead of {self.value.shape}"
        if not np.all(np.isfinite(got)):
            return f"{begin}{int(np.sum(~np.isfinite(got)))} of {got.size} elements are not finite"
        off = np.abs(got.astype(np.float64) - self.value)
        bad = ~(off <= self.tolerance)
        if np.count_nonzero(bad) <= self.allowed * got.size:
            return None
        ratio = off / np.maximum(self.tolerance, 1e-300)
        worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        return (
            f"{begin}{int(np.count_nonzero(bad))} of {got.size} elements are off; worst at {tuple(map(int, worst))}: "
            f"{float(got[worst]):.9g} instead of {float(self.value[worst]):.9g}, "
            f"tolerance {float(np.broadcast_to(self.tolerance, got.shape)[worst]):.3g}"
        )


Judge = Callable[[Mapping[str, Array], Config], str | None]
"""Takes outputs by name and the configuration; returns an error message, or None if they are right."""


def exact(value: Array, name: str = "") -> Expected:
    """The reference value of an output that has to be equal."""
    return Expected(value, np.zeros(1), name=name)


def wrong_of(got: Mapping[str, Array], expected: Mapping[str, Expected]) -> str | None:
    """The error message about the first of several outputs that is wrong, or None."""
    found = (replace(each, name=name).errors(got[name]) for name, each in expected.items())
    return next((wrong for wrong in found if wrong is not None), None)


@dataclass(frozen=True)
class Units:
    """Outputs of a launch by unit, such as a vertex of a mini-batch: some of them can be checked without the others.

    Attributes:
        count: The number of units.
        places: Takes units ``[s]``.  Returns, by names of outputs, which entries of the first axis they write: ``[s]``,
            or ``[s, e]`` if a unit writes several.
        reference: Takes units ``[s]`` and the turn of a launch (0 for the first one, with ``arguments``; see
            :func:`at_turn`).  Evaluates the reference for them, and returns a check of ``outputs[places]``.
        changed: Whether a launch changes something of every unit's initial outputs, so that one as before was left out.
    """

    count: int
    places: Callable[[Array], Mapping[str, Array]]
    reference: Callable[[Array, int], Judge]
    changed: bool = True


def all_units(units: Sequence[Units]) -> Judge:
    """A check of all units of a first launch; it takes all outputs by name.  The first call evaluates the reference."""
    known: list[tuple[Mapping[str, Array], Judge]] = []

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        for number, each in enumerate(units):
            if number == len(known):
                every = np.arange(each.count)
                known.append((each.places(every), each.reference(every, 0)))
            places, right = known[number]
            if (wrong := right({name: got[name][at] for name, at in places.items()}, config)) is not None:
                return wrong
        return None

    return judge


def at_turn(arguments: dict[str, Any], rotations: Sequence[Mapping[str, Array]], turn: int) -> dict[str, Any]:
    """The arguments of a launch: a timing loop goes through ``arguments`` and their replacements again and again."""
    return {**arguments, **[{}, *rotations][turn % (len(rotations) + 1)]}


@dataclass
class Workload:
    """Inputs of one kernel and a check of its outputs against the reference.

    Attributes:
        arguments: An array or a NumPy scalar for every argument by name.
        count: The number of work units (vertices, pairs) of the launch.
        verify: Checks all outputs of a first launch.
        rotations: Replacements of some arguments.  A timing loop cycles through them, so that no call finds its inputs
            in a cache.
        units: How a large launch is checked in part; empty if ``verify`` is fast at every size.
        repeats: What a call finds that follows others, for kernels with an ``inout`` argument:
            "same": the results are those of a first call, apart from what ``units`` do not check at a later turn;
            "continued": it goes on from what the others left, which changes its results but not its time;
            "restored": what the kernel writes is restored before every call, outside the measured time.
        prepare: Returns inputs that depend on the configuration, by name; its seconds are recorded too.
        prepared_by: The axes that ``prepare`` reads.  The inputs are kept until one of them changes.
    """

    arguments: dict[str, Any]
    count: int
    verify: Judge
    rotations: list[dict[str, Array]] = field(default_factory=list)
    units: tuple[Units, ...] = ()
    repeats: Repeats | None = None
    prepare: Callable[[Config], Mapping[str, Any]] | None = None
    prepared_by: tuple[str, ...] = ()

    def prepared(self, config: Config) -> Workload:
        """The workload with the inputs for a configuration."""
        return self if self.prepare is None else replace(self, arguments=self.arguments | dict(self.prepare(config)))


@dataclass(frozen=True)
class KernelSpec:
    """One kernel: its template, arguments, space, launch, cost and reference.

    Attributes:
        parameters: Names of the problem parameters on which source and time depend.
        variables: Returns the template's variables for a problem and a configuration.
        traffic: Returns the bytes that any implementation must move.
        roof: Returns what their rate is compared with, if most are not read; without, with a gather.
        check_problem: Returns a problem with the same code path that is small enough for the reference.
        modes: Axes that decide what the kernel computes rather than how fast.  Tuning keeps their default values.
        used_with: Values of the parameters with which a run uses the kernel; those without an entry may have any.
        demand: Estimates the resources that a configuration needs, beside launch shape and ``traffic``.
        carry: Scales a configuration that was recorded for another problem and is not valid for this one.  It takes
            the configuration, the recorded problem, this problem and the device's traits.
        dialects: The languages in which its template is written.
        sweep: How its measurements are plotted.
        entries: Returns entry points by name, with their arguments in order; without it the kernel is the only one.
        program: Queues the launches of one call, if one launch is not enough.  ``launch`` then gives the shape of the
            launch that has the units of the workload in order.
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
    workload: Callable[[Problem, int], Workload]
    check_problem: Callable[[Problem], Problem]
    modes: tuple[str, ...] = ()
    used_with: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    demand: Callable[[Problem, Config, Traits], Demand] | None = None
    carry: Callable[[Config, Problem, Problem, Traits], Config] | None = None
    dialects: tuple[str, ...] = ("cuda", "opencl")
    sweep: Sweep | None = None
    entries: Callable[[Config], Mapping[str, tuple[Argument, ...]]] | None = None
    program: Callable[[Launches], None] | None = None
    roof: Callable[[Problem], RoofKind] | None = None

    def entry_points(self, config: Config) -> Mapping[str, tuple[Argument, ...]]:
        """The entry points of a configuration's source by name, with their arguments in order."""
        return {self.name: self.arguments} if self.entries is None else self.entries(config)

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the arguments that the kernel writes."""
        return tuple(argument.name for argument in self.arguments if argument.role in ("out", "inout"))

    def check_workload(self, workload: Workload) -> None:
        """Raise :class:`InputError` for a workload that does not say what a second call finds, or cannot have it."""
        if self.program is not None and workload.rotations:
            raise InputError(f"{self.name} is a program, which may exchange its arrays: give it no rotations")
        changed = [argument.name for argument in self.arguments if argument.role == "inout"]
        if changed and workload.repeats is None:
            raise InputError(
                f"{self.name} changes its input {changed[0]}, and its workload does not say what a second call finds: "
                'give it repeats="same", "continued" or "restored"'
            )


@dataclass(frozen=True)
class Dataset:
    """A user's data as problem and inputs.

    Attributes:
        values: Problem parameters: its sizes, and features on which times depend, such as a largest degree.  Features
            are soft parameters: records of other data then count by their distance.
        workload: Returns the inputs and the check of a kernel on these data; takes its name, the problem and a seed.
        name: Returns what tells the data apart on which a kernel's times depend, by its name; "" for generated inputs.
    """

    values: Mapping[str, Value]
    workload: Callable[[str, Problem, int], Workload]
    name: Callable[[str], str]


@dataclass(frozen=True)
class KernelFamily:
    """A set of kernels over one declared set of problem parameters.

    Attributes:
        row_bytes: Returns the bytes of the rows that the dominant kernel gathers at random, for the gather roof.
        tuned: Names of the kernels that are worth tuning, the most expensive first; empty for all kernels.
        launches: Launches in an iteration of a run, by names of kernels; 1 for the others.
        refusal: Returns why a combination of allowed values is no valid problem, or None.
        inputs_refusal: Returns why no inputs can be generated to measure a problem, or None.
        read: Reads a file of a user's data, on which kernels are then measured instead of on generated inputs.
    """

    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    kernels: Mapping[str, KernelSpec]
    row_bytes: Callable[[Problem], int]
    tuned: tuple[str, ...] = ()
    launches: Mapping[str, float] = field(default_factory=dict)
    refusal: Callable[[Problem], str | None] = lambda problem: None
    inputs_refusal: Callable[[Problem], str | None] = lambda problem: None
    read: Callable[[Path], Dataset] | None = None

    def dataset(self, file: Path) -> Dataset:
        """The data of a file; raises :class:`InputError` if the family reads none, and what its reader raises."""
        if self.read is None:
            raise InputError(f"{self.name} has no reader of data: its inputs are generated for the problem")
        return self.read(file)

    def problem(self, **values: object) -> Problem:
        """A checked problem of this family; raises :class:`InputError`."""
        if reason := self.refusal(found := Problem.of(self.name, self.parameters, values)):
            raise InputError(reason)
        return found

    def kernel(self, name: str) -> KernelSpec:
        """The kernel called ``name``; raises :class:`InputError` that lists the kernels of the family."""
        if name not in self.kernels:
            near = did_you_mean(name, self.kernels) or f"; it has {', '.join(self.kernels)}"
            raise InputError(f"{self.name} has no kernel {name!r}{near}")
        return self.kernels[name]

    def written_in(self, dialect: str) -> dict[str, KernelSpec]:
        """The kernels that have a template in a language, by name."""
        return {name: spec for name, spec in self.kernels.items() if dialect in spec.dialects}

    def worth_tuning(self, problem: Problem) -> tuple[str, ...]:
        """Names of the kernels worth tuning that a run of ``problem`` uses, in the order of ``tuned``."""
        defaults = {p.name: p.default for p in self.parameters}
        return tuple(
            name
            for name in self.tuned or self.kernels
            if all(problem.get(key, defaults[key]) in values for key, values in self.kernels[name].used_with.items())
        )

    @property
    def weights(self) -> dict[str, float]:
        """Weights other than 1 of parameters in the distance between two problems."""
        return {p.name: p.weight for p in self.parameters if p.weight != 1.0}

    def carried(self, kernel: str, traits: Traits) -> Callable[..., dict[str, Any]]:
        """A function that adapts a recorded configuration to another problem; see :class:`KernelSpec`.

        It takes the configuration, the parameters of the recorded problem and those of the new one.  It returns a
        configuration unchanged if that is already valid or cannot be adapted.
        """
        spec = self.kernel(kernel)
        axes = {axis.name for axis in spec.space.axes}

        @cache
        def problem_of(*named: tuple[str, Value]) -> Problem:
            return self.problem(**dict(named))

        def carry(config: Config, before: Mapping[str, Value], after: Mapping[str, Value]) -> dict[str, Any]:
            if spec.carry is None or set(config) != axes:
                return dict(config)
            try:
                there, here = (problem_of(*sorted(values.items())) for values in (before, after))
            except InputError:  # a record of another version, with other parameters
                return dict(config)
            valid = spec.space.refusal(config, here, traits) is None
            return dict(config if valid else spec.carry(config, there, here, traits))

        return carry

    @property
    def soft_parameters(self) -> frozenset[str]:
        """Names of the parameters with choices in which two problems may differ and still share records."""
        return frozenset(p.name for p in self.parameters if p.soft and p.choices)
