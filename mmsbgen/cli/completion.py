"""``mmsbgen completion``: the script that lets a shell complete commands, options and their values."""

from __future__ import annotations

import click

_HELP = """Print the script that lets SHELL complete mmsbgen's commands, options and their choices.

\b
bash   mmsbgen completion bash > ~/.local/share/bash-completion/completions/mmsbgen
zsh    mmsbgen completion zsh > a file _mmsbgen in a folder of $fpath
fish   mmsbgen completion fish > ~/.config/fish/completions/mmsbgen.fish

It works in shells that are started afterwards, and needs mmsbgen on the PATH.
"""


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print click's script for a shell."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    root = ctx.find_root()
    click.echo(found(root.command, {}, "mmsbgen", "_MMSBGEN_COMPLETE").source())
