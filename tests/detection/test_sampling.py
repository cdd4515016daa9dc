"""Runs that sample, from the options to the files: R-hat, means and deviations, intervals, draws for ArviZ."""

from __future__ import annotations

import json
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import xarray
from click.testing import CliRunner

from mmsbgen import MMSB, Detection, detect
from mmsbgen.base import libraries
from mmsbgen.base.errors import InputError, MissingDependencyError
from mmsbgen.cli import main
from mmsbgen.detection.detect import perform
from mmsbgen.detection.request import Request
from mmsbgen.export.run_folder import read_run
from mmsbgen.sampler.posterior import draws, moments
from mmsbgen.sampler.saved.membership_arrays import named_arrays
from tests.detection.detections import FAST, RING, cli

pytestmark = pytest.mark.opencl

#: A chain that draws from the first iteration on, and is evaluated in each.
NOISY = FAST | {
    "n_communities": 20,
    "iterations": 40,
    "noise": True,
    "validation": 0.2,
    "evaluate_every": 1,
    "start": "random",
}
PAIRS = [(0, 1), (0, 15), (3, 5), (7, 22)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sampled")


@pytest.fixture(scope="module")
def found(folder: Path) -> Detection:
    return detect(RING, out=folder, **NOISY)


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Detection, Path]:
    out = tmp_path_factory.mktemp("pooled")
    return detect(RING, out=out, chains=3, **NOISY), out


@pytest.mark.slow
def test_files_have_means_and_deviations(found: Detection, folder: Path) -> None:
    m = found.memberships
    with np.load(folder / "memberships.npz") as there:
        for name, shape in (("mean", (30, 16)), ("sd", (30, 16)), ("beta_mean", (m.width,)), ("beta_sd", (m.width,))):
            assert there[name].shape == shape, name
        assert (there["sd"] > 0).all()
        assert ((there["mean"] > 0) & (there["mean"] <= 1)).all()
        assert not np.array_equal(there["mean"], there["shares"]), "memberships are the last state"
        assert there["mean_codes"].shape == there["sd_codes"].shape == (30, m.width)
        assert there["draws_link_probabilities"].shape == (21, 24)
    named = json.loads((folder / "run.json").read_text())["sampling"]["arrays"]
    assert named == moments.ARRAYS | draws.ARRAYS
    with np.load(folder / "memberships.npz") as there:
        assert named.keys() <= set(there)
    averaged = detect(RING, average=True, **NOISY).memberships
    # The same chain; its entries are in the order of other shares, and its communities may be others.
    mean, rows = averaged.posterior.mean, averaged.values
    np.testing.assert_allclose(mean, rows, rtol=1e-6)
    np.testing.assert_allclose(
        averaged.posterior.beta_mean[averaged.columns >= 0], averaged.beta[averaged.columns >= 0]
    )
    first, second = (one.posterior.beta_sd[np.argsort(one.columns)][-20:] for one in (m, averaged))
    assert np.array_equal(first, second)


@pytest.mark.slow
def test_results_that_are_read_give_the_same_intervals(found: Detection, folder: Path, tmp_path: Path) -> None:
    at, right = np.array(PAIRS), found.memberships
    read = read_run(folder)[0].memberships
    for name, array in named_arrays(right).items():
        assert np.array_equal(named_arrays(read)[name], array), name
    assert np.array_equal(read.link_intervals(at, 0.9)[1], right.link_intervals(at, 0.9)[1])
    assert np.array_equal(read.intervals(0.5), right.intervals(0.5))
    detect(RING, out=tmp_path / "whole", whole=True, **NOISY)
    whole = read_run(tmp_path / "whole", top=16)[0].memberships
    named = json.loads((tmp_path / "whole" / "run.json").read_text())["sampling"]["arrays"]
    assert named == moments.WHOLE_ARRAYS | draws.ARRAYS
    with np.load(tmp_path / "whole" / "memberships.npz") as there:
        assert there["pi_mean"].shape == there["pi_sd"].shape == there["pi"].shape
        assert "mean" not in there
        assert named.keys() <= set(there)
    np.testing.assert_allclose(whole.link_intervals(at, 0.9)[1], right.link_intervals(at, 0.9)[1], rtol=1e-5)
    # Least entries are alike, and come in another order.
    np.testing.assert_allclose(whole.intervals()[:, :8], right.intervals()[:, :8], rtol=1e-5, atol=1e-30)
    few = detect(RING, top=3, **NOISY).memberships
    np.testing.assert_allclose(few.link_intervals(at, 0.9)[1], right.link_intervals(at, 0.9)[1], rtol=0.2, atol=1e-4)


