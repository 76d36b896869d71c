"""Delivery to a mail server: TLS with verified certificates, one connection for each mail."""

from __future__ import annotations

import logging
import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.message import EmailMessage

from cms.config import Config
from cms.jobs.task import JobError, PermanentError
from cms.mail.mail_queue import one_line

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 20.0
"""For one answer of the server, counted from its last byte."""
MAX_SECONDS = 120.0
"""For a whole mail: a server could answer byte by byte, and keep its worker for ever."""

_Refusals = Mapping[str, tuple[int, bytes]]


def deliver(
    message: EmailMessage, config: Config, *, sender: str, recipients: Sequence[str]
) -> None:
    """Hand a message over; raises `JobError`, or `PermanentError` when the server refuses it for
    good.

    A mail that the server took for some recipients only counts as sent: the others are logged.
    """
    with _mapped_errors(), _smtp_connection(config) as server:
        refusals = server.send_message(message, sender, list(recipients))
    if refusals:
        log.error("the mail server took a mail, but not for %s", _reasons(refusals))


def probe(config: Config) -> None:
    """Ask the mail server whether it would take a mail, without one; raises `JobError`."""
    with _mapped_errors(), _smtp_connection(config) as server:
        server.ehlo_or_helo_if_needed()
        code, answer = server.noop()
        if code != 250:
            raise smtplib.SMTPResponseException(code, answer)


@contextmanager
def _smtp_connection(config: Config) -> Iterator[smtplib.SMTP]:
    """Yield a connection to the mail server, logged in where the settings name a user."""
    context = ssl.create_default_context()
    tls = context if config.email_smtp_secure else None
    with _SmtpConnection(config.email_smtp_host or "", config.email_smtp_port, tls) as server:
        # No silent way back: a server, or somebody in between, that offers no TLS is an error.
        if tls is None and not config.email_smtp_ignore_tls:
            server.starttls(context=context)
        if config.email_smtp_user and config.email_smtp_password:
            server.login(config.email_smtp_user, config.email_smtp_password)
        yield server


class _SmtpConnection(smtplib.SMTP):
    """A connection that ends after `MAX_SECONDS`; with a context it is TLS from the first byte."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._handle: socket.socket | None = None
        self._timer = threading.Timer(MAX_SECONDS, self._hang_up)
        # A timer that is left over must not keep the process from ending.
        self._timer.daemon = True
        super().__init__(host, port, timeout=TIMEOUT_SECONDS)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        plain_socket = socket.create_connection((host, port), timeout)
        # TLS takes the socket over, so the timer gets a handle of its own.
        self._handle = plain_socket.dup()
        self._timer.start()
        if self._context is None:
            return plain_socket
        try:
            return self._context.wrap_socket(plain_socket, server_hostname=host)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._timer.cancel()
        super().close()
        if self._handle is not None:
            self._handle.close()

    def _hang_up(self) -> None:
        if self._handle is not None:
            with suppress(OSError):
                # shutdown() wakes the thread that waits in a read; close() would leave it waiting.
                self._handle.shutdown(socket.SHUT_RDWR)


@contextmanager
def _mapped_errors() -> Iterator[None]:
    """Turn errors of the delivery into `JobError` and `PermanentError`, whose texts hold no
    password.
    """
    # The order matters: most of these classes are subclasses of one below them.
    try:
        yield
    except smtplib.SMTPRecipientsRefused as error:
        # If one recipient may be accepted later, the mail is tried again.
        code = min(code for code, _ in error.recipients.values())
        raise _refusal(code, _reasons(error.recipients)) from None
    except smtplib.SMTPAuthenticationError as error:
        # Not permanent: an operator can correct the settings before the next attempt.
        raise JobError(
            f"The mail server takes neither EMAIL_SMTP_USER nor its password ({error.smtp_code})"
        ) from None
    except smtplib.SMTPDataError as error:
        raise _refusal(error.smtp_code, _decoded(error.smtp_error)) from None
    except smtplib.SMTPNotSupportedError as error:
        raise _unsupported(error) from None
    except smtplib.SMTPResponseException as error:
        answer = f"{error.smtp_code} {_decoded(error.smtp_error)}"
        raise JobError(f"The mail server refuses: {answer}") from None
    except (smtplib.SMTPException, OSError) as error:  # ssl.SSLError is an OSError
        reason = one_line(str(error)) or type(error).__name__
        raise JobError(f"The mail server cannot be used: {reason}") from None


def _unsupported(error: smtplib.SMTPNotSupportedError) -> JobError:
    if "STARTTLS" in str(error):
        return JobError("The mail server offers no TLS; EMAIL_SMTP_IGNORE_TLS=true sends without")
    return PermanentError(f"The mail server cannot take the mail: {error}")


def _refusal(code: int, reason: str) -> JobError:
    """Return the error of a refusal; SMTP codes from 500 on are permanent."""
    error_class = PermanentError if code >= 500 else JobError
    return error_class(f"The mail server refuses: {code} {reason}")


def _reasons(refusals: _Refusals) -> str:
    return "; ".join(
        f"{address} ({code} {_decoded(text)})" for address, (code, text) in refusals.items()
    )


def _decoded(text: bytes | str) -> str:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return one_line(text)
