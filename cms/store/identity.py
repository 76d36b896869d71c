"""The caller, as far as the request alone shows it, and the origin of the request."""

from __future__ import annotations

from typing import NamedTuple

Author = tuple[str | None, ...]
"""User, address, user agent and origin, as `ArgumentSlots` and the fixed statements take them."""


class ClientInfo(NamedTuple):
    """Where a request came from.

    `depth` is how many runs of flows have led to it, each by causing the next one; None for writes
    that cause no runs.
    """

    ip: str | None = None
    user_agent: str | None = None
    origin: str | None = None
    depth: int | None = 0

    def author(self, user: str | None) -> Author:
        """Return the author of a write for the history: user, address, user agent and origin."""
        return user, self.ip, self.user_agent, self.origin


CALLER_FIELDS = 6
"""The first fields of an `Identity`, which name the caller: the parameters of `find_actor`."""


class Identity(NamedTuple):
    """The caller that a request names: a user in a session, or the digest of a static token.

    The signature of a token has been checked. `cookie` is the digest of a session cookie, whose
    session is looked up for every request, so that the cookie ends with the logout. A session alone
    is that of a share, which no user opened. `may_enrol`
    marks the few requests that are open to a user who still has to set up a second factor.
    A run of a flow may act with the rights of a `role`, or as the service itself, with all rights.
    `email` is the address of a user who is signed in to the application around the service; one
    that nobody has here is nobody's with `may_be_unknown`, and refused otherwise.
    """

    user: str | None = None
    token: str | None = None
    session: str | None = None
    cookie: str | None = None
    role: str | None = None
    email: str | None = None
    client: ClientInfo = ClientInfo()
    may_enrol: bool = False
    is_service: bool = False
    may_be_unknown: bool = False

    def with_client(self, client: ClientInfo) -> Identity:
        """Return the identity with the client of one request."""
        # Not by `_replace` or by names, which take longer: every request comes here.
        return Identity(
            self.user,
            self.token,
            self.session,
            self.cookie,
            self.role,
            self.email,
            client,
            self.may_enrol,
            self.is_service,
            self.may_be_unknown,
        )

    @property
    def name(self) -> str:
        """The name under which answers of idempotent calls are stored.

        Callers without credentials have their address as name.
        """
        if self.is_service:
            return "service"
        # The user comes first, so that a new session of the same user still finds its answers.
        credential = self.user or self.token or self.cookie or self.role or self.session
        # No other name has an @.
        return credential or self.email or f"public at {self.client.ip}"

    @property
    def is_anonymous(self) -> bool:
        """Whether no user is named, as by a request without credentials."""
        # A role names no user: a run of a flow with a role is anonymous, with the rights of the
        # role.
        return not (self.user or self.token or self.session or self.cookie or self.email)

    @property
    def caller(self) -> tuple[str | None, ...]:
        """The caller without its address."""
        return self.user, self.token, self.session, self.cookie, self.role, self.email


ANONYMOUS = Identity()
