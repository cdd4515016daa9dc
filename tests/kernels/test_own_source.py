"""Kernels of users' own files: declared, checked, tuned, shown, and refused with a remedy."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from mmsbgen.backends import Device
from mmsbgen.backends.fake import FakeDevice
from mmsbgen.base.errors import ConfigError, InputError
from mmsbgen.cli import main
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import declaration, resolve_family
from mmsbgen.kernels.build import build, check, check_built, compiled_small, traits_of
from mmsbgen.kernels.family import Expected, KernelFamily, Launch
from mmsbgen.kernels.own_source import _expected
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits
from mmsbgen.tuner.run.tune_jobs import kernel_jobs

FILES = Path(__file__).parents[1] / "data" / "own"
NAMES = ("vector_add", "convolution", "matmul")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with the examples; commands run in it."""
    shutil.copytree(FILES, tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setenv("MMSBGEN_DATABASE_URL", str(tmp_path / "tuning.sqlite3"))
    return tmp_path / "mine"


def own(name: str) -> KernelFamily:
    return resolve_family(str(FILES / f"{name}.py"))


def run(command: str) -> Result:
    return CliRunner().invoke(main, command.split())


@pytest.mark.parametrize("name", NAMES)
def test_the_default_and_the_last_agree_with_the_answer(opencl_device: Device, name: str) -> None:
    spec, problem, traits = own(name).kernel(name), own(name).problem(), traits_of(opencl_device.info)
    configs = spec.space.configs(problem, traits)
    assert spec.default(problem, traits) == configs[0]
    for config in (configs[0], configs[-1]):
        assert check(opencl_device, spec, problem, config) is None


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("vector_add", "a[i] + b[i]", "a[i] - b[i]"),
        ("vector_add", "if (i < n)", "if (i < n - 1)"),
        ("convolution", "x < width", "x < width - 1"),
        ("matmul", "k += TILE_K", "k += 2 * TILE_K"),
        ("matmul", "c[(row", "((__global float *)a)[row + ty] = c[(row"),
    ],
)
def test_a_wrong_kernel_is_found(processor: Device, folder: Path, name: str, right: str, wrong: str) -> None:
    source = folder / f"{name}.cl"
    text = source.read_text()
    assert right in text
    source.write_text(text.replace(right, wrong))
    found = resolve_family(f"{name}.py")
    spec, problem = found.kernel(name), found.problem()
    message = check(processor, spec, problem, spec.default(problem, traits_of(processor.info)))
    assert message is not None
    assert re.search(r"^\w+: \d+ of \d+ elements are off|the input a was overwritten", message)


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_an_answer_is_finite(odd: float) -> None:
    """A tolerance in proportion to it would let everything pass."""
    with pytest.raises(InputError, match=f"the answer has c with {odd}: give arguments for which it is finite"):
        _expected({"c": np.zeros(2, np.float32)}, lambda given: {"c": np.array([odd, 1.0])}, 1e-5)
    assert Expected(np.ones(2), np.array(np.nan)).errors(np.ones(2)) is not None


def test_three_dimensions(processor: Device, tmp_path: Path) -> None:
    (tmp_path / "axes.cl").write_text(
        "__kernel void axes(__global int *out) {\n"
        "  int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);\n"
        "  out[(z * get_global_size(1) + y) * get_global_size(0) + x] += 100 * z + 10 * y + x;\n}\n"
    )
    (tmp_path / "axes.py").write_text(
        "import numpy as np\n"
        "from mmsbgen.kernels.family import Launch\n"
        "from mmsbgen.kernels.own_source import own_kernel\n"
        "z, y, x = np.ogrid[:4, :6, :8]\n"
        "AXES = own_kernel('axes', sources=['axes.cl'], sizes={'n': 1}, axes={'bx': (2, 4), 'flat': (True, False)},\n"
        "    launch=lambda v: Launch((8 // v['bx'], 3, 4), (v['bx'], 2, 1)),\n"
        "    arguments=lambda sizes, rng: {'out': rng.integers(0, 9, (4, 6, 8), np.int32)},\n"
        "    answer=lambda given: {'out': given['out'] + 100 * z + 10 * y + x}, traffic=lambda sizes: 8 * 192)\n"
    )
    spec = resolve_family(str(tmp_path / "axes.py")).kernel("axes")
    assert [(one.ctype, one.role) for one in spec.arguments] == [("int32", "inout")]
    problem = resolve_family(str(tmp_path / "axes.py")).problem()
    bound = build(processor, spec, problem, {"bx": 2, "flat": True})
    assert check_built(processor, bound) is None
    launch = spec.launch(problem, bound.config, 1, bound.traits)
    assert (launch.shape, launch.grid, launch.block) == (((4, 3, 4), (2, 2, 1)), 48, 4)
    assert Launch(3, 2).shape == ((3,), (2,))


