"""The entry of a run record on sampling: R-hat and effective sample sizes in numbers and as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mmsbgen.sampler.posterior.draws import Draws, aligned
from mmsbgen.sampler.posterior.r_hat import LEAST_DRAWS, Mixing, mixing

#: R-hat above which draws are not those of one law to the precision that is usual, and not at all.
CLOSE, FAR = 1.01, 1.1
#: Share of the link probabilities that may be above, so that a few of a thousand do not decide.
_FEW = 0.05
#: Fewest effective samples of a chain for R-hat, quantiles and intervals to be reliable.
_LEAST_ESS = 100
_LONGER = "Sample longer (--sample-sweeps, or -n with --noise)"


def sampling_report(
    chains: Sequence[Draws], names: dict[str, str], tell: Callable[[float], None] = lambda share: None
) -> dict[str, Any]:
    """The run record's entry on the draws of ``chains``.

    ``log_likelihood`` and ``effective_communities`` have ``r_hat``, ``ess_bulk`` and ``ess_tail`` over all chains,
    ``link_probabilities`` the median and the worst of these, and the shares with R-hat above 1.01 and 1.1.  Strengths
    are compared within their chain only, as communities of different chains have no common order.  ``arrays`` are
    ``names`` of arrays in files.  ``text`` is the verdict for people.
    """
    there = aligned(list(chains))
    one = there[0]
    scalars = {}
    for name, attribute in {
        "log_likelihood": "log_likelihoods",
        "effective_communities": "effective_communities",
    }.items():
        of_one = mixing(np.array([getattr(draws, attribute) for draws in there])[:, :, None])
        scalars[name] = {measure: float(value[0]) for measure, value in of_one._asdict().items()}
    links = mixing(np.stack([draws.link_probabilities for draws in there]), tell)
    within = [mixing(draws.strengths[None]) for draws in chains]
    strengths = Mixing(*(np.concatenate(column) for column in zip(*within, strict=True)))
    found = {
        "chains": len(there),
        "draws": len(one),
        "iterations_apart": int(np.median(np.diff(one.iterations))) if len(one) > 1 else None,
        **scalars,
        "link_probabilities": _several(links),
        "strengths_within_chains": _several(strengths),
        "arrays": names,
    }
    return found | {"text": _text(found)}


def _several(found: Mixing) -> dict[str, Any]:
    """Median and worst of the diagnostics of many quantities, without those that never change."""
    r_hat, bulk, tail = (values[~np.isnan(found.r_hat)] for values in found)
    if not r_hat.size:
        return {"count": 0}
    return {
        "count": int(r_hat.size),
        "r_hat_median": float(np.median(r_hat)),
        "r_hat_largest": float(r_hat.max()),
        "above_1.01": float(np.mean(r_hat > CLOSE)),
        "above_1.1": float(np.mean(r_hat > FAR)),
        "ess_bulk_median": float(np.median(bulk)),
        "ess_bulk_least": float(bulk.min()),
        "ess_tail_median": float(np.median(tail)),
        "ess_tail_least": float(tail.min()),
    }


def _text(found: dict[str, Any]) -> str:
    """Numbers, what they mean and what to do, each in a sentence."""
    count, chains, links = found["draws"], found["chains"], found["link_probabilities"]
    of = f"{count} draws" if chains == 1 else f"{count} draws of each of {chains} chains"
    if count < LEAST_DRAWS:
        return (
            f"Not known whether the samples represent the posterior: {of}. R-hat takes {LEAST_DRAWS} at the least. "
            f"{_LONGER}, or evaluate more often (--evaluate-every)."
        )
    named = {
        "the held-out log-likelihood": found["log_likelihood"],
        "the effective number of communities": found["effective_communities"],
    }
    known = {what: single for what, single in named.items() if not math.isnan(single["r_hat"])}
    parts = [f"{single['r_hat']:.3f} of {what}" for what, single in known.items()]
    # Intervals rest on the tails.
    sizes = min((min(single["ess_bulk"], single["ess_tail"]) for single in known.values()), default=math.inf)
    numbers = f"R-hat {' and '.join(parts) or 'unknown'}"
    if links["count"]:
        numbers += f", above {FAR} for {links['above_1.1']:.0%} of {links['count']} link probabilities"
        sizes = min(sizes, links["ess_bulk_median"], links["ess_tail_median"])
    sizes = 0.0 if math.isinf(sizes) else sizes
    numbers += f"; effective sample size {sizes:.0f} of {of}."
    return f"{numbers} {_meaning(found, max((one['r_hat'] for one in known.values()), default=1.0), sizes)}"


def _meaning(found: dict[str, Any], r_hat: float, sizes: float) -> str:
    """What R-hat and effective sample sizes say of the samples, and what to do."""
    links, several = found["link_probabilities"], found["chains"] > 1
    share = {name: links.get(name, 0.0) for name in ("above_1.01", "above_1.1")}
    if r_hat > FAR or share["above_1.1"] > _FEW:
        parts = "chains" if several else "the halves of the chain"
        return (
            f"Warning: {parts} disagree (R-hat above {FAR}): means, spreads and intervals are not the posterior's. "
            f"{_LONGER}."
            f"{' Chains that stay apart are at modes of their own; use what is pooled over them.' if several else ''}"
        )
    alone = "" if several else " Whether other chains agree, --chains 4 tells."
    reasons = [f"R-hat above {CLOSE}"] if r_hat > CLOSE or share["above_1.01"] > _FEW else []
    reasons += [f"fewer than {_LEAST_ESS} effective samples a chain"] if sizes < _LEAST_ESS * found["chains"] else []
    if reasons:
        why = " and ".join(reasons)
        more = ", or evaluate more often (--evaluate-every)" if found["draws"] < _LEAST_ESS else ""
        means = "means are about right, spreads and intervals less so"
        return f"{why[0].upper()}{why[1:]}: {means}. {_LONGER}{more}.{alone}"
    return f"The samples agree{' within the chain' if not several else ''}.{alone}"
