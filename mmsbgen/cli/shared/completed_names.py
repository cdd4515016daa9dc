"""Names that a shell completes, and ``--family``; what has the names is imported while a shell completes only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.command_options import option

F = TypeVar("F", bound=Callable[..., Any])


def _begun(names: Iterable[str], begun: str) -> list[str]:
    return sorted({name for name in names if name.startswith(begun)})


def family_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Registered families of kernels, and files."""
    from mmsbgen import families

    return [*map(CompletionItem, _begun(families.names(), begun)), CompletionItem(begun, type="file")]


def family_option(default: str | None = "mmsb") -> Callable[[F], F]:
    """``--family`` of commands that take any family."""
    return option(
        "--family",
        default=default,
        metavar="NAME|FILE.py",
        shell_complete=family_names,
        help="Family of the kernels, or the Python file that declares yours.",
    )


def kernel_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Kernels of the family that ``--family`` names, or of all families."""
    from mmsbgen import families

    of = [ctx.params["family"]] if ctx.params.get("family") else families.names()
    with contextlib.suppress(InputError):
        return _begun((name for one in of for name in families.resolve_family(one).kernels), begun)
    return []


def mini_batch_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Kinds of mini-batches."""
    from mmsbgen.sampler.options.options import MINI_BATCHES

    return _begun(MINI_BATCHES, begun)


def partner_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Ways to sample partners."""
    from mmsbgen.sampler.options.options import PARTNERS

    return _begun(PARTNERS, begun)


def schedule_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Schedules of gradient descent on ratings."""
    from mmsbgen.families.mf.schedules import SCHEDULES

    return _begun(("auto", *SCHEDULES), begun)


def strategy_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Search strategies."""
    from mmsbgen.tuner.search.strategies import STRATEGIES

    return _begun(STRATEGIES, begun)
