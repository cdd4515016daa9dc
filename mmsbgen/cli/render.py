"""``mmsbgen render``: prints the source of a kernel; needs neither a device nor a GPU library."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from mmsbgen.base.errors import InputError, did_you_mean
from mmsbgen.cli.shared.command_options import option
from mmsbgen.cli.shared.common import pairs
from mmsbgen.cli.shared.completed_names import family_option
from mmsbgen.cli.shared.logs import json_option, log_options, no_progress
from mmsbgen.families import family as family_named
from mmsbgen.families import resolve_family
from mmsbgen.kernels.complete import complete, parse_value
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.render import render as render_source
from mmsbgen.kernels.source.dialect import DIALECTS
from mmsbgen.kernels.space import Axis, Traits, describe

_SHORTCUTS = {"k": "K", "m": "m", "n": "n"}
_SUB_GROUP = 32


def _axis_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for every axis of mmsb; axes that the chosen kernel lacks are refused later."""
    axes: dict[str, list[Axis]] = {}
    for spec in family_named().kernels.values():
        for axis in spec.space.axes:
            axes.setdefault(axis.name, []).append(axis)
    for name in sorted(axes, reverse=True):
        values = dict.fromkeys(str(value) for axis in axes[name] for value in axis.values)
        shown = "|".join(values) if len(values) <= 8 else "VALUE"
        add = option(f"--{name.replace('_', '-')}", f"axis_{name}", metavar=shown, help=axes[name][0].doc + ".")
        command = add(command)
    return command


@click.command(help="Print the source of a kernel. Axes that are not given come from the default for the target.")
@click.argument("kernel", required=False)
@family_option()
@option("--backend", type=click.Choice(sorted(DIALECTS)), help="The dialect: cuda (CUDA C) or opencl (OpenCL C).")
@option("--kind", type=click.Choice(["cpu", "gpu"]), help="What it runs on; cpu for opencl, gpu for cuda.")
@option("--list", "listing", is_flag=True, help="List kernels (or one kernel) with their axes.")
@option("-k", type=int, help="Communities: -p K=...")
@option("-m", type=int, help="Vertices of a mini-batch: -p m=...")
@option("-n", type=int, help="Partners of a vertex: -p n=...")
@option("-p", "--problem", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter of the problem.")
@option("--set", "settings", multiple=True, metavar="AXIS=VALUE", help="An axis of the kernel, by name.")
@option("--sub-group-size", type=click.IntRange(min=0), help="Work-items of a sub-group (warp); 0: none.")
@option("--local-memory", type=click.IntRange(min=0), help="Bytes of local (shared) memory a block may have.")
@json_option("Print JSON: configuration and source.")
@log_options
@_axis_options
@click.pass_context
def render(
    context: click.Context,
    /,
    kernel: str | None,
    family: str,
    backend: str | None,
    kind: str | None,
    listing: bool,
    parameters: Sequence[str],
    settings: Sequence[str],
    sub_group_size: int | None,
    local_memory: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the source; say on standard error which values were filled in."""
    kernels = resolve_family(family)
    if listing:
        _list(kernels, kernel)
        return
    if kernel is None and len(kernels.kernels) == 1:
        kernel = next(iter(kernels.kernels))
    if kernel is None:
        raise InputError(f"name a kernel: {', '.join(kernels.kernels)}; --list says more")
    spec = _spec(kernels, kernel)
    problem = _problem(kernels, parameters, options)
    given = _given(spec, settings, options)
    dialect = backend or ("opencl" if "opencl" in spec.dialects else spec.dialects[0])
    if dialect not in spec.dialects:
        raise InputError(f"{spec.name} is not written in {dialect}; it is in {', '.join(spec.dialects)}")
    if kind == "cpu" and dialect == "cuda":
        raise InputError("--kind cpu: CUDA devices are GPUs; choose --backend opencl")
    kind = kind or ("gpu" if dialect == "cuda" else "cpu")
    traits = _traits(dialect, kind, sub_group_size, local_memory)
    found = complete(spec, problem, traits, given)
    where = f"the default on an {dialect} {kind}" if dialect == "opencl" else "the default on CUDA"
    if found.filled and not no_progress(context):
        click.echo(f"filled in from {where}: {describe(found.filled)}", err=True)
    if found.adjusted and not no_progress(context):
        click.echo(f"filled in, since {where} does not go with what was asked: {describe(found.adjusted)}", err=True)
    text = render_source(spec, problem, found.config, traits).text
    if as_json:
        told = {"kernel": spec.name, "problem": dict(problem), "config": found.config, "filled": found.filled}
        click.echo(json.dumps(told | {"adjusted": found.adjusted, "sources": {dialect: text}}, indent=2))
    else:
        _print_source(text)


def _spec(kernels: KernelFamily, name: str) -> KernelSpec:
    if near := did_you_mean(name, kernels.kernels) if name not in kernels.kernels else "":
        raise InputError(f"{kernels.name} has no kernel {name!r}{near} --list has them all")
    return kernels.kernel(name)


def _problem(kernels: KernelFamily, parameters: Sequence[str], options: Mapping[str, Any]) -> Problem:
    short = [f"{_SHORTCUTS[o]}={options[o]}" for o in _SHORTCUTS if options[o] is not None]
    return kernels.problem(**dict(pairs([*short, *parameters], "-p")))


def _given(spec: KernelSpec, settings: Sequence[str], options: Mapping[str, Any]) -> dict[str, Value]:
    asked = [f"{name.removeprefix('axis_')}={text}" for name, text in options.items() if name[:5] == "axis_" and text]
    asked += [f"{name.replace('-', '_')}={text}" for name, text in pairs(settings, "--set")]
    return {name: parse_value(spec, name, text) for name, text in pairs(asked, "--set")}


def _traits(dialect: str, kind: str, sub_group_size: int | None, local_memory: int | None) -> Traits:
    lanes = sub_group_size if sub_group_size is not None else _SUB_GROUP if kind == "gpu" else 0
    memory = 48 * 1024 if local_memory is None else local_memory
    launch = 0 if dialect != "cuda" else 227 * 1024 if local_memory is None else local_memory
    return Traits(dialect, kind, local_memory=memory, launch_memory=launch, sub_group_size=lanes)


def _print_source(text: str) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        click.echo(text, nl=False)
        return
    from rich.syntax import Syntax

    console.print(Syntax(text, "c", background_color="default", word_wrap=True))


def _list(kernels: KernelFamily, only: str | None) -> None:
    specs = [_spec(kernels, only)] if only else list(kernels.kernels.values())
    blocks = []
    for spec in specs:
        lines = [f"{spec.name}: {spec.doc}"]
        for axis in spec.space.axes:
            lines.append(f"    {axis.name:<16}{axis.doc}")
            lines.append(f"    {'':<16}{', '.join(map(str, axis.values))}")
        lines.append(f"    {'problem':<16}{', '.join(spec.parameters)}")
        blocks.append("\n".join(lines))
    choices = {p.name: f": {', '.join(p.choices)}" if p.choices else "" for p in kernels.parameters}
    declared = [f"    {p.name:<16}{p.doc} [{p.default}]{choices[p.name]}" for p in kernels.parameters]
    click.echo("\n\n".join([*blocks, "parameters of a problem (-p NAME=VALUE):\n" + "\n".join(declared)]))
