"""Counts the requests of clients and their attempts to log in, within the limits of the settings.

Requests are counted by address. Attempts to log in have limits of their own, by address and by
account.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

from cms.config import Config
from cms.rate_limits.counters import Counters, FallbackCounters
from cms.rate_limits.shared_table import KEY_BYTES, PROCESS_TABLE
from cms.rate_limits.windows import Limit, Usage

MAX_CACHED_KEYS = 4_096

_NETWORK_BYTES = 8  # 64 bits, which is what one customer of a provider has


MAX_ACCOUNT_LENGTH = 1_000
"""Characters that are compared; no address has as many."""

_IGNORED = frozenset({"Mn", "Me", "Cf", "Cc", "Zs", "Zl", "Zp"})
"""The categories of marks above and below letters, of what cannot be seen, and of spaces."""


class RateLimiter:
    """Counts requests; whether one that exceeds a limit is refused is for the caller to decide.

    Keys are digests with the secret of the service: services that share counters do not mix, and
    the counters hold nobody's address. In one process, services on different databases do not mix
    either. Machines that count together may write the address of their database differently, but
    not the schema.
    """

    def __init__(self, counters: Counters, config: Config, secret: str) -> None:
        self._counters = counters
        self.is_local = config.redis is None
        """Whether to count takes no look at another machine."""
        self._request_limits = (
            Limit(config.rate_limiter_per_second, 1),
            Limit(config.rate_limiter_per_minute, 60),
        )
        self._login_limits = (Limit(config.rate_limiter_logins_per_address, 60),)
        self._account_limits = (Limit(config.rate_limiter_logins_per_account, 60),)
        database = config.database_schema if config.redis else config.database_url
        self._seal = hmac.digest(
            secret.encode(), f"rate limits {database or ''}".encode(), "sha256"
        )
        self._cached_key = lru_cache(MAX_CACHED_KEYS)(self._key)

    def count_request(self, address: str) -> Usage:
        """Count a request of an address."""
        return self._counters.acquire(self._cached_key("requests", address), self._request_limits)

    def count_login(self, address: str) -> Usage:
        """Count an attempt to log in, or a call that is as critical, of an address."""
        return self._counters.acquire(self._cached_key("logins", address), self._login_limits)

    def count_account(self, account: str) -> Usage:
        """Count an attempt to log in to an account, whether there is such an account or not."""
        # Not from the cache: anybody could send texts of any length.
        key = self._digest("account", account_name(account))
        return self._counters.acquire(key, self._account_limits)

    def close(self) -> None:
        """Close connections; a later request opens them again."""
        self._counters.close()

    def _key(self, purpose: str, address: str) -> bytes:
        return self._digest(purpose, _network_of(address))

    def _digest(self, purpose: str, name: str) -> bytes:
        text = f"{purpose} {name}".encode(errors="surrogatepass")
        return hashlib.blake2b(text, digest_size=KEY_BYTES, key=self._seal).digest()


def rate_limiter(config: Config, secret: str) -> RateLimiter | None:
    """Return the limiter of the settings, or None where they turn it off."""
    if not config.rate_limiter_enabled:
        return None
    counters: Counters = PROCESS_TABLE
    if config.redis is not None:
        # Only here: its library is an extra.
        from cms.rate_limits.redis_counters import RedisCounters

        counters = FallbackCounters(RedisCounters(config.redis), PROCESS_TABLE)
    return RateLimiter(counters, config, secret)


def _network_of(address: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or 64 bits of IPv6.

    Anything else, as behind a Unix socket, is returned as it is.
    """
    try:
        return IPv6Address(address).packed[:_NETWORK_BYTES].hex()
    except AddressValueError:
        return address


def account_name(account: str) -> str:
    """Return the name that all spellings of an account have in common.

    Databases and directories take different texts for the same account: PostgreSQL's lower() makes
    an i of the Turkish İ, and LDAP knows no width of letters. No spelling may have attempts of its
    own, so this compares less than any of them. It does no harm if two accounts count as one.
    """
    # Twice: what takes the place of a letter may be a capital.
    folded = unicodedata.normalize("NFKD", account.strip()[:MAX_ACCOUNT_LENGTH].casefold())
    decomposed = unicodedata.normalize("NFKD", folded.casefold())
    return "".join(each for each in decomposed if unicodedata.category(each) not in _IGNORED)
