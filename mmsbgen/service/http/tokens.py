"""The data folder of the service and its token: given by the user, or made once and stored there."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from mmsbgen.base.errors import InputError

VARIABLE = "MMSBGEN_TOKEN"
KEPT = "service-token"
"""Name of the file in the data folder."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")


def given_token(file: Path | None, environment: Mapping[str, str]) -> str | None:
    """The token of ``--token-file``, else of ``MMSBGEN_TOKEN``; None if neither is given.

    Raises ``InputError`` for an invalid token, and for a file that cannot be read or that every user may access.
    """
    if file is not None:
        return _checked(_read(file), str(file))
    if environment.get(VARIABLE):
        return _checked(environment[VARIABLE], VARIABLE)
    return None


def own_folder(folder: Path) -> Path:
    """``folder``, made with mode 700 if there is none.

    Raises ``InputError`` if it cannot be made, or if others could have put a token or links into it: that is, if it or
    what is in it belongs to another user, or others may write it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = {folder: folder.stat()} | {path: path.lstat() for path in folder.iterdir()}
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be used: {error.strerror or error}; give --data") from error
    if found[folder].st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(f"other users may write the folder {folder}: chmod go-w {folder}, or name another by --data")
    for path, facts in found.items():
        if facts.st_uid not in (os.geteuid(), 0):
            where = f"the folder {folder}" if path == folder else f"the folder {folder} has {path.name}, which"
            raise InputError(f"{where} belongs to another user: name another folder by --data")
    return folder


def kept_token(folder: Path) -> tuple[str, Path, bool]:
    """The token stored in ``folder`` (made with mode 600 if there is none), its file, and whether it is new.

    Raises ``InputError`` if the folder cannot be written or the stored token cannot be used.
    """
    path = folder / KEPT
    try:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return _checked(_read(path), str(path)), path, False
        token = secrets.token_urlsafe(32)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(token + "\n")
    except OSError as error:
        raise InputError(
            f"the token cannot be kept in {folder}: {error.strerror or error}; name another folder with --data, or "
            f"give a token by --token-file or {VARIABLE}"
        ) from error
    return token, path, True


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(1024).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the token file {file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISREG(mode) and mode & stat.S_IRWXO:
        raise InputError(f"the token file {file} is open to every user of this machine: chmod 600 {file}")
    return text


def _checked(token: str, source: str) -> str:
    if not _TOKEN.fullmatch(token.strip()):
        raise InputError(
            f"the token of {source} cannot be used: it must have 16 to 512 letters, digits or any of ._~+/=- (make one "
            "with: openssl rand -hex 32)"
        )
    return token.strip()
