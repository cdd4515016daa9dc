"""Two kinds of help: the usual options, and all of them in groups; shells complete them all."""

from __future__ import annotations

import re

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from mmsbgen.base.declared_options import options_of
from mmsbgen.cli import main
from mmsbgen.cli.runs.detect import detect
from mmsbgen.cli.shared.command_options import GuidedCommand
from mmsbgen.cli.tune import tune
from mmsbgen.sampler.options.options import MINI_BATCHES, Options
from mmsbgen.sampler.saved.result_options import ResultOptions
from mmsbgen.tuner.run.tune_options import TuneOptions
from mmsbgen.tuner.search.strategies import STRATEGIES

COMMANDS: list[tuple[GuidedCommand, list[type]]] = [(detect, [Options, ResultOptions]), (tune, [TuneOptions])]


def told(*words: str) -> str:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


def flags(text: str) -> list[str]:
    """The first long flag of each option in a help text."""
    return re.findall(r"^  (?:-\w, )?--([\w-]+)", text, re.M)


def completed(*words: str, begun: str) -> set[str]:
    found = ShellComplete(main, {}, "mmsbgen", "_MMSBGEN_COMPLETE").get_completions(list(words), begun)
    return {one.value for one in found}


@pytest.mark.parametrize(("command", "declarations"), COMMANDS)
def test_help_shows_the_usual_options(command, declarations):
    shown = flags(told(command.name, "--help"))
    assert "help-all" in shown
    assert len(set(shown) - {"help", "help-all"}) <= 12
    declared = {name.replace("_", "-"): one for of in declarations for name, one in options_of(of).items()}
    for name, one in declared.items():
        assert (name in shown) == (one.audience == "everybody"), name


@pytest.mark.parametrize(("command", "_"), COMMANDS)
def test_help_all_shows_every_option_once_in_groups(command, _):
    text = told(command.name, "--help-all")
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert sorted(flags(text)) == sorted(["help", *(one.opts[-1].lstrip("-") for one in options)])
    assert len(re.findall(r"^[A-Z].*:$", text, re.M)) >= 5, "headings"
    for heading, lines in re.findall(r"^([A-Z].*):\n((?:  .*\n?)+)", text, re.M):
        assert len(flags(lines)) <= 21, heading


def test_what_help_leaves_out_is_completed_with_its_choices():
    assert "--mini-batch" in completed("detect", begun="--mini")
    assert completed("detect", "--mini-batch", begun="random-node-") == {
        name for name in MINI_BATCHES if name.startswith("random-node-")
    }
    assert completed("detect", "--weights", begun="") == {"ignore", "threshold="}
    assert completed("tune", "--strategy", begun="") == set(STRATEGIES)
    assert "update_phi" in completed("tune", "--kernel", begun="update_")
    assert completed("tune", "--kernel", begun="no such") == set()
    assert completed("tune", "--partners", begun="shared-") == {"shared-uniform"}
    assert completed("db", "trials", "--status", begun="comp") == {"compile_error"}
