"""Gradients that devices compute, against derivatives of log Z and against identities of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.row_layout import DELTA, row_length
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.kernels.build import build, release, traits_of
from tests.families.test_reference import derivative, likelihood, log_z, log_z_of_theta, rows, strengths
from tests.statistics.laws import Floats
from tests.statistics.toys import ListedRows

KINDS = ("spread", "one-hot")
U = {"float32": 2.0**-24, "float64": 2.0**-53}
#: So large a concentration that no coordinate is reflected: the step is then linear in the gradient.
ALPHA = 1000.0
TAU, N = 1e-3, 9


class Case:
    """Rows ``[8, K]`` with nine partners each, links and non-links: both spread, one of them one-hot, both one-hot."""

    def __init__(self, k: int, beta_kind: str, dtype: str) -> None:
        rng = np.random.default_rng([k, beta_kind == "extreme"])
        kinds = [(own, other) for own in KINDS for other in KINDS for _ in range(2)]
        self.own = np.concatenate([rows(own, 1, k, rng) for own, _ in kinds]).astype(dtype).astype(float)
        self.others = np.concatenate([rows(other, N, k, rng) for _, other in kinds]).astype(dtype).astype(float)
        self.beta = strengths(beta_kind, k, rng).astype(dtype).astype(float)
        self.sums = rng.uniform(0.5, 3.0, len(kinds)).astype(dtype).astype(float)
        signs = np.array([1, -1, 1, -1, -1, 0, 1, -1, -1])
        self.weights = (rng.uniform(0.5, 3.0, (len(kinds), N)) * signs).astype(dtype).astype(float)
        self.dtype = dtype

    def partners(self, i: int) -> Floats:
        return self.others[N * i : N * (i + 1)]

    def after(self, device: Device, step: str) -> Floats:
        """phi after one step without noise ``[8, K]``."""
        options: dict[str, Any] = {"step": step, "noise": False, "dtype": self.dtype, "alpha": ALPHA}
        lists = np.arange(len(self.others)).reshape(-1, N)
        with ListedRows(
            device,
            self.own,
            self.sums,
            2 * TAU,
            anchors=self.others,
            beta=self.beta,
            partners=lists,
            weights=self.weights,
            **options,
        ) as chains:
            chains.advance(1)
            return chains.phi()


@pytest.mark.parametrize("beta_kind", ["inner", "extreme"])
@pytest.mark.parametrize("k", [1, 2, 7, 33])
def test_drift_is_the_derivative_of_log_z(device: Device, beta_kind: str, k: int) -> None:
    """Eq. (3.2) of the published step, phi' = phi + tau (alpha - phi + D / S), whose gradient is the derivative."""
    case = Case(k, beta_kind, "float64")
    found = case.after(device, "published")
    for i, (own, total) in enumerate(zip(case.own, case.sums, strict=True)):
        phi = own * total
        partners, weights = case.partners(i), case.weights[i]
        slopes = [
            sum(
                abs(w) * derivative(lambda x, b=b, w=w: log_z(x, b, case.beta, int(w > 0)), phi, index)
                for b, w in zip(partners, weights, strict=True)
            )
            for index in range(k)
        ]
        gradient = (found[i] - phi) / TAU - ALPHA + phi
        _, error = equations.drift(own, case.beta, partners, weights, u=U["float64"])
        # The step hides the gradient's last digits under those of phi' and of the row's normalisation.
        hidden = (16 + k) * U["float64"] * (found[i] / TAU + ALPHA)
        assert np.all(abs(gradient - slopes) <= 1e-9 * np.abs(slopes) + 4 * error / total + hidden)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("beta_kind", ["inner", "extreme"])
