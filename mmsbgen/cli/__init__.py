"""The command line. Each command has its own module, which is imported when the command runs."""

from __future__ import annotations

import click

from mmsbgen.base.version import __version__
from mmsbgen.cli.shared.common import LazyCommand, MmsbgenGroup
from mmsbgen.cli.shared.configuration import config_option
from mmsbgen.cli.shared.logs import log_options

__all__ = ["main"]

_COMMANDS = {
    "convert": LazyCommand("mmsbgen.cli.runs.convert:convert", "Turn results of detect into files for other programs."),
    "db": LazyCommand("mmsbgen.cli.db.commands:db", "Ask the tuning database, and move its records between machines."),
    "detect": LazyCommand("mmsbgen.cli.runs.detect:detect", "Find overlapping communities in a graph."),
    "devices": LazyCommand("mmsbgen.cli.devices:devices", "List the devices that kernels can run on."),
    "doctor": LazyCommand("mmsbgen.cli.doctor:doctor", "Check what mmsbgen needs on this machine, and say what to do."),
    "evaluate": LazyCommand("mmsbgen.cli.runs.evaluate:evaluate", "Compare communities with known ones."),
    "propagate": LazyCommand("mmsbgen.cli.graph.propagate:propagate", "Spread known labels of vertices to all others."),
    "render": LazyCommand("mmsbgen.cli.render:render", "Print the source of a kernel."),
    "graph": LazyCommand("mmsbgen.cli.graph.commands:graph", "Run graph algorithms: searches, components, PageRank."),
    "mf": LazyCommand("mmsbgen.cli.mf.commands:mf", "Factorise ratings: fit, predict, recommend."),
    "serve": LazyCommand("mmsbgen.cli.serve:serve", "Serve the tuning database, kernels and jobs over HTTP."),
    "report": LazyCommand("mmsbgen.cli.runs.report:report", "Write a page with pictures of what a run found."),
    "tune": LazyCommand("mmsbgen.cli.tune:tune", "Find the fastest configuration of each kernel on a device."),
    "update": LazyCommand("mmsbgen.cli.runs.update:update", "Update results of detect after the graph has changed."),
    "worker": LazyCommand("mmsbgen.cli.worker:worker", "Do the jobs of a database on a device of this machine."),
}


@click.group(
    cls=MmsbgenGroup,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find overlapping communities in graphs with kernels that are generated and tuned for your device.",
)
@click.version_option(__version__, prog_name="mmsbgen")
@config_option
@log_options
def main() -> None:
    """Run the command line."""
