"""Checks of the values of options, for flows and panels alike: each takes one kind of value."""

from __future__ import annotations

from collections.abc import Callable, Mapping

_MAX_DIGITS = 18


class OptionError(ValueError):
    """An option is wrong: `path` leads to it from the options."""

    def __init__(self, reason: str, *path: str | int) -> None:
        super().__init__(reason)
        self.path = path


class IncompleteOption(OptionError):
    """Something is not there yet: it is needed only where the options are used."""


OptionCheck = Callable[[object], None]
"""Checks the value of an option; raises `OptionError`, with a path inside the value."""


def text(value: object) -> None:
    if not isinstance(value, str):
        raise OptionError("it is a text")
    if not value.strip():
        raise IncompleteOption("it is a text")


def boolean(value: object) -> None:
    if not isinstance(value, bool):
        raise OptionError("it is true or false")


def json_object(value: object) -> None:
    if not isinstance(value, Mapping):
        raise OptionError("it is an object")


def whole_number(minimum: int, maximum: int) -> OptionCheck:
    """Return the check of a whole number within bounds, which may come as a text of digits."""

    def check(value: object) -> None:
        # A template renders numbers as text. int() also reads digits of other scripts, which do no
        # harm here.
        if isinstance(value, str) and value.isdecimal() and len(value) <= _MAX_DIGITS:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise OptionError("it is a whole number")
        if not minimum <= value <= maximum:
            raise OptionError(f"it is from {minimum} to {maximum}")

    return check


def one_of(*words: str) -> OptionCheck:
    """Return the check that a value is one of these words."""

    def check(value: object) -> None:
        if value not in words:
            raise OptionError(f"it is one of {', '.join(words)}")

    return check


def texts(value: object) -> None:
    """Take a list of texts."""
    if not isinstance(value, list):
        raise OptionError("it is a list of texts")
    for index, element in enumerate(value):
        if not isinstance(element, str):
            raise OptionError("it is a text", index)
