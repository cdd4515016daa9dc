from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from mmsbgen.backends import Device
from mmsbgen.backends.fake import FakeDevice
from mmsbgen.base.errors import InputError
from mmsbgen.base.stop_signals import TimeUpError
from mmsbgen.db.records.canonical_json import digest, utc_now
from mmsbgen.db.records.tuning_records import QuarantineRecord, RunRecord, TrialRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.record_key import key_of
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.measurer import Measurer
from mmsbgen.tuner.measure.timing import Energy, Patience
from mmsbgen.tuner.run.earlier_trials import known_roofs, known_trials
from mmsbgen.tuner.run.tune import TuneReport, tune
from mmsbgen.tuner.run.tune_jobs import foreseen, kernel_jobs, share
from mmsbgen.tuner.run.tuning_report import KernelReport, Progress
from mmsbgen.tuner.search.coordinate_descent import neighbours
from mmsbgen.tuner.search.strategies import STRATEGIES
from mmsbgen.tuner.search.surrogate import coordinates

TINY = MMSB.problem(K=20, N=500, m=64, n=4, pairs=256)
HASTY = Patience(repetitions=3, enough_s=0.0)


def tiny(device: str, kernels: list[str], store: Store, **options: Any) -> TuneReport:
    """A run of a second or two."""
    return tune(device, MMSB, kernels, TINY, store=store, patience=HASTY, roof_bytes=16 << 20, **options)


def faked(store: Store, kernel: str = "theta_end", **options: Any) -> TuneReport:
    """A run on the device that computes nothing: its answers are not checked."""
    return tiny("fake", [kernel], store, check=False, **options)


def order(store: Store, report: TuneReport) -> list[str]:
    """Configurations in the order in which a run tried them."""
    trials = [trial for trial in store.trials(run=report.run) if trial.round == 0]
    return [trial.config_digest for trial in reversed(trials)]


def test_a_tiny_problem_end_to_end(processor: Device, store: Store) -> None:
    report = tiny(processor.info.spec, ["perplexity_pairs", "update_beta"], store, budget_trials=8)
    pairs, beta = report.kernels
    assert report.status == "finished"
    assert [trial.status for trial in pairs.trials] == ["ok"] * 8
    assert 6 <= len(beta.trials) <= 8, "the last quarter is for the neighbours of the best"
    assert report.roofs is not None
    assert {(roof.kind, roof.row_bytes) for roof in store.roofs() if roof.run == report.run} == {
        ("copy", None),
        ("gather", 128),
    }
    (run,) = store.runs()
    assert (run.status, run.strategy, run.budget["trials"]) == ("finished", "default", 8)
    assert "mmsbgen" in run.versions
    for kernel in report.kernels:
        spec = MMSB.kernel(kernel.kernel)
        traits = traits_of(processor.info)
        key = key_of(processor.info, spec, TINY)
        # What a runtime says of its memory depends on the moment, and takes no part in a key.
        assert kernel.key.key == key.key
        best = kernel.best
        assert best is not None
        assert best.round == 2
        assert best.roof_gbps == pytest.approx(report.roofs.gather)
        assert best.bytes_moved == spec.traffic(TINY)
        assert kernel.default in kernel.finals
        assert kernel.verdict is not None
        assert kernel.finals[kernel.verdict.winner] is best
        assert kernel.margin is not None
        if kernel.verdict.decided:
            assert kernel.margin > 0
        chosen = Index(store).select(
            key,
            valid=lambda config, spec=spec, traits=traits: spec.space.refusal(config, TINY, traits) is None,
            default=spec.default(TINY, traits),
            irrelevant=MMSB.soft_parameters,
        )
        assert (chosen.tier, chosen.config) == ("exact", dict(best.config))


@pytest.mark.slow
def test_known_configurations_are_not_measured_again_unless_asked(store: Store) -> None:
    first = faked(store, strategy="random", budget_trials=10)
    assert len(order(store, first)) == 10
    assert first.kernels[0].reused == 0
    again = faked(store, strategy="random", budget_trials=14)
    assert again.kernels[0].reused == 10
    assert len(order(store, again)) == 4
    assert len(again.kernels[0].trials) == 14
    retuned = faked(store, strategy="random", budget_trials=10, retune=True)
    assert retuned.kernels[0].reused == 0
    assert len(order(store, retuned)) == 10


