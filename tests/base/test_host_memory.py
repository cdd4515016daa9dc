"""What processes hold in memory."""

from __future__ import annotations

import subprocess
import sys

from mmsbgen.base.host_memory import resident_bytes

HELD = 100 << 20

_OWNER = f"""
import subprocess, sys, threading

holder = "held = b'x' * {HELD}; print('held', flush=True); input()"

def start():
    subprocess.run([sys.executable, "-c", holder])

threading.Thread(target=start).start()
"""


def test_what_a_thread_other_than_the_first_has_started_counts() -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        assert HELD < resident_bytes(owner.pid) < 2 * HELD
    finally:
        owner.communicate("\n")
    assert resident_bytes(owner.pid) == 0, "it is gone"
