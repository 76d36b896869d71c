"""The options of storage locations and login providers, which have drivers.

Each has a name, which is part of the names of its settings.
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
    """Return the settings of a location or provider, by the attributes that they fill.

    `prefix` is the beginning of the names of `options`, as in `AUTH_<NAME>_`.
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
