"""SECRET, or the random secret that is kept in DATA_DIR (docs/settings.md)."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from cms.config import Config, ConfigError
from cms.config.setting_values import reason_of
from cms.config.settings import LONG_TEXT


def secret_of(config: Config) -> str:
    """Return SECRET, else the random secret in `DATA_DIR/secret`, which is made when missing.

    Every process with this DATA_DIR gets the same one. Raises `ConfigError` when it cannot be kept.
    """
    if config.secret:
        return config.secret
    path = config.data_dir / "secret"
    try:
        secret = _read_or_make(path).strip()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"SECRET is not set, and none can be kept in {path}: {reason_of(error)}."
        ) from error
    try:
        LONG_TEXT.parse(secret)
    except ValueError:
        raise ConfigError(
            f"SECRET is not set, and {path} does not hold {LONG_TEXT.takes}: "
            "set one, or remove that file."
        ) from None
    return secret


def _read_or_make(path: Path) -> str:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _publish(secrets.token_urlsafe(32), path)
    return path.read_text("utf-8")


def _publish(content: str, path: Path) -> None:
    """Write a file that appears complete or not at all, readable by this account only.

    Of several writers the first one wins.
    """
    descriptor, temporary_path = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            # On disk before it has its name: after a crash an empty secret would be found, and
            # tokens signed with it.
            os.fsync(file.fileno())
        # Unlike a rename, a link fails where there is a file already.
        try:
            os.link(temporary_path, path)
        except FileExistsError:
            return  # another process was first, and its secret is the one to use
    finally:
        os.unlink(temporary_path)
