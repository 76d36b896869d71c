"""The options of storage locations and login providers, which have drivers.

Each has a name, which is part of the names of its settings. The types of those of providers follow:
addresses, keys, roles, certificates.
"""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol
from urllib.parse import urlsplit

import orjson

from cms.config.settings import Setting, SettingType, choice, matched


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


def _text_mapping(text: str) -> Mapping[str, str]:
    # Directus marks values that are JSON.
    value = orjson.loads(text.removeprefix("json:"))
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError
    return MappingProxyType(value)


def _role_mapping(text: str) -> Mapping[str, str]:
    mapping = _text_mapping(text)
    return MappingProxyType({group: str(uuid.UUID(role)) for group, role in mapping.items()})


# Parameters that the service sets itself, for each login.
_OWN_PARAMS = frozenset(
    {
        "url", "client_id", "redirect_uri", "response_type", "response_mode", "scope", "state",
        "nonce", "code_verifier", "code_challenge", "code_challenge_method",
    }
)  # fmt: skip


def _params(text: str) -> Mapping[str, str]:
    params = _text_mapping(text)
    if _OWN_PARAMS & params.keys():
        raise ValueError
    return params


def _address_matched(pattern: str) -> Callable[[str], str]:
    """Return a parser of addresses that match a pattern as a whole, with a host and a port."""
    parse_text = matched(pattern)

    def parse(text: str) -> str:
        parts = urlsplit(parse_text(text))
        # An invalid port, and a bracket that is not closed, raise ValueError by themselves.
        if not parts.hostname or parts.port == 0:
            raise ValueError
        return text

    return parse


def _certificates(text: str) -> str:
    try:
        ssl.create_default_context(cadata=text)
    except ssl.SSLError:
        raise ValueError from None
    return text


def _show_mapping(mapping: Mapping[str, str]) -> str:
    return orjson.dumps(dict(mapping)).decode()


URL = SettingType(
    "an address such as https://id.example.com/oauth", _address_matched(r"https?://[^\s\\#@]+")
)
KEY = SettingType("a key such as email or user.email", matched(r"[^\s.]+(\.[^\s.]+)*"))
ROLE = SettingType("the id of a role", lambda text: str(uuid.UUID(text)))
ROLES = SettingType('JSON such as {"editors": "the id of a role"}', _role_mapping, _show_mapping)
PARAMS = SettingType(
    'JSON such as {"prompt": "login"}, without what the service sets itself', _params, _show_mapping
)
SCOPE = choice("base", "one", "sub")
DIRECTORY = SettingType(
    "an address such as ldaps://ldap.example.com", _address_matched(r"ldaps?://[^\s/?#@]+/?")
)
CERTIFICATES = SettingType("certificates as PEM", _certificates)
ATTRIBUTE = SettingType("the name of an attribute", matched(r"[A-Za-z][A-Za-z0-9.;-]*"))
MODE = choice("session", "cookie", "json")
