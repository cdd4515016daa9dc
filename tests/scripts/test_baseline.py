"""The C baseline against the NumPy reference, which defines what every implementation computes."""

from __future__ import annotations

from typing import Any

import baseline
import numpy as np
import pytest
from baseline import Baseline, _library

from mmsbgen.base.errors import CompileError, InputError, MissingDependencyError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.row_layout import FLOOR, Z_FLOOR
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.kernels.family import Array, Expected, Workload
from mmsbgen.kernels.problem import Problem

SIZES = (1, 7, 64, 257)
DTYPES = ("float32", "float64")
#: The shape of the baseline's sums, as far as tolerances depend on it: one chain of additions, phi not normalised.
SERIAL: dict[str, Any] = {"team": "item", "vector_width": 1, "block_size": 1, "normalise": False}


def problem_of(k: int, dtype: str, **values: Any) -> Problem:
    return MMSB.problem(**{"K": k, "N": 61, "m": 7, "n": 11, "pairs": 37, "dtype": dtype} | values)


def fresh(workload: Workload) -> dict[str, Any]:
    return {name: v.copy() if isinstance(v, np.ndarray) else v for name, v in workload.arguments.items()}


def phi_by_reference(given: dict[str, Any], k: int, step: equations.Step, u: float) -> tuple[Expected, Array]:
    """New rows, and how far the paper's form may be off: it sums differences q / Z - 1, each with its own rounding.

    Also the sizes of the terms that are summed up to each element, to which ten digits refer.
    """
    pi, sums, beta = (given[name].astype(np.float64) for name in ("pi", "row_sums", "beta"))
    beta = beta[:k]
    value, error, size = [], [], []
    n = int(given["n_partners"])
    for i, vertex in enumerate(given["vertices"]):
        slot = given["slots"][vertex]
        own, first = pi[slot, :k], slice(i * n, (i + 1) * n)
        rows = pi[given["slots"][given["partners"][first]], :k]
        weights = given["weights"][first].astype(np.float64)
        drift, reference_error = equations.drift(own, beta, rows, weights, step.delta, 2.0**-53)

        sign = np.where(weights < 0, -1.0, 1.0)[:, None]
        rest = np.where(weights < 0, 1 - step.delta, step.delta)[:, None]
        q = rest + sign * rows * (beta - step.delta)
        q_error = 3 * u * (rest + rows * (beta + step.delta))
        z = q @ own
        z_error = q_error @ own + u * (8 + 2 * np.sqrt(k)) * z
        ratio = q / np.maximum(z, Z_FLOOR)[:, None]
        off = (q_error + ratio * z_error[:, None]) / np.maximum(z, Z_FLOOR)[:, None] + 3 * u * (ratio + 1)
        chain = u * np.sqrt(weights.size) * (ratio + 1)
        drift_error = np.abs(weights) @ (off + chain) + reference_error

        end = equations.end_row(own * sums[slot], own, drift, drift_error, int(vertex), step, u)
        value.append(end.phi)
        error.append(end.error + 2 * u * end.phi + FLOOR)
        terms = (np.abs(weights) @ (ratio + 1)) * (own if step.name == "reflected" else 1 / sums[slot])
        size.append(end.phi + own * sums[slot] + step.half_step * terms)
    return Expected(np.array(value), np.array(error)), np.array(size)