def test_link_probabilities_come_with_intervals(found: Detection) -> None:
    p, ends = found.predict_links(PAIRS, interval=0.9)
    assert ((p > ends[:, 0]) & (p < ends[:, 1])).all(), "means are not of the last state"
    assert ends.shape == (4, 2)
    assert ((ends > 0) & (ends < 1)).all()
    assert (ends[:, 0] < ends[:, 1]).all()
    narrow = found.predict_links(PAIRS, interval=0.5)[1]
    assert ((narrow[:, 0] > ends[:, 0]) & (narrow[:, 1] < ends[:, 1])).all()
    # Of the draws themselves, which are of held-out pairs, they hold about the share that is said.
    kept = found.memberships.draws
    linked = ~np.isin(kept.pairs, found.memberships.unlinked).any(axis=1)
    ends = found.memberships.link_intervals(kept.pairs, 0.9)[1]
    held = ((kept.link_probabilities >= ends[:, 0]) & (kept.link_probabilities <= ends[:, 1])).mean(axis=0)
    assert held[linked].mean() == pytest.approx(0.9, abs=0.07)
    for level in (0, 1, 1.5, "much", float("nan")):
        with pytest.raises(InputError, match=f"interval={level!r}: it is the probability of the interval, such as 0.9"):
            found.predict_links(PAIRS, interval=level)


@pytest.mark.slow
def test_a_run_that_optimises_has_none_of_it(tmp_path: Path, ring: Path) -> None:
    plain = detect(RING, out=tmp_path, **NOISY | {"noise": None, "average": True})
    assert plain.memberships.posterior is None
    assert plain.memberships.draws is None
    assert "sampling" not in plain.record
    with np.load(tmp_path / "memberships.npz") as there:
        assert not [name for name in there if name.startswith(("mean", "sd", "draws", "beta_"))]
    with pytest.raises(InputError, match=r"--sample-sweeps \(sample_sweeps=\), or --noise"):
        plain.predict_links(PAIRS, interval=0.9)
    with pytest.raises(InputError, match="this run did not sample, or not yet; see --sample-sweeps"):
        plain.to_arviz()
    assert "R-hat" not in cli(ring, "-k", 3, "-n", 4).output
    # Stars sample by default: they have draws, and means where these are asked for.
    stars = detect(RING, **NOISY | {"noise": None, "mini_batch": "random-node"})
    assert stars.memberships.posterior is None
    assert len(stars.memberships.draws) == 21
    assert stars.record["sampling"]["arrays"] == draws.ARRAYS
    asked = detect(RING, **NOISY | {"noise": None, "mini_batch": "random-node", "average": True})
    assert asked.memberships.posterior is not None


def test_the_command_line_says_r_hat(ring: Path, tmp_path: Path) -> None:
    given = ["-k", 3, "-n", 40, "-m", 8, "--noise", "--validation", 0.2, "-o", tmp_path]
    said = cli(ring, *given).output
    text = json.loads((tmp_path / "run.json").read_text())["sampling"]["text"]
    assert text in said
    assert text.startswith("R-hat ")
    needs = cli(ring, *given, "--overwrite", "-q").output
    assert "R-hat" not in needs


@pytest.mark.slow
def test_sampling_sweeps_are_evaluated_and_kept(ring: Path, tmp_path: Path) -> None:
    """From the default of an open run: every second sweep after the warm-up, within one state a chain."""
    said = cli(ring, "-k", 2, "--sample-sweeps", 40, "--validation", 0.2, "-o", tmp_path).output
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["sampling"]["draws"], record["sampling"]["iterations_apart"]) == (17, 2)
    assert record["sampling"]["text"] in said
    assert record["samples_averaged"] == 0
    assert record["memory"]["device"]["posterior deviations"] == record["memory"]["device"]["posterior mean"] > 0
    assert record["memory"]["host"]["draws"] > 0


# Chains ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_chains_are_compared(pooled: tuple[Detection, Path]) -> None:
    found, out = pooled
    told = found.record["sampling"]
    assert (told["chains"], told["draws"]) == (3, 21)
    assert told["strengths_within_chains"]["count"] == 60
    assert "21 draws of each of 3 chains" in told["text"]
    m = found.memberships
    ends = found.predict_links(PAIRS, interval=0.9)[1]
    # The law is the chains' mixture, so that the ends lie between those of single chains.
    each = np.stack([replace(one, others=()).link_intervals(np.array(PAIRS), 0.9)[1] for one in (m, *m.others)])
    assert ((ends >= each.min(axis=0) - 1e-12) & (ends <= each.max(axis=0) + 1e-12)).all()
    assert (np.diff(ends) > np.diff(each.min(axis=0))).any()
    read = read_run(out)[0].memberships
    assert np.array_equal(read.link_intervals(np.array(PAIRS), 0.9)[1], ends)
    assert len(read.all_draws) == 3


