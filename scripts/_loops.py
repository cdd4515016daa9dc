"""Checks of star_loop, many iterations in one launch, against single launches of the same configurations.

``_loops.py DEVICE K ...`` prints one JSON object for each chain.  It is a process of its own: blocks that wait for each
other for ever take nobody along.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from _chains import TOLERANCES, chain, compared, loop_configs, small, star_options
from _child import run_for

from mmsbgen.backends import Device, open_device
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.graph import Split
from mmsbgen.kernels.build import compiler_options, traits_of
from mmsbgen.sampler.options.options import Options

STEPS = ("split", "reflected")
#: Types, and whether chains draw: in single precision a draw may flip on the last bit of its input.
TYPES = (("float64", True), ("float32", False))
#: More than mini-batches are drawn for at once, so that there are several launches.
ITERATIONS = 70
_SHOWN = 300


class Loops(NamedTuple):
    """``rows`` are chains as the child tells them; ``why`` says why there are none, or fewer than ``asked``."""

    asked: int
    rows: list[dict[str, Any]]
    why: str = ""

    @property
    def wrong(self) -> list[dict[str, Any]]:
        """Chains that do not agree."""
        return [row for row in self.rows if row["wrong"]]

    @property
    def failed(self) -> bool:
        """Whether one that was asked for did not agree, or was not made."""
        return bool(self.wrong) or len(self.rows) < self.asked

    @property
    def verdict(self) -> str:
        """In one phrase."""
        return f"{len(self.rows) - len(self.wrong)} of {self.asked} chains of star_loop agree with single launches"


def cases(ks: Sequence[int]) -> Iterator[Options]:
    """The chains of these K."""
    for k in ks:
        for step in STEPS:
            for dtype, noise in TYPES:
                yield star_options(k, step=step, dtype=dtype, noise=noise)


def check(device: Device, parts: Split, options: Options) -> dict[str, Any]:
    """One chain by both ways, and how they agree."""
    begin = time.monotonic()
    found: dict[str, Any] = {"same_bits": False, "worst": None, "wrong": None}
    try:
        configs, _ = loop_configs(parts, options, device)
        make = functools.partial(chain, device, parts, options, configs)
        agreement = compared(functools.partial(make, fused=True), make, ITERATIONS, TOLERANCES[options.dtype])
        found |= {"same_bits": agreement.same_bits, "worst": agreement.worst, "wrong": agreement.wrong}
    except MmsbgenError as error:
        found["wrong"] = " ".join(str(error).split())[:_SHOWN]
    about = {"K": options.n_communities, "step": options.step, "dtype": options.dtype, "noise": bool(options.noise)}
    return about | found | {"iterations": ITERATIONS, "seconds": time.monotonic() - begin}


def check_loops(device: str, ks: Sequence[int], seconds: float) -> Loops:
    """Run :func:`main` in a process of its own, for at most ``seconds``."""
    asked = len(list(cases(ks)))
    with tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, __file__, device, *map(str, ks)]
        said, status = run_for(seconds, command, errors)
        why = f"the process ended with status {status}" if status else ""
        if status is None:
            why = f"cut off after {seconds:g} s"
        rows = [json.loads(line) for line in said.splitlines() if line.startswith("{") and line.endswith("}")]
        if why and len(rows) < asked:
            errors.seek(0)
            why = " ".join([why, *errors.read().splitlines()[-1:]])
    return Loops(asked, rows, why if len(rows) < asked else "")


def main(device_spec: str, ks: Sequence[int]) -> None:
    """Check all chains of these K on a device."""
    parts = small()
    with open_device(device_spec) as device:
        if device.side_by_side:
            with contextlib.suppress(MmsbgenError):  # the check tells
                sources = [loop_configs(parts, options, device)[1].source.text for options in cases(ks)]
                device.compile_ahead(sources, compiler_options(traits_of(device.info)))
        for options in cases(ks):
            print(json.dumps(check(device, parts, options)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], tuple(map(int, sys.argv[2:])))