@pytest.mark.parametrize("noise", [True, False])
@pytest.mark.parametrize("step", ["published", "reflected"])
@pytest.mark.parametrize("form", ["paper", "fused"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", SIZES)
def test_update_phi(k: int, dtype: str, form: Any, step: Any, noise: bool) -> None:
    problem = problem_of(k, dtype, step=step, noise="on" if noise else "off")
    workload = MMSB.kernel("update_phi").workload(problem, seed=k)
    given, got = workload.arguments, fresh(workload)

    assert Baseline(dtype).run("update_phi", got, k=k, step=step, noise=noise, form=form) >= 0

    rule = equations.Step(
        step,
        half_step=float(given["half_step"]),
        alpha=float(given["alpha"]),
        noise=noise,
        seed=int(given["seed"]),
        iteration=int(given["iteration"]),
        delta=float(given["delta"]),
    )
    expected, size = phi_by_reference(given, k, rule, float(np.finfo(dtype).eps) / 2)
    rows = got["pi"][given["spares"], :k]
    if form == "fused":
        assert workload.verify(got, SERIAL) is None
    assert expected.errors(rows) is None
    if dtype == "float64":
        assert np.all(np.abs(rows - expected.value) <= 1e-10 * size)
    assert np.all(got["pi"][:, k:] == 0)


OTHERS = [stage for stage in baseline.STAGES if stage != "update_phi"]


@pytest.mark.parametrize("stage", OTHERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", SIZES)
def test_the_other_stages(k: int, dtype: str, stage: str) -> None:
    workload = MMSB.kernel(stage).workload(problem_of(k, dtype), seed=k)
    got = fresh(workload)

    assert Baseline(dtype).run(stage, got, k=k, step="reflected") >= 0

    assert workload.verify(got, SERIAL) is None


@pytest.mark.parametrize("k", SIZES)
def test_double_precision_is_right_to_ten_digits(k: int) -> None:
    c = Baseline("float64")

    def ran(stage: str) -> tuple[dict[str, Any], dict[str, Any]]:
        workload = MMSB.kernel(stage).workload(problem_of(k, "float64"), seed=1)
        got = fresh(workload)
        c.run(stage, got, k=k, step="reflected")
        return workload.arguments, got

    def pairs_of(given: dict[str, Any]) -> tuple[Array, Array]:
        rows_a, rows_b = (given["pi"][given["slots"][given[name]], :k] for name in ("pairs_a", "pairs_b"))
        return rows_a, rows_b

    given, got = ran("theta_partial")
    of_launch = slice(int(given["first_pair"]), None)
    rows_a, rows_b = pairs_of(given)
    counts, _ = equations.theta_counts(
        rows_a[of_launch], rows_b[of_launch], given["beta"][:k], given["pair_weights"][of_launch]
    )
    np.testing.assert_allclose(got["counts"].sum(axis=0)[:, :k], counts, rtol=1e-10, atol=1e-30)

    given, got = ran("theta_end")
    rule = equations.ThetaStep(
        "reflected", float(given["step"]), (1.0, 1.0), True, int(given["seed"]), int(given["iteration"])
    )
    theta = equations.update_theta(given["theta"][:, :k], given["counts"].sum(axis=0)[:, :k], rule)
    np.testing.assert_allclose(got["theta"][:, :k], theta, rtol=1e-10)
    np.testing.assert_allclose(got["beta"][:k], equations.beta_of(theta), rtol=1e-10)

    given, got = ran("update_beta")
    np.testing.assert_allclose(got["beta"][:k], equations.beta_of(given["theta"][:, :k]), rtol=1e-10)

    given, got = ran("perplexity_pairs")
    p, published = equations.held_out(*pairs_of(given), given["beta"][:k])
    np.testing.assert_allclose(got["probabilities"], p, rtol=1e-10)
    np.testing.assert_allclose(got["published"], published, rtol=1e-10, atol=1e-30)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", ["published", "reflected"])
def test_theta_end_without_noise(dtype: str, step: Any) -> None:
    problem = problem_of(7, dtype, theta_step=step, noise="off")
    workload = MMSB.kernel("theta_end").workload(problem, seed=0)
    got = fresh(workload)
    Baseline(dtype).run("theta_end", got, k=7, step=step, noise=False)
    assert workload.verify(got, SERIAL) is None


@pytest.mark.parametrize("n", [1, 60])
def test_partners_of_few_and_of_all(n: int) -> None:
    workload = MMSB.kernel("sample_partners").workload(problem_of(7, "float32", n=n), seed=0)
    got = fresh(workload)
    Baseline("float32").run("sample_partners", got, k=7)
    assert workload.verify(got, SERIAL) is None


def test_two_forms_agree_on_one_iteration_and_rows_stay_normalised() -> None:
    workload = MMSB.kernel("update_phi").workload(problem_of(64, "float64"), seed=3)
    c, results = Baseline("float64"), []
    for form in ("paper", "fused"):
        got = fresh(workload)
        c.run("update_phi", got, k=64, form=form)
        c.run("update_pi", got, k=64)
        results.append(got["pi"])
        np.testing.assert_allclose(got["pi"].sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-9)


def test_a_mini_batch_in_the_middle_of_buffers_gives_the_same_rows() -> None:
    workload = MMSB.kernel("update_phi").workload(problem_of(64, "float32"), seed=3)
    c, results, first = Baseline("float32"), [], 3
    front = first * int(workload.arguments["n_partners"])
    for places, draws in ((0, 0), (first, front)):
        got = fresh(workload) | {"first_vertex": np.uint32(places)}
        got["vertices"] = np.concatenate([np.zeros(places, np.uint32), got["vertices"]])
        got["partners"] = np.concatenate([np.zeros(draws, np.uint32), got["partners"]])
        got["weights"] = np.concatenate([np.ones(draws, np.float32), got["weights"]])
        c.run("update_phi", got, k=64)
        c.run("update_pi", got, k=64)
        results.append(got)
    for name in ("pi", "row_sums", "slots", "spares"):
        np.testing.assert_array_equal(results[0][name], results[1][name])
    assert not np.array_equal(results[0]["pi"], workload.arguments["pi"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": None}, "needs weights"),
        ({"n_vertices": None}, "needs n_vertices"),
        ({"pi": np.zeros((68, 64), np.float64)}, "C-contiguous array of float32"),
    ],
)
def test_what_is_missing_or_of_another_type_is_refused(change: dict[str, Any], message: str) -> None:
    values = fresh(MMSB.kernel("update_phi").workload(problem_of(64, "float32"), seed=0)) | change
    values = {name: value for name, value in values.items() if value is not None}
    with pytest.raises(InputError, match=message):
        Baseline("float32").run("update_phi", values, k=64)
    with pytest.raises(InputError, match="no stage 'phi'"):
        Baseline().run("phi", {}, k=1)


def test_a_compiler_that_is_missing_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        _library.load.cache_clear()
        with pytest.raises(CompileError, match="does not compile"):
            Baseline("float32", ("-not-an-option",))
        monkeypatch.setenv("CC", "no-such-compiler")
        with pytest.raises(MissingDependencyError, match="'no-such-compiler' is not there"):
            Baseline("float32")
    finally:
        _library.load.cache_clear()
