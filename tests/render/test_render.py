"""Rendering: undefined names, digests, layout."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest

import mmsbgen.kernels.render
from mmsbgen.base.errors import ConfigError, InputError
from mmsbgen.families import family
from mmsbgen.kernels.indent_source import tidy, without_unused_defines
from mmsbgen.kernels.render import Source, environment, overlapping, render, template_digest
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
        template_digest("mmsb/stages/update_phi.jinja", "metal")


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
    "part",
    ["mmsb/stages/update_phi.jinja", "mmsb/rows/step.jinja", "common/random/philox.jinja", "common/rows/row.jinja"],
)
def test_digest_changes_with_every_part_of_a_template(templates: Path, part: str) -> None:
    before = template_digest("mmsb/stages/update_phi.jinja", "cuda")
    other = template_digest("mmsb/state/edge_lookup.jinja", "cuda")
    path = templates / part
    path.write_text(path.read_text() + "\n/* a remark */\n")
    template_digest.cache_clear()
    assert template_digest("mmsb/stages/update_phi.jinja", "cuda") != before
    assert template_digest("mmsb/state/edge_lookup.jinja", "cuda") == other


def test_digest_depends_on_the_dialect() -> None:
    template = "mmsb/stages/update_phi.jinja"
    assert template_digest(template, "cuda") != template_digest(template, "opencl")


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


WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'


TRIGGER = 'asm volatile("griddepcontrol.launch_dependents;");'
EARLY = "/* Up to here nothing is read that the launch before writes. */"


@pytest.mark.parametrize("kernel", list(family().written_in("cuda")))
def test_overlapping_kernels_wait(kernel: str) -> None:
    """First of all, or where the template says so; and no array is said to be constant for as long as a kernel runs."""
    memory = {"local_memory": 48 * 1024, "launch_memory": 227 * 1024}
    traits = Traits("cuda", "gpu", sub_group_size=32, warp_groups=True, **memory)
    spec, problem = family().kernel(kernel), family().problem()
    source = render(spec, problem, spec.default(problem, traits), traits)
    before, after = source.text.splitlines(), overlapping(source).text.splitlines()
    (place,) = (number for number, line in enumerate(after) if WAIT in line)
    entry = before.index(f"void {kernel}(")
    body = before.index("{", entry)
    assert 'extern "C" __global__' in before[entry - 1]
    if EARLY in source.text:
        assert after[place].strip() == f"{WAIT} {TRIGGER}"
        assert before[place].strip() == EARLY
        assert "return;" not in "".join(before[body:place] if place > body else before[:place])
        after[place] = before[place]
    else:
        assert TRIGGER not in "".join(after)
        assert after[place - 2 : place + 1] == [")", "{", f"    {WAIT}"]
        assert place == body + 1
        assert ")" not in before[entry : place - 2], "the wait is in the body of the kernel itself"
        del after[place]
    assert [line.replace(" __restrict__ ", " ") for line in after] == [
        line.replace(" __restrict__ ", " ") for line in before
    ]
    assert after[:entry] + after[body:] == before[:entry] + before[body:]
    arrays = [argument for argument in spec.arguments if argument.role != "scalar"]
    declared = after[entry + 1 : body - 1]
    for argument in arrays:
        (line,) = (line for line in declared if re.search(rf" {argument.name}\b", line.partition("/*")[0]))
        assert ("__restrict__" in line) == (argument.role != "in"), line


#: What a launch of these may follow, in a run or a benchmark.
BEFORE = {
    "star_factors": ("star_marks", "theta_end", "star_rows", "exchange_slots"),
    "star_scales": ("star_factors",),
    "star_sums": ("star_scales",),
    "star_rows": ("star_sums", "star_shared"),
}


@pytest.mark.parametrize("partners", ["shared", "shared-uniform"])
@pytest.mark.parametrize("kernel", list(BEFORE))
def test_what_is_read_early_is_nothing_that_the_launch_before_writes(kernel: str, partners: str) -> None:
    """But for pi, of which the end of a row reads its own row where the launch before writes to spare ones."""
    memory = {"local_memory": 48 * 1024, "launch_memory": 227 * 1024}
    traits = Traits("cuda", "gpu", sub_group_size=32, warp_groups=True, **memory)
    spec, problem = family().kernel(kernel), family().problem(K=1024, n=256, partners=partners, products="half")
    text = render(spec, problem, spec.default(problem, traits), traits).text
    body = text[text.index("\n{\n", text.index(f"void {kernel}(")) :]
    early = body.partition(EARLY)[0]
    if kernel == "star_sums":  # its wait is in the product: slices of B, which are shared_rows, come before it
        early = body.partition("const factors both")[0] + "shared_rows"
        first = text[text.index("copies mine = copies_of(f);") :].partition(EARLY)[0]
        assert "copy_b(" in first
        assert not re.search(r"copy_(a|slice)\(", first)
    names = {argument.name for argument in spec.arguments if argument.role != "scalar"}
    early = re.sub(r"/\*.*?\*/", "", early, flags=re.DOTALL)
    read = {name for name in names if re.search(rf"\b{name}\b", early)}
    assert read
    written = {
        argument.name
        for name in BEFORE[kernel]
        for argument in family().kernel(name).arguments
        if argument.role in ("out", "inout")
        # Stars that share partners exchange slots only where links have a stratum.
        if not (name == "exchange_slots" and partners == "shared-uniform")
    }
    if kernel == "star_rows":
        assert not re.search(r"\b(out|summed|acc)\[", early)
        assert {"pi", "row_sums"} >= read & written
    else:
        assert not read & written


def test_kernels_that_cannot_begin_with_a_wait_are_refused() -> None:
    text = 'extern "C" __global__\nvoid k(\n    const u32 n\n)\n{\n}\n'
    assert WAIT in overlapping(Source(text, "k", "", "cuda")).text
    for source in (
        Source(text, "other", "", "cuda"),
        Source(text * 2, "k", "", "cuda"),
        Source(text.replace(")\n{", ") {"), "k", "", "cuda"),
        Source(text, "k", "", "opencl"),
    ):
        with pytest.raises(ValueError, match="bodies that could begin with a wait"):
            overlapping(source)


def test_numbers_and_switches_are_defines_of_the_program() -> None:
    """Those that it uses, by their names in capitals; a whole number is unsigned, a switch 0 or 1."""
    mmsb = family()
    spec, problem = mmsb.kernel("update_beta"), mmsb.problem(K=5)
    config = spec.default(problem, CUDA)
    lines = render(spec, problem, config, CUDA).text.splitlines()
    assert "#define K 5u" in lines
    assert f"#define BLOCK_SIZE {config['block_size']}u" in lines
    assert not any(line.startswith("#define PURPOSE_") for line in lines)


def test_unused_defines_are_left_out() -> None:
    """Also those that only an unused one needs, or that only comments name."""
    used = "#define C(x) x\n/* B */\nint a[C(1)];\n"
    assert without_unused_defines("#define A 1u\n#define B A\n" + used) == used
