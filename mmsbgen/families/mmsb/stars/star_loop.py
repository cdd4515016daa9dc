"""A persistent CUDA kernel for many iterations, with the kernels of an iteration as its stages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mmsbgen.base.errors import ConfigError
from mmsbgen.families.mmsb.axes.small_spaces import stored_row_bytes
from mmsbgen.families.mmsb.numbers.row_layout import row_length, theta_groups
from mmsbgen.families.mmsb.numbers.storage import storage_of
from mmsbgen.kernels.family import Argument, KernelSpec
from mmsbgen.kernels.kit.reals import real_name
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import Source, environment, render
from mmsbgen.kernels.source.dialect import CUDA, CUDA_STAGE
from mmsbgen.kernels.source.source_text import indent_source
from mmsbgen.kernels.space import Config, Traits

TEMPLATE = "mmsb/stars/star_loop.jinja"
#: Names of the stages, in order.
STAGES = ("update_phi", "exchange_slots", "theta_partial", "theta_end")
#: Arguments that the loop sets in every iteration.
_OF_ITERATION = frozenset(
    [
        *("n_vertices", "first_vertex", "n_pairs", "first_pair", "n_groups"),
        *("iteration", "half_step", "decay", "spread", "step"),
    ]
)
_OWN = (
    Argument("sizes", "u32", "in", "[R] vertices of each iteration's star; 0 for none"),
    Argument("schedule", "real", "in", "[R, 3] half_step, decay and spread of each iteration"),
    Argument("theta_steps", "double", "in", "[R] theta's step"),
    Argument("arrived", "u32", "inout", "[1] blocks that came to barriers; 0 before a launch"),
    Argument("first_round", "u32", "scalar", "place of the first iteration in these arrays"),
    Argument("n_rounds", "u32", "scalar", "iterations of this launch"),
    Argument("first_iteration", "u32", "scalar", "number of the first"),
    Argument("stride", "u32", "scalar", "places that each iteration has in the arrays of vertices and pairs"),
)


@dataclass(frozen=True)
class _Stage:
    name: str
    text: str
    arguments: tuple[Argument, ...]
    blocks: str

    @property
    def defines(self) -> list[str]:
        """Macro names that the stage's text defines; other stages may define them differently."""
        return sorted(set(re.findall(r"^#define (\w+)", self.text, re.MULTILINE)))


@dataclass(frozen=True)
class StarLoop:
    """The rendered loop: source, arguments of its kernel in order, and block size."""

    source: Source
    arguments: tuple[Argument, ...]
    block_size: int


def _blocks(spec: KernelSpec, problem: Problem, config: Config, traits: Traits) -> str:
    """Number of blocks of a stage, as an expression in the loop's source."""
    if spec.name == "theta_end":
        return f"{spec.launch(problem, config, row_length(problem.integer('K')), traits).grid}u"
    units = "n_groups" if spec.name == "theta_partial" else "n_vertices"
    # Work units per block: the largest count with a grid of one block.
    each = next(n for n in range(1, 2050) if spec.launch(problem, config, n + 1, traits).grid > 1)
    return units if each == 1 else f"({units} + {each - 1}u) / {each}u"


def fitted(
    specs: Mapping[str, KernelSpec], problem: Problem, configs: Mapping[str, Config], traits: Traits
) -> dict[str, Config]:
    """Configurations of all stages with update_phi's block size, as close to ``configs`` as the spaces allow.

    Raises:
        ConfigError: If a stage has no configuration with that block size.
    """
    block = int(configs["update_phi"]["block_size"])
    found = {"update_phi": configs["update_phi"]}
    for name in STAGES[1:]:
        spec, wanted = specs[name], dict(configs[name]) | {"block_size": block}
        if "pairs_in_flight" in wanted:
            # All stages share a register count: four pairs in flight would halve the number of blocks that gather rows.
            wanted["pairs_in_flight"] = min(2, int(wanted["pairs_in_flight"]))
        candidates = [other for other in spec.space.configs(problem, traits) if int(other["block_size"]) == block]
        if not candidates:
            raise ConfigError(f"{name} has no configuration with blocks of {block}")
        differences = [sum(other[axis] != wanted[axis] for axis in wanted) for other in candidates]
        found[name] = candidates[differences.index(min(differences))]
    return found


def star_loop(
    specs: Mapping[str, KernelSpec], problem: Problem, configs: Mapping[str, Config], traits: Traits
) -> StarLoop:
    """Render the loop of the kernels ``specs`` with ``configs``, which have the same block size.

    Raises:
        ConfigError: If block sizes differ, update_phi does not normalise pi, or the dialect is not CUDA, since OpenCL
            does not guarantee progress of blocks that wait for each other.
    """
    sizes = {int(configs[name]["block_size"]) for name in STAGES}
    if traits.dialect != CUDA.name:
        raise ConfigError("many iterations in one launch need CUDA, whose blocks may wait: use --separate")
    if len(sizes) != 1:
        raise ConfigError(f"the stages of one launch have one block size, not {sorted(sizes)}")
    if not configs["update_phi"]["normalise"]:
        raise ConfigError("many iterations in one launch need an update_phi that normalises its rows")
    stages, seen = [], {argument.name: argument for argument in _OWN}
    for name in STAGES:
        spec, config = specs[name], configs[name]
        text = render(spec, problem, config, traits, CUDA_STAGE).text
        stages.append(_Stage(name, text, spec.arguments, _blocks(spec, problem, config, traits)))
        for argument in spec.arguments:
            known = seen.get(argument.name)
            if argument.name not in _OF_ITERATION and (known is None or known.role == "in"):
                seen[argument.name] = argument
    arguments = tuple(seen.values())
    block_size = sizes.pop()
    text = (
        environment()
        .get_template(TEMPLATE)
        .render(
            stages=stages,
            arguments=arguments,
            block_size=block_size,
            groups=theta_groups(problem),
            LD=row_length(problem.integer("K")),
            row_bytes=stored_row_bytes(problem),
            real=real_name(problem),
            types={"stored": "unsigned short" if storage_of(problem).narrow else "real"},
        )
    )
    text = indent_source(text)
    source = Source(text, text)
    return StarLoop(source, arguments, block_size)
