"""Names that a shell completes; what has them is imported while a shell completes only."""

from __future__ import annotations

from collections.abc import Iterable

import click


def _begun(names: Iterable[str], begun: str) -> list[str]:
    return sorted({name for name in names if name.startswith(begun)})


def family_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Families of kernels."""
    from mmsbgen import families

    return _begun(families.names(), begun)


def kernel_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Kernels of the family that ``--family`` names, or of all families."""
    from mmsbgen import families

    of = [ctx.params["family"]] if ctx.params.get("family") in families.names() else families.names()
    return _begun((name for one in of for name in families.family(one).kernels), begun)


def mini_batch_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Kinds of mini-batches."""
    from mmsbgen.sampler.options.options import MINI_BATCHES

    return _begun(MINI_BATCHES, begun)


def partner_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Ways to sample partners."""
    from mmsbgen.sampler.options.options import PARTNERS

    return _begun(PARTNERS, begun)


def strategy_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Search strategies."""
    from mmsbgen.tuner.search.strategies import STRATEGIES

    return _begun(STRATEGIES, begun)
