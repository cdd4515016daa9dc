"""Where the program ``mmsbgen`` begins, and ``python -m mmsbgen``: Ctrl-C is listened for before anything is loaded."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is being loaded ends it with one line and exit code 130."""
    # Matrices on the host are small.  On a busy machine threads of OpenBLAS wait for each other 100 times as long as
    # they compute; NumPy reads this when it is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from mmsbgen.cli import main as run

        run(prog_name="mmsbgen")
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
