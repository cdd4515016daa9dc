"""What each rank does in ``test_shared_reading.py``: rank 0 compares what all read together with what it reads alone.

The last text has a line that is no link, among those of another rank; another one for two ranks than for three.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mmsbgen.backends.ranks.world import Released, World
from mmsbgen.base.errors import InputError
from mmsbgen.detection.ranks import reading
from mmsbgen.detection.ranks.reading import follow_reading, read_together
from mmsbgen.graph import Graph, ReadingOptions, read_graph, split
from mmsbgen.graph.files import tokens

#: Bytes of a block, and of a file's begin.
BLOCK, HEAD = 32, 64
ROWS = [(a, 7 * a % 40) for a in range(60)]
PLAIN = "".join(f"{a}\t{b}\n" for a, b in ROWS)
OVER_30 = ReadingOptions(columns=["a", "b", "w"], weights="threshold=30")
#: Name of the file, its text, and how it is read: what all ranks read, and what one finds that rank 0 must read alone.
TOGETHER: list[tuple[str, str, ReadingOptions]] = [
    ("plain.txt", PLAIN, ReadingOptions()),
    # Only the last rank has a number that is not uint32.
    ("no-end.txt", PLAIN + "-7 8", ReadingOptions(vertices=[1000])),
    ("apart.txt", "".join(f"{a * 10**15} {b * 10**15}\n" for a, b in ROWS), ReadingOptions()),
    ("both-ways.txt", "".join(f"{a} {b}\n" + f"{b} {a}\n" * (a % 3) for a, b in ROWS), ReadingOptions()),
    (
        "comments.txt",
        "# é\n" * 30 + "# Isolated nodes: 99 77\n" + PLAIN.replace("\n", "\n\n# c d e\n"),
        ReadingOptions(),
    ),
    # The borders of ranges are at the end of a line, before it and behind it.
    *((f"border{n}.txt", ("1111 222\n" * 3 + "1" * (n - 30) + " 3\n") * 20, ReadingOptions()) for n in (31, 32, 33)),
    ("long.txt", "".join(" " * 50 + f"{a} {b}\n" for a, b in ROWS[:9]), ReadingOptions()),
    ("mark.txt", "\ufeff" + PLAIN.replace("\n", "\r\n"), ReadingOptions()),
    ("last-word.txt", PLAIN + "x\ty\n", ReadingOptions()),
    ("last-byte.txt", PLAIN + "# \udce9\n", ReadingOptions()),
    ("counts.txt", "60 60\n" + PLAIN, ReadingOptions()),
    ("counted.txt", "60 60\n" + PLAIN, ReadingOptions(format="text")),
]
#: What rank 0 reads alone by its begin.
ALONE: list[tuple[str, str, ReadingOptions]] = [
    ("words.txt", "".join(f"é{a} v{b}\n" for a, b in ROWS), ReadingOptions()),
    ("header.txt", "left\tright\n" + PLAIN, ReadingOptions()),
    ("weights.csv", '"a","b","w"\n' + "".join(f'"{a}","{b}",{a}\n' for a, b in ROWS), OVER_30),
    ("columns.txt", PLAIN, ReadingOptions(columns=[2, 1])),
    ("threshold.txt", PLAIN, ReadingOptions(weights="threshold=1")),
    ("latin.txt", PLAIN.replace("\t", " é") + "\udce9 7\n", ReadingOptions()),
    ("short.txt", "1 2\n", ReadingOptions()),
    ("empty.txt", "", ReadingOptions()),
]
TEXTS = TOGETHER + ALONE
BAD = {size: ("bad.txt", times * PLAIN + "5 6 7\n" + (3 - times) * PLAIN) for size, times in ((2, 2), (3, 1))}


def outcome(read: Callable[..., Graph], *of: object) -> tuple[object, ...]:
    """All that a graph says, with the pairs that are held out, or the error."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            graph = read(*of)
        except InputError as error:
            return (str(error),)
    parts = split(graph, validation=0.1, test=0.1, seed=3)
    pairs = np.concatenate([parts.training_links, parts.validation.pairs, parts.test.pairs])
    arrays = (graph.ids.tolist(), graph.links.tolist(), pairs.tolist())
    return (*arrays, graph.report, graph.name, graph.file, graph.reading, [str(one.message) for one in said])


def compare(world: World, folder: Path) -> None:
    for name, text, options in TEXTS:
        file = folder / name
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
        assert outcome(read_graph, file, options) == outcome(read_together, world, file, options), name


def main() -> None:
    tokens.BLOCK_BYTES, reading._HEAD_BYTES = BLOCK, HEAD
    folder = Path(sys.argv[1])
    with World() as world:
        if world.rank == 0:
            told, messages = world.tell, []
            world.tell = lambda *message: (messages.append(message[0]), told(*message))  # type: ignore[assignment]
            compare(world, folder)
            print(f"{len(TEXTS)} alike, {len(messages)} read together", flush=True)
            name, text = BAD[world.size]
            (folder / name).write_text(text)
            try:
                read_together(world, folder / name, ReadingOptions())
            except InputError as error:
                print(error, flush=True)
                raise SystemExit(error.exit_code) from None
        if (world.rank, world.size) == (1, 3):
            # As on a machine that has another file of this name: rank 0 sends the lines.
            reading._state = lambda file: (0, 0)
        while True:
            follow_reading(world, *world.hear()[1:])


if __name__ == "__main__":
    try:
        main()
    except Released as end:
        sys.exit(end.exit_code)
