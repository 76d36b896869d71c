"""Links in letters: to addresses that the settings allow, never to one that a request made up."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import parse_qs, urlencode

from cms.auth import tokens
from cms.config import Config
from cms.errors import invalid_payload


@dataclass(frozen=True, slots=True)
class MailLink:
    """One kind of link; `url_field` names its address in requests, `default_url` is the one when none is given."""

    purpose: str
    url_field: str
    default_url: str
    allowed_urls: tuple[str, ...]
    life: timedelta
    secret: str = field(repr=False)

    def address(self, said: str | None) -> str:
        """Return where the link goes: the address said may differ from one on the list in its query string only.

        A token is the service's to put there. Raises `Refused` INVALID_PAYLOAD.
        """
        if said is None:
            return self.default_url
        plain = said.isascii() and said.isprintable() and not set(said) & {" ", "#", "\\"}
        bare, _, query = said.partition("?")
        if (
            not plain
            or bare.rstrip("/") not in self.allowed_urls
            or "token" in parse_qs(query, keep_blank_values=True)
        ):
            raise invalid_payload(
                f'"{self.url_field}" is not on the list of allowed addresses', field=self.url_field
            )
        return said

    def to(self, address: str, *, user: str, fingerprint: str) -> str:
        """Return the link for a user, good until the mark of the account is another one."""
        token = tokens.link_token(
            self.purpose, user=user, fingerprint=fingerprint, secret=self.secret, life=self.life
        )
        return f"{address}{'&' if '?' in address else '?'}{urlencode({'token': token})}"

    def read(self, token: str) -> tuple[str, str]:
        """Return the user and the mark that a link was made for; raises `Refused` INVALID_TOKEN."""
        return tokens.read_link_token(self.purpose, token, secret=self.secret)


@dataclass(frozen=True, slots=True)
class MailLinks:
    """The links that the service writes."""

    reset: MailLink
    invite: MailLink
    register: MailLink

    @classmethod
    def from_config(cls, config: Config, secret: str) -> MailLinks:
        """Return the links of the settings."""
        admin = f"{config.public_url}/admin"
        verify = f"{config.public_url}/users/register/verify-email"
        return cls(
            reset=MailLink(
                "password-reset",
                "reset_url",
                f"{admin}/reset-password",
                config.password_reset_url_allow_list,
                config.password_reset_ttl,
                secret,
            ),
            invite=MailLink(
                "invite",
                "invite_url",
                f"{admin}/accept-invite",
                config.user_invite_url_allow_list,
                config.user_invite_ttl,
                secret,
            ),
            register=MailLink(
                "register",
                "verification_url",
                verify,
                config.user_register_url_allow_list,
                config.user_register_ttl,
                secret,
            ),
        )
