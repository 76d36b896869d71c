"""The way to a mail server: TLS with certificates that are checked, one connection a letter."""

from __future__ import annotations

import logging
import smtplib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.message import EmailMessage

from cms.config import Config
from cms.jobs.tasks import JobError, PermanentError
from cms.mail.addresses import one_line

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 20.0

_Refusals = Mapping[str, tuple[int, bytes]]


def deliver(
    message: EmailMessage, config: Config, *, sender: str, recipients: Sequence[str]
) -> None:
    """Hand a message over; raises `JobError`, or `PermanentError` when the server refuses it for good.

    A letter that the server took for some recipients only has been sent: the others are logged.
    """
    with _mapped_errors(), _smtp_connection(config) as server:
        if config.email_smtp_user and config.email_smtp_password:
            server.login(config.email_smtp_user, config.email_smtp_password)
        refused = server.send_message(message, sender, list(recipients))
    if refused:
        log.error("the mail server took a letter, but not for %s", _reasons(refused))


@contextmanager
def _smtp_connection(config: Config) -> Iterator[smtplib.SMTP]:
    host, port = config.email_smtp_host or "", config.email_smtp_port
    context = ssl.create_default_context()
    if config.email_smtp_secure:
        with smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_SECONDS, context=context) as server:
            yield server
        return
    with smtplib.SMTP(host, port, timeout=TIMEOUT_SECONDS) as server:
        if not config.email_smtp_ignore_tls:
            server.starttls(context=context)
        yield server


@contextmanager
def _mapped_errors() -> Iterator[None]:
    """Turn what goes wrong on the way into what the queue understands; no reason holds the password."""
    try:
        yield
    except smtplib.SMTPRecipientsRefused as fault:
        raise _refusal(
            min(code for code, _ in fault.recipients.values()), _reasons(fault.recipients)
        ) from None
    except smtplib.SMTPAuthenticationError as fault:
        raise JobError(
            f"The mail server takes neither EMAIL_SMTP_USER nor its password ({fault.smtp_code})"
        ) from None
    except smtplib.SMTPDataError as fault:
        raise _refusal(fault.smtp_code, _decoded(fault.smtp_error)) from None
    except smtplib.SMTPNotSupportedError as fault:
        raise _unsupported(fault) from None
    except smtplib.SMTPResponseException as fault:
        raise JobError(
            f"The mail server refuses: {fault.smtp_code} {_decoded(fault.smtp_error)}"
        ) from None
    except (smtplib.SMTPException, OSError) as fault:  # ssl.SSLError is an OSError
        raise JobError(
            f"The mail server cannot be used: {one_line(str(fault)) or type(fault).__name__}"
        ) from None


def _unsupported(fault: smtplib.SMTPNotSupportedError) -> JobError:
    if "STARTTLS" in str(fault):
        return JobError("The mail server offers no TLS; EMAIL_SMTP_IGNORE_TLS=true sends without")
    return PermanentError(f"The mail server cannot take the letter: {fault}")


def _refusal(code: int, reason: str) -> JobError:
    """A code from 500 on stands for good."""
    kind = PermanentError if code >= 500 else JobError
    return kind(f"The mail server refuses: {code} {reason}")


def _reasons(refused: _Refusals) -> str:
    return "; ".join(
        f"{address} ({code} {_decoded(text)})" for address, (code, text) in refused.items()
    )


def _decoded(text: bytes | str) -> str:
    return one_line(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)
