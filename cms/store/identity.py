"""Who calls, as far as the request itself says: an identity, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Where a request came from."""

    ip: str | None = None
    user_agent: str | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a request says it is, its signature checked: a user in a session, or the digest of a static token.

    `cookie` is the digest of a session cookie: it names a user by the session alone, which is looked up every time, so
    that it is dead with the logout. `may_enrol` are the few requests that a user may make who still has to set up
    the second factor that the role asks for.
    Two identities are equal when they name the same caller, from wherever it calls.
    """

    user: str | None = None
    token: str | None = None
    session: str | None = None
    cookie: str | None = None
    client: ClientInfo = field(default=ClientInfo(), compare=False)
    may_enrol: bool = field(default=False, compare=False)

    def with_client(self, client: ClientInfo) -> Identity:
        """Return the same identity with where this request of it came from."""
        return Identity(self.user, self.token, self.session, self.cookie, client, self.may_enrol)

    @property
    def name(self) -> str:
        """What tells one caller from another; those without credentials are told apart by their address."""
        return self.user or self.token or self.cookie or f"public at {self.client.ip}"

    @property
    def values(self) -> tuple[str | None, ...]:
        """What the statement `find_actor` takes."""
        return self.user, self.token, self.session, self.cookie


ANONYMOUS = Identity()
