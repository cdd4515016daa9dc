#!/usr/bin/env python
"""Bring records of an earlier state of the templates under today's key, where they render to the same source.

    scripts/rekey_records.py docs/reports/transfer-h200-cuda.jsonl.gz --earlier ../earlier --output build/now.jsonl

A record's key has the digest of its templates, so that an edit makes it a miss, also one that changes nothing for its
configuration: a new branch of a template, or a word in a comment of it.  For each trial this renders the source with
both states of the project, the earlier one from a checkout of it, and takes those whose sources are equal but for the
comment at their head.  The digest that they were measured under stays in their ``extra``.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import click

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import Key, TrialRecord
from mmsbgen.families import family
from mmsbgen.kernels.space import Traits

try:
    from mmsbgen.kernels.render import render, template_digest
except ImportError:  # an earlier checkout, which runs this too
    from mmsbgen.render import render, template_digest  # type: ignore[no-redef]

#: What the earlier checkout is asked: digests of templates and of sources, one line of JSON for each line of a query.
_QUERY = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("rekey_records", sys.argv[1])
script = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = script
spec.loader.exec_module(script)
for line in sys.stdin:
    print(json.dumps(script.digests(**json.loads(line))))
"""


def traits(key: Key) -> Traits:
    """What templates may know of the device of a key; sizes that constraints alone look at are generous."""
    device = key.device
    cuda = device.backend == "cuda"
    return Traits(
        "cuda" if cuda else "opencl",
        device.kind,
        local_memory=1 << 20,
        sub_group_size=32 if cuda else 0,
        warp_groups=cuda and device.architecture == "sm_90",
    )


def digests(
    kernel: str,
    name: str,
    problem: dict[str, object],
    config: dict[str, object],
    traits: dict[str, Any],
) -> tuple[str, str]:
    """Of a kernel's templates, and of its source below the comment at its head; "" where it cannot be rendered."""
    spec = family(kernel).kernel(name)
    digest = template_digest(spec.template, traits["dialect"])
    known = {field.name for field in fields(Traits)}
    here = Traits(**{name: value for name, value in traits.items() if name in known})
    try:
        text = render(spec, family(kernel).problem(**problem), config, here).text  # type: ignore[arg-type]
    except (KeyError, MmsbgenError):  # another state of the project may know neither axis nor parameter
        return digest, ""
    body = text.partition("*/")[2]
    return digest, hashlib.sha256(body.encode()).hexdigest()


def query(trial: TrialRecord) -> dict[str, object]:
    """What :func:`digests` takes, for a trial."""
    key = trial.key
    return {
        "kernel": key.kernel.family,
        "name": key.kernel.name,
        "problem": dict(key.problem.params),
        "config": dict(trial.config),
        "traits": asdict(traits(key)),
    }


def ask(checkout: Path, trials: list[TrialRecord]) -> list[tuple[str, str]]:
    """The digests of all trials in another state of the project."""
    done = subprocess.run(
        [sys.executable, "-c", _QUERY, str(Path(__file__).resolve())],
        input="\n".join(json.dumps(query(trial)) for trial in trials),
        capture_output=True,
        text=True,
        check=False,
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
    )
    if done.returncode:
        raise click.ClickException(f"{checkout} is no checkout that renders: {done.stderr.strip().splitlines()[-1]}")
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def rekeyed(trial: TrialRecord, digest: str) -> TrialRecord:
    """The trial under another digest of the same source; as it is where the digest is the same."""
    if digest == trial.key.kernel.template_digest:
        return trial
    kernel = replace(trial.key.kernel, template_digest=digest)
    extra = {**trial.extra, "measured_under": trial.key.kernel.template_digest}
    return replace(trial, key=replace(trial.key, kernel=kernel), extra=extra)


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.argument("export", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--earlier", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="A .jsonl file.")
def main(export: Path, earlier: Path, output: Path) -> None:
    if not (earlier / "mmsbgen" / "templates").is_dir():
        raise click.UsageError(f"--earlier {earlier} has no mmsbgen: name a checkout of the project")
    every = jsonl.read(export)
    trials = list(every.trials)
    before, now = ask(earlier.resolve(), trials), [digests(**query(trial)) for trial in trials]  # type: ignore[arg-type]
    kept, counts = [], Counter[str]()
    for trial, (old_digest, old), (new_digest, new) in zip(trials, before, now, strict=True):
        if trial.key.kernel.template_digest != old_digest:
            counts["of other templates than the checkout's"] += 1
        elif not old or not new:
            counts["that one of both states does not render"] += 1
        elif old != new:
            counts["whose source changed"] += 1
        else:
            kept.append(rekeyed(trial, new_digest))
    runs = {trial.run for trial in kept}
    bundle = Bundle(
        runs=[run for run in every.runs if run.uuid in runs],
        roofs=[roof for roof in every.roofs if roof.run in runs],
        trials=kept,
    )
    jsonl.write(bundle, output)
    click.echo(f"{len(kept)} of {len(trials)} trials have the same source today: {output}")
    for why, count in counts.items():
        click.echo(f"{count} left out {why}")


if __name__ == "__main__":
    main()