def test_the_source_stays_as_it_is(folder: Path) -> None:
    """Jinja's marks mean nothing in it, unused macros stay, and compilers report lines of the file."""
    text = (
        "#define UNUSED(x) \\\n  x\n/* {{ c }} {% endraw %} é \U0001f600 */\n" + (folder / "vector_add.cu").read_text()
    )
    (folder / "vector_add.cu").write_text(text)
    spec, problem = resolve_family("vector_add.py").kernel("vector_add"), resolve_family("vector_add.py").problem()
    made = render(spec, problem, {"block_size_x": 256}, Traits("cuda", "gpu", sub_group_size=32)).text
    assert made.endswith(f'#define block_size_x 256\nextern "C" {{\n#line 1 "vector_add.cu"\n{text}}}\n')
    assert "#define n" not in made, "the argument has this name"


def test_roles_follow_from_the_answer() -> None:
    assert {one.name: one.role for one in own("vector_add").kernel("vector_add").arguments} == {
        "c": "out",
        "a": "in",
        "b": "in",
        "n": "scalar",
    }


def test_sizes_of_the_check() -> None:
    """Large ones keep their remainder by powers of two, small ones stay, and given ones count."""
    adding, folding = own("vector_add"), own("convolution")
    for n, checked in ((1, 1), (1000, 1000), (1024, 512), (10_000_001, 641), (4096 + 48, 560)):
        assert adding.kernel("vector_add").check_problem(adding.problem(n=n))["n"] == checked
    assert dict(folding.kernel("convolution").check_problem(folding.problem())) == {
        "width": 157,
        "height": 93,
        "filter_width": 17,
        "filter_height": 17,
    }


def test_constraints_refuse_by_their_description() -> None:
    found, traits = own("matmul"), Traits("opencl", "cpu", max_block_size=128)
    spec, problem = found.kernel("matmul"), found.problem(n=96)
    config = dict(spec.default(problem, traits))
    assert (
        spec.space.refusal(config | {"block_size_x": 64}, problem, traits) == "tiles divide the matrices: does not hold"
    )
    large = config | {"block_size_x": 16, "block_size_y": 16}
    assert spec.space.refusal(large, problem, traits) == "block: 256 work-items, the device has up to 128"
    assert config["block_size_x"] * int(config["block_size_y"]) <= 128


def test_a_launch_without_blocks_is_refused(folder: Path) -> None:
    file = folder / "vector_add.py"
    file.write_text(file.read_text().replace('-(-v["n"] // v["block_size_x"])', 'v["n"] // v["block_size_x"]'))
    found = resolve_family("vector_add.py")
    result = found.kernel("vector_add").space.refusal(
        {"block_size_x": 512}, found.problem(n=300), Traits("opencl", "cpu")
    )
    assert result == "block: 0 blocks of 512 work-items: each is 1 or more"


def test_a_refusal_at_the_sizes_of_the_check_says_so(folder: Path) -> None:
    file = folder / "vector_add.py"
    rule = 'constraints={"divides": lambda v: v["n"] % v["block_size_x"] == 0}'
    file.write_text(file.read_text().replace("traffic=", f"{rule}, traffic="))
    spec, problem = (
        resolve_family("vector_add.py").kernel("vector_add"),
        resolve_family("vector_add.py").problem(n=4096),
    )
    config, device = {"block_size_x": 1024}, FakeDevice()
    source = render(spec, problem, config, traits_of(device.info))
    with pytest.raises(ConfigError, match=r"at the sizes of the check, n=512: .* is refused: divides: does not hold"):
        compiled_small(device, spec, problem, config, source)