@pytest.mark.slow
def test_the_worst_is_told_by_the_timing_that_tells_the_best(store: Store) -> None:
    with open_store("sqlite://") as other:
        (tried,) = faked(other, strategy="random", budget_trials=3).kernels
    before = RunRecord(strategy="random")
    store.begin_run(before)
    for round_, times in ((0, (2.0, 3.0, 9.0)), (1, (3.0, 2.0, 4.0))):
        for trial, took in zip(tried.trials, times, strict=True):
            store.add_trial(replace(trial, run=before.uuid, round=round_, times=(took,) * 5, created_at=utc_now()))
    for budget in (3, 1):
        (kernel,) = faked(store, strategy="random", budget_trials=budget).kernels
        assert kernel.reused == budget
        assert (kernel.worst_s, kernel.speedup_over_worst) == (4.0, 2.0)


@pytest.mark.slow
def test_the_roof_is_that_of_the_run_which_reports_it(store: Store) -> None:
    options: dict[str, Any] = {"store": store, "check": False, "strategy": "random", "budget_trials": 3}
    tune("fake", MMSB, ["theta_end"], TINY, roof_bytes=16 << 20, **options)
    again = tune("fake", MMSB, ["theta_end"], TINY, roof_bytes=64 << 20, **options)
    (kernel,) = again.kernels
    assert again.roofs is not None
    assert kernel.best is not None
    assert kernel.best.gbps is not None
    assert kernel.best.run != again.run
    assert kernel.best.roof_gbps != again.roofs.gather
    assert kernel.as_dict()["roof_fraction"] == kernel.best.gbps / again.roofs.gather


@pytest.mark.slow
def test_a_kernel_that_is_named_twice_is_tuned_once(store: Store) -> None:
    report = tiny("fake", ["theta_end", "theta_end"], store, check=False, budget_trials=1)
    assert [kernel.kernel for kernel in report.kernels] == ["theta_end"]


def put(store: Store, like: list[TrialRecord], *, given_up: int) -> None:
    """Store a run that was killed before its finals, in a moment when everything was faster than it ever is again."""
    killed = RunRecord(strategy="random")
    store.begin_run(killed)
    for place, trial in enumerate(like):
        quick = TrialRecord(
            run=killed.uuid,
            key=trial.key,
            config=trial.config,
            status="ok",
            times=((1 + place) * 1e-11,) * 3,
            extra={"program": trial.program} | ({"given_up": True} if place >= len(like) - given_up else {}),
        )
        store.add_trial(quick)


@pytest.mark.slow
def test_only_a_runs_own_times_make_it_give_up_early(store: Store) -> None:
    with open_store("sqlite://") as other:
        (tried,) = faked(other, strategy="random", budget_trials=8).kernels
    put(store, tried.trials[:7], given_up=1)
    report = faked(store, strategy="random", budget_trials=8)
    assert report.kernels[0].reused == 6
    again = [trial for trial in store.trials(run=report.run) if trial.round == 0]
    assert {trial.config_digest for trial in again} == {trial.config_digest for trial in tried.trials[6:]}
    assert not again[-1].extra.get("given_up"), "nothing is known yet of this run's best"


@pytest.mark.slow
@pytest.mark.parametrize("retune", [False, True])
def test_readers_find_the_verdict_of_the_last_run(store: Store, retune: bool) -> None:
    with open_store("sqlite://") as other:
        (tried,) = faked(other, strategy="random", budget_trials=6).kernels
    put(store, tried.trials, given_up=0)
    report = faked(store, strategy="random", budget_trials=6, retune=retune)
    (kernel,) = report.kernels
    assert kernel.reused == (0 if retune else 6)
    best = store.best(kernel.key)
    assert best is not None
    assert kernel.best is not None
    assert (best.uid, best.run, best.round) == (kernel.best.uid, report.run, 2)
    (group,) = Index(store, shipped=None).groups(kernel.key)
    assert group.candidates[0].uid == best.uid