@pytest.mark.slow
def test_a_stopped_run_keeps_its_draws(pooled: tuple[Detection, Path], tmp_path: Path) -> None:
    """In the first chain and between chains; files are the same, byte by byte."""
    given = {name: value for name, value in NOISY.items() if name != "device"} | {"chains": 3}

    def stop(running: Any, trace: Any) -> None:
        if running.iteration == 31:
            signal.raise_signal(signal.SIGINT)

    stopped = perform(RING, Request(given, NOISY["device"], out=tmp_path, on_progress=stop))
    assert stopped.interrupted
    assert len(stopped.memberships.draws) == 12
    assert stopped.record["sampling"]["draws"] == 12
    perform(RING, Request({}, NOISY["device"], out=tmp_path, resume=tmp_path))
    for name in ("memberships.npz", "communities.txt"):
        assert (tmp_path / name).read_bytes() == (pooled[1] / name).read_bytes()


# The estimator, ArviZ ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_models_keep_it_all(found: Detection, tmp_path: Path) -> None:
    options = {name: value for name, value in NOISY.items() if name != "n_communities"}
    model = MMSB(20, **options).fit(RING)
    p, ends = model.predict_link_proba(PAIRS, interval=0.9)
    assert np.array_equal(ends, found.predict_links(PAIRS, interval=0.9)[1])
    assert np.array_equal(p, found.predict_links(PAIRS, interval=0.9)[0])
    for chain in (True, False):
        loaded = MMSB.load(model.save(tmp_path / "model", chain=chain))
        assert np.array_equal(loaded.predict_link_proba(PAIRS, interval=0.9)[1], ends)
        assert len(loaded.detection_.memberships.draws) == 21
    longer = MMSB.load(model.save(tmp_path / "model")).partial_fit(iterations=10)
    assert len(longer.detection_.memberships.draws) == 31
    assert longer.get_communities("threshold", 0.05)


@pytest.fixture(scope="module")
def arviz() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz

    return arviz


def test_arviz_gets_the_draws(pooled: tuple[Detection, Path], found: Detection, arviz: ModuleType) -> None:
    many = pooled[0]
    data = many.to_arviz()
    posterior = data["posterior"]
    assert dict(posterior.sizes) == {"chain": 3, "draw": 21, "pair": 24}
    assert "strength" not in posterior, "communities of chains have no common order"
    kept = many.memberships.draws
    assert np.array_equal(posterior["link_probability"][0], kept.link_probabilities)
    assert np.array_equal(data["observed_data"]["link"], kept.links)
    assert np.array_equal(data["constant_data"]["vertex"], many.memberships.ids[kept.pairs])
    right = many.record["sampling"]["log_likelihood"]["r_hat"]
    assert float(arviz.rhat(data)["held_out_log_likelihood"]) == pytest.approx(right)
    # A single chain has its strengths, by the numbers of the communities.
    one = found.to_arviz()["posterior"]
    m = found.memberships
    place = int(one["community"][0])
    assert np.array_equal(one["strength"][0, :, 0], m.draws.strengths[:, m.columns[place]])


def test_draws_are_written_as_netcdf(pooled: tuple[Detection, Path], tmp_path: Path) -> None:
    found, out = pooled
    done = CliRunner().invoke(main, ["convert", str(out), "-o", str(tmp_path / "draws.nc")])
    assert done.exit_code == 0, done.output
    found.export(tmp_path / "same.nc")
    for name in ("draws.nc", "same.nc"):
        with xarray.open_dataset(tmp_path / name, group="posterior", engine="h5netcdf") as there:
            right = found.to_arviz()["posterior"]
            assert there.sizes == right.sizes
            assert np.array_equal(there["link_probability"], right["link_probability"])


@pytest.mark.slow
def test_names_are_written_as_they_are(tmp_path: Path, ring: Path) -> None:
    named = detect(ring, **NOISY)
    ends = named.to_arviz()["constant_data"]["vertex"].values
    assert {str(name)[0] for name in ends.ravel()} == {"v"}
    named.export(tmp_path / "draws.nc")
    odd = detect([((a,), (b,)) for a, b in RING], **NOISY)
    assert "(7,)" in odd.to_arviz()["constant_data"]["vertex"].values
    odd.export(tmp_path / "odd.nc")


def test_a_missing_library_is_named(found: Detection, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'arviz'", name="arviz")

    monkeypatch.setattr(libraries.importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError, match=r"arviz is not installed.*mmsbgen\[arviz\]"):
        found.to_arviz()
