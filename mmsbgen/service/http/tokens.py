"""The token of the service: given by the user, or made once and stored in the data folder."""

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


def kept_token(folder: Path) -> tuple[str, Path, bool]:
    """The token stored in ``folder`` (made with mode 600 if there is none), its file, and whether it is new.

    Raises ``InputError`` if the folder cannot be written or the stored token cannot be used.
    """
    path = folder / KEPT
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
