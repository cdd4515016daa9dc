"""``mmsbgen update``: follows a graph that has changed."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mmsbgen.base.errors import InputError
from mmsbgen.cli.runs.detect import print_found
from mmsbgen.cli.shared import logs
from mmsbgen.cli.shared.command_options import GuidedCommand, NamedPath, grouped, once, option, readable_path
from mmsbgen.cli.shared.configuration import device_options
from mmsbgen.cli.shared.declared_flags import reading_flags, reading_of
from mmsbgen.cli.shared.logs import json_option, log_options

#: Most bytes of a file that may have no more than a header.
_ONE_LINE = 4096

if TYPE_CHECKING:
    from mmsbgen.graph import Graph, ReadingOptions


@click.command(
    cls=GuidedCommand,
    help="Update RESULTS, a folder that `mmsbgen detect -o` wrote, after links were added or removed. Only vertices "
    "around the change get new memberships.",
    details="Links have no direction: to remove b, a removes the link of a and b. New ids become vertices. Held-out "
    "pairs stay held out. The graph with its changes is kept as graph.npz, "
    "for the next update or `mmsbgen detect`.",
)
@click.argument("results", type=NamedPath())
@once("--add", type=NamedPath(), help="File of links to add, in any format of graphs (- is standard input).")
@once("--remove", type=NamedPath(), help="File of links to remove.")
@option("-o", "--out", type=NamedPath(file_okay=False), help="Folder for new results; by default RESULTS.")
@option("--graph", type=NamedPath(), help="The run's graph, where it is no longer where the run found it.")
@grouped("Reading the changes", reading_flags("format", "columns", "weights"))
@grouped(
    "Device and database",
    device_options,
)
@json_option("Print the run record instead of a summary.")
@log_options
@click.pass_context
def update(context: click.Context, /, results: Path, **given: Any) -> None:
    """Run one update and print its summary."""
    if given["add"] is None and given["remove"] is None:
        raise InputError("give the links that changed: --add FILE, --remove FILE or both")
    if str(given["add"]) == str(given["remove"]) == "-":
        raise InputError("--add - and --remove - both read standard input: give one of them as a file")
    from mmsbgen.base.host_memory import keep_freed_memory
    from mmsbgen.detection.update import UpdateRequest, perform_update
    from mmsbgen.export.run_folder import need_results, reading_of_run
    from mmsbgen.graph import read_graph

    def message(text: str) -> None:
        logs.note(text)
        logs.tell(text)

    keep_freed_memory()
    need_results(results)  # told before files of links are read
    reading = reading_of(given)
    add, remove = (_links(given[name], reading) for name in ("add", "remove"))
    graph = None if given["graph"] is None else read_graph(given["graph"], reading_of_run(results))
    out = given["out"] or results
    request = UpdateRequest(results, add, remove, graph, out, given["device"], given["database"], message)
    if (found := perform_update(request)) is None:
        return
    print_found(context, found, out, given["as_json"])


def _links(file: Path | None, reading: ReadingOptions) -> Graph | None:
    """The links of a file, or None if there is none or it is empty, as that of a day without changes."""
    from mmsbgen.graph import read_graph
    from mmsbgen.graph.files.words import DisjointEndsWarning
    from mmsbgen.graph.reading_options import USUAL_COLUMNS

    if file is None:
        return None
    if file.is_file() and file.stat().st_size < _ONE_LINE:
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n", 1)
        names = {word.strip().strip('"').lower() for word in re.split("[,;\t|]", lines[0])}
        usual = [*USUAL_COLUMNS, *([reading.columns[:2]] if reading.columns else [])]
        header = any(names >= {str(name).lower() for name in pair} for pair in usual)
        if not "".join(lines[header:]).strip():
            return None
    with warnings.catch_warnings():
        # Of few links in a large graph, most are between different vertices.
        warnings.simplefilter("ignore", DisjointEndsWarning)
        return read_graph(readable_path(file), reading)