@pytest.mark.slow
def test_what_failed_in_use_is_measured_and_compared_again(store: Store) -> None:
    (first,) = faked(store, strategy="random", budget_trials=10).kernels
    best = first.best
    assert best is not None
    failure = QuarantineRecord(
        key=first.key, config=best.config, recorded=best.config, status="launch_error", message="refused"
    )
    store.quarantine(failure)
    report = faked(store, strategy="random", budget_trials=10)
    (again,) = report.kernels
    assert again.reused == 9
    assert order(store, report) == [best.config_digest]
    assert store.quarantined() == [], "the new trial lifts it"
    assert {trial.run for trial in again.finals} == {report.run}, "older finals are about the time before"
    (third,) = faked(store, strategy="random", budget_trials=10).kernels
    assert third.reused == 10
    assert {trial.run for trial in third.finals} == {report.run}


@pytest.mark.slow
def test_what_failed_again_when_it_was_measured_is_known(store: Store) -> None:
    (first,) = faked(store, strategy="random", budget_trials=5).kernels
    trial = first.trials[0]
    store.quarantine(
        QuarantineRecord(key=trial.key, config=trial.config, recorded=trial.config, status="launch_error", message="")
    )
    assert trial.config_digest not in known_trials(store, first.key)
    again = RunRecord(strategy="random")
    store.begin_run(again)
    store.add_trial(TrialRecord(run=again.uuid, key=trial.key, config=trial.config, status="launch_error"))
    assert known_trials(store, first.key)[trial.config_digest].status == "launch_error"
    assert len(store.quarantined()) == 1


@pytest.mark.slow
def test_failures_are_known_too(store: Store) -> None:
    """The fake device answers every check wrongly."""
    first = tiny("fake", ["update_beta"], store, budget_trials=3)
    assert first.kernels[0].statuses == {"wrong_result": 3}
    assert first.kernels[0].best is None
    assert first.kernels[0].as_dict()["best"] is None
    assert tiny("fake", ["update_beta"], store, budget_trials=3).kernels[0].reused == 3


