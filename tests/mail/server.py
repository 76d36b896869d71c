"""A real mail server on loopback, with what tests need to know of its mails."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from tests.smoke.running import free_port
from tests.waiting import eventually


@dataclass
class ReceivedMail:
    sender: str
    recipients: list[str]
    raw: bytes

    @property
    def message(self) -> EmailMessage:
        message = message_from_bytes(self.raw, policy=default)
        assert isinstance(message, EmailMessage)
        return message

    def part(self, kind: str) -> str:
        part = self.message.get_body((kind,))
        assert part is not None
        text: str = part.get_content()
        return text.replace("\r\n", "\n").strip()


@dataclass
class Inbox:
    """What a server has taken; `refuse` maps a recipient or the word
    `data` to the answer it gets instead.

    While it is `paused` it answers no mail; `received` counts those that it was sent.
    """

    port: int
    mails: list[ReceivedMail] = field(default_factory=list)
    refuse: dict[str, str] = field(default_factory=dict)
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)
    paused: bool = False
    received: int = 0

    def only(self) -> ReceivedMail:
        """Return the mail that came; aiosmtpd looks at every property, so this is none."""
        (mail,) = self.mails
        return mail

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.received += 1
        await asyncio.to_thread(eventually, lambda: not self.paused)
        if "data" in self.refuse:
            return self.refuse["data"]
        self.mails.append(ReceivedMail(envelope.mail_from, envelope.rcpt_tos, envelope.content))
        return "250 OK"

    def authenticate(
        self, server: Any, session: Any, envelope: Any, mechanism: str, credentials: Any
    ) -> AuthResult:
        assert isinstance(credentials, LoginPassword)
        self.logins.append((credentials.login, credentials.password))
        return AuthResult(success=credentials.password == b"right", handled=False)


@contextmanager
def mail_server(
    *, port: int = 0, tls: ssl.SSLContext | None = None, implicit: bool = False
) -> Iterator[Inbox]:
    """Run a server; with `tls` it wants STARTTLS, or TLS from the first byte,
    and a login with the password `right`.
    """
    inbox = Inbox(port or free_port())
    secured: dict[str, Any] = {"auth_required": True, "authenticator": inbox.authenticate}
    if tls and implicit:
        secured |= {
            "ssl_context": tls,
            "auth_require_tls": False,
        }  # it knows of no TLS that it has not begun itself
    elif tls:
        secured |= {"tls_context": tls, "require_starttls": True}
    else:
        secured = {"enable_SMTPUTF8": True}
    controller = Controller(inbox, hostname="127.0.0.1", port=inbox.port, **secured)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # of logins without the TLS that it does not see
        controller.start()
        try:
            yield inbox
        finally:
            controller.stop()


def server_context(authority: trustme.CA, name: str) -> ssl.SSLContext:
    """Return the TLS of a server that the authority has certified under a name or address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context
