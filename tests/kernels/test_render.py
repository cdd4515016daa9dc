"""Rendering: undefined names, digests, layout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jinja2
import pytest
from jinja2.bccache import Bucket

import mmsbgen.kernels.render
from mmsbgen.base.errors import ConfigError, InputError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.records.tuning_records import TrialRecord
from mmsbgen.db.selection.index import SHIPPED
from mmsbgen.families import family
from mmsbgen.kernels.record_key import program_digest
from mmsbgen.kernels.render import OWN, environment, render, sources_digest
from mmsbgen.kernels.source.dialect import dialect
from mmsbgen.kernels.source.source_text import digest_of_tokens, indent_source, without_unused_defines
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
        dialect("metal")


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the templates that a test may change."""
    folder = tmp_path / "templates"
    shutil.copytree(Path(mmsbgen.kernels.render.__file__).parents[1] / "templates", folder)
    other = environment().overlay(loader=jinja2.FileSystemLoader(folder))
    monkeypatch.setattr(mmsbgen.kernels.render, "environment", lambda: other)
    monkeypatch.setattr(mmsbgen.kernels.render, "PACKAGE", other.loader)
    return folder


@pytest.mark.parametrize(
    "part",
    ["mmsb/stages/update_phi.jinja", "mmsb/rows/step.jinja", "mmsb/draws/philox.jinja", "common/rows/row.jinja"],
)
def test_digest_changes_with_every_template(templates: Path, part: str) -> None:
    kernels = [family().kernel("update_phi")]
    before = sources_digest(kernels)
    path = templates / part
    path.write_text(path.read_text() + "\n/* a remark */\n")
    assert sources_digest(kernels) != before


def test_digest_depends_on_users_own_templates() -> None:
    kernel = family().kernel("update_phi")
    assert sources_digest([kernel]) != sources_digest([replace(kernel, template="own/k-1.jinja")])


def digest_of(trial: TrialRecord) -> str:
    """The digest of a record's program as it is now."""
    return program_digest(family(trial.key.kernel.family), trial.key, trial.config)


def test_shipped_records_survive_a_comment_and_miss_by_a_token_of_their_own_program(templates: Path) -> None:
    prelude, beta = templates / "common" / "prelude.jinja", templates / "mmsb/stages/update_beta.jinja"
    prelude.write_text("// A remark.\n" + prelude.read_text() + "\n\n/* Another\n   one. */\n")
    every = [trial for path in SHIPPED.glob("*.jsonl") for trial in jsonl.read(path).trials]
    trials = [trial for place, trial in enumerate(every) if place % 20 == 0 or trial.key.kernel.name == "update_beta"]
    sizes = [trial.config["block_size"] for trial in trials if trial.key.kernel.name == "update_beta"]
    assert len(set(sizes)) > 1
    branch = f"{{% if c.block_size == {sizes[0]} %}}\ntypedef int unheard_of;\n{{% endif %}}\n"
    beta.write_text(beta.read_text() + branch)
    missed = [trial for trial in trials if digest_of(trial) != trial.program]
    has_it = [t for t in trials if t.key.kernel.name == "update_beta" and t.config["block_size"] == sizes[0]]
    assert missed == has_it


def test_digests_are_the_same_in_another_process() -> None:
    paths = sorted(map(str, SHIPPED.glob("*.jsonl")))
    code = f"""
from pathlib import Path
from mmsbgen.db.exchange import jsonl
from mmsbgen.families import family
from mmsbgen.kernels.record_key import program_digest
for path in {paths}:
    for trial in jsonl.read(Path(path)).trials[::40]:
        print(program_digest(family(trial.key.kernel.family), trial.key, trial.config))
"""
    seeded = os.environ | {"PYTHONHASHSEED": "1"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=seeded).stdout
    assert told.split() == [trial.program for path in paths for trial in jsonl.read(Path(path)).trials[::40]]


def test_what_cannot_be_rendered_has_no_digest() -> None:
    trial = next(t for t in jsonl.read(SHIPPED / "nvidia-h200.jsonl").trials if t.key.kernel.name == "update_beta")
    key, config = trial.key, trial.config
    gone = replace(key, kernel=replace(key.kernel, name="gone"))
    other = replace(key, problem=replace(key.problem, params={**key.problem.params, "no_such": 1}))
    assert program_digest(family(), key, config) == trial.program
    assert [program_digest(family(), one, config) for one in (gone, other)] == ["", ""]
    assert [program_digest(family(), key, one) for one in ({}, {"block_size": 3}, {**config, "no_such": 1})] == [""] * 3


def test_source_carries_its_digest() -> None:
    mmsb = family()
    spec = mmsb.kernel("update_beta")
    source = render(spec, mmsb.problem(K=5), {"block_size": 32}, CUDA)
    assert source.digest == digest_of_tokens(source.text)
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
    assert indent_source(ragged).splitlines() == [
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
        assert indent_source(text) == text


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


def _written(text: str) -> str:
    """What a template of users gives in an environment that knows nothing yet but the files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OWN, "kept.jinja", text)
        return environment.__wrapped__().get_template("kept.jinja").render(x=3)


def test_compiled_templates_are_taken_from_their_folder(private_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _written("{{ x }}") == "3"
    (file,) = (private_cache / "mmsbgen/templates").iterdir()
    assert _written("{{ x + 1 }}") == "4"  # the text is a part of the key
    with monkeypatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", None)  # nothing is compiled again
        assert _written("{{ x }}") == "3"
    for damaged in (b"", file.read_bytes()[:-9]):
        file.write_bytes(damaged)
        assert _written("{{ x }}") == "3"


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_folder_that_others_may_write_is_not_used(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    assert _written("{{ x }}") == "3"
    (private_cache / "mmsbgen/templates").chmod(mode)
    monkeypatch.setattr(Bucket, "bytecode_from_string", None)  # what loads code
    assert _written("{{ x }}") == "3"


def test_templates_are_compiled_where_no_folder_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert _written("{{ x }}") == "3"
