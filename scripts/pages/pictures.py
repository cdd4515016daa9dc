#!/usr/bin/env python
"""The pictures of docs/kernel-space.md, from the declarations of the kernels where they say it.

scripts/pages/pictures.py [--output docs/pictures]
"""

from __future__ import annotations

from pathlib import Path

import click
from _svg import BLUE, GREEN, GREY, ORANGE, PALE, PINK, YELLOW, Drawing

from mmsbgen.families.mmsb.axes.common_axes import PLACEMENTS
from mmsbgen.families.mmsb.axes.row_space import places

ROOT = Path(__file__).resolve().parents[2]
PLACES = {
    "R": ("registers", BLUE),
    "S": ("shared memory", ORANGE),
    "L": ("thread-local array", GREEN),
    "G": ("global memory", GREY),
}
LANES = (BLUE, ORANGE, GREEN, PINK, YELLOW, "#B7B1E5", "#C9B79C", GREY)


def gather(drawing: Drawing) -> None:
    """What update_phi does with one vertex."""
    d = drawing
    d.words(30, 34, "pi, one row of K shares a slot", bold=True)
    names = {1: "partner 2", 3: "own row", 4: "partner 1", 7: "partner 3", 9: "spare slot"}
    for row in range(10):
        y = 48 + 26 * row
        fill = {3: GREEN, 9: YELLOW}.get(row, BLUE if row in names else "white")
        d.box(30, y, 190, 22, fill)
        if row in names:
            d.words(125, y + 15.5, names[row], 12, "middle")
    d.label(300, 126, 130, 40, "dot with w", "white")
    d.words(365, 118, "w = own (beta - delta)", 11, "middle", ink=PALE)
    d.label(300, 196, 130, 40, "scale = weight / Z", "white")
    d.label(500, 160, 150, 46, "accumulate", "white")
    d.words(575, 222, "scale times the row, summed", 11, "middle", ink=PALE)
    d.label(500, 262, 150, 46, "step, normalise", "white")
    for row in (1, 4, 7):
        d.line([(220, 59 + 26 * row), (298, 146)], arrow=True)
    d.line([(220, 48 + 26 * 3 + 11), (298, 140)], arrow=True, ink="#2E8B57")
    d.line([(365, 166), (365, 194)], arrow=True)
    d.line([(430, 216), (498, 190)], arrow=True)
    d.line([(430, 146), (498, 174)], arrow=True)
    d.words(466, 138, "row again", 11, "middle", ink=PALE)
    d.line([(575, 228), (575, 260)], arrow=True)
    d.line([(500, 290), (222, 293)], arrow=True)
    d.words(365, 283, "one write", 11, "middle", ink=PALE)


def placement(drawing: Drawing) -> None:
    """Where the three vectors of a row's length live, for every placement."""
    d = drawing
    heads = ("probs: partner's row", "grads: accumulator", "pi: own row, reweighed")
    for column, head in enumerate(heads):
        d.words(235 + 190 * column, 30, head, 12, "middle", bold=True)
    for row, name in enumerate(PLACEMENTS):
        y = 44 + 28 * row + (14 if row >= 4 else 0)
        d.words(130, y + 17, name, 14, "end", bold=True)
        for column, letter in enumerate(places({"placement": name})):
            text, fill = PLACES[letter]
            if letter == "G":
                text = "the output row itself" if column == 1 else "read again"
            d.label(145 + 190 * column, y, 180, 24, text, fill, 12)
    d.words(735, 44 + 17, "rolled loops:", 12, bold=True)
    d.words(735, 44 + 34, "rows of any length", 12)
    d.words(735, 58 + 28 * 4 + 17, "unrolled loops:", 12, bold=True)
    d.words(735, 58 + 28 * 4 + 34, "at most 64 chunks", 12)
    d.words(735, 58 + 28 * 4 + 51, "a work-item", 12)


def team(drawing: Drawing) -> None:
    """Who shares a row."""
    d = drawing
    cases = (
        ("item", "a work-item has a row of its own; nothing to add up", 1),
        ("subgroup", "the lanes of a sub-group (warp) share a row; they add up by shuffles", 4),
        ("block", "all work-items of a block share a row; they add up by shuffles and in local memory", 8),
    )
    for case, (name, text, size) in enumerate(cases):
        top = 30 + 132 * case
        d.words(20, top, f"team = {name}", 15, bold=True)
        d.words(190, top, text, 12, ink=PALE)
        for row in range({1: 3, 4: 2, 8: 1}[size]):
            y = top + 14 + 28 * row
            for vector in range(16):
                lane = vector % size if size > 1 else row
                d.box(20 + 42 * vector, y, 42, 22, LANES[lane + (4 if size == 4 and row % 2 else 0)])
                if size > 1:
                    d.words(41 + 42 * vector, y + 15.5, str(lane), 11, "middle")
            d.words(702, y + 15.5, f"row {row}" if size < 8 else "the block's row", 12)
    d.words(
        20, 372, "A field is one vector of the row; its colour and number are the work-item that goes through it.", 12
    )


