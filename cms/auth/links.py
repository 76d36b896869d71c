"""Links in letters: to addresses that the settings allow, never to one that a request made up."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import parse_qs, urlencode

from cms.auth import tokens
from cms.config import Config
from cms.errors import invalid_payload


@dataclass(frozen=True, slots=True)
class Link:
    """One kind of link; `named` is what a request calls the address, `usual` where it goes unless told otherwise."""

    purpose: str
    named: str
    usual: str
    allowed: tuple[str, ...]
    life: timedelta
    secret: str = field(repr=False)

    def address(self, said: str | None) -> str:
        """Return where the link goes: the address said may differ from one on the list in its query string only.

        A token is the service's to put there. Raises `Refused` INVALID_PAYLOAD.
        """
        if said is None:
            return self.usual
        plain = said.isascii() and said.isprintable() and not set(said) & {" ", "#", "\\"}
        bare, _, query = said.partition("?")
        if not plain or bare.rstrip("/") not in self.allowed or "token" in parse_qs(query, keep_blank_values=True):
            raise invalid_payload(f'"{self.named}" is not on the list of allowed addresses', field=self.named)
        return said

    def to(self, address: str, *, user: str, mark: str) -> str:
        """Return the link for a user, good until the mark of the account is another one."""
        token = tokens.letter_token(self.purpose, user=user, mark=mark, secret=self.secret, life=self.life)
        return f"{address}{'&' if '?' in address else '?'}{urlencode({'token': token})}"

    def reader(self, token: str) -> tuple[str, str]:
        """Return the user and the mark that a link was made for; raises `Refused` INVALID_TOKEN."""
        return tokens.reader_of(self.purpose, token, secret=self.secret)


@dataclass(frozen=True, slots=True)
class Links:
    """The links that the service writes."""

    reset: Link
    invite: Link
    register: Link

    @classmethod
    def of(cls, config: Config, secret: str) -> Links:
        """Return the links of the settings."""
        admin = f"{config.public_url}/admin"
        verify = f"{config.public_url}/users/register/verify-email"
        return cls(
            reset=Link(
                "password-reset",
                "reset_url",
                f"{admin}/reset-password",
                config.password_reset_url_allow_list,
                config.password_reset_ttl,
                secret,
            ),
            invite=Link(
                "invite",
                "invite_url",
                f"{admin}/accept-invite",
                config.user_invite_url_allow_list,
                config.user_invite_ttl,
                secret,
            ),
            register=Link(
                "register",
                "verification_url",
                verify,
                config.user_register_url_allow_list,
                config.user_register_ttl,
                secret,
            ),
        )
