"""Choice of the start: several are tried for some sweeps, and the best held-out log-likelihood wins."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from mmsbgen.base.progress import stage
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.evaluation import evaluate
from mmsbgen.sampler.starts.background_search import StartSearch
from mmsbgen.sampler.starts.start_methods import STARTS, Start, forget, is_large, worth_trying

#: Sweeps of a trial.
SWEEPS = 25
#: Sweeps of a trial in a large graph.
SWEEPS_LARGE = 8


def choose(
    sampler: Sampler,
    asked: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
    sought: StartSearch | None = None,
) -> None:
    """Start the chain as its options say; ``auto`` tries several starts and takes the best.

    A trial takes at most a quarter of a run of given length.  Without held-out pairs, if a trial would be shorter than
    a sweep, or if no other start is worth trying
    (:func:`mmsbgen.sampler.starts.start_methods.worth_trying`), ``auto`` takes Leiden's communities.  Starts in the
    background search ``sought`` are waited for; others are computed here.

    Raises KeyboardInterrupt if ``asked`` returns true: an incomplete trial must not decide, and nothing is lost yet.
    """
    try:
        _choose(sampler, asked, say, sought)
    finally:
        forget(sampler.split)
        if sought is not None:
            sought.close()


def _choose(
    sampler: Sampler, asked: Callable[[], bool], say: Callable[[str], None], sought: StartSearch | None
) -> None:
    name = sampler.options.start
    assert name is not None
    names, large = worth_trying(sampler.split, sampler.shape.k), is_large(sampler.split, sampler.shape.k)
    iterations = (SWEEPS_LARGE if large else SWEEPS) * sampler.per_sweep
    if sampler.options.iterations is not None:
        iterations = min(iterations, sampler.options.iterations // 4)
    blind = iterations < sampler.per_sweep or not len(sampler.split.validation.pairs)
    if name == "auto" and (blind or len(names) == 1):
        name = "communities"
    if name != "auto":
        _begin(sampler, name, asked, sought)
        return
    tried: list[tuple[float, Start, dict[str, Any]]] = []
    for other in names:
        if large:
            say(f"Trying the start {other!r} for {iterations} iterations")
        start = _begin(sampler, other, asked, sought)
        own, _ = evaluate(sampler, burnt_in=False)
        with stage(f"trying the start {other!r}", iterations, "iterations") as told:
            while sampler.iteration < iterations:
                if asked():
                    raise KeyboardInterrupt
                sampler.step()
                told.tell(sampler.iteration)
        after, _ = evaluate(sampler, burnt_in=False)
        assert own is not None
        assert after is not None
        note = {
            "start": other,
            "sets": int(start.communities.max(initial=-1)) + 1,
            "iterations": sampler.iteration,
            "own_log_likelihood": own.sample_log_likelihood,
            "own_auc": own.auc,
            "log_likelihood": after.sample_log_likelihood,
            "auc": after.auc,
        }
        tried.append((after.sample_log_likelihood, start, note))
    _, best, _ = max(tried, key=lambda trial: trial[0])
    sampler.initialise(best)
    course = dataclasses.replace(sampler.course, trials=[note for *_, note in tried])
    sampler.chain = sampler.chain._replace(course=course)


def trials_told(sampler: Sampler) -> list[str]:
    """One line for people on the trials, or none if there were no trials."""
    if not (trials := sampler.course.trials):
        return []
    each = ", ".join(f"{trial['start']} {trial['log_likelihood']:.4g}" for trial in trials)
    sweeps = trials[0]["iterations"] / sampler.per_sweep
    unit = "sweep" if sweeps == 1 else "sweeps"
    return [
        f"Starts, by the log-likelihood of a held-out pair after {sweeps:g} {unit}: {each}. "
        f"Going on from {sampler.course.start}."
    ]


def _begin(sampler: Sampler, name: str, asked: Callable[[], bool], sought: StartSearch | None) -> Start:
    """Make a start, and begin the chain with it."""
    with stage(f"making the start {name!r}"):
        if sought is not None and name in sought.names:
            start = sought.start(name, asked)
        else:
            start = STARTS[name](sampler.split, sampler.shape.k, sampler.options.seed)
    sampler.initialise(start)
    return start
