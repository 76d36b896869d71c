"""Callers who have just written, and so must not read from a replica that lags behind.

All workers of a machine share what they know, and with Redis all machines (docs/deployment.md).
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from cms.config import Config
from cms.rate_limits.counters import RETRY_SECONDS, RedisLost
from cms.rate_limits.shared_table import KEY_BYTES, PROCESS_TABLE, SharedTable
from cms.store.identity import ANONYMOUS, ClientInfo, Identity

log = logging.getLogger("cms")


class SharedKeys(Protocol):
    """Keys that other machines see, each for a time."""

    def add(self, keys: Sequence[bytes], seconds: float) -> None:
        """Keep keys for some seconds; raises `RedisLost`."""

    def has_any(self, keys: Sequence[bytes]) -> bool:
        """Tell whether one of the keys is kept; raises `RedisLost`."""


class RecentWriters:
    """Remembers callers for a time after each of their writes.

    A caller without credentials is remembered by its address. A login counts as such a write,
    because the new session reads from the same address.
    """

    def __init__(
        self,
        table: SharedTable,
        shared: SharedKeys | None,
        *,
        lag: timedelta,
        secret: str,
    ) -> None:
        self._table = table
        self._shared = shared
        self._seconds = lag.total_seconds()
        # Keyed, so that neither memory nor Redis holds an address.
        self._seal = hmac.digest(secret.encode(), b"recent writers", "sha256")
        self._retry_at = 0.0

    def note(self, identity: Identity) -> None:
        """Remember that a caller has written; call it before the answer is sent."""
        key = self._key(identity.name)
        self._table.keep(key, self._seconds)
        if self._may_try() and self._shared:
            try:
                self._shared.add([key], self._seconds)
            except RedisLost as error:
                self._note_loss(error)

    def includes(self, identity: Identity) -> bool:
        """Tell whether a caller, or somebody without credentials at its address, has written."""
        keys = list(map(self._key, _names(identity)))
        if any(map(self._table.is_kept, keys)):
            return True
        if not (self._shared and self._may_try()):
            return False
        try:
            return self._shared.has_any(keys)
        except RedisLost as error:
            self._note_loss(error)
            return False

    def _key(self, name: str) -> bytes:
        text = name.encode(errors="surrogatepass")
        return hashlib.blake2b(text, digest_size=KEY_BYTES, key=self._seal).digest()

    def _may_try(self) -> bool:
        return time.monotonic() >= self._retry_at

    def _note_loss(self, error: RedisLost) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        log.warning("%s. What one writes here, other machines may read later.", error)


def recent_writers(config: Config, secret: str) -> RecentWriters | None:
    """Return the memory of writers that the settings ask for, None without a replica."""
    if config.database_read_url is None:
        return None
    shared = None
    if config.redis:
        # Only here: its library is an extra.
        from cms.store.redis_keys import RedisKeys

        shared = RedisKeys(config.redis)
    # Installations that share a Redis remember their own writers.
    seal = secret
    if config.database_schema:
        seal = f"{secret} {config.database_schema}"
    return RecentWriters(PROCESS_TABLE, shared, lag=config.database_read_lag, secret=seal)


def _names(identity: Identity) -> tuple[str, ...]:
    """Return the names under which writes of a caller are remembered."""
    if identity.is_anonymous:
        return (identity.name,)
    nobody = ANONYMOUS.with_client(ClientInfo(ip=identity.client.ip))
    return identity.name, nobody.name