def test_the_default_tolerance_is_of_the_answer(folder: Path) -> None:
    file = folder / "vector_add.py"
    found = resolve_family("vector_add.py")
    workload = found.kernel("vector_add").workload(found.problem(n=100), 0)
    right = workload.arguments["a"].astype(np.float64) + workload.arguments["b"]
    most = 1e-5 * np.abs(right).max()
    assert workload.verify({"c": right + 0.9 * most}, {}) is None
    assert workload.verify({"c": right + 1.1 * most}, {}) is not None
    file.write_text(file.read_text().replace("traffic=", "tolerance=1e-2, traffic="))
    loose = resolve_family("vector_add.py").kernel("vector_add").workload(found.problem(n=100), 0)
    assert loose.verify({"c": right + 900 * most}, {}) is None


@pytest.mark.slow
@pytest.mark.opencl
def test_from_the_file_to_the_database(processor: Device, folder: Path) -> None:
    on = processor.info.spec
    words = f"--family vector_add.py -p n=100000 --roof-mib 16 --device {on} --fix block_size_x=64,256 --quiet"
    done = run(f"tune {words} --json")
    assert done.exit_code == 0, done.output
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert (kernel["kernel"], kernel["trials"]) == ("vector_add", {"ok": 2})
    (best,) = json.loads(run("db best --kernel vector_add/vector_add --json").stdout)
    assert (best["config"], best["stale"]) == (kernel["best"], [])
    trials = json.loads(run("db trials --problem n=100000 --json").stdout)
    assert {trial["config"]["block_size_x"] for trial in trials} == {64, 256}
    with open_store(folder.parent / "tuning.sqlite3", read_only=True) as store:
        assert {trial.extra["data"] for trial in store.trials()} == {declaration("vector_add.py")}
    explained = run(f"db explain --family vector_add.py --on {on} --problem n=100000")
    assert f"would use: block_size_x={best['config']['block_size_x']}\n  tier exact" in explained.output
    assert re.search(r"n=100000 .* nothing", explained.output)
    (folder / "vector_add.cl").write_text((folder / "vector_add.cl").read_text().replace("i < n", "i <= n - 1"))
    changed = run(f"db explain --family vector_add.py --on {on} --problem n=100000")
    assert "tier default" in changed.output
    assert "template digest" in changed.output
    assert "name the family that has it, --family" in run(f"db explain --kernel vector_add --on {on}").output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("vector_add.cl", "vector_sub.cl"), "vector_sub.cl cannot be read"),
        (("vector_add.cl", "vector_add.c"), "ends in .cl for OpenCL or .cu for CUDA; rename it"),
        (('    "vector_add",', '    "add",'), "has no kernel 'add': give the name that the source has"),
        (("np.int32(n)", "n"), "the argument n is a int: make it"),
        (('{"c": given', '{"d": given'), "the answer has 'd' of shape (640,): give"),
        (('given["a"] +', 'given["a"][1:] +'), "ValueError: operands could not be broadcast"),
        (("(64, 16, 32, 128, 256, 512, 1024)", "()"), "the axis block_size_x has no values"),
        (("(64, 16, 32,", "(64, 16, 16,"), "the axis block_size_x has no values, or one twice"),
        (("traffic=lambda sizes: 12", "traffic=lambda sizes: -12"), "the traffic is -7680 bytes; return 0 or more"),
        (("sizes={", "tolerance=-1, sizes={"), "the tolerance is -1; give 0 or more"),
        (('axes={"block_size_x"', 'axes={"n"'), "'n' cannot be a name, or is one already"),
        (
            ('{"c": np.zeros', '{"block_size_x": np.int32(1), "c": np.zeros'),
            "'block_size_x' is an axis and an argument",
        ),
        (("launch=lambda v: Launch(", "launch=lambda v: ("), "vector_add.py, line 13: AttributeError: 'tuple'"),
        (('traffic=lambda sizes: 12 * sizes["n"]', 'traffic=lambda sizes: sizes["m"]'), "line 21: KeyError: 'm'"),
        (("sizes={", "check_sizes={'m': 3}, sizes={"), "check_sizes has 'm'; the sizes are n"),
        (("import numpy as np", "raise SystemExit(3)"), "vector_add.py, line 1: SystemExit: 3; mend the file"),
        (("import numpy", "import nunpy"), "vector_add.py, line 1: ModuleNotFoundError"),
        (("VECTOR_ADD = own", "own"), "it has none"),
        (("VECTOR_ADD = own", "ADD = own_kernel and None\nB, C = [own_kernel] * 2\nown"), "it has none"),
    ],
)
def test_what_is_wrong_in_a_file_is_told(change: tuple[str, str], message: str, folder: Path) -> None:
    file = folder / "vector_add.py"
    text = file.read_text()
    assert change[0] in text
    file.write_text(text.replace(*change, 1))
    result = run("tune --family vector_add.py --device fake")
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_mistake_that_some_configurations_meet_is_told(folder: Path) -> None:
    file = folder / "vector_add.py"
    file.write_text(file.read_text().replace("(64, 16, 32,", "(64, 'x', 32,"))
    result = run("render --family vector_add.py --set block_size_x=x")
    assert (result.exit_code, "block: TypeError: " in result.output) == (2, True), result.output
    found = resolve_family("vector_add.py")
    with pytest.raises(ConfigError, match="block: TypeError: .*; mend the declaration"):
        found.kernel("vector_add").space.configs(found.problem(), Traits("opencl", "cpu"))