@pytest.mark.slow
def test_another_problem_or_template_is_not_known(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(store, "update_beta", budget_trials=4)
    other = MMSB.problem(**dict(TINY) | {"K": 30})
    report = tune("fake", MMSB, ["update_beta"], other, store=store, check=False, budget_trials=4, roof_bytes=1 << 20)
    assert report.kernels[0].reused == 0


@pytest.mark.slow
def test_the_same_seed_visits_the_same_configurations(store: Store) -> None:
    orders = [order(store, faked(store, strategy="random", seed=s, budget_trials=12, retune=True)) for s in (5, 5, 6)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["exhaustive", "genetic_algorithm"])
def test_the_budget_of_trials_holds(store: Store, strategy: str) -> None:
    assert strategy in STRATEGIES
    report = faked(store, strategy=strategy, budget_trials=7)
    assert len(order(store, report)) == 7


@pytest.mark.slow
def test_a_whole_space_is_gone_on_with_where_nothing_was_tried(store: Store) -> None:
    """What is known is taken over, and what was given up before, so that it is measured again, comes last."""
    with open_store("sqlite://") as other:
        (tried,) = faked(other, strategy="exhaustive", budget_trials=9).kernels
    names = [trial.config_digest for trial in tried.trials]
    put(store, tried.trials, given_up=6)
    (kernel,) = faked(store, strategy="exhaustive", budget_trials=7).kernels
    taken = [trial.config_digest for trial in kernel.trials]
    assert kernel.reused == 3
    assert taken[:3] == names[:3]
    assert len(set(taken[3:]) - set(names)) == 4
    (retuned,) = faked(store, strategy="exhaustive", budget_trials=9, retune=True).kernels
    assert [trial.config_digest for trial in retuned.trials] == names


@pytest.mark.slow
def test_a_space_that_fits_the_budget_is_tried_whole(store: Store) -> None:
    (kernel,) = faked(store, "update_beta", budget_trials=19).kernels
    assert len(kernel.space.configs) == len(kernel.trials) == 19


@pytest.mark.slow
def test_the_last_quarter_goes_to_the_neighbours_of_the_best(store: Store) -> None:
    fixed = {"normalise": True, "team": "item", "placement": ("THREAD", "GLOBAL", "RRS", "SRR")}
    (kernel,) = faked(store, "update_phi", budget_trials=100, fixed=fixed).kernels
    assert len(kernel.space.configs) > 200
    assert 75 < len(kernel.trials) <= 100
    assert 3 <= len(kernel.finals) <= 6
    late = kernel.trials[75:]
    configs = kernel.space.configs
    places = [configs.index(dict(trial.config)) for trial in kernel.trials[:75]]
    near = {place for index in places for place in neighbours(configs, coordinates(configs), index)}
    assert configs.index(dict(late[0].config)) in near


@pytest.mark.slow
def test_finals_that_are_newer_than_all_trials_stand(store: Store) -> None:
    first = faked(store, strategy="random", budget_trials=10)
    second = faked(store, strategy="random", budget_trials=10)
    finals = {trial.run for trial in second.kernels[0].finals}
    new = [trial for trial in store.trials(run=second.run) if trial.round == 0 and not trial.extra.get("given_up")]
    assert finals == ({second.run} if new else {first.run})
    assert second.kernels[0].best is not None
    narrow = faked(store, strategy="random", budget_trials=10, fixed={"block_size": (64, 128)})
    assert {trial.run for trial in narrow.kernels[0].finals} <= {narrow.run}, "others were among these"


@pytest.mark.slow
@pytest.mark.parametrize("overtaken", [False, True])
def test_the_same_command_again_times_no_finals_because_one_was_given_up(store: Store, overtaken: bool) -> None:
    """What was given up is measured again only if it may be faster than the winner of the finals."""
    with open_store("sqlite://") as other:
        (tried,) = faked(other, strategy="random", budget_trials=8).kernels
    put(store, tried.trials, given_up=1)
    before = RunRecord(strategy="random")
    store.begin_run(before)
    seconds = 1e3 if overtaken else 1e-11
    for round_, trial in ((1, tried.trials[1]), (2, tried.trials[0])):
        extra = {"program": trial.program}
        final = replace(trial, run=before.uuid, times=(seconds / round_,) * 5, round=round_, extra=extra)
        store.add_trial(replace(final, created_at=utc_now()))
    report = faked(store, strategy="random", budget_trials=8)
    again = [trial for trial in store.trials(run=report.run) if trial.round == 0]
    assert [trial.config_digest for trial in again] == ([tried.trials[7].config_digest] if overtaken else [])
    assert not any(trial.extra.get("given_up") for trial in again)
    assert {trial.run for trial in report.kernels[0].finals} == {report.run if overtaken else before.uuid}


@pytest.mark.slow
def test_roofs_of_the_same_day_are_taken_from_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    roofs = Measurer.roofs
    monkeypatch.setattr(Measurer, "roofs", lambda self, *sizes: measured.append(sizes) or roofs(self, *sizes))
    first, again = (faked(store, budget_trials=1).roofs for _ in range(2))
    assert measured == [(128, 16 << 20, ())]
    assert first is not None
    assert again is not None
    assert (first.age_s, again.copy, again.gather) == (None, first.copy, first.gather)
    assert again.age_s is not None
    assert 0 <= again.age_s < 300
    assert [roof.run for roof in store.roofs()].count(store.runs()[0].uuid) == 2, "a run has the roofs that it reports"
    faked(store, budget_trials=1, retune=True)
    tune("fake", MMSB, ["theta_end"], TINY, store=store, check=False, budget_trials=1, roof_bytes=8 << 20)
    tune("fake", MMSB, ["theta_end"], TINY.replace(K=40), store=store, check=False, budget_trials=1, roof_bytes=8 << 20)
    assert measured[1:] == [(128, 16 << 20, ()), (128, 8 << 20, ()), (192, 8 << 20, ())]
    info = FakeDevice().info
    assert known_roofs(store, info, 128, 16 << 20, None) is not None
    assert known_roofs(store, replace(info, driver="another"), 128, 16 << 20, None) is None
    monkeypatch.setattr("mmsbgen.tuner.run.earlier_trials._DAY_S", 1e-6)
    assert known_roofs(store, info, 128, 16 << 20, None) is None


@pytest.mark.slow
def test_a_repeat_starts_no_compiler_and_makes_no_inputs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = faked(store, strategy="random", budget_trials=4)
    for trial in first.kernels[0].trials:
        if trial.extra.get("given_up"):
            pytest.skip("one was given up, and may be measured again")
    monkeypatch.setattr(Measurer, "place", None)
    again = faked(store, strategy="random", budget_trials=4)
    assert again.kernels[0].reused == 4
    assert again.kernels[0].best == first.kernels[0].best


def test_kernels_share_time_by_what_they_take_of_an_iteration() -> None:
    problem = MMSB.problem(K=1024, N=300_000, m=4096, n=32)
    specs = [MMSB.kernel(name) for name in ("update_phi", "update_beta", "init_pi")]
    jobs = kernel_jobs(FakeDevice().info, MMSB, specs, problem, {"block_size": 64})
    phi, beta, init = jobs
    assert phi.moved < init.moved, "a start moves more than an iteration, but comes once"
    assert share(jobs, 1000.0) > 0.95
    assert share(jobs[1:], 1000.0) == beta.seconds(1000.0) / (beta.seconds(1000.0) + init.seconds(1000.0))


@pytest.mark.parametrize("budget", [8, 20])
@pytest.mark.parametrize("strategy", ["default", "random", "exhaustive"])
def test_what_a_search_tries_first_is_foreseen(store: Store, strategy: str, budget: int) -> None:
    (kernel,) = faked(store, strategy=strategy, budget_trials=budget, seed=3).kernels
    (job,) = kernel_jobs(FakeDevice().info, MMSB, [MMSB.kernel("theta_end")], TINY, None)
    soon = list(dict.fromkeys(map(digest, foreseen(strategy, job.space, budget, 3))))
    first = 4 if budget == 20 else 2
    assert soon[:first] == [trial.config_digest for trial in kernel.trials[:first]]


@pytest.mark.alone
def test_the_budget_of_seconds_holds(store: Store) -> None:
    report = faked(store, "update_phi", budget_seconds=4.0)
    assert report.seconds < 1.1 * 4 + 2
    assert 1 <= len(report.kernels[0].trials) < len(report.kernels[0].space.configs)


def test_finals_are_stored_if_time_is_up_while_energy_is_measured(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(_self: Measurer, _config: Config) -> Energy:
        raise TimeUpError

    monkeypatch.setattr(Measurer, "meter", lambda _self: "a meter")
    monkeypatch.setattr(Measurer, "energy", late)
    report = faked(store, budget_trials=4)
    assert report.status == "finished"
    assert sorted(trial.round for trial in store.trials(run=report.run))[-2:] == [1, 2]


def test_nothing_begins_after_the_budget(store: Store) -> None:
    report = faked(store, budget_seconds=1e-6)
    assert (report.status, report.kernels, report.untried) == ("finished", [], ["theta_end"])
    assert report.as_dict()["untried"] == ["theta_end"]
    assert store.trials(run=report.run) == []


@pytest.mark.slow
def test_a_fixed_axis(store: Store) -> None:
    report = faked(store, fixed={"share": 4}, budget_trials=50)
    assert {trial.config["share"] for trial in report.kernels[0].trials} == {4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "clever"}, "no strategy 'clever'"),
        ({"budget_trials": 0}, "the budget of trials must be at least 1, got 0"),
        ({"budget_seconds": -1.0}, r"the budget of seconds must be positive, got -1\.0"),
        ({"budget_seconds": math.inf}, "the budget of seconds must be positive, got inf"),
        ({"fixed": {"colour": 1}}, "no axis 'colour'"),
        ({"fixed": {"block_size": 5}}, "block_size=5 is not one of"),
    ],
)
def test_bad_arguments_leave_no_run(store: Store, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        faked(store, **options)
    assert store.runs() == []


@pytest.mark.slow
def test_unknown_names_leave_no_run(store: Store) -> None:
    for device, family, kernel, message in (
        ("no such device", MMSB, "update_phi", "no device"),
        ("fake", MMSB, "update_everything", "no kernel 'update_everything'"),
        ("fake", "sgd", "update_phi", "no family 'sgd'"),
        ("fake", "json:loads", "update_phi", "no family of kernels"),
    ):
        with pytest.raises(InputError, match=message):
            tune(device, family, [kernel], TINY, store=store)
    assert store.runs() == []


@pytest.mark.slow
def test_progress_is_told_everything(store: Store) -> None:
    told: list[str] = []

    class Told(Progress):
        def kernel(self, report: KernelReport) -> None:
            told.append(f"begin {report.kernel}")

        def trial(self, report: KernelReport, trial: TrialRecord) -> None:
            assert report.trials[-1] is trial
            assert store.trials(run=trial.run, limit=1)[0].uid == trial.uid, "stored before it is told"
            told.append("trial")

        def finished(self, report: KernelReport) -> None:
            told.append(f"end {report.kernel}")

    faked(store, budget_trials=3, progress=Told())
    assert told == ["begin theta_end", "trial", "trial", "trial", "end theta_end"]
