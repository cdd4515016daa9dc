"""Requests and uploads that a service must refuse."""

from __future__ import annotations

import gzip
import io
import json
import random
import string
import struct
import zipfile
from collections.abc import Callable
from urllib.parse import quote

from mmsbgen.db.exchange.jsonl import Bundle, lines
from mmsbgen.db.records.tuning_records import (
    DeviceRecord,
    KernelRecord,
    Key,
    ProblemRecord,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
)
from tests.service.running import TOKEN

API = "/api/v1"
NASTY = (
    *(
        "../../../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%00",
        "\x00",
        "%c0%ae%c0%ae",
        "/etc/passwd",
        "C:\\",
        "~root",
    ),
    *("NaN", "Infinity", "-Infinity", "-1", "1e308", "9" * 400, "0x10", "1_000", "", " ", "null", "true", "[]", "{}"),
    *("'; DROP TABLE trials; --", '" OR 1=1', "{{7*7}}", "${jndi:ldap://x}", "__import__('os').system('id')"),
    *("<script>alert(1)</script>", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "ä" * 300, "\u202e"),
    *("a" * 5000, "=" * 50, "K=", "=1", "K=1\r\nX: y", "os:system", "builtins:eval", "file:///etc/passwd"),
)


class Malformed:
    """Makes requests that no route takes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kinds: list[Callable[[], bytes]] = [
            self.bytes_at_random,
            self.wrong_query,
            self.wrong_query,
            self.wrong_path,
            self.wrong_json,
            self.wrong_json,
            self.wrong_method,
            self.no_token,
            self.wrong_host,
            self.wrong_head,
        ]

    def one(self) -> bytes:
        """A request as bytes."""
        return self.chance.choice(self.kinds)()

    def bytes_at_random(self) -> bytes:
        """Anything but HTTP."""
        return bytes([0x80 | self.chance.randrange(128)]) + self.chance.randbytes(self.chance.randrange(1, 400))

    def wrong_query(self) -> bytes:
        """A parameter that is refused, whatever else there is."""
        nasty = quote(self.chance.choice(NASTY), safe="")
        refused = {
            "best": f"kernel=update_pi&family={nasty}",
            "source": f"kernel={nasty}x",
            "trials": f"limit={nasty}",
            "jobs": f"state={nasty}",
        }
        route = self.chance.choice(sorted(refused))
        return self.request("GET", f"{API}/{route}?{refused[route]}")

    def wrong_path(self) -> bytes:
        """A path that there is not."""
        nasty = quote(self.chance.choice(NASTY), safe="/%" if self.chance.random() < 0.5 else "")
        where = self.chance.choice(("trials/", "jobs/", "jobs/x/files/", "nothing/"))
        return self.request("GET", f"{API}/{where}x{nasty}")

    def wrong_json(self) -> bytes:
        """A body that is no request for a tune."""
        value = self.chance.choice(NASTY)
        bodies = (
            value + "]",
            json.dumps([value]),
            json.dumps({"family": value + ":"}),
            json.dumps({"budget_trials": value}),
            json.dumps({"problem": {"K": value + "x"}}),
            json.dumps({"problem": {value: 1, "../": 2}}),
            json.dumps({value + "x": 1}),
            '{"budget_trials": '
            + self.chance.choice(("NaN", "-Infinity", "1e999", "-5", "0", "1.5", "[" * 2000))
            + "}",
            '{"seed": ' + "9" * self.chance.randrange(25, 5000) + "}",
            '{"budget_seconds": ' + self.chance.choice(("NaN", "0", "-1", "1e300", '"1"', "true")) + "}",
            json.dumps({"kernels": [value] * self.chance.randrange(1, 100)}),
            json.dumps({"fixed": {"vector_width": [self.chance.randrange(17, 10**9)]}}),
        )
        body = self.chance.choice(bodies).encode("utf-8", "surrogatepass")
        return self.request("POST", f"{API}/jobs/tune", body, token=TOKEN)

    def wrong_method(self) -> bytes:
        """A method that the route does not have."""
        method = self.chance.choice(("PUT", "DELETE", "PATCH", "TRACE", "POST", "CONNECT", "PROPFIND"))
        route = self.chance.choice(("devices", "best", "kernels", "trials"))
        return self.request(method, f"{API}/{route}", token=TOKEN)

    def no_token(self) -> bytes:
        """Something to be changed, without the right token."""
        token = "".join(self.chance.choices(string.ascii_letters, k=self.chance.randrange(0, 60)))
        route = self.chance.choice(("records", "jobs/tune", "jobs/detect?n_communities=5"))
        return self.request("POST", f"{API}/{route}", b"1 2\n", token=token)

    def wrong_host(self) -> bytes:
        """A name that another site has."""
        host = self.chance.choice(("evil.example", "localhost.evil.example", "10.0.0.1", "", "[::2]", "x" * 300))
        return self.request("GET", f"{API}/devices", host=host)

    def wrong_head(self) -> bytes:
        """Headers that cannot be."""
        first = self.chance.choice(("GET /health HTTP/1.1", "POST /api/v1/records HTTP/1.1"))
        header = self.chance.choice(
            (
                "Content-Length: -1",
                "Content-Length: 99999999999999999999999",
                "Content-Length: 5\r\nContent-Length: 7",
                "Content-Length: 5\r\nTransfer-Encoding: chunked",
                "X: " + "x" * 20_000,
                "Host: evil.example",
                "X\x00: y",
                ": y",
                " folded",
                "\r\n".join(f"X{n}: {'y' * 50}" for n in range(400)),
            )
        )
        return f"{first}\r\nHost: localhost\r\n{header}\r\n\r\n".encode("latin-1")

    def request(self, method: str, path: str, body: bytes = b"", token: str = "", host: str = "localhost") -> bytes:
        """A request line, headers and a body."""
        head = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
        if token:
            head.append(f"Authorization: Bearer {token}")
        if body or method == "POST":
            head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*head, "", ""]).encode("latin-1", "replace") + body


def bundle_lines() -> list[bytes]:
    """A good file of records, a line an entry."""
    of = DeviceRecord(
        backend="cuda",
        platform="CUDA",
        vendor="NVIDIA",
        name="GPU",
        architecture="sm_1",
        driver="1",
        kind="gpu",
        compute_units=1,
        memory_bytes=1,
    )
    key = Key(of, ToolchainRecord("c", "1"), KernelRecord("mmsb", "update_pi", "x"), ProblemRecord("mmsb", {"K": 5}))
    run = RunRecord(strategy="random")
    trials = [TrialRecord(run=run.uuid, key=key, config={"n": n}, status="ok", times=(1e-3,)) for n in range(3)]
    return [line.encode() + b"\n" for line in lines(Bundle([run], [], trials, []))]


class Uploads:
    """Makes uploads that must not be taken: (route, headers, body)."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.good = bundle_lines()
        self.bomb = gzip.compress(bytes(400 << 20), 9)
        slow = io.BytesIO()
        with zipfile.ZipFile(slow, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("../../../etc/cron.d/x", bytes(1 << 20))
        self.zip = slow.getvalue()

    def one(self, number: int) -> tuple[str, str, dict[str, str], bytes]:
        """The name of an upload, where it goes, its headers and its body."""
        kinds = (self.bombs, self.graphs, self.forms, self.records, self.records, self.options)
        return kinds[number % len(kinds)]()

    def bombs(self) -> tuple[str, str, dict[str, str], bytes]:
        """Much in little."""
        route = self.chance.choice((f"{API}/records", f"{API}/jobs/detect?n_communities=5"))
        body = self.chance.choice(
            (
                self.bomb,
                gzip.compress(self.bomb),
                self.bomb[: len(self.bomb) // 2],
                self.bomb[:-8] + struct.pack("<II", 1, 5),
                gzip.compress(b"1 2\n") * 3 + self.bomb,
                self.zip,
                gzip.compress(self.zip),
            )
        )
        return "bomb", route, {"Content-Encoding": "gzip"}, body

    def graphs(self) -> tuple[str, str, dict[str, str], bytes]:
        """What is no graph, or one too large."""
        chance = self.chance
        body = chance.choice(
            (
                b"",
                b"\n" * 1000,
                b"1 2 3\n",
                b"1,\n",
                b"1 1\n",
                bytes(5000),
                chance.randbytes(5000),
                b"\xff\xfe1\x00 \x002\x00",
                b"%%MatrixMarket matrix\n1 1 1\n",
                b"# isolated nodes: " + b" ".join(b"%d" % n for n in range(200_000)) + b"\n1 2\n",
                b"".join(b"%d %d\n" % (n, n + 1) for n in range(120_000)),
                b"../../etc/passwd\n",
                b"NaN\n",
                b"x" * 500_000,
                b"BZh91AY&SY",
                b"\x1f\x8b" + chance.randbytes(50),
            )
        )
        return "graph", f"{API}/jobs/detect?n_communities=5", {}, body

    def forms(self) -> tuple[str, str, dict[str, str], bytes]:
        """Forms whose parts or names are not what is asked for."""
        chance, edge = self.chance, "x" * 20
        name = chance.choice(NASTY).replace("\r\n", " ").replace('"', "'")

        def part(field: str, text: str) -> str:
            head = f'Content-Disposition: form-data; name="{field}"; filename="{name}"'
            return f"--{edge}\r\n{head}\r\n\r\n{text}\r\n"

        body = chance.choice(
            (
                part("other", "1 2\n") + f"--{edge}--\r\n",
                part("graph", "1 2 3\n") + f"--{edge}--\r\n",
                part("graph", "") + f"--{edge}--\r\n",
                part("graph", "1 2\n") * 5 + f"--{edge}--\r\n",
                part("graph", "1 2 3\n"),
                f"--{edge}\r\n\r\n",
                f"--{edge}\r\n" + "X: y\r\n" * 5000,
                "no form at all",
            )
        )
        kind = chance.choice((f"multipart/form-data; boundary={edge}", "multipart/form-data; boundary="))
        body_bytes = body.encode("utf-8", "surrogateescape")
        return "form", f"{API}/jobs/detect?n_communities=5", {"Content-Type": kind}, body_bytes

    def records(self) -> tuple[str, str, dict[str, str], bytes]:
        """Files of records with one thing wrong."""
        good, chance = list(self.good), self.chance
        last = good[-1]
        wrong = chance.choice(
            (
                last.replace(b'"round":0', b'"round":NaN'),
                last.replace(b'"round":0', b'"round":-1'),
                last.replace(b'"round":0', b'"round":99999999999999999999'),
                last.replace(b'"round":0', b'"round":"0"'),
                last.replace(b'"times":[0.001]', b'"times":[Infinity]'),
                last.replace(b'"times":[0.001]', b'"times":[-1]'),
                last.replace(b'"times":[0.001]', b'"times":[]'),
                last.replace(b'"times":[0.001]', b'"times":"../../x"'),
                last.replace(b'"times":[0.001]', b'"times":{"a":1}'),
                last.replace(b'"status":"ok"', b'"status":"__import__"'),
                last.replace(b'"config":{', b'"config":' + b"[" * 50_000 + b"{"),
                last.replace(b'"config":{"n":2}', b'"config":[1]'),
                last.replace(b'"config":{"n":2}', b'"config":null'),
                last.replace(b'"type":"trial"', b'"type":"../trial"'),
                last.replace(b'"created_at":"2', b'"created_at":"x2'),
                last.replace(b'"run":"', b'"run":"0'),
                last[:-20] + b"\n",
                b'{"type":"device","key":"' + b"0" * 32 + b'"}\n',
                b"null\n",
                b"[]\n",
                chance.randbytes(200) + b"\n",
                b"9" * 6000 + b"\n",
                b"",
            )
        )
        head = chance.choice((good[0], good[0], good[0], b'{"format":"other"}\n', b'{"trials":' + b"9" * 300 + b"}\n"))
        body = b"".join([head, *good[1:-1], wrong])
        return "records", f"{API}/records", {}, gzip.compress(body) if chance.random() < 0.3 else body

    def options(self) -> tuple[str, str, dict[str, str], bytes]:
        """A good graph with options that cannot be."""
        name = self.chance.choice(("n_communities", "seed", "iterations", "threshold", "top", "rule", "start", "out"))
        value = quote(self.chance.choice(NASTY) + "x", safe="")
        more = "" if name == "n_communities" else "&n_communities=5"
        return "options", f"{API}/jobs/detect?{name}={value}{more}", {}, b"1 2\n2 3\n1 3\n"
