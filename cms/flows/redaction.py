"""What the logs of runs must not hold: secrets, told by their names or by their values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from cms.text_shapes import MASK

_SECRET_WORDS = ("password", "passwd", "secret", "token", "apikey", "privatekey")
_SECRET_NAMES = frozenset(
    {"authorization", "proxyauthorization", "cookie", "setcookie", "credentials", "otp"}
)
MIN_SECRET_LENGTH = 4
"""A shorter text is no secret: masking it would spoil every log."""
MAX_TEXT_LENGTH = 10_000
"""Characters of one text that a log keeps."""


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Tell whether the value under a name is a secret, whatever it is."""
    letters = "".join(character for character in name.lower() if character.isalnum())
    if letters in _SECRET_NAMES:
        return True
    return any(word in letters for word in _SECRET_WORDS)


def secrets_of(value: object) -> Iterable[str]:
    """Yield the texts that stand under names of secrets, at any depth."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if is_secret_name(str(name)):
                yield from _texts(inner)
            else:
                yield from secrets_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from secrets_of(inner)


def redacted(value: object, secrets: Collection[str]) -> object:
    """Return a value for a log: secrets are masked, long texts cut."""
    return _redacted(value, sorted(_worth_masking(secrets), key=len, reverse=True))


def _redacted(value: object, secrets: list[str]) -> object:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, MASK)
        return value if len(value) <= MAX_TEXT_LENGTH else f"{value[:MAX_TEXT_LENGTH]} …"
    if isinstance(value, Mapping):
        return {
            str(name): MASK
            if inner is not None and is_secret_name(str(name))
            else _redacted(inner, secrets)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(inner, secrets) for inner in value]
    return value


def _worth_masking(secrets: Iterable[str]) -> set[str]:
    return {secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH}


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
        # The credentials of a header stand behind the name of their scheme.
        scheme, space, credentials = value.partition(" ")
        if space and scheme.isalpha():
            yield credentials
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
