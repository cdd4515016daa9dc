"""Detections that several ranks share: the same chain, one message for any error, and nobody who waits for the dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from mmsbgen.backends import find_device
from mmsbgen.backends.ranks.starting import start_ranks
from mmsbgen.backends.ranks.world import short
from mmsbgen.base.errors import InputError, LaunchError
from mmsbgen.detection.detect import detect
from mmsbgen.detection.ranks.following import device_of_rank
from mmsbgen.detection.ranks.forming import check_shared, why_not_nccl
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.saved.checkpoint import load
from tests.detection.detections import cli

DATA = str(Path(__file__).parents[1] / "data" / "netscience.txt.gz")
OPTIONS = ("-k", "20", "--rows", "sparse", "--start", "communities", "--no-refine")
SWEEPS = 12
ENDLESS = ("--devices", "pocl,pocl", "-n", 10**6, "--evaluate-every", 10**5)
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
#: Unit roundoff of the rows.
ROUNDOFF = 2.0**-24


#: Seconds after which a run hangs.
HANGS_S = 120.0


@contextmanager
def started(
    *args: object, patch: Path | None = None, launcher: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A detection whose processes all end with the block; ``patch`` is a folder of a module ``sitecustomize``."""
    command = [*launcher, sys.executable, "-m", "mmsbgen", "detect", DATA, *OPTIONS, *map(str, args)]
    variables = os.environ | AS_ROOT | ({} if patch is None else {"PYTHONPATH": str(patch)})
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=variables) as run:
        below: dict[int, psutil.Process] = {}
        ended = threading.Event()

        def look() -> None:
            # Those whose parent dies could not be found at the end.
            while not ended.wait(0.25):
                with suppress(psutil.Error):
                    below.update((one.pid, one) for one in psutil.Process(run.pid).children(recursive=True))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield run
        finally:
            ended.set()
            looking.join()
            for process in (run, *below.values()):
                with suppress(psutil.Error, ProcessLookupError):
                    process.kill()


def finish(*args: object, code: int = 0, patch: Path | None = None) -> str:
    with started(*args, patch=patch) as process:
        said = process.communicate(timeout=HANGS_S)[1]
        assert process.returncode == code, said
        return said


def first_progress(process: subprocess.Popen[str]) -> str:
    """What is said up to the first line of progress."""
    assert process.stderr is not None
    told = ""
    while "iteration" not in told and (line := process.stderr.readline()):
        told += line
    return told


def rank(number: int, process: subprocess.Popen[str]) -> psutil.Process:
    below = psutil.Process(process.pid).children(recursive=True)
    (found,) = [one for one in below if one.environ().get("OMPI_COMM_WORLD_RANK") == str(number)]
    return found


def rows(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "checkpoint.npz") as found:
        return {name: found[name] for name in ("entry_communities", "entry_values", "theta", "row_sums", "totals")}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("two")
    finish("--devices", "pocl,pocl", "-n", SWEEPS, "--checkpoint", "-o", out)
    return out


@pytest.mark.opencl
@pytest.mark.slow
@pytest.mark.parametrize("length", [("-n", SWEEPS), ("--sample-sweeps", 4)], ids=["optimise", "sample"])
def test_two_ranks_give_the_bits_of_one(two: Path, tmp_path: Path, length: tuple[Any, ...]) -> None:
    of_two, of_one = two if length[0] == "-n" else tmp_path / "two", tmp_path / "one"
    if of_two != two:
        finish("--devices", "pocl,pocl", *length, "--checkpoint", "-o", of_two)
    cli(DATA, "--device", "pocl", *OPTIONS, *length, "--checkpoint", "-o", of_one)
    one = rows(of_one)
    for name, array in rows(of_two).items():
        np.testing.assert_array_equal(array, one[name], name)
    alone, together = (json.loads((folder / "run.json").read_text())["trace"] for folder in (of_one, of_two))
    with np.load(of_one / "memberships.npz") as results:
        assert ({"mean", "sd", "beta_sd", "draws_strengths"} <= set(results)) == (of_two != two)
    assert alone[-1]["phase"] == ("optimise" if of_two == two else "sample")
    assert [row["clips"] for row in together] == [row["clips"] for row in alone]
    assert [row["auc"] for row in together] == [row["auc"] for row in alone]
    assert all((len(row["rank_seconds"]), row["exchange"]) == (2, "MPI") for row in together)
    assert "rank_seconds" not in alone[0]


