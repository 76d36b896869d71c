"""Variables of features that are not built yet: setting one is refused, not ignored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

# Refused instead of ignored: whoever sets them would believe that they work.
UNBUILT: Mapping[str, str] = {
    "REDIS": "rate limits shared by several machines",
    "RATE_LIMITER_ENABLED": "rate limits",
    "RATE_LIMITER_PER_SECOND": "rate limits",
    "RATE_LIMITER_PER_MINUTE": "rate limits",
    "METRICS_TOKEN": "metrics",
    "AUTH_PROVIDERS": "external logins",
    "AUTH_<NAME>_DRIVER": "external logins",
    "AUTH_<NAME>_CLIENT_ID": "external logins",
    "AUTH_<NAME>_CLIENT_SECRET": "external logins",
    "AUTH_<NAME>_CLIENT_URL": "external logins",
    "AUTH_<NAME>_ISSUER_URL": "external logins",
    "AUTH_<NAME>_AUTHORIZE_URL": "external logins",
    "AUTH_<NAME>_ACCESS_URL": "external logins",
    "AUTH_<NAME>_PROFILE_URL": "external logins",
    "AUTH_<NAME>_SCOPE": "external logins",
    "AUTH_<NAME>_IDENTIFIER_KEY": "external logins",
    "AUTH_<NAME>_EMAIL_KEY": "external logins",
    "AUTH_<NAME>_FIRST_NAME_KEY": "external logins",
    "AUTH_<NAME>_LAST_NAME_KEY": "external logins",
    "AUTH_<NAME>_ALLOW_PUBLIC_REGISTRATION": "external logins",
    "AUTH_<NAME>_REQUIRE_VERIFIED_EMAIL": "external logins",
    "AUTH_<NAME>_DEFAULT_ROLE_ID": "external logins",
    "AUTH_<NAME>_SYNC_USER_INFO": "external logins",
    "AUTH_<NAME>_ROLE_MAPPING": "external logins",
    "AUTH_<NAME>_GROUP_CLAIM_NAME": "external logins",
    "AUTH_<NAME>_REDIRECT_ALLOW_LIST": "external logins",
    "AUTH_<NAME>_MODE": "external logins",
    "AUTH_<NAME>_ALLOW_INSECURE": "external logins",
    "AUTH_<NAME>_BIND_DN": "external logins",
    "AUTH_<NAME>_BIND_PASSWORD": "external logins",
    "AUTH_<NAME>_USER_DN": "external logins",
    "AUTH_<NAME>_USER_ATTRIBUTE": "external logins",
    "AUTH_<NAME>_USER_SCOPE": "external logins",
    "AUTH_<NAME>_GROUP_DN": "external logins",
    "AUTH_<NAME>_GROUP_ATTRIBUTE": "external logins",
    "AUTH_<NAME>_GROUP_SCOPE": "external logins",
    "AUTH_<NAME>_SP_metadata": "external logins",
    "AUTH_<NAME>_SP_METADATA": "external logins",
    "AUTH_<NAME>_IDP_metadata": "external logins",
    "AUTH_<NAME>_IDP_METADATA": "external logins",
}
"""Each variable and its purpose; a line is removed when the setting is built."""


def unbuilt(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable that is set and not built yet."""
    for name, value in variables.items():
        purpose = _purpose_of(name)
        if value and purpose:
            yield f"{name} is not built yet ({purpose}): remove it."


def _purpose_of(name: str) -> str | None:
    """Return the purpose of a variable that is not built yet; None for any other."""
    for pattern, purpose in UNBUILT.items():
        if _matches_pattern(name, pattern):
            return purpose
    return None


def _matches_pattern(name: str, pattern: str) -> bool:
    # Any setting may be in a file, which `<NAME>_FILE` names.
    return bool(re.fullmatch(pattern.replace("<NAME>", "[A-Z][A-Z0-9_]*") + "(_FILE)?", name))
