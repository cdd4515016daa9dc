"""The summary of a detection on standard output."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from mmsbgen.base.id_text import error_text, plain, plural
from mmsbgen.cli.shared.common import print_table, seconds
from mmsbgen.sampler.diagnostics.evaluation import auc_text
from mmsbgen.sampler.diagnostics.verdict import FEW_LINKS
from mmsbgen.sampler.options.options import FEWEST_TEST_LINKS, TEST_SHARE
from mmsbgen.sampler.saved.result_folder import FILES, GRAPH_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from mmsbgen.detection.detect import Detection


#: Seconds of a chain from which tuning is suggested.
_LONG_S = 30.0
#: Options that change the problem that a run's kernels have.
_OF_PROBLEM = (
    "mini_batch", "mini_batch_size", "n_partners", "partners", "products", "step", "noise", "rows", "entries", "dtype",
    "storage",
)  # fmt: skip


def _error(value: float | None) -> str:
    return "" if value is None else error_text(value)


def summary(found: Detection, out: Path | None, *, verbose: bool) -> None:
    """Print at most nine lines: what was found, whether to believe it, where the files are and what to do next.

    With ``verbose``, a table of communities, the metrics of both kinds of pairs and the time by stage come first.
    """
    if verbose:
        _details(found)
    cover, record, test = found.cover, found.record, found.record["held_out"]["test"]
    click.echo(found.verdict.sentence)
    components = int((found.memberships.columns[: len(cover.members)] < 0).sum())
    more = f", and {plural(components, 'small component')} of the graph" if components else ""
    by_model = plural(len(cover.members) - components, "community", "communities")
    click.echo(f"{by_model}, by a model of K = {found.memberships.k}{more}.")
    if not cover.members and not found.verdict.refuted:
        click.echo("No vertex has a large enough share: try more iterations, or a lower --threshold.")
    # Without structure, a share of covered vertices reads like success.
    elif cover.members and (verbose or not found.verdict.refuted):
        click.echo(
            f"{cover.covered} of {cover.n_vertices} vertices are in a community ({cover.coverage:.1%}), each of them "
            f"in {cover.overlap:.2f} on average."
        )
    if test is not None:
        few = f", from {plural(test['links'], 'held-out link')}" if test["links"] < FEW_LINKS else ""
        click.echo(f"AUC of test pairs: {auc_text(test, 3)}{_error(test['auc_error'])}{few}.")
    converged = record["convergence"]["text"]
    if verbose or not converged.startswith("Converged"):
        click.echo(converged)
    if "sampling" in record:
        click.echo(record["sampling"]["text"])
    elif hint := _tuning_hint(record):
        click.echo(hint)
    if out is None:
        click.echo("Nothing was written; -o DIR keeps the results.")
        return
    files = [*reversed(FILES), *([GRAPH_FILE] if "update" in record else [])]
    click.echo(f"Written to {out}: {', '.join(files)}.")
    if not found.verdict.refuted:
        click.echo(f"Next: mmsbgen report {shlex.quote(str(out))}")


def _tuning_hint(record: dict[str, Any]) -> str:
    """How to tune for a long run whose most important kernel has its default configuration; "" for others.

    ``mmsbgen tune --graph`` tunes what runs by defaults do.
    """
    from mmsbgen.families.mmsb import MMSB
    from mmsbgen.graph import ReadingOptions
    from mmsbgen.sampler.options.options import Options

    tiers = {choice["kernel"]: choice["tier"] for choice in record["kernels"]}
    if record["seconds"] < _LONG_S or tiers.get(MMSB.worth_tuning(MMSB.problem(**record["problem"]))[0]) != "default":
        return ""
    k = record["options"]["n_communities"]
    usual = asdict(Options(n_communities=k).sized_for(record["graph"]["vertices"]))
    if "update" in record or any(record["options"][name] != usual[name] for name in _OF_PROBLEM):
        return ""
    reading = ReadingOptions.recorded(record["graph"]["reading"]).flags()
    graph = shlex.quote(record["graph"]["file"] or "GRAPH")
    where = f"--device {record['device']['spec']}"
    return f"Such runs may take less time after: mmsbgen tune {where} --graph {graph}{reading} -k {k}"


def _details(found: Detection) -> None:
    record, rule = found.record, found.record["rule"]
    click.echo(f"Communities by the rule {rule['name']} {rule['threshold']:g}:")
    _communities(found)
    last = found.trace[-1] if found.trace else {}
    if "auc" in last:
        samples = (
            f"link probabilities averaged over {last['samples']} states" if last["samples"] > 1 else "of one state"
        )
        click.echo(
            f"Validation pairs: AUC {auc_text(last, 4)}, balanced perplexity {last['perplexity']:.3f}, log-likelihood "
            f"{last['log_likelihood']:.4g} a pair ({samples}); published perplexity {last['published_perplexity']:.3f}."
        )
    if (test := record["held_out"]["test"]) is not None:
        click.echo(
            f"Test pairs (not used in fitting): AUC {auc_text(test, 4)}{_error(test['auc_error'])}, balanced "
            f"perplexity {test['perplexity']:.3f}, log-likelihood {test['log_likelihood']:.4g}"
            f"{_error(test['log_likelihood_error'])} a pair ({_of(record)}; standard errors; "
            f"{plural(test['links'], 'link')}, "
            f"{plural(test['non_links'], 'non-link')})."
        )
    elif record["options"]["test"] is None:
        click.echo(_no_test(record))
    stages = ", ".join(f"{name} {_seconds(value)}" for name, value in record["stage_seconds"].items())
    click.echo(
        f"{_work(found)} ({record['updates_per_vertex']:.1f} updates a vertex) in "
        f"{record['seconds']:.1f} s, where stages overlap: {stages or 'none'}."
    )


def _work(found: Detection) -> str:
    """How long the chain optimised and sampled."""
    total, begin = found.record["iterations"], found.record["course"]["sampling_from"]
    phases = {row.get("phase") for row in found.trace}
    if phases == {"optimise", "sample"} and begin is not None:
        return f"Optimised for {plural(begin, 'iteration')}, then sampled for {total - begin}"
    return f"{'Sampled' if phases == {'sample'} else 'Optimised'} for {plural(total, 'iteration')}"


def _of(record: dict[str, Any]) -> str:
    """What the metrics of test pairs are of."""
    each = [one["test"]["auc"] for one in record.get("chains", ()) if one["test"]["auc"] is not None]
    if len(each) < 2:
        return "of the memberships"
    return f"pooled over {len(each)} chains, whose own AUC is {min(each):.4f} to {max(each):.4f}"


def _no_test(record: dict[str, Any]) -> str:
    """Why no pairs were held out for test when ``--test`` was not given."""
    links = record["graph"]["links"]
    if record["options"]["validation"] == 0:
        return "No pairs were held out for test either; --test holds some out."
    return (
        f"No pairs were held out for test: {TEST_SHARE:.0%} of {plural(links, 'link')} is fewer than "
        f"{FEWEST_TEST_LINKS}; --test holds out a larger share."
    )


def _seconds(value: float) -> str:
    return seconds(float(f"{value:.2g}"))


def _communities(found: Detection) -> None:
    cover, beta, ids = found.cover, found.memberships.beta, found.memberships.ids
    rows = []
    for label, members in enumerate(cover.members[:20]):
        names = ", ".join(plain(i, 24) for i in ids[members[:8]]) + (", ..." if len(members) > 8 else "")
        name = f"{label} (background)" if label in cover.background else str(label)
        strength = f"{beta[label]:.3g}"
        rows.append({"community": name, "vertices": str(len(members)), "strength": strength, "members": names})
    print_table({"community": "right", "vertices": "right", "strength": "right", "members": "left"}, rows)
    if len(cover.members) > 20:
        click.echo(f"... and {len(cover.members) - 20} smaller ones")
