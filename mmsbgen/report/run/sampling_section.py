"""The section on draws of the posterior: R-hat, effective sample sizes, traces and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.report.page import Section, Table
from mmsbgen.report.style import MUTED, Picture, colour, panels
from mmsbgen.sampler.posterior.draws import Draws, aligned
from mmsbgen.sampler.posterior.r_hat import LEAST_DRAWS, split

Floats = npt.NDArray[np.float64]
#: Bins of ranks.
_BINS = 20
_SHOWN = {"log_likelihoods": "held-out log-likelihood\n(nats a pair)", "effective_communities": "effective communities"}


def sampling_section(told: Mapping[str, Any] | None, draws: list[Draws]) -> Section | None:
    """The section on the draws of a run, of which its record has ``told``; None for a run that optimises."""
    if not told:
        return None
    picture = _picture(draws) if draws else None
    return Section("Sampling", told["text"], [] if picture is None else [picture], [_table(told)])


def _table(told: Mapping[str, Any]) -> Table:
    rows = [
        (name, "1", *(_number(told[key][value]) for value in ("r_hat", "ess_bulk", "ess_tail")), "")
        for name, key in (
            ("log-likelihood of held-out pairs", "log_likelihood"),
            ("effective communities", "effective_communities"),
        )
    ]
    for name, key in (
        ("link probabilities of held-out pairs", "link_probabilities"),
        ("strengths, within their chain", "strengths_within_chains"),
    ):
        of = told[key]
        if of["count"]:
            worst = {"r_hat": "largest", "ess_bulk": "least", "ess_tail": "least"}
            cells = (f"{_number(of[f'{what}_median'])} ({_number(of[f'{what}_{end}'])})" for what, end in worst.items())
            rows.append((name, f"{of['count']:,}", *cells, f"{of['above_1.1']:.1%}"))
    columns = ("", "quantities", "R-hat", "bulk ESS", "tail ESS", "R-hat above 1.1")
    title = f"R-hat and effective sample sizes of {told['draws']:,} draws by {told['chains']} chains"
    return Table(
        title if told["chains"] > 1 else title.removesuffix("s"),
        columns,
        rows,
        frozenset(range(1, 6)),
        "Of several quantities: the median, and in brackets the worst. Communities of different chains have no common "
        "order, so strengths are compared within a chain.",
    )


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}" if value < 10 else f"{value:,.0f}"


def _picture(chains: list[Draws]) -> Picture | None:
    """Traces of two quantities by chain, and the ranks of each chain's draws among all; None with too few draws."""
    together = aligned(chains)
    if len(together[0]) < LEAST_DRAWS:
        return None
    shown = {name: label for name, label in _SHOWN.items() if np.isfinite(getattr(chains[0], name)).all()}
    several = len(chains) > 1
    figure, axes = panels(len(shown), 2, 8.6, 0.6 + 2.1 * len(shown))
    for (left, right), (name, label) in zip(axes, shown.items(), strict=True):
        for number, draws in enumerate(chains):
            left.plot(draws.iterations, getattr(draws, name), linewidth=0.9, **_style(number))
        left.set_ylabel(label)
        left.grid(axis="y")
        values = np.stack([getattr(draws, name) for draws in together])[:, :, None]
        _ranks(right, (values if several else split(values))[:, :, 0])
    axes[-1][0].set_xlabel("iteration")
    axes[-1][1].set_xlabel("rank among all draws")
    parts = "chain" if several else "half of the chain"
    caption = (
        f"Draws by chain, and how many draws of each {parts} have which rank among all draws. Where chains "
        "sample one law, traces overlap and ranks are level (grey line)."
    )
    names = " and ".join(label.partition("\n")[0] for label in shown.values())
    return Picture("draws", "Draws of the posterior", caption, f"Traces and ranks of {names}, by {parts}.", figure)


def _style(number: int) -> dict[str, Any]:
    """Colour and dashes of a chain."""
    return {"color": colour(number), "linestyle": ("-", "--", ":", "-.")[number % 4]}


def _ranks(axes: Any, compared: Floats) -> None:
    ranks = compared.ravel().argsort().argsort().reshape(compared.shape)
    edges = np.linspace(0, compared.size, min(_BINS, max(2, compared.shape[1] // 5)) + 1)
    for number, own in enumerate(ranks):
        axes.stairs(np.histogram(own, edges)[0], edges, linewidth=1.2, **_style(number))
    axes.axhline(compared.shape[1] / (len(edges) - 1), color=MUTED, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("draws")
