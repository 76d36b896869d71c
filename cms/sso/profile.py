"""The profile of a user at a provider."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cms.config.providers import Provider
from cms.emails import is_email
from cms.sso.provider_errors import ProviderError

# PostgreSQL keeps no zero bytes, and half a character is none.
_UNSTORABLE = re.compile("[\\0\\ud800-\\udfff]")

MAX_IDENTIFIER_LENGTH = 1_000
MAX_NAME_LENGTH = 255
MAX_GROUPS = 10_000


@dataclass(frozen=True, slots=True)
class Profile:
    """A user as the provider describes it; `identifier` is never given to somebody else."""

    identifier: str
    email: str | None = None
    is_email_verified: bool = False
    first_name: str | None = None
    last_name: str | None = None
    groups: tuple[str, ...] = ()


def profile_from_claims(provider: Provider, claims: Mapping[str, object]) -> Profile:
    """Return the profile in the claims of a user; raises `ProviderError` without an identifier."""
    identifier = _exact_text(_value_at(claims, provider.identifier_key))
    if identifier is None or len(identifier) > MAX_IDENTIFIER_LENGTH:
        raise ProviderError(f'there is no identifier at "{provider.identifier_key}" of the profile')
    email = _text(_value_at(claims, provider.email_key))
    if email is not None and not is_email(email):
        email = None
    is_verified = claims.get("email_verified")
    return Profile(
        identifier=identifier,
        email=email,
        # Some providers write it as text.
        is_email_verified=is_verified is True or is_verified == "true",
        first_name=_name(claims, provider.first_name_key),
        last_name=_name(claims, provider.last_name_key),
        groups=_groups(_value_at(claims, provider.group_claim_name)),
    )


def _value_at(claims: Mapping[str, object], path: str) -> object:
    """Return the value at a dotted path; a claim may also have a name with dots in it."""
    if path in claims:
        return claims[path]
    value: object = claims
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _text(value: object) -> str | None:
    """Return a text for people to read, without spaces around it."""
    text = _exact_text(value)
    return None if text is None else text.strip()


def _exact_text(value: object) -> str | None:
    """Return a text that is compared: "ada" and "ada " are two users, and two groups."""
    # Some providers count their users.
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip() and _UNSTORABLE.search(value) is None:
        return value
    return None


def _name(claims: Mapping[str, object], path: str) -> str | None:
    text = _text(_value_at(claims, path)) if path else None
    return None if text is None else text[:MAX_NAME_LENGTH]


def _groups(value: object) -> tuple[str, ...]:
    """Return the groups of a claim: texts, or one text for a single group."""
    values = value[:MAX_GROUPS] if isinstance(value, list) else [value]
    return tuple(text for text in map(_exact_text, values) if text is not None)