@pytest.mark.opencl
@pytest.mark.slow
def test_a_chain_of_two_goes_on_with_three_unlike_devices(two: Path, tmp_path: Path) -> None:
    """Devices round differently: each sweep by some units of the last place in each of a row's 16 entries."""
    more = ("--resume", two, "-n", 2 * SWEEPS, "--checkpoint", "-o")
    finish("--devices", "pocl,pocl,intel", *more, tmp_path / "three")
    cli(DATA, "--device", "pocl", *more, tmp_path / "one")
    one, three = rows(tmp_path / "one"), rows(tmp_path / "three")
    same = one["entry_communities"] == three["entry_communities"]
    # Entries at the floor are in no order that rounding could not change.
    assert same[one["entry_values"] > 1e-3].all()
    tolerance = SWEEPS * 16 * ROUNDOFF
    np.testing.assert_allclose(three["entry_values"][same], one["entry_values"][same], rtol=0, atol=tolerance)
    np.testing.assert_allclose(three["totals"], one["totals"], rtol=tolerance)


@pytest.mark.opencl
@pytest.mark.slow
def test_a_device_that_one_rank_lacks_ends_all_with_one_message(tmp_path: Path) -> None:
    said = finish("--devices", "pocl,nosuch", "-o", tmp_path / "out", code=2)
    assert said.count("Error") == 1
    assert "rank 1 (nosuch): no device matches 'nosuch'" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.opencl
@pytest.mark.slow
def test_a_rank_that_dies_ends_all_with_its_name_and_a_checkpoint(tmp_path: Path) -> None:
    with started(*ENDLESS, "-o", tmp_path) as process:
        told = first_progress(process)
        ranks = psutil.Process(process.pid).children(recursive=True)
        killed = rank(1, process)
        killed.kill()
        said = process.communicate(timeout=HANGS_S)[1]
        assert process.returncode == 1, told + said
        assert f"rank 1 ({find_device('pocl').spec}) has died (process {killed.pid}" in said
        assert rows(tmp_path)["entry_values"].min() >= 0
        assert not any(one.is_running() for one in ranks)


#: Questions and limits come sooner; in rank 1 the fifth wait for the device takes longer than the limit.
IMPATIENT = """
from mmsbgen.backends.ranks import world

world._ASK_S, world._SILENT_S = 1.0, 3.0
"""
SLOW = """
import itertools, os, time
from mmsbgen.backends.opencl.opencl_device import OpenCLEvent

if os.environ.get("OMPI_COMM_WORLD_RANK") == "1":
    wait, waits = OpenCLEvent.wait, itertools.count()

    def slow(event):
        wait(event)
        if event.name == "marker" and next(waits) == 4:
            time.sleep(6.0)

    OpenCLEvent.wait = slow
"""


@pytest.mark.opencl
@pytest.mark.slow
def test_a_rank_that_hangs_ends_all_with_its_name_and_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT)
    with started(*ENDLESS, "-o", tmp_path, patch=tmp_path) as process:
        told = first_progress(process)
        ranks = psutil.Process(process.pid).children(recursive=True)
        stopped = rank(1, process)
        stopped.suspend()
        said = process.communicate(timeout=HANGS_S)[1]
        assert process.returncode == 1, told + said
        assert f"rank 1 ({find_device('pocl').spec}) has not answered for 3 s (process {stopped.pid}" in said
        assert not any(one.is_running() for one in ranks)
    swept = load(tmp_path / "checkpoint.npz").meta["iteration"]
    more = ("--resume", tmp_path, "-n", swept + SWEEPS, "--checkpoint", "-o")
    assert (
        f"Resumed after iteration {swept}, bit for bit" in cli(DATA, "--device", "pocl", *more, tmp_path / "on").stderr
    )
    cli(
        DATA,
        "--device",
        "pocl",
        *OPTIONS,
        "-n",
        swept + SWEEPS,
        "--evaluate-every",
        10**5,
        "--checkpoint",
        "-o",
        tmp_path / "straight",
    )
    np.testing.assert_array_equal(rows(tmp_path / "on")["entry_values"], rows(tmp_path / "straight")["entry_values"])


#: Each rank believes that it is on a host of its own, whose folders it would not share.
HOSTS = """
import os
from mmsbgen.backends.ranks import world

def alone():
    found = mpi()
    found.Get_processor_name = lambda: "host" + os.environ["OMPI_COMM_WORLD_RANK"]
    return found

mpi, world._mpi = world._mpi, alone
"""


