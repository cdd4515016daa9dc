"""``mmsbgen mf``: factorise ratings, and predict and recommend by what was found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mmsbgen.base.id_text import plural
from mmsbgen.cli.shared.command_options import GuidedCommand, NamedPath, option, readable_path
from mmsbgen.cli.shared.common import INTERRUPTED, MmsbgenGroup, keep_inputs, print_or_write, print_table
from mmsbgen.cli.shared.completed_names import schedule_names
from mmsbgen.cli.shared.configuration import device_options
from mmsbgen.cli.shared.console import shown
from mmsbgen.cli.shared.logs import is_quiet, json_option, log_options, tell

if TYPE_CHECKING:
    from mmsbgen.factorisation import ALS, MatrixFactorization
    from mmsbgen.ratings import Ratings

_MODEL = click.argument("model", type=NamedPath(dir_okay=False))
_COLUMNS = option("--columns", metavar="U,I,R", help="Columns of user, item, rating: names, or numbers from 1.")
_DUPLICATES = option(
    "--duplicates",
    type=click.Choice(["error", "mean", "last"]),
    default="error",
    help="What several ratings of a user and an item are.",
)
_FACTORS = option("-k", "--factors", "factors", type=click.IntRange(1), default=32, help="Factors.")
_STORAGE = option(
    "--storage",
    type=click.Choice(["float32", "bfloat16"]),
    default="float32",
    help="Type of stored factors; bfloat16 has 16 bits.",
    expert=True,
)
_COUNT = option("-n", "count", type=click.IntRange(1), default=10, help="How many.")


@click.group(cls=MmsbgenGroup, help="Factorise ratings of items by users; predict ratings and recommend items.")
def mf() -> None:
    """Group of matrix factorisation."""


@mf.command(
    "fit",
    cls=GuidedCommand,
    help="Fit factors to RATINGS: a CSV, TSV or other file with user, item and rating a line. A tenth of 1000 "
    "ratings or more is held out, and the sweep that predicts it best is kept.",
)
@click.argument("ratings", type=NamedPath())
@option("-o", "--out", type=NamedPath(dir_okay=False), required=True, help="The model, an .npz file.")
@_FACTORS
@option(
    "--method",
    type=click.Choice(["sgd", "als", "implicit"]),
    default="sgd",
    help="Gradient descent or least squares for ratings; implicit: least squares for counts, such as plays.",
)
@option("--holdout", type=float, help="Part held out; 0: none.  [default: 0.1 of 1000 or more ratings]")
@option("--test", type=NamedPath(), help="A file of other ratings to hold out; the best sweep by them is kept.")
@option("--epochs", type=click.IntRange(1), help="Most sweeps.  [default: 60; 15 for least squares]")
@option("--reg", type=float, help="Penalty.  [default: 0.1; implicit: 10]")
@option("--learning-rate", type=float, help="Step of the first sweep of sgd.  [default: 0.02]")
@option(
    "--schedule",
    metavar="NAME",
    default="auto",
    shell_complete=schedule_names,
    help="How sgd divides ratings among threads; `mmsbgen mf schedules` lists them.",
)
@option(
    "--deterministic",
    is_flag=True,
    help="The same bits with the same device and tuning database; auto is a schedule that repeats then.",
)
@_STORAGE
@option(
    "--solver",
    type=click.Choice(["auto", "cholesky", "cg"]),
    default="auto",
    help="How least squares are solved; cg: a few steps of conjugate gradients, auto's choice above 16 factors "
    "unless counts are large.",
    expert=True,
)
@option("--seed", type=click.IntRange(0, 2**63 - 1), default=0)
@_COLUMNS
@_DUPLICATES
@device_options
@json_option("Print JSON: figures of the fit.")
@log_options
def fit(ratings: Path, out: Path, as_json: bool, **given: Any) -> None:
    from mmsbgen.base.atomic_files import writable_folder
    from mmsbgen.base.errors import InputError
    from mmsbgen.families.mf.schedules import SCHEDULES

    if given["schedule"] not in (known := ("auto", *SCHEDULES)):  # before ratings are read
        raise InputError(f"--schedule {given['schedule']!r}: give one of {', '.join(known)}")
    if given["solver"] != "auto" and given["method"] == "sgd":
        raise InputError("--solver is of the methods als and implicit: leave it out")
    for name in ("learning_rate", "deterministic", "schedule", "storage"):
        if given[name] not in (None, False, "auto", "float32") and given["method"] != "sgd":
            raise InputError(f"--{name.replace('_', '-')} is of the method sgd: leave it out")
    if given["test"] and given["holdout"] is not None:
        raise InputError("--holdout and --test both tell what is held out: give one of them")
    if given["method"] == "implicit" and (given["test"] or given["holdout"]):
        raise InputError("--holdout and --test are for ratings: counts have no error to stop by, leave them out")
    keep_inputs(out, ratings, given["test"])
    with writable_folder(out.parent):
        interrupted = _fit(ratings, out, as_json, given)
    if interrupted:
        sys.exit(INTERRUPTED)


def _fit(ratings: Path, out: Path, as_json: bool, given: dict[str, Any]) -> bool:
    """Fit, save and tell; returns whether Ctrl-C ended the fit."""
    import json
    import time

    from mmsbgen.factorisation import ALS, MatrixFactorization
    from mmsbgen.ratings import Ratings
    from mmsbgen.ratings.ratings import mean_and_deviation

    method, holdout = given["method"], given["test"]
    if holdout is None:
        holdout = "auto" if given["holdout"] is None else given["holdout"] or None
    found = _ratings(ratings, given)
    shared = {
        "n_factors": given["factors"],
        "random_state": given["seed"],
        "device": given["device"],
        "database": given["database"],
    }
    chosen = {"n_epochs": given["epochs"], "reg": given["reg"], "learning_rate": given["learning_rate"]}
    shared |= {name: value for name, value in chosen.items() if value is not None}
    if isinstance(holdout, Path):
        holdout = _ratings(holdout, given)
    estimator: MatrixFactorization | ALS
    if method == "sgd":
        ways = {name: given[name] for name in ("schedule", "deterministic", "storage")}
        estimator = MatrixFactorization(**shared, **ways, holdout=holdout)
    else:
        estimator = ALS(**shared, implicit=method == "implicit", solver=given["solver"], holdout=holdout)
    begin = time.perf_counter()
    estimator.fit(found)
    seconds = time.perf_counter() - begin
    estimator.save(out)
    best = estimator.history_[estimator.n_iter_ - 1]
    told: dict[str, Any] = {
        "ratings": len(found),
        "users": found.user_ids.size,
        "items": found.item_ids.size,
        "sweeps": estimator.n_iter_,
        "seconds": seconds,
        "interrupted": estimator.interrupted_,
    }
    if method == "sgd":
        assert isinstance(estimator, MatrixFactorization)
        told |= {"schedule": estimator.schedule_, "ratings_per_second": estimator.updates_per_second_}
    if method != "implicit":
        told |= {
            "rmse": best["rmse"],
            "held_out": estimator.held_out_,
            "deviation": mean_and_deviation(found.values)[1],
        }
    if isinstance(holdout, Ratings):
        u, v = (estimator.model_.numbers(*each) for each in (("user", holdout.user_ids), ("item", holdout.item_ids)))
        known = (u[holdout.users] >= 0) & (v[holdout.items] >= 0)
        told["left_out"] = int(known.size - known.sum())
        told["fitted_too"] = found.n_rated(u[holdout.users[known]], v[holdout.items[known]])
    if as_json:
        click.echo(json.dumps(told | {"history": estimator.history_}))
    elif not is_quiet(click.get_current_context()):
        click.echo(_told(told, out))
    return estimator.interrupted_


def _told(told: dict[str, Any], out: Path) -> str:
    ratings, users, items, sweeps = (plural(told[f"{one}s"], one) for one in ("rating", "user", "item", "sweep"))
    text = f"{ratings} of {users} and {items}; {sweeps}, "
    text += f"{told['seconds']:.1f} s"
    if "schedule" in told:
        text += f" ({told['ratings_per_second'] / 1e6:.1f} million ratings/s by {told['schedule']})"
    if "rmse" in told:
        where = "held-out ratings, after the best sweep" if told["held_out"] else "some of the fitted ratings"
        text += f"\nRMSE {told['rmse']:.4f} on {where}; the mean alone has about {told['deviation']:.4f}"
        if told["held_out"] and told["rmse"] >= told["deviation"]:
            other = "als" if "schedule" in told else "sgd"
            text += f"\nWarning: the model is no better than the mean. Try --method {other}, or more ratings; "
            text += "do not rank by it"
    if told.get("left_out"):
        text += f"\n{told['left_out']} held-out ratings by unknown users or of unknown items were left out"
    if told.get("fitted_too"):
        text += f"\nWarning: {told['fitted_too']} of the held-out ratings are among the fitted; give others to --test"
    return f"{text}\n{out}: the model"


@mf.command(
    "schedules",
    help="The schedules of sgd and what each promises; with RATINGS, what a sweep of each takes on the device.",
)
@click.argument("ratings", type=NamedPath(), required=False)
@_FACTORS
@_STORAGE
@_COLUMNS
@_DUPLICATES
@device_options
@json_option("Print JSON.")
@log_options
def schedules(
    ratings: Path | None,
    factors: int,
    storage: str,
    device: str | None,
    database: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    import json

    from mmsbgen.factorisation.fit_loop import Scaled
    from mmsbgen.factorisation.schedule_times import schedule_times
    from mmsbgen.families.mf.schedules import PROMISES
    from mmsbgen.families.mf.schedules import SCHEDULES as DECLARED
    from mmsbgen.families.mf.workloads import features

    shape: dict[str, Any] = {}
    rows = [{"schedule": name, "promise": each.promise, "how": each.doc} for name, each in DECLARED.items()]
    if ratings is not None:
        found = _ratings(ratings, given)
        shape = features(Scaled.of(found.values).cells(found))
        rows = list(schedule_times(found, factors, device, database, storage))
    if as_json:
        click.echo(json.dumps(shape | {"schedules": rows}))
        return
    if shape:
        click.echo(
            f"{shape['ratings']} ratings of {shape['users']} users and {shape['items']} items, at most "
            f"{shape['degree']} of one; {factors} factors"
        )
        for row in rows:
            if "error" in row:
                click.echo(f"{row['schedule']}: {shown(row['error'])}", err=True)
        print_table(_TIMED, [_timed(row) for row in rows if "error" not in row])
    else:
        print_table(dict.fromkeys(rows[0], "left"), rows)
    for name, meaning in PROMISES.items():
        click.echo(f"{name}: {meaning}")


_TIMED = {"schedule": "left", "promise": "left"}
_TIMED |= dict.fromkeys(("steps", "placing s", "sweep ms", "million ratings/s"), "right")


def _timed(row: dict[str, Any]) -> dict[str, str]:
    return {
        "schedule": row["schedule"],
        "promise": row["promise"],
        "steps": str(row["steps"] or ""),
        "placing s": f"{row['placing']:.3g}",
        "sweep ms": f"{row['sweep'] * 1e3:.3g}",
        "million ratings/s": f"{row['ratings_per_second'] / 1e6:.3g}",
    }


@mf.command("evaluate", help="Errors of a model's predictions on RATINGS, best such that were not fitted.")
@_MODEL
@click.argument("ratings", type=NamedPath())
@_COLUMNS
@_DUPLICATES
@json_option("Print JSON.")
@log_options
def evaluate(model: Path, ratings: Path, as_json: bool, **given: Any) -> None:
    import json

    from mmsbgen.base.errors import InputError
    from mmsbgen.factorisation import load_model

    fitted = load_model(model)
    found = fitted.evaluate(_ratings(ratings, given))
    if found["unknown_users"] == found["unknown_items"] == found["ratings"]:
        raise InputError(f"{ratings}: no user and no item is in the model; give ids as the fitted file has them")
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"RMSE {found['rmse']:.4f}, MAE {found['mae']:.4f} on {found['ratings']} ratings")
    if found["unknown_users"] or found["unknown_items"]:
        click.echo(
            f"{found['unknown_users']} by unknown users and {found['unknown_items']} of unknown items, predicted by "
            "what is known of the other"
        )


@mf.command("predict", help="Predict the ratings of PAIRS, a file with user and item a line.")
@_MODEL
@click.argument("pairs", type=NamedPath())
@option("-o", "--out", type=NamedPath(dir_okay=False), help="Write a file instead of printing.")
@option("--columns", metavar="U,I", help="Columns of user and item: names, or numbers from 1.")
@log_options
def predict(model: Path, pairs: Path, out: Path | None, columns: str | None) -> None:
    import numpy as np

    from mmsbgen.base.errors import InputError
    from mmsbgen.factorisation import load_model
    from mmsbgen.ratings.rating_files import read_pairs

    keep_inputs(out, model, pairs)
    fitted, found = load_model(model), read_pairs(readable_path(pairs), _named(columns))
    users, items = found.user_ids[found.users], found.item_ids[found.items]
    u, v = fitted.model_.numbers("user", users), fitted.model_.numbers("item", items)
    new = f"users not in the model: {np.unique(found.users[u < 0]).size}, items: {np.unique(found.items[v < 0]).size}"
    if (u < 0).all() and (v < 0).all():
        raise InputError(f"{pairs}: {new}, that is all of them; give ids as the fitted file has them")
    values = fitted.model_.predicted(u, v, True)
    if (u < 0).any() or (v < 0).any():
        tell(f"{new}; they are predicted {'as 0' if fitted.model_.implicit else 'by the mean and what else is known'}")
        if columns is None and u[0] < 0 and v[0] < 0:
            tell(f"the first row was read as a pair: {users[0]}, {items[0]}; if it is a header, give --columns")
    rows = zip(users.tolist(), items.tolist(), values.tolist(), strict=True)
    _write([("user", "item", "rating"), *((user, item, f"{value:.6g}") for user, item, value in rows)], out)
    if out is not None:
        tell(f"{out}: {plural(values.size, 'predicted rating')}")


@mf.command("recommend", help="The items with the largest predictions for a user who has not rated them.")
@_MODEL
@option("--user", metavar="ID", required=True, help="The user.")
@_COUNT
@log_options
def recommend(model: Path, user: str, count: int) -> None:
    from mmsbgen.factorisation import load_model

    fitted = load_model(model)
    ids, scores = fitted.recommend(user, N=count)
    _write([("item", "score"), *((item, f"{x:.4f}") for item, x in zip(ids.tolist(), scores, strict=True))], None)
    if not len(ids):
        tell(f"user {user} has rated every item of the model")


@mf.command("similar", help="The items that are most like an item, by the angle between factors.")
@_MODEL
@option("--item", metavar="ID", required=True, help="The item.")
@_COUNT
@log_options
def similar(model: Path, item: str, count: int) -> None:
    from mmsbgen.factorisation import load_model

    fitted = load_model(model)
    ids, scores = fitted.similar_items(item, N=count + 1)
    rows = [(name, x) for name, x in zip(ids.tolist(), scores, strict=True) if str(name) != item][:count]
    _write([("item", "cosine"), *((name, f"{x:.4f}") for name, x in rows)], None)


def _ratings(file: Path, given: dict[str, Any]) -> Ratings:
    """The ratings of a file, as ``--columns`` and ``--duplicates`` say."""
    from mmsbgen.ratings import read_ratings

    return read_ratings(readable_path(file), columns=_named(given["columns"]), duplicates=given["duplicates"])


def _named(columns: str | None) -> list[str] | None:
    return None if columns is None else [name.strip() for name in columns.split(",")]


def _write(rows: list[tuple[Any, ...]], out: Path | None) -> None:
    import csv
    import io

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    print_or_write(text.getvalue(), out)
