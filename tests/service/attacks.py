"""Attack a service and the command line with what is too much for the tests, and say what falls.

    python -m tests.service.attacks
    python -m tests.service.attacks --attack slow --attack bombs --share 0.1

Slow connections, queued jobs, stored files, hostile requests, packed files that
unpack to 10 GB, runs that are killed again and again, damaged files.  ``--share`` makes all of them smaller.  Ends with
status 1 if something falls.  Takes half an hour, PoCL and nginx.
"""

from __future__ import annotations

import contextlib
import filecmp
import gzip
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import click

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.cli.shared.common import print_table
from mmsbgen.graph import ReadingOptions, load_graph
from tests.graph.test_damaged_files import FILES, changed
from tests.service.proxy import nginx, proxied
from tests.service.running import COMMAND, serving
from tests.service.test_hostile import FREE, LIMITS, hostile, state_of

GRAPH = Path(__file__).parents[1] / "data" / "netscience.txt.gz"
HEAD = "Host: localhost\r\nContent-Length: 60000\r\n\r\n"
SLOW = {
    "bodies": f"GET /health HTTP/1.1\r\n{HEAD}",
    "bodies that are taken": f"POST /api/v1/records HTTP/1.1\r\n{HEAD}",
    "nothing": "",
    "headers": "GET /health HTTP/1.1\r\nX: ",
}
RUN = """
import sys
from pathlib import Path
from mmsbgen.detection.detect import Request, perform
from mmsbgen.graph import load_edge_list
graph, out, resume = sys.argv[1:]
options = {} if resume else {"n_communities": 6, "iterations": 6000, "mini_batch": "random-node"}
files = {"out": Path(out), "resume": Path(resume) if resume else None}
perform(load_edge_list(Path(graph)), Request(options, device="pocl", checkpoint_seconds=0.3, **files))
"""
MIB = 1 << 20
Found = Iterator[tuple[str, bool]]
"""What was measured, and whether it held."""


def slow(folder: Path, share: float) -> Found:
    """300 connections of one address that send a byte every few seconds keep nobody out, behind nginx."""
    program = nginx()
    if program is None:
        raise click.UsageError("the attack 'slow' needs nginx: apt-get install nginx-light")
    with (
        serving(str(folder / "t.sqlite3"), folder / "data") as direct,
        proxied(direct, program, folder / "nginx") as service,
    ):
        place = urlsplit(service.url)
        for what, head in SLOW.items():
            with contextlib.ExitStack() as crowd:
                opened = []
                for _ in range(300):
                    one = socket.create_connection((place.hostname, place.port), 30, source_address=("127.0.0.9", 0))
                    opened.append(crowd.enter_context(one))
                    with contextlib.suppress(OSError):
                        one.sendall(head.encode())
                codes: Counter[int] = Counter()
                until = time.monotonic() + 60 * share
                while time.monotonic() < until:
                    with service.client() as client:
                        codes[client.get("/api/v1/kernels").status_code] += 1
                    for one in opened:
                        with contextlib.suppress(OSError):
                            one.sendall(b"a")
                    time.sleep(min(5.0, 20 * share))
            yield f"300 slow connections, {what}: others got {dict(codes)}", set(codes) == {200}


def stored(folder: Path, share: float) -> Found:
    """Jobs that are submitted and cancelled leave nothing on the disk."""
    rng = random.Random(0)
    with serving(str(folder / "t.sqlite3"), folder / "data", *FREE) as service, service.client() as client:
        count = max(2, int(25 * share))
        for _ in range(count):
            pairs = (b"%d %d" % (rng.randrange(10**6), rng.randrange(10**6)) for _ in range(int(700_000 * share)))
            job = client.post("/api/v1/jobs/detect", params={"n_communities": 2}, content=b"\n".join(pairs) + b"\n")
            client.post(f"/api/v1/jobs/{job.json()['id']}/cancel").raise_for_status()
        left = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    yield f"{count} uploads of 9.6 MB and cancels: {left / MIB:.1f} MiB on the disk", left < 2 * MIB


def queued(folder: Path, share: float) -> Found:
    """As many jobs as are allowed wait; the rest are refused."""
    with serving(str(folder / "t.sqlite3"), folder / "data", *FREE) as service, service.client() as client:
        count = max(30, int(6919 * share))
        codes = Counter(client.post("/api/v1/jobs/tune", json={"problem": {"K": 9}}).status_code for _ in range(count))
        yield f"{count} jobs: {dict(codes)}", codes == {202: 20, 429: count - 20}


