"""From a template, a problem and a configuration to source in one dialect; no GPU library."""

from __future__ import annotations

import functools
import hashlib
import re
import textwrap
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import jinja2
import jinja2.meta

from mmsbgen.kernels.dialect import Dialect, dialect
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.indent_source import tidy, without_unused_defines
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits, describe

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Source:
    """Rendered source, the name of its entry point, and the digest of the templates that it came from."""

    text: str
    entry: str
    template_digest: str
    dialect: str


#: Waits until the launches before have ended and what they wrote is visible.
_WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
_TRIGGER = 'asm volatile("griddepcontrol.launch_dependents;");'
#: Where a kernel says that it reads what the launch before it wrote from there on, and nothing of it earlier.
_EARLY = "/* Up to here nothing is read that the launch before writes. */"
_CONSTANT = re.compile(r"^( *const [^*/\n]+\*) __restrict__ ", re.MULTILINE)


@functools.cache
def environment() -> jinja2.Environment:
    """The Jinja environment of all templates: undefined names are errors, blocks leave no blank lines."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("mmsbgen", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _referenced(name: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    if name in seen:
        return
    seen.add(name)
    env = environment()
    assert env.loader is not None
    text, _, _ = env.loader.get_source(env, name)
    yield name, text
    for other in _names_in(text):
        yield from _referenced(other, seen)


@functools.cache
def _names_in(text: str) -> list[str]:
    """The templates that one of this text names, sorted; most kernels share theirs."""
    return sorted(filter(None, jinja2.meta.find_referenced_templates(environment().parse(text))))


@functools.cache
def template_digest(template: str, dialect_name: str) -> str:
    """The digest of a template with everything that it includes and the dialect's words (16 hex digits).

    It is a part of every database key: an edited template makes its old records a miss.
    """
    digest = hashlib.sha256()
    for name, text in sorted(_referenced(template, set())):
        digest.update(f"{name}\0{text}\0".encode())
    digest.update(repr(sorted(asdict(dialect(dialect_name)).items())).encode())
    return digest.hexdigest()[:16]


def render(spec: KernelSpec, problem: Problem, config: Config, traits: Traits, words: Dialect | None = None) -> Source:
    """Render one kernel for ``traits.dialect``, or in other ``words`` of that language.

    Raises :class:`mmsbgen.base.errors.ConfigError` when the configuration is refused.
    """
    spec.space.check(config, problem, traits)
    words = words or dialect(traits.dialect)
    launch = spec.launch(problem, config, 1, traits)
    variables = spec.variables(problem, config, traits) | {"block_size": launch.block}
    variables["sub_group_size"] = traits.sub_group_size
    text = (
        environment()
        .get_template(spec.template)
        .render(
            d=words,
            kernel=spec,
            arguments=spec.arguments,
            p=problem,
            c=config,
            defines=_defines(variables),
            header="\n".join(
                line
                for about in (
                    f"{spec.name}: {describe(problem.only(spec.parameters))}",
                    f"configuration: {describe(config)}",
                )
                for line in textwrap.wrap(about, 110, subsequent_indent="    ")
            ),
            **variables,
        )
    )
    text = without_unused_defines(text)
    return Source(tidy(text), spec.name, template_digest(spec.template, traits.dialect), words.name)


def _defines(variables: dict[str, Any]) -> dict[str, str]:
    """The numbers and switches among template variables as words of C, by their names in capitals.

    The common prelude defines them, so that templates may write ``LD`` for ``{{ LD }}u`` and ``#if NOISE``.
    """
    written = {bool: lambda x: str(int(x)), int: lambda x: f"{x}u", float: repr}
    return {name.upper(): written[type(value)](value) for name, value in variables.items() if type(value) in written}


def overlapping(source: Source) -> Source:
    """A CUDA source whose kernel may be launched while the launch before it ends, as it waits for that end.

    It does so first, or, where its template says that up to some place it reads nothing that the launch before writes,
    there; the latter also lets the next launch begin from then on.  Nothing may be written, and no work-item may
    return, before that place: the launch after this one waits for this one alone.

    What it reads is no longer declared as constant for as long as it runs: ``const`` and ``__restrict__`` together let
    the compiler read it by another cache than what was written goes through, and before the wait.

    Raises ValueError where the kernel's body is not found exactly once, or there are several such places; the templates
    are to see to that.
    """
    head = re.compile(rf"^void {re.escape(source.entry)}\((?P<parameters>.*?)^\)\n{{\n", re.MULTILINE | re.DOTALL)
    found = list(head.finditer(source.text))
    if source.dialect != "cuda" or len(found) != 1:
        raise ValueError(f"{source.entry} in {source.dialect} has {len(found)} bodies that could begin with a wait")
    begin, end = found[0].span()
    signature = _CONSTANT.sub(r"\1 ", found[0][0])
    if source.text.count(_EARLY) > 1:
        raise ValueError(f"{source.entry} has {source.text.count(_EARLY)} places to wait at")
    if _EARLY in source.text:
        text = f"{source.text[:begin]}{signature}{source.text[end:]}".replace(_EARLY, f"{_WAIT} {_TRIGGER}")
    else:
        text = f"{source.text[:begin]}{signature}    {_WAIT}\n{source.text[end:]}"
    return replace(source, text=text)