def vector_width(drawing: Drawing) -> None:
    """How one row is cut for four work-items at each vector width."""
    d = drawing
    for place, width in enumerate((1, 2, 4, 8)):
        y = 44 + 56 * place
        d.words(112, y + 20, f"width {width}", 12, "end", bold=True)
        for start in range(0, 32, width):
            lane = start // width % 4
            d.box(125 + 18 * start, y, 18 * width, 30, LANES[lane])
            d.words(125 + 18 * (start + width / 2), y + 20, str(lane), 11, "middle")
        loads = 32 // width // 4
        d.words(712, y + 20, f"{loads} load{'s' if loads > 1 else ''} each", 12)
    d.words(125, 28, "a row of 32 elements, shared by work-items 0 to 3; a box is one load", 12)
    d.words(
        125,
        284,
        "Neighbouring work-items read neighbouring vectors, so that a team's loads are one stretch of memory.",
        12,
    )


def in_flight(drawing: Drawing) -> None:
    """Time of a team that goes through eight partners, with one, two and four rows in flight."""
    d = drawing
    wait, work, unit = 3.0, 1.0, 16.0
    for case, rows in enumerate((1, 2, 4)):
        top = (50, 130, 230)[case]
        d.words(20, top - 10, f"rows_in_flight = {rows}", 14, bold=True)
        begin = 0.0
        for first in range(0, 8, rows):
            for j in range(rows):
                y = top + 20 * j
                start = 20 + unit * begin
                d.label(start, y, unit * wait, 16, f"read {first + j}", GREY, 10)
                used = start + unit * (wait + work * j)
                if j:
                    d.line([(start + unit * wait, y + 8), (used, y + 8)], ink=PALE, width=0.8)
                d.label(used, y, unit * work, 16, "", BLUE)
            begin += wait + work * rows
        end = 20 + unit * begin
        d.line([(end, top - 6), (end, top + 20 * rows)], ink=PALE)
        d.words(end + 6, top + 10, f"time {begin:g}", 12)
    d.words(20, 350, "Grey is the wait for memory, blue the use of a row; a wait of three uses, for the drawing.", 12)


def tile(drawing: Drawing) -> None:
    """What block_shared does with a tile of vertices and a panel of shared partners."""
    d = drawing
    d.words(
        30, 30, "block_shared: all pairs of a tile of vertices and the partners that the block shares", 14, bold=True
    )
    for row in range(4):
        d.box(30, 120 + 24 * row, 150, 20, GREEN)
    d.words(105, 112, "tile: 4 vertices' rows", 12, "middle")
    for column in range(8):
        x = 260 + 34 * column
        d.box(x, 50, 28, 60, BLUE if column < 2 else "#CFE8F7")
    d.words(552, 64, "panel of shared partners' rows;", 12)
    d.words(552, 81, "dark: two in flight", 12)
    for row in range(4):
        for column in range(8):
            x, y = 260 + 34 * column, 120 + 24 * row
            struck = (row, column) in ((1, 3), (3, 6))
            d.box(x, y, 28, 20, "white" if struck else ORANGE if column < 2 else "#F7DDA6")
            if struck:
                d.words(x + 14, y + 15, "0", 12, "middle")
    d.words(552, 150, "one scale for each pair, from its dot;", 12)
    d.words(552, 167, "0 where the pair must not count:", 12)
    d.words(552, 184, "itself, links, held-out pairs", 12)
    d.line([(182, 166), (256, 166)], arrow=True)
    d.words(219, 158, "dots", 12, "middle")
    d.line([(396, 220), (396, 250)], arrow=True)
    d.label(230, 252, 332, 34, "sum of scale times partner's row, for each vertex", "white", 11.5)
    d.words(
        30,
        316,
        "A partner's row that is read serves all vertices of the tile: tile = 16 reads memory 16 times less than 1.",
        12,
    )


PICTURES = {
    "gather": (gather, 690, 330, "What update_phi does with one vertex"),
    "placement": (placement, 880, 412, "Where the three vectors of a row's length live, for every placement"),
    "team": (team, 820, 388, "Who shares a row"),
    "vector-width": (vector_width, 800, 300, "How a row is cut into vectors"),
    "rows-in-flight": (in_flight, 640, 366, "Time with one, two and four rows in flight"),
    "tile": (tile, 790, 332, "Tiles of vertices and panels of shared partners"),
}


@click.command(help=__doc__)
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=ROOT / "docs" / "pictures")
def main(output: Path) -> None:
    """Write every picture."""
    output.mkdir(parents=True, exist_ok=True)
    for name, (draw, width, height, title) in PICTURES.items():
        drawing = Drawing(width, height, title)
        draw(drawing)
        drawing.save(output / f"{name}.svg")


if __name__ == "__main__":
    main()