def hostility(folder: Path, share: float) -> Found:
    """Malformed requests and uploads get 4xx, unless they are incomplete, and they change nothing."""
    requests, uploads, options = max(100, int(10_000 * share)), max(20, int(200 * share)), (*FREE, *LIMITS)
    with serving(str(folder / "t.sqlite3"), folder / "data", *options) as service:
        before = state_of(service)
        wrong = hostile(service, requests, uploads)
        held = not wrong and state_of(service) == before and "Traceback" not in service.log.read_text()
    yield f"{requests} malformed requests, {uploads} uploads: {len(wrong)} answered wrongly {wrong[:1] or ''}", held


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    return subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, check=False)


def bombs(folder: Path, share: float) -> Found:
    """A packed file that unpacks to 10 GB is refused in a sentence."""
    bomb, small = folder / "bomb.gz", folder / "g.txt"
    small.write_text("1 2\n2 3\n1 3\n")
    # Members of a gzip file follow each other.
    bomb.write_bytes(gzip.compress(b"1 2\n" * 25_000_000) * max(1, int(100 * share)))
    for words in (["detect", bomb], ["evaluate", bomb, small], ["db", "--database", folder / "t", "import", bomb]):
        done = run(*words)
        held = done.returncode == 2 and done.stderr.splitlines()[-1].startswith("Error: ")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        yield f"{words[0]} of {100 * share:g} x 100 MB packed: status {done.returncode}, {peak} MiB", held


def kills(folder: Path, share: float) -> Found:
    """Runs that are killed at random moments and resumed end with the bits of one that was not."""
    rng, same, killed, left, names = random.Random(0), 0, 0, list[str](), ["communities.txt", "memberships.npz"]
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", RUN, GRAPH, folder / "straight", ""], check=True)
    seconds = time.monotonic() - begin
    count = max(1, int(14 * share))
    for number in range(count):
        out, kept = folder / f"killed-{number}", ""
        for _ in range(30):
            process = subprocess.Popen([sys.executable, "-c", RUN, GRAPH, out, kept])
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.4, 1.0) * seconds)
            if process.poll() is not None:
                break
            process.kill()
            process.wait()
            killed += 1
            kept = str(out) if (out / "checkpoint.npz").exists() else ""
        equal, _, _ = filecmp.cmpfiles(folder / "straight", out, names, shallow=False)
        same += len(equal) == len(names)
        left += [path.name for path in out.glob(".*") if path.is_file()]
    yield f"{count} runs killed {killed} times: {same} with the same bits, left over {left}", same == count


def damage(folder: Path, share: float) -> Found:
    """Damaged graphs are read, or refused by an error of ours."""
    rng, others = random.Random(time.time_ns()), list[str]()
    count = max(140, int(6000 * share))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(count):
            name = list(FILES)[number % len(FILES)]
            kind = Path(name).suffix[1:]
            (folder / name).write_bytes(changed(FILES[name], rng))
            try:
                load_graph(folder / name, ReadingOptions(format=kind if kind in ("adjlist", "metis") else "auto"))
            except MmsbgenError:
                pass
            except Exception as error:
                others.append(f"{name}: {error!r:.100}")
                (folder / f"wrong-{number}-{name}").write_bytes((folder / name).read_bytes())
    yield f"{count} damaged files: {len(others)} end otherwise {others[:1] or ''}", not others


ATTACKS: dict[str, Callable[[Path, float], Found]] = {
    "slow": slow,
    "stored": stored,
    "queued": queued,
    "hostile": hostility,
    "bombs": bombs,
    "kills": kills,
    "damage": damage,
}


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--attack", "attacks", multiple=True, type=click.Choice(list(ATTACKS)), help="Repeatable; else all.")
@click.option("--share", default=1.0, show_default=True, help="Share of the full size.")
def main(attacks: tuple[str, ...], share: float) -> None:
    """Attack, and fail if something falls."""
    rows = []
    for name in attacks or ATTACKS:
        click.echo(f"{name} ...", err=True)
        with tempfile.TemporaryDirectory() as folder:
            for found, held in ATTACKS[name](Path(folder), share):
                click.echo(f"  {'held' if held else 'FELL'}: {found}", err=True)
                rows.append({"attack": name, "held": "yes" if held else "NO", "found": found})
    print_table({"attack": "left", "held": "left", "found": "left"}, rows)
    sys.exit(any(row["held"] == "NO" for row in rows))


if __name__ == "__main__":
    main()
