"""Rendering: undefined names, digests, layout."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest

import mmsbgen.kernels.render
from mmsbgen.base.errors import ConfigError, InputError
from mmsbgen.families import family
from mmsbgen.kernels.indent_source import tidy
from mmsbgen.kernels.render import environment, render, template_digest
from mmsbgen.kernels.space import Traits

CUDA = Traits("cuda", "gpu", sub_group_size=32)


def test_undefined_names_are_errors() -> None:
    with pytest.raises(jinja2.UndefinedError, match="no_such_name"):
        environment().from_string("{{ no_such_name }}").render()


def test_refused_configurations_are_not_rendered() -> None:
    mmsb = family()
    with pytest.raises(ConfigError, match="not a whole number of teams of 32"):
        render(mmsb.kernel("theta_end"), mmsb.problem(), {"share": 32, "block_size": 48}, CUDA)


def test_unknown_dialect() -> None:
    with pytest.raises(InputError, match="no dialect 'metal'"):
        template_digest("mmsb/update_phi.jinja", "metal")


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the templates that a test may change."""
    folder = tmp_path / "templates"
    shutil.copytree(Path(mmsbgen.kernels.render.__file__).parents[1] / "templates", folder)
    other = environment().overlay(loader=jinja2.FileSystemLoader(folder))
    monkeypatch.setattr(mmsbgen.kernels.render, "environment", lambda: other)
    template_digest.cache_clear()
    yield folder
    template_digest.cache_clear()


@pytest.mark.parametrize(
    "part", ["mmsb/update_phi.jinja", "mmsb/step.jinja", "common/philox.jinja", "common/row.jinja"]
)
def test_digest_changes_with_every_part_of_a_template(templates: Path, part: str) -> None:
    before = template_digest("mmsb/update_phi.jinja", "cuda")
    other = template_digest("mmsb/edge_lookup.jinja", "cuda")
    path = templates / part
    path.write_text(path.read_text() + "\n/* a remark */\n")
    template_digest.cache_clear()
    assert template_digest("mmsb/update_phi.jinja", "cuda") != before
    assert template_digest("mmsb/edge_lookup.jinja", "cuda") == other


def test_digest_depends_on_the_dialect() -> None:
    assert template_digest("mmsb/update_phi.jinja", "cuda") != template_digest("mmsb/update_phi.jinja", "opencl")


def test_source_carries_its_digest_and_entry() -> None:
    mmsb = family()
    spec = mmsb.kernel("update_beta")
    source = render(spec, mmsb.problem(K=5), {"block_size": 32}, CUDA)
    assert source.entry == "update_beta"
    assert source.template_digest == template_digest(spec.template, "cuda")
    assert "K=5" in source.text.splitlines()[1]


def test_tidy_indents_by_braces() -> None:
    ragged = """
/* one,
   two { */
void f(
int a, /* ( */
      int b)
{
if (a)
b += 1;
        for (;;) {
  g( (int)a,
b);
    }


    return a
+ b;
}
void g() {}
"""
    assert tidy(ragged).splitlines() == [
        "/* one,",
        "   two { */",
        "void f(",
        "    int a, /* ( */",
        "    int b)",
        "{",
        "    if (a)",
        "        b += 1;",
        "    for (;;) {",
        "        g((int)a,",
        "            b);",
        "    }",
        "",
        "    return a",
        "        + b;",
        "}",
        "",
        "void g() {}",
    ]


def test_tidy_changes_nothing_twice() -> None:
    mmsb = family()
    for spec in mmsb.kernels.values():
        text = render(spec, mmsb.problem(K=20), spec.default(mmsb.problem(K=20), CUDA), CUDA).text
        assert tidy(text) == text