@pytest.mark.opencl
@pytest.mark.slow
def test_a_rank_of_another_host_that_hangs_is_named(tmp_path: Path) -> None:
    """Rank 0 cannot see its process, and mpirun ends it.  All ranks take the first device of their host."""
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT + HOSTS)
    launcher = str(Path(sys.executable).parent / "mpirun")
    by_mpirun = (launcher, "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-n", "3")
    many = ("--devices", "pocl", *ENDLESS[2:])
    with started(*many, "-o", tmp_path, patch=tmp_path, launcher=by_mpirun) as process:
        told = first_progress(process)
        rank(2, process).suspend()
        said = process.communicate(timeout=HANGS_S)[1]
        assert process.returncode == 1, told + said
    assert f"rank 2 on host2 ({find_device('pocl').spec}) has not answered for 3 s" in said
    assert rows(tmp_path)["entry_values"].min() >= 0


@pytest.mark.opencl
@pytest.mark.slow
def test_a_slow_rank_is_named_and_not_ended(two: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT + SLOW)
    finish("--devices", "pocl,pocl", "-n", SWEEPS, "--checkpoint", "-o", tmp_path, patch=tmp_path)
    for name, array in rows(tmp_path).items():
        np.testing.assert_array_equal(array, rows(two)[name], name)
    trace = json.loads((tmp_path / "run.json").read_text())["trace"]
    assert f"rank 1 ({find_device('pocl').spec})" in [row.get("slow_rank") for row in trace]


@pytest.mark.opencl
@pytest.mark.slow
def test_all_ranks_end_with_the_process_that_started_them() -> None:
    with started(*ENDLESS) as process:
        first_progress(process)
        ranks = [rank(0, process), rank(1, process)]
        process.kill()
        assert psutil.wait_procs(ranks, timeout=HANGS_S)[1] == []


@pytest.mark.slow
def test_ranks_with_other_arguments_are_refused(tmp_path: Path) -> None:
    """A launcher that starts a run a process gets one error, not the graph of rank 0 alone."""
    program = f"{sys.executable} -m mmsbgen detect {DATA} -k 20 -o {tmp_path}/$OMPI_COMM_WORLD_RANK"
    command = [Path(sys.executable).parent / "mpiexec", "--map-by", ":OVERSUBSCRIBE", "-n", "2", "sh", "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, env=os.environ | AS_ROOT, timeout=HANGS_S)
    assert found.returncode == 2
    assert f"ranks 0 and 1 have --out {tmp_path}/0 and {tmp_path}/1" in found.stderr
    assert "unset OMPI_COMM_WORLD_SIZE" in found.stderr
    assert not [*tmp_path.iterdir()]


def test_ranks_get_the_arguments_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr(
        "mmsbgen.backends.ranks.starting.start_ranks", lambda count, arguments: given.append(arguments) or count
    )
    finish_here("--devices", "pocl,pocl")
    assert given == [["detect", DATA, *OPTIONS, "--devices", "pocl,pocl"]]


@pytest.mark.parametrize(
    ("does", "error"), [("kill -INT $PPID; exec sleep 600", KeyboardInterrupt), ("kill -KILL $$", LaunchError)]
)
def test_a_launcher_without_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, error: type[BaseException]
) -> None:
    """It ends when this process is asked to stop, and its end by a signal is an error."""
    launcher = tmp_path / "mpiexec"
    launcher.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit\n{does}\n')
    launcher.chmod(0o755)
    monkeypatch.setattr("mmsbgen.backends.ranks.starting._launcher", lambda: str(launcher))
    with pytest.raises(error):
        start_ranks(2, [])


def test_why_rows_do_not_go_by_nccl() -> None:
    names = ["rank 0", "rank 1", "rank 2"]
    assert why_not_nccl(names, [("a 1", True), ("a 2", True), ("b 1", True)]) == ""
    assert "rank 1 has no NCCL; get it with" in why_not_nccl(names, [("a 1", True), ("a 2", False), ("a 3", True)])
    assert "rank 0 and rank 2 have one GPU" in why_not_nccl(names, [("a 1", True), ("a 2", True), ("a 1", True)])
    assert "rank 1 has no NVIDIA GPU" in why_not_nccl(names, [("a 1", True), ("", False), ("a 1", True)])


