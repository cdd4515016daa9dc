"""Kernels that are tuned from a user's own CUDA or OpenCL files."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.kernels.family import Argument, Array, Expected, KernelFamily, KernelSpec, Launch, Role, Workload, wrong_of
from mmsbgen.kernels.problem import Parameter, Problem, Value
from mmsbgen.kernels.render import OWN
from mmsbgen.kernels.space import Axis, Config, Constraint, Reads, Space, Traits

Values = Mapping[str, Any]
"""Sizes and axes by name."""

_DIALECTS = {".cl": "opencl", ".cu": "cuda"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_CHECKED = 512
"""Sizes of the check problem are below twice this number.  Larger sizes keep their remainder by it."""
_ROW_BYTES = 4096
"""Bytes of the rows for which a device's gather roof is measured."""
_TEMPLATE = """\
/*
 * {{ header | replace("\\n", "\\n * ") }}
 */

{% for name, value in macros.items() %}
#define {{ name }} {{ value }}
{% endfor %}
"""


def own_kernel(
    name: str,
    *,
    sources: Sequence[str],
    sizes: Mapping[str, int],
    axes: Mapping[str, Sequence[Value]],
    launch: Callable[[Values], Launch],
    arguments: Callable[[Values, np.random.Generator], Mapping[str, Any]],
    answer: Callable[[Values], Mapping[str, Array]],
    traffic: Callable[[Values], int],
    tolerance: float = 1e-5,
    constraints: Mapping[str, Callable[[Values], bool]] | None = None,
    check_sizes: Mapping[str, int] | None = None,
) -> KernelFamily:
    """A family with one kernel, whose source is in files of its own.

    The source reads every axis as a macro.  It reads a size as a macro too, unless an argument has the same name.
    ``launch`` and ``constraints`` take sizes and axes by name, all other functions sizes.

    Args:
        name: The name of the kernel in its source, and of the family in the database.
        sources: Files, relative to the file that calls this: ``.cl`` for OpenCL, ``.cu`` for CUDA, or both.
        sizes: The problem's sizes, with their defaults.
        axes: The values that each macro may take.  The first configuration that is allowed is the default.
        launch: Returns numbers of blocks, and of work-items of a block.
        arguments: Returns the kernel's arguments by name, in their order: arrays and scalars of NumPy.
        answer: Takes the arguments, floating-point ones as float64.  Returns what the kernel writes, by name.
        traffic: Returns the bytes that any implementation must move.
        tolerance: Largest error, as a fraction of the largest absolute value of the answer; integers must be equal.
        constraints: Conditions by their description; a configuration that does not satisfy all is refused.
        check_sizes: Sizes at which each configuration is checked before it is timed.  By default a size of 1024 or more
            becomes the one from 512 to 1023 with the same remainder by 512.

    Raises:
        InputError: A file is missing, a name is not valid or used twice, or arguments and answer do not match.
    """
    frame = inspect.currentframe()
    caller = {} if frame is None or frame.f_back is None else frame.f_back.f_globals
    folder = Path(caller.get("__file__", "")).parent
    named = [sources] if isinstance(sources, str) else sources
    if not (texts := dict(_source(name, folder / file) for file in named)):
        raise InputError(f"{name} has no sources: name a file that ends in {' or '.join(_DIALECTS)}")
    for word in (name, *sizes, *axes):
        if not _NAME.fullmatch(word) or [name, *sizes, *axes].count(word) > 1:
            raise InputError(f"{name}: {word!r} cannot be a name, or is one already; take a name of C that is new")
    for axis, values in axes.items():
        if not len(values) or len(set(values)) < len(values):
            raise InputError(f"{name}: the axis {axis} has no values, or one twice; give it one or more")
    if not tolerance >= 0:
        raise InputError(f"{name}: the tolerance is {tolerance}; give 0 or more")
    if unknown := sorted(set(check_sizes or {}) - set(sizes)):
        raise InputError(f"{name}: check_sizes has {unknown[0]!r}; the sizes are {', '.join(sizes)}")
    parameters = tuple(Parameter(size, default, "a size", minimum=1) for size, default in sizes.items())

    def check_problem(problem: Problem) -> Problem:
        given = {size: problem.integer(size) for size in sizes}
        smaller = {size: n if n < 2 * _CHECKED else _CHECKED + n % _CHECKED for size, n in given.items()}
        return problem.replace(**(smaller | dict(check_sizes or {})))

    small = check_problem(Problem.of(name, parameters, {}))
    declared = _declared(name, arguments(small, np.random.default_rng(0)), answer)
    own = {argument.name for argument in declared}
    if clash := sorted(own & set(axes)):
        raise InputError(f"{name}: {clash[0]!r} is an axis and an argument: rename one, in the source too")
    words = set(re.findall(r"\w+", " ".join(texts.values())))
    macros = [word for word in (*axes, *sizes) if word in words - own]

    def variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
        values = _both(config, problem)
        return {"macros": {macro: _literal(values[macro]) for macro in macros}}

    def unfit(config: Config, problem: Problem, traits: Traits) -> str | None:
        planned, most = launch(_both(config, problem)), traits.max_block_size
        if any(each < 1 for numbers in planned.shape for each in numbers):
            blocks, items = (" x ".join(map(str, numbers)) for numbers in planned.shape)
            return f"{blocks} blocks of {items} work-items: each is 1 or more"
        return f"{planned.block} work-items, the device has up to {most}" if planned.block > most else None

    def condition(holds: Callable[[Values], bool]) -> Callable[[Config, Problem, Traits], str | None]:
        return lambda config, problem, traits: None if holds(_both(config, problem)) else "does not hold"

    rules = [Constraint(text, condition(holds)) for text, holds in (constraints or {}).items()]
    space = Space(
        tuple(Axis(axis, tuple(values), "macro of the source") for axis, values in axes.items()),
        (*rules, Constraint("block", unfit)),
    )

    for rule in space.constraints:  # mistakes in the functions are told now, with the line of the user's file
        rule.check(next(space.product()), small, Traits("opencl", "cpu"))
    if (moved := int(traffic(small))) < 0:
        raise InputError(f"{name}: the traffic is {moved} bytes; return 0 or more")

    @functools.lru_cache(maxsize=64)
    def default(problem: Problem, traits: Traits) -> dict[str, Value]:
        allowed = (config for config, reason, _ in space.judged(problem, traits) if reason is None)
        return next(allowed, None) or next(space.product())

    @functools.lru_cache(maxsize=2)  # the problem that is timed, and the one that each configuration is checked with
    def workload(problem: Problem, seed: int) -> Workload:
        given = dict(arguments(problem, np.random.default_rng(seed)))
        expected = functools.cache(lambda: _expected(given, answer, tolerance))

        def verify(got: Mapping[str, Array], config: Config) -> str | None:
            return wrong_of(got, expected())

        changed = any(argument.role == "inout" for argument in declared)
        return Workload(given, 1, verify, repeats="restored" if changed else "same")

    template = f"own/{name}-{digest(texts)}.jinja"
    OWN[template] = _TEMPLATE + "{{ " + json.dumps(texts, ensure_ascii=False) + "[d.name] }}"
    kernel = KernelSpec(
        name=name,
        template=template,
        doc=f"{name} of {', '.join(map(str, named))}",
        arguments=declared,
        parameters=tuple(sizes),
        space=space,
        default=lambda problem, traits: dict(default(problem, traits)),
        variables=variables,
        launch=lambda problem, config, count, traits: launch(_both(config, problem)),
        traffic=lambda problem: int(traffic(problem)),
        workload=workload,
        check_problem=check_problem,
        dialects=tuple(texts),
    )
    return KernelFamily(name, kernel.doc, parameters, {name: kernel}, row_bytes=lambda problem: _ROW_BYTES)


