"""What tests of detections share: a small graph, short runs, and the command line."""

from __future__ import annotations

import warnings

from click.testing import CliRunner, Result

from mmsbgen.cli import main
from tests.devices import PROCESSOR

RING = [(a, (a + step) % 30) for a in range(30) for step in (1, 2)]
FAST = {"device": PROCESSOR, "iterations": 4, "mini_batch_size": 8, "n_partners": 4}


def cli(*args: object, code: int = 0) -> Result:
    """``mmsbgen detect``, on the processor if no device is given, which must end with ``code``."""
    words = [str(a) for a in args]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(main, ["detect", "--device", PROCESSOR, *words])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result
