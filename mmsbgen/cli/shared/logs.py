"""Logging of this package and of libraries: levels, standard error and the log file."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from mmsbgen.cli.shared.command_options import NamedPath, grouped, option
from mmsbgen.cli.shared.console import say, shown

F = TypeVar("F", bound=Callable[..., Any])
LEVELS = ("debug", "info", "warning", "error")
_STATE = "mmsbgen.logs"
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

log = logging.getLogger("mmsbgen.cli")


def log_options(command: F) -> F:
    """Add ``--verbose``, ``--quiet``, ``--log`` and ``--log-file``, before or after the command's name."""
    return grouped("Messages", verbose_option, quiet_option, log_option, log_file_option)(command)


def _noting(name: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def note(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        if ctx.resilient_parsing:
            return value
        state = ctx.meta.setdefault(_STATE, {})
        source = ctx.get_parameter_source(param.name) if param.name else None
        typed = source is click.core.ParameterSource.COMMANDLINE
        if value and (typed or name not in state):
            state[name] = value
        set_up(ctx)
        return value

    return note


def _option(*names: str, key: str, **more: Any) -> Callable[[F], F]:
    """An option that is noted, and set by its own environment variable for all commands."""
    variable = f"MMSBGEN_{names[-1].lstrip('-').replace('-', '_').upper()}"
    return option(*names, show_default=False, expose_value=False, envvar=variable, callback=_noting(key), **more)


verbose_option = _option("-v", "--verbose", key="verbose", count=True, help="Tell more, and log more; -vv: all.")
log_option = _option(
    "--log",
    key="log",
    expert=True,
    type=click.Choice(LEVELS, case_sensitive=False),
    help="Least level of what is logged on standard error.  [default: warning]",
)
log_file_option = _option(
    "--log-file",
    key="file",
    expert=True,
    type=NamedPath(dir_okay=False),
    help="Append the log to this file too, info and above.",
)
quiet_option = _option("-q", "--quiet", key="quiet", is_flag=True, help="No progress and no messages, errors only.")


def json_option(help: str) -> Callable[[F], F]:
    """Add ``--json`` as the parameter ``as_json``; it turns progress off."""
    return click.option("--json", "as_json", is_flag=True, callback=_noting("json"), help=help)


def is_quiet(ctx: click.Context) -> bool:
    """Whether messages are unwanted."""
    return bool(ctx.meta.get(_STATE, {}).get("quiet"))


def is_verbose(ctx: click.Context) -> bool:
    """Whether details are wanted."""
    return bool(ctx.meta.get(_STATE, {}).get("verbose"))


def tell(text: str) -> None:
    """Print a message of the current command on standard error, unless messages are unwanted."""
    if not is_quiet(click.get_current_context()):
        say(text)


def no_progress(ctx: click.Context) -> bool:
    """Whether progress is unwanted."""
    state = ctx.meta.get(_STATE, {})
    return bool(state.get("quiet") or state.get("json"))


def level_of(state: dict[str, Any]) -> int:
    """The least level that is shown; ``-v`` and ``-vv`` override ``-q``, which overrides ``--log``."""
    if verbose := state.get("verbose"):
        return logging.INFO if verbose == 1 else logging.DEBUG
    if state.get("quiet"):
        return logging.ERROR
    return int(getattr(logging, state.get("log", "warning").upper()))


def set_up(ctx: click.Context) -> None:
    """Set up the log handlers for the options read so far; called again as more options are read.

    Raises ``click.BadParameter`` for a log file that cannot be written.
    """
    state = ctx.meta.setdefault(_STATE, {})
    root, level = logging.getLogger(), level_of(state)
    if "shown" not in state:
        state["shown"], state["level before"] = _Shown(), root.level
        root.addHandler(state["shown"])
        _capture_warnings(ctx)
        ctx.find_root().call_on_close(lambda: _tear_down(state))
    if state.get("file") and "written" not in state:
        state["written"] = _written(state["file"])
        root.addHandler(state["written"])
    state["shown"].setLevel(level)
    if "written" in state:
        state["written"].setLevel(min(level, logging.INFO))
    root.setLevel(min(handler.level for handler in (state["shown"], state.get("written", state["shown"]))))


def _written(file: Path) -> logging.Handler:
    try:
        handler = logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(
            f"the log cannot be written to {file}: {error.strerror}; name another file, or make its folder"
        ) from error
    handler.setFormatter(_OneRecord(_FORMAT))
    return handler


def _tear_down(state: dict[str, Any]) -> None:
    root = logging.getLogger()
    for name in ("shown", "written"):
        if name in state:
            root.removeHandler(state[name])
            state.pop(name).close()
    root.setLevel(state["level before"])


def _capture_warnings(ctx: click.Context) -> None:
    """Log Python's warnings: the text at level warning, the source line at level debug."""
    before = warnings.showwarning
    logger = logging.getLogger("py.warnings")

    def show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        if file is not None:
            before(message, category, filename, lineno, file, line)
            return
        if category.__module__.partition(".")[0] == "mmsbgen":  # written for users
            logger.warning("%s", message, extra={"for_users": True})
        else:
            logger.warning("%s: %s", category.__name__, message)
        logger.debug("%s was raised at %s:%d", category.__name__, filename, lineno)

    def restore() -> None:
        if warnings.showwarning is show:
            warnings.showwarning = before

    warnings.showwarning = show
    ctx.find_root().call_on_close(restore)


class _OneRecord(logging.Formatter):
    """Formats a record so that no text in it controls a terminal or looks like another record."""

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record)).replace("\n", "\n  ")


class _Shown(logging.Handler):
    """Shows records on standard error, except those marked ``printed``, which the command prints itself."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "printed", False):
            return
        try:
            form = _FOR_USERS if getattr(record, "for_users", False) else _PLAIN
            say(form.format(record))
        except Exception:  # logging must not end what it tells of
            self.handleError(record)


_PLAIN = _OneRecord("%(levelname)s %(name)s: %(message)s")
_FOR_USERS = _OneRecord("Warning: %(message)s")


def note(text: str, level: int = logging.INFO) -> None:
    """Log a text that the command prints itself, for the log file only."""
    log.log(level, text, extra={"printed": True})