def _both(config: Config, problem: Problem) -> Values:
    """Axes and sizes in one mapping, which reads only what is asked for."""
    return ChainMap(config, problem)  # type: ignore[arg-type]


def _source(name: str, path: Path) -> tuple[str, str]:
    """The dialect of a source file, and its text as it is compiled; compilers report the file's own lines."""
    if path.suffix not in _DIALECTS:
        raise InputError(f"{path}: a source ends in .cl for OpenCL or .cu for CUDA; rename it")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"the source {path} cannot be read ({error}): name a file beside the declaration") from None
    if not re.search(rf"\b{name}\b", text):
        raise InputError(f"{path} has no kernel {name!r}: give the name that the source has")
    text = f"#line 1 {json.dumps(path.name)}\n{text.rstrip()}\n"
    if path.suffix == ".cu" and 'extern "C"' not in text:
        text = f'extern "C" {{\n{text}}}\n'
    return _DIALECTS[path.suffix], text


def _declared(
    name: str, given: Mapping[str, Any], answer: Callable[[Values], Mapping[str, Array]]
) -> tuple[Argument, ...]:
    """The arguments with their roles: an output is "inout" if the answer depends on its first values.

    Raises :class:`InputError` for an argument that is not of NumPy, and for an answer that does not match.
    """
    for each, value in given.items():
        if not isinstance(value, np.ndarray | np.generic):
            raise InputError(
                f"{name}: the argument {each} is a {type(value).__name__}: make it a NumPy array or scalar"
            )
    read = _Arguments(given)
    right = answer(read)
    for each, value in right.items():
        if not isinstance(given.get(each), np.ndarray) or np.shape(value) != given[each].shape:
            raise InputError(
                f"{name}: the answer has {each!r} of shape {np.shape(value)}: give what the kernel writes the name and "
                "shape of an argument; there are "
                + ", ".join(f"{one} {np.shape(array)}" for one, array in given.items())
            )
    if not right:
        raise InputError(f"{name}: the answer is empty: return the values of the arrays that the kernel writes")

    def role(each: str) -> Role:
        if each in right:
            return "inout" if each in read.names else "out"
        return "in" if isinstance(given[each], np.ndarray) else "scalar"

    return tuple(
        Argument(each, str(value.dtype), role(each), str(list(value.shape)) if value.shape else "")
        for each, value in given.items()
    )


class _Arguments(Reads):
    """Arguments as the answer gets them: floating-point numbers in float64."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return value.astype(np.float64) if value.dtype.kind == "f" else value


def _expected(
    given: Mapping[str, Any], answer: Callable[[Values], Mapping[str, Array]], tolerance: float
) -> dict[str, Expected]:
    """The reference values of all outputs by name."""
    found = {}
    for name, value in answer(_Arguments(given)).items():
        most = float(np.max(np.abs(value), initial=0.0)) if given[name].dtype.kind == "f" else 0.0
        if not np.isfinite(most):
            raise InputError(f"the answer has {name} with {most}: give arguments for which it is finite")
        found[name] = Expected(np.asarray(value), np.asarray(tolerance * most))
    return found


def _literal(value: Value) -> str:
    """A value as macros have it: true is 1, false is 0."""
    return str(int(value) if isinstance(value, bool) else value)
