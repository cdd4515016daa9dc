"""What a run that samples says of its draws, in numbers and in sentences."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.sampler.posterior.draws import Draws
from mmsbgen.sampler.posterior.r_hat import mixing
from mmsbgen.sampler.posterior.report import sampling_report


def draws(seed: int, count: int = 800, pairs: int = 40, shift: float = 0.0, drift: float = 0.0) -> Draws:
    """Independent draws, moved by ``shift`` standard deviations, and by ``drift`` from the first to the last."""
    rng = np.random.default_rng(seed)
    moved = (shift + drift * np.linspace(0, 1, count))[:, None]
    ends = np.arange(2 * pairs).reshape(-1, 2)
    return Draws(
        ends,
        np.arange(pairs) < pairs // 2,
        100 + 2 * np.arange(count),
        (rng.standard_normal((count, 1)) + moved)[:, 0] - 5.0,
        (rng.standard_normal((count, 1)) + moved)[:, 0] + 20.0,
        (0.5 + 0.05 * (rng.standard_normal((count, pairs)) + moved)).astype(np.float32),
        (0.2 + 0.01 * rng.standard_normal((count, 3))).astype(np.float32),
    )


def test_the_numbers_are_those_of_the_draws() -> None:
    chains = [draws(1), draws(2, shift=0.5), draws(3)]
    found = sampling_report(chains, {"mean": "what it is"})
    links = mixing(np.stack([one.link_probabilities for one in chains]))
    assert found["link_probabilities"] == {
        "count": 40,
        "r_hat_median": pytest.approx(np.median(links.r_hat)),
        "r_hat_largest": pytest.approx(links.r_hat.max()),
        "above_1.01": np.mean(links.r_hat > 1.01),
        "above_1.1": np.mean(links.r_hat > 1.1),
        "ess_bulk_median": pytest.approx(np.median(links.ess_bulk)),
        "ess_bulk_least": pytest.approx(links.ess_bulk.min()),
        "ess_tail_median": pytest.approx(np.median(links.ess_tail)),
        "ess_tail_least": pytest.approx(links.ess_tail.min()),
    }
    one = mixing(np.stack([one.log_likelihoods for one in chains])[:, :, None])
    assert found["log_likelihood"] == {
        "r_hat": pytest.approx(one.r_hat[0]),
        "ess_bulk": pytest.approx(one.ess_bulk[0]),
        "ess_tail": pytest.approx(one.ess_tail[0]),
    }
    assert (found["chains"], found["draws"], found["iterations_apart"]) == (3, 800, 2)
    assert found["arrays"] == {"mean": "what it is"}


def test_strengths_are_compared_within_their_chain() -> None:
    """Chains that have the communities in other orders agree all the same."""
    one, other = draws(1), draws(2)
    other = Draws(**{**vars(other), "strengths": other.strengths + np.float32(0.5)})
    found = sampling_report([one, other], {})["strengths_within_chains"]
    assert found["count"] == 6
    assert found["r_hat_largest"] < 1.01


@pytest.mark.parametrize(
    ("chains", "said", "not_said"),
    [
        ([draws(1), draws(2)], "The samples agree.", "Warning"),
        ([draws(2)], "The samples agree within the chain. Whether other chains agree, --chains 4 tells.", "Warning"),
        ([draws(1, shift=3), draws(2)], "Warning: chains disagree (R-hat above 1.1): means, spreads", "halves"),
        ([draws(1, shift=3), draws(2)], "Chains that stay apart are at modes of their own", "halves"),
        ([draws(1, drift=3)], "Warning: the halves of the chain disagree (R-hat above 1.1)", "modes"),
        ([draws(1, shift=0.2), draws(2)], " R-hat above 1.01: means are about right, spreads", "fewer"),
        (
            [draws(1, shift=0.2), draws(2)],
            "intervals less so. Sample longer (--sample-sweeps, or -n with --noise).",
            "evaluate",
        ),
        ([draws(2, count=90)], "ewer than 100 effective samples a chain: means are about", "Warning"),
        ([draws(2, count=90)], "with --noise), or evaluate more often (--evaluate-every).", "Warning"),
        ([draws(5, count=3)], "Not known whether the samples represent the posterior: 3 draws.", "R-hat above"),
    ],
    ids=["agree", "one agrees", "apart", "modes", "drifts", "nearly", "longer", "few", "oftener", "too few"],
)
def test_what_it_means_and_what_to_do(chains: list[Draws], said: str, not_said: str) -> None:
    text = sampling_report(chains, {})["text"]
    assert said in text
    assert not_said not in text


def test_the_sentence_has_the_numbers() -> None:
    found = sampling_report([draws(1, shift=3), draws(2)], {})
    links = found["link_probabilities"]
    assert found["text"].startswith(
        f"R-hat {found['log_likelihood']['r_hat']:.3f} of the held-out log-likelihood and "
        f"{found['effective_communities']['r_hat']:.3f} of the effective number of communities, above 1.1 for 100% of "
        f"40 link probabilities; effective sample size {links['ess_bulk_median']:.0f} of 800 draws of each of 2 chains."
    )


def test_a_drifting_number_of_communities_alone_warns() -> None:
    one = draws(2)
    drifting = Draws(**{**vars(one), "effective_communities": one.effective_communities + np.linspace(0, 4, 800)})
    assert "Warning: the halves" in sampling_report([drifting], {})["text"]


def test_without_held_out_pairs_the_number_of_communities_tells() -> None:
    some = draws(2, pairs=0)
    some = Draws(**{**vars(some), "log_likelihoods": np.full(800, np.nan)})
    found = sampling_report([some], {})
    assert found["link_probabilities"] == {"count": 0}
    one = found["effective_communities"]
    assert found["text"].startswith(
        f"R-hat {one['r_hat']:.3f} of the effective number of communities; effective sample size "
        f"{min(one['ess_bulk'], one['ess_tail']):.0f} of 800 draws."
    )
    assert "The samples agree within the chain." in found["text"]
    with pytest.raises(InputError, match="there are no draws"):
        sampling_report([], {})