def test_every_rank_of_a_machine_needs_a_device() -> None:
    world: Any = SimpleNamespace(rank=0, local_rank=1, hosts=[("a", 1), ("b", 2), ("b", 3)])
    assert device_of_rank(world, None, ["pocl", "intel"]) == "intel"
    with pytest.raises(InputError, match="2 ranks on b for --devices pocl"):
        device_of_rank(world, None, ["pocl"])


def test_a_long_refusal_fits_in_an_answer() -> None:
    assert short("no device") == "no device"
    assert 1000 < len(short("é" * 5000).encode()) <= 2048


@pytest.mark.parametrize(
    ("error", "code", "said"), [("KeyboardInterrupt()", 130, "Interrupted.\n"), ("LaunchError('no')", 1, "Error: no\n")]
)
def test_a_device_that_does_not_end_ends_with_its_process(error: str, code: int, said: str) -> None:
    program = f"""
import time
from mmsbgen.base.errors import LaunchError
from mmsbgen.backends.ranks.world import World
world = object.__new__(World)
world.rank, world._silent = 0, []
world.ends_after(0.0, {error})
time.sleep({HANGS_S})
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (code, said)


FAILS = """
import os
if os.environ.get("OMPI_COMM_WORLD_RANK") == "0":
    from {module} import {owner}
    from mmsbgen.base.errors import LaunchError

    def fails(*args):
        raise {error}

    {owner}.{name} = fails
"""


@pytest.mark.opencl
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "owner", "name", "error", "code"),
    [
        ("mmsbgen.detection.ranks", "forming", "made_exchange", "LaunchError('it fails')", 1),
        ("mmsbgen.sampler.ranks.sharing", "SweptRange", "cut", "KeyboardInterrupt", 130),
        ("mmsbgen.backends.ranks.world", "World", "send", "LaunchError('it fails')", 1),
    ],
)
def test_rank_0_that_fails_ends_all(tmp_path: Path, module: str, owner: str, name: str, error: str, code: int) -> None:
    """While the ranks are brought together, before they are told a range, and while they wait for its links."""
    (tmp_path / "sitecustomize.py").write_text(FAILS.format(module=module, owner=owner, name=name, error=error))
    said = finish("--devices", "pocl,pocl", "-n", SWEEPS, "-o", tmp_path / "out", code=code, patch=tmp_path)
    assert said.count("Error: it fails" if code == 1 else "Interrupted; no results were written.") == 1


#: The Python of rank 0 asks the process that started the ranks to stop, before anything of mmsbgen is loaded.
INTERRUPTS = """
import os, signal, time

if "OMPI_COMM_WORLD_RANK" not in os.environ:
    os.environ["STARTER"] = str(os.getpid())
elif os.environ["OMPI_COMM_WORLD_RANK"] == "0":
    os.kill(int(os.environ["STARTER"]), signal.SIGINT)
    time.sleep(60)
"""


@pytest.mark.slow
def test_an_interruption_while_python_starts_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    assert finish("--devices", "pocl,pocl", code=130, patch=tmp_path) == "Interrupted.\n"


def test_devices_that_cannot_share_are_refused(tmp_path: Path) -> None:
    check_shared(Options(8, rows="sparse").sized_for(100, 300))
    with pytest.raises(InputError, match=r"dense rows \(K=8\): give --rows sparse"):
        check_shared(Options(8).sized_for(100, 300))
    with pytest.raises(InputError, match=r"K=auto"):
        check_shared(Options(2), k_auto=True)
    with pytest.raises(InputError, match="leave out --noise"):
        check_shared(Options(8, noise=True).sized_for(100, 300))
    with pytest.raises(InputError, match="random-node mini-batches"):
        check_shared(Options(8, mini_batch="random-node").sized_for(100, 300))
    assert "give one of them" in cli(DATA, *OPTIONS, "--devices", "pocl", code=2).output
    assert "write it as cuda:0,cuda:1" in finish_here("--devices", "pocl,")


@pytest.mark.parametrize("given", [{"devices": "pocl,pocl"}, {"device": ["pocl", "pocl"]}])
def test_python_takes_one_device(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="mmsbgen detect GRAPH --devices A,B"):
        detect(DATA, 20, **given)


def finish_here(*args: str) -> str:
    from click.testing import CliRunner

    from mmsbgen.cli import main

    result = CliRunner().invoke(main, ["detect", DATA, *OPTIONS, *args])
    assert result.exit_code == 2, result.output
    return result.output