@pytest.mark.parametrize("k", [1, 7, 100])
def test_the_data_leave_row_sums_to_the_prior(device: Device, k: int, beta_kind: str, dtype: str) -> None:
    """Eq. (3.3): all pi_k D_k together are 0, so that S' = S + tau (K alpha - S) whatever the data say."""
    case = Case(k, beta_kind, dtype)
    found = case.after(device, "reflected")
    right = case.sums + TAU * (k * float(np.dtype(dtype).type(ALPHA)) - case.sums)
    for i, own in enumerate(case.own):
        _, error = equations.drift(own, case.beta, case.partners(i), case.weights[i], u=U[dtype])
        # Memberships in single precision do not sum to 1 exactly, which the data's share feels.
        drift, _ = equations.drift(own, case.beta, case.partners(i), case.weights[i])
        data = TAU * (4 * own @ error + abs(own @ drift) + 4 * U[dtype] * own @ abs(drift))
        assert abs(found[i].sum() - right[i]) <= data + (16 + 2 * k) * U[dtype] * right[i]
        # The data did move something.
        if k > 1 and np.abs(drift * own).max() > 0.1:
            assert np.abs(found[i] - own * case.sums[i] - TAU * (ALPHA - own * case.sums[i])).max() > 1e-5


# Pairs --------------------------------------------------------------------------------------------------------


def on_pairs(
    device: Device, kernel: str, a: Floats, b: Floats, beta: Floats, weights: Any = None, dtype: str = "float64"
) -> Floats:
    """What theta_partial counts of every pair by itself ``[P, 2, K]``, or both probabilities of each ``[2, P]``.

    ``a`` and ``b`` are the rows ``[P, K]`` of the pairs' ends.
    """
    count, k = a.shape
    real, spec = np.dtype(dtype), MMSB.kernel(kernel)
    problem = MMSB.problem(K=k, N=2 * count, m=4 * count, pairs=count, dtype=dtype)
    pi, strength = np.zeros((2 * count, row_length(k)), real), np.full(row_length(k), 0.5, real)
    pi[:, :k], strength[:k] = np.concatenate([a, b]), beta
    arrays: dict[str, Any] = {
        "pi": pi,
        "slots": np.arange(2 * count, dtype=np.uint32),
        "beta": strength,
        "pairs_a": np.arange(count, dtype=np.uint32),
        "pairs_b": np.arange(count, 2 * count, dtype=np.uint32),
        "pair_weights": np.ones(count, real) if weights is None else np.asarray(weights, real),
        "counts": np.zeros((count, 2, row_length(k)), real),
        "probabilities": np.zeros(count),
        "published": np.zeros(count),
        "sums": np.zeros(count),
    }
    scalars: dict[str, Any] = {"first_pair": np.uint64(0), "delta": real.type(DELTA)}
    scalars |= {name: np.uint32(count) for name in ("n_pairs", "n_groups")}
    bound = build(device, spec, problem, dict(spec.default(problem, traits_of(device.info))))
    placed = {name: device.upload(value) for name, value in arrays.items()}
    try:
        bound.launch(count, placed | scalars).wait()
        if kernel == "theta_partial":
            return device.download(placed["counts"])[:, :, :k].astype(np.float64)
        return np.stack([device.download(placed[name]) for name in ("probabilities", "published")])
    finally:
        release(placed)