def test_trials_of_another_declaration_are_of_other_data(folder: Path) -> None:
    """A corrected launch or answer changes no program, so failed trials must not stay."""
    before = declaration("vector_add.py")
    (folder / "vector_add.py").write_text((folder / "vector_add.py").read_text() + "\n")
    after, found = declaration("vector_add.py:VECTOR_ADD"), resolve_family("vector_add.py")
    assert len({before, after, declaration("mmsb")}) == 3
    specs = [found.kernel("vector_add")]
    (job,) = kernel_jobs(FakeDevice().info, found, specs, found.problem(), None, None, after)
    assert job.data == after


def test_a_file_with_two_families_needs_a_name(folder: Path) -> None:
    both = folder / "both.py"
    both.write_text(
        "from mmsbgen.families import resolve_family\n"
        "ADD, MATMUL = resolve_family('vector_add.py'), resolve_family('matmul.py')\nOTHER = 3\n"
    )
    with pytest.raises(InputError, match=r"it has ADD, MATMUL: write both.py:NAME"):
        resolve_family("both.py")
    with pytest.raises(InputError, match=r"no single family of kernels 'OTHER'"):
        resolve_family("both.py:OTHER")
    assert resolve_family("both.py:ADD").name == "vector_add"
    assert resolve_family(f"{both}:MATMUL").name == "matmul"


def test_files_beside_it_are_not_imported(folder: Path) -> None:
    """A file of the user's folder that has the name of a library does nothing, here and in the children."""
    (folder / "numpy.py").write_text("raise SystemExit('imported by accident')\n")
    (folder / "matmul.cl").unlink()
    assert resolve_family("vector_add.py").name == "vector_add"
    assert "cannot be read" in run("render --family matmul.py").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tune --family other.py", "there is no file"),
        ("tune --family other", "no family 'other'; there are graph, mf, mmsb; name a file as FILE.py"),
        ("tune --family numpy:ndarray", "numpy:ndarray is no family of kernels"),
        ("tune --family no_such_module:X", "No module named 'no_such_module'"),
        (
            "tune --family matmul.py --graph people.csv -k 3",
            "is for the family mmsb; give the sizes of matmul as -p n=",
        ),
        ("tune --family matmul.py -k 3", "-k 3 is for the family mmsb"),
        ("tune --family mf --graph who.csv -k 3", "give its file as --data who.csv, or the sizes of mf as -p K="),
        ("tune --family mf --data who.csv", "With --data it is read without options: mend the file"),
        ("render --family matmul.py -k 3", "matmul has no parameter 'K'"),
        ("render --family matmul.py convolution", "matmul has no kernel 'convolution'"),
        ("render star_sums --backend opencl", "star_sums is not written in opencl; it is in cuda"),
    ],
)
def test_what_cannot_be_named(words: str, message: str, folder: Path) -> None:
    (folder / "who.csv").write_text("who,what,stars\n1,2,3\n")
    result = run(words)
    assert result.exit_code == 2, result.output
    assert message in result.output


def test_rendering_a_file(folder: Path) -> None:
    shown = run("render --family convolution.py --backend cuda --set use_shared=1 -p width=640")
    assert shown.exit_code == 0, shown.output
    for line in ("#define use_shared 1", "#define width 640", '#line 1 "convolution.cu"'):
        assert line in shown.stdout.splitlines()
    assert "block_size_y" in run("render --family matmul.py --list").stdout
