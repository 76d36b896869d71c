"""The errors of providers, and the refusals that callers get for them."""

from __future__ import annotations

import logging

from cms.config.providers import Provider
from cms.errors import Problem, Refused, unavailable

log = logging.getLogger("cms.auth")


class ProviderError(Exception):
    """A provider that does not answer, or not as it should; the text says how, without secrets."""


def provider_failed(provider: Provider, error: ProviderError) -> Refused:
    """Log what is wrong with a provider, and return the refusal, which does not say it."""
    log.error("The login provider %s fails: %s.", provider.name, error)
    return unavailable(f"login provider {provider.name}", "Try again later")


def login_refused(provider: Provider, reason: str) -> Refused:
    """Log why a provider's answer is not accepted, and return the refusal, without the reason."""
    log.warning("A login by %s was refused: %s.", provider.name, reason)
    return Refused(Problem("INVALID_CREDENTIALS", "The provider's answer is not accepted."))
