"""Option, environment, file, default: in this order, through the real command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from mmsbgen.cli import main
from mmsbgen.cli.shared.common import MmsbgenGroup
from mmsbgen.cli.shared.configuration import config_option, shared_option
from mmsbgen.cli.shared.logs import log_options


@click.group(cls=MmsbgenGroup)
@config_option
@log_options
def program() -> None:
    """A command line with an option of every kind."""


@program.command()
@shared_option("device", "A device.")
@click.option("-k", "--communities", "k", type=int)
@click.option("--rule", type=click.Choice(["share", "top"]), default="share")
@click.option("--noise/--no-noise", default=None)
@click.option("--kernel", "kernels", multiple=True)
def show(**given: Any) -> None:
    click.echo(json.dumps(given))


@program.group()
@shared_option("database", "A database.")
@click.pass_context
def place(ctx: click.Context, database: str | None) -> None:
    ctx.obj = database


@place.command()
@click.option("--limit", type=int, default=3)
@click.pass_context
def best(ctx: click.Context, limit: int) -> None:
    click.echo(json.dumps({"database": ctx.obj, "limit": limit}))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def call(*words: str, command: click.Command = program, **env: str | None) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words], env=env)


def shown(*words: str, **env: str | None) -> dict[str, Any]:
    result = call(*words, **env)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_what_is_typed_goes_before_the_environment_that_before_the_file_and_that_before_the_default(file: Path) -> None:
    line = ("--config", file, "show")
    file.write_text("")
    assert shown(*line) == {"device": None, "k": None, "rule": "share", "noise": None, "kernels": []}
    file.write_text('device = "all"\n[show]\ncommunities = 4\nrule = "top"\nnoise = false\nkernel = ["a", "b"]\n')
    of_file = {"device": "all", "k": 4, "rule": "top", "noise": False, "kernels": ["a", "b"]}
    assert shown(*line) == of_file
    env = {
        "MMSBGEN_SHOW_COMMUNITIES": "5",
        "MMSBGEN_SHOW_NOISE": "yes",
        "MMSBGEN_SHOW_KERNEL": "c",
        "MMSBGEN_DEVICE": "mine",
    }
    assert shown(*line, **env) == of_file | {"k": 5, "noise": True, "kernels": ["c"], "device": "mine"}
    assert shown(*line, "-k", "6", "--no-noise", "--device", "typed", **env)["k"] == 6
    assert shown(*line, "--no-noise", "--device", "typed", **env)["noise"] is False
    assert shown(*line, "--device", "typed", **env)["device"] == "typed"


def test_a_command_of_its_own_goes_before_all_commands(file: Path) -> None:
    file.write_text('device = "all"\ndatabase = "all.sqlite3"\n[show]\ndevice = "one"\n[place.best]\nlimit = 7\n')
    assert shown("--config", file, "show")["device"] == "one"
    assert shown("--config", file, "show", MMSBGEN_DEVICE="x", MMSBGEN_SHOW_DEVICE="y")["device"] == "y"
    assert shown("--config", file, "place", "best") == {"database": "all.sqlite3", "limit": 7}
    env = {"MMSBGEN_DATABASE_URL": "env.sqlite3", "MMSBGEN_PLACE_BEST_LIMIT": "8"}
    assert shown("--config", file, "place", "best", **env) == {"database": "env.sqlite3", "limit": 8}


def test_the_users_own_file_is_read_and_the_environment_may_name_another(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "mmsbgen").mkdir()
    (tmp_path / "mmsbgen" / "config.toml").write_text("[show]\ncommunities = 2\n")
    assert shown("show")["k"] == 2
    file.write_text("[show]\ncommunities = 3\n")
    assert shown("show", MMSBGEN_CONFIG=str(file))["k"] == 3
    assert shown("--config", "/dev/null", "show")["k"] is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[show]\ncomunities = 3", "[show] comunities is not known; did you mean communities?"),
        ("[show]\nzzz = 3", "[show] zzz is not known; there are communities, device, kernel, noise, rule"),
        ("[shaw]\n", "shaw is not known; did you mean show?"),
        ("devise = 'x'", "devise is not known; did you mean device?"),
        ("[place.bust]\nlimit = 1", "[place] bust is not known; did you mean best?"),
        ("[place.best]\nlimits = 1", "[place.best] limits is not known; did you mean limit?"),
        ("[show]\ncommunities = 'many'", "[show] communities = 'many': 'many' is not a valid integer"),
        ("[show]\ncommunities = true", "[show] communities = true: the option takes a value"),
        ("[show]\ncommunities = [1]", "[show] communities = [1]: write one value"),
        ("[show]\nrule = 'best'", "[show] rule = 'best': 'best' is not one of 'share', 'top'"),
        ("[show]\nnoise = 'yes'", "[show] noise = 'yes': write true or false"),
        ("[show]\nkernel = 'a'", "[show] kernel = 'a': write a list, ['a']"),
        ("show = 3", "show = 3: write a table"),
        ("device = 3", "device = 3: write a text in quotes"),
        ("log = 'loud'", "log = 'loud': 'loud' is not one of"),
        ("[show\n", "is no TOML"),
        ("\xff", "is no TOML"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_file_place_and_remedy(file: Path, text: str, words: str) -> None:
    file.write_text(text, encoding="latin-1")
    line = ("place", "best") if "place" in text else ("show",)
    result = call("--config", file, *line)
    assert result.exit_code == 2, result.output
    assert str(file) in result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_file_that_is_not_there_is_refused_only_when_it_was_named(file: Path) -> None:
    assert "cannot be read: No such file" in call("--config", file, "show").stderr
    assert call("show").exit_code == 0


# The real command line -----------------------------------------------------------------------------------------------


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[str], list[str]]]:
    """What the doctor tells of settings alone: its exit code, what is set and what is wrong."""
    monkeypatch.setattr("mmsbgen.cli.shared.machine_checks.examine", lambda *args, **more: iter(()))

    def told(*words: object, **env: str) -> tuple[int, list[str], list[str]]:
        result = call(*words, "doctor", "--json", command=main, **env)
        found = json.loads(result.stdout)["findings"]
        set_here = [text for one in found for text in one["details"].get("set", [])]
        return result.exit_code, set_here, [one["what"] for one in found if one["status"] == "problem"]

    return told


def test_the_doctor_takes_flags_numbers_and_lists_under_the_long_names_of_options(doctor: Any, file: Path) -> None:
    file.write_text(
        "[db.best]\nlimit = 1\n[detect]\ncommunities = 'auto'\nfused = true\n[tune]\nkernel = ['update_phi']\n"
    )
    code, set_here, wrong = doctor("--config", file, MMSBGEN_DETECT_COMMUNITIES="9", MMSBGEN_DB_BEST_JSON="1")
    assert (code, wrong) == (0, [])
    assert {"MMSBGEN_DETECT_COMMUNITIES=9", "[db.best] limit = 1", "[tune] kernel = ['update_phi']"} <= set(set_here)


def test_the_doctor_shows_what_is_set_without_passwords_and_tells_all_that_is_wrong(doctor: Any, file: Path) -> None:
    file.write_text('database = "postgresql://me:secret@server/db"\n[detect]\ntresholt = 1\n[db.best]\nlimit = 0\n')
    env = {"MMSBGEN_DETECT_ITERATION": "3", "MMSBGEN_TUNE_SEED": "4"}
    code, set_here, wrong = doctor("--config", file, **env)
    assert code == 1
    assert {"database = postgresql://me:***@server/db", "MMSBGEN_TUNE_SEED=4"} <= set(set_here)
    words = (
        "[detect] tresholt is not known; did you mean threshold?",
        "[db.best] limit = 0: 0 is not in the range",
        "MMSBGEN_DETECT_ITERATION sets nothing; did you mean MMSBGEN_DETECT_ITERATIONS?",
    )
    assert len(wrong) == 3
    assert all(any(each in text for text in wrong) for each in words)
    assert "secret" not in call("--config", file, "doctor", command=main, **env).output


def test_a_wrong_value_in_the_environment_is_told_by_the_doctor_and_by_the_command_that_it_is_for(doctor: Any) -> None:
    told = "the environment variable MMSBGEN_DETECT_ITERATIONS is 'abc': 'abc' is not a valid integer"
    env = {"MMSBGEN_DETECT_ITERATIONS": "abc"}
    code, _, wrong = doctor(**env)
    assert code == 1
    assert wrong[0].startswith(told)
    assert doctor(MMSBGEN_DETECT_ITERATIONS="5")[0] == 0
    result = call("detect", "graph.txt", "-k", "3", command=main, **env)
    assert result.exit_code == 2
    assert "'--iterations' from the environment variable MMSBGEN_DETECT_ITERATIONS: 'abc'" in result.stderr
    assert "environment variable" not in call("detect", "graph.txt", "-n", "x", command=main, **env).stderr
    assert "'--limit' from the environment variable MMSBGEN_PLACE_BEST_LIMIT" in (
        call("place", "best", MMSBGEN_PLACE_BEST_LIMIT="few").stderr
    )
    assert (
        "'--log' from the environment variable MMSBGEN_LOG: 'loud'"
        in call("devices", command=main, MMSBGEN_LOG="loud").stderr
    )


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("MMSBGEN_TOKEN", "secret", "***"),
        ("MMSBGEN_DATABASE_URL", "postgresql://me:se@secret@server/db", "postgresql://me:***@server/db"),
        ("MMSBGEN_DATABASE_URL", "postgresql://h/db?a=b&password=secret", "postgresql://h/db?a=b&password=***"),
        ("MMSBGEN_SERVE_TOKEN_FILE", "/a/token", "/a/token"),
    ],
)
def test_the_doctor_shows_no_secrets(doctor: Any, name: str, value: str, shown: str) -> None:
    assert doctor(**{name: value})[1] == [f"{name}={shown}"]
    assert "secret" not in call("doctor", command=main, **{name: value}).output


def test_a_token_that_stands_in_the_file_is_not_shown(doctor: Any, file: Path) -> None:
    file.write_text('[serve]\ntoken = "secret"\n')
    assert doctor("--config", file)[0] == 1
    assert "secret" not in call("--config", file, "doctor", command=main).output


def test_a_tuning_database_in_the_file_is_the_one_that_is_asked(file: Path, tmp_path: Path) -> None:
    file.write_text(f'database = "{tmp_path / "mine.sqlite3"}"\n')
    assert "mine.sqlite3" in call("--config", file, "db", "best", command=main).stderr
    env = {"MMSBGEN_DATABASE_URL": str(tmp_path / "env.sqlite3")}
    assert "env.sqlite3" in call("--config", file, "db", "best", command=main, **env).stderr
    assert "typed.sqlite3" in call("--config", file, "db", "--database", "typed.sqlite3", "best", command=main).stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    script = CliRunner().invoke(main, [], env={"_MMSBGEN_COMPLETE": f"{shell}_source"}, prog_name="mmsbgen").stdout
    assert f"_MMSBGEN_COMPLETE={shell}_complete" in script
    words = {"bash": "mmsbgen d", "zsh": "mmsbgen d", "fish": "mmsbgen d"}[shell]
    env = {"_MMSBGEN_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": "1" if shell != "fish" else "d"}
    result = CliRunner().invoke(main, [], env=env, prog_name="mmsbgen")
    for name in ("db", "detect", "devices", "doctor"):
        assert name in result.stdout
    assert "tune" not in result.stdout
