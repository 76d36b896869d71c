"""The options of what has a driver: storage locations and login providers.

Each has a name, and a setting for each of its options that has this name in its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cms.config.settings import Setting


class Configured(Protocol):
    """Something with a driver, whose attributes are its options."""

    @property
    def driver(self) -> str: ...

    def variable_name(self, option: str) -> str:
        """Return the name of the variable that sets an option."""


def named_settings(options: Iterable[Setting], prefix: str, name: str) -> dict[str, Setting]:
    """Return the settings of what has this name, by the attributes that they fill.

    `prefix` is what the names of `options` begin with, as in `AUTH_<NAME>_`.
    """
    settings: dict[str, Setting] = {}
    for option in options:
        attribute = option.name.removeprefix(prefix).lower()
        settings[attribute] = replace(option, name=option.name.replace("<NAME>", name.upper()))
    return settings


def missing_options(configured: Configured, needed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a sentence for each option that is not set, of those that its driver needs."""
    for option in needed.get(configured.driver, ()):
        if not getattr(configured, option):
            variable = configured.variable_name(option)
            yield f"{variable} is needed by the driver {configured.driver}."