def pairs_of(kind: str, k: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng([k, kind == "one-hot"])
    return rows(kind, 12, k, rng), rows(kind, 12, k, rng)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta_kind", ["inner", "extreme"])
@pytest.mark.parametrize("k", [1, 2, 7, 33])
def test_theta_counts_give_the_derivative_of_log_z(device: Device, kind: str, beta_kind: str, k: int) -> None:
    """Eq. (3.6): what a pair gives theta is theta_ki d log Z / d theta_ki, for links and non-links."""
    (a, b), rng = pairs_of(kind, k), np.random.default_rng(k)
    beta = strengths(beta_kind, k, rng)
    theta = np.stack([1 - beta, beta]) * rng.uniform(1, 3, k)
    weights = rng.uniform(0.5, 3.0, 12) * rng.choice([1.0, -1.0], 12)
    counts = on_pairs(device, "theta_partial", a, b, beta, weights)
    for x, y, w, (non_link, link) in zip(a, b, weights, counts, strict=True):
        _, error = equations.theta_counts(x[None], y[None], beta, np.array([w]), u=U["float64"])
        moved = (1 - beta) * link - beta * non_link
        for i in range(k):
            for column, value in ((0, -moved[i]), (1, moved[i])):
                slope = derivative(lambda t, x=x, y=y, w=w: log_z_of_theta(t, x, y, int(w > 0)), theta, (column, i))
                assert value == pytest.approx(abs(w) * theta[column, i] * slope, rel=1e-8, abs=1e-9 + 4 * error.max())


@pytest.mark.parametrize("noise", ["on", "off"])
def test_the_data_leave_sums_of_theta_to_the_prior(device: Device, noise: str) -> None:
    """Eq. (3.7): whatever was counted, the columns' sum moves as it does without data, with the same noise."""
    k, step = 100, 1e-3
    rng = np.random.default_rng(5)
    spec = MMSB.kernel("theta_end")
    problem = MMSB.problem(K=k, m=64, noise=noise, theta_step="reflected", dtype="float64")
    theta, length = rng.gamma(2.0, size=(2, row_length(k))) + 50.0, row_length(k)
    bound = build(device, spec, problem, dict(spec.default(problem, traits_of(device.info))))
    after = []
    for counts in (rng.gamma(1.0, size=(16, 2, length)), np.zeros((16, 2, length))):
        arrays = {"theta": theta, "counts": counts, "beta": np.zeros(length)}
        placed = {name: device.upload(value) for name, value in arrays.items()}
        scalars: dict[str, Any] = {"n_groups": np.uint32(16), "step": np.float64(step), "iteration": np.uint32(3)}
        scalars |= {"eta_0": np.float64(1.0), "eta_1": np.float64(1.0), "seed": np.uint64(9)}
        bound.launch(length, placed | scalars).wait()
        after.append(device.download(placed["theta"])[:, :k])
        release(placed)
    with_data, without = after
    scale = theta[:, :k].sum(axis=0)
    assert np.all(abs(with_data.sum(axis=0) - without.sum(axis=0)) <= 16 * U["float64"] * scale)
    assert np.median(abs(with_data - without)) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 2, 7, 100])
def test_probabilities_of_link_and_non_link_sum_to_one(device: Device, kind: str, k: int) -> None:
    """Both Z of eq. (2.2), recovered from responsibilities (3.5), and the held-out probability, which is the link's."""
    a, b = pairs_of(kind, k)
    b[:4] = a[:4]  # one-hot in the same community, too
    beta = strengths("extreme", k, np.random.default_rng(k))
    links, non_links = (on_pairs(device, "theta_partial", a, b, beta, w) for w in (np.ones(12), -np.ones(12)))
    p, published = on_pairs(device, "perplexity_pairs", a, b, beta)
    for x, y, link, non_link, held, without in zip(a, b, links[:, 1], non_links[:, 0], p, published, strict=True):
        exact = [float(likelihood(x, y, beta, seen)) for seen in (1, 0)]
        assert held == pytest.approx(exact[0], rel=1e-12)
        assert held + exact[1] == pytest.approx(1.0, abs=1e-14)
        assert without == pytest.approx(exact[0] - DELTA * (1 - x @ y), rel=1e-9, abs=1e-15)
        most = int(np.argmax(x * y))
        if x[most] * y[most] == 0:
            continue  # strangers: nothing to recover Z from
        z = [x[most] * y[most] * beta[most] / link[most], x[most] * y[most] * (1 - beta[most]) / non_link[most]]
        # 1 - beta of 1e-6 is known to 1e-10.
        assert sum(z) == pytest.approx(1.0, abs=1e-9)
        assert z[0] == pytest.approx(held, rel=1e-9)
