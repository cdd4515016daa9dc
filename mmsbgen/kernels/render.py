"""Renders a template for a problem and a configuration in one dialect; needs no GPU library."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2.bccache import Bucket

from mmsbgen.backends.binary_cache import BinaryCache
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.source.dialect import DIALECTS, Dialect, dialect
from mmsbgen.kernels.source.source_text import digest_of_tokens, indent_source, without_unused_defines
from mmsbgen.kernels.space import Config, Traits, describe


@dataclass(frozen=True)
class Source:
    """Rendered source."""

    text: str
    program: str
    """What is compiled: the text without the comment that begins it, in the same lines."""

    @functools.cached_property
    def digest(self) -> str:
        """The digest of the source's tokens (16 hexadecimal digits): comments and white space do not count."""
        return digest_of_tokens(self.text)


_HEADER = re.compile(r"\A/\*.*?\*/", re.DOTALL)
OWN: dict[str, str] = {}
"""Templates of users' own sources by name; what they render to is not formatted."""


class _CompiledTemplates(jinja2.BytecodeCache):
    """Compiled templates on disk: compiling them takes a third of a second of every run.

    They are code, so a folder that others own or may write is not used.
    """

    def __init__(self) -> None:
        import platformdirs

        self._files = BinaryCache(platformdirs.user_cache_path("mmsbgen") / "templates")

    def load_bytecode(self, bucket: Bucket) -> None:
        if self._is_ours() and (found := self._files.load(self._key(bucket))):
            bucket.bytecode_from_string(found[0])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._files.store(self._key(bucket), bucket.bytecode_to_string(), "")

    def _is_ours(self) -> bool:
        try:
            found = self._files.folder.stat()
        except OSError:
            return False
        return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    @staticmethod
    def _key(bucket: Bucket) -> str:
        """Of all that compiling depends on: name, text, options and Jinja's release."""
        return BinaryCache.key([bucket.key, bucket.checksum, jinja2.__version__, repr(sorted(_OPTIONS.items()))])


_OPTIONS: dict[str, Any] = {
    "trim_blocks": True,
    "lstrip_blocks": True,
    "keep_trailing_newline": True,
    "autoescape": False,
}


PACKAGE = jinja2.PackageLoader("mmsbgen", "templates")
"""The templates of this package, to which a process may add others."""


@functools.cache
def environment() -> jinja2.Environment:
    """The Jinja environment of all templates; undefined names are errors."""
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([PACKAGE, jinja2.DictLoader(OWN)]),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=_CompiledTemplates(),
        **_OPTIONS,
    )


def sources_digest(kernels: Iterable[KernelSpec]) -> str:
    """The digest of the package's templates, of ``kernels`` and of the languages' keywords (16 hex digits).

    Two installations with equal digests render the same sources.  Records do not use it: they depend on the tokens of
    their own program only.
    """
    env, digest = environment(), hashlib.sha256(repr(DIALECTS).encode())
    for name in PACKAGE.list_templates():
        if name.endswith(".jinja"):
            digest.update(f"{name}\0{PACKAGE.get_source(env, name)[0]}\0".encode())
    # The name of a user's own template has a digest of its text.
    digest.update("\0".join(kernel.template for kernel in kernels).encode())
    return digest.hexdigest()[:16]


def render(spec: KernelSpec, problem: Problem, config: Config, traits: Traits, words: Dialect | None = None) -> Source:
    """Render one kernel in the dialect ``words``, by default that of ``traits.dialect``.

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
            entries={
                name: {"name": name, "arguments": arguments} for name, arguments in spec.entry_points(config).items()
            },
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
    made = text if spec.template in OWN else indent_source(without_unused_defines(text))
    program = _HEADER.sub(lambda header: "\n" * header[0].count("\n"), made)
    return Source(made, program)


def _defines(variables: dict[str, Any]) -> dict[str, str]:
    """The numeric and boolean template variables as C literals, by their names in capitals.

    The common prelude defines them as macros, so templates may write ``LD`` for ``{{ LD }}u`` and ``#if NOISE``.
    """
    written = {bool: lambda x: str(int(x)), int: lambda x: f"{x}u", float: repr}
    return {name.upper(): written[type(value)](value) for name, value in variables.items() if type(value) in written}
