"""The task `mail`: render a mail and hand it to the transport of the settings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP

from cms.config import Config
from cms.database.connections import Database
from cms.database.statements import statement
from cms.jobs.task import Job, PermanentError
from cms.mail.mail_queue import Mail, address_spec, from_payload, one_line, parse_address, sender
from cms.mail.render import RenderedMail, render
from cms.mail.smtp import deliver

log = logging.getLogger(__name__)


def send(job: Job, config: Config, database: Database) -> None:
    """Send the mail of a job; raises `JobError`, or `PermanentError` if no retry can help."""
    mail_id, mail = from_payload(job.payload)
    # A decoy (`post_decoy`) has no recipient.
    if not mail.recipients:
        return
    name, _, color, *_ = database.fetch(statement("find_project"))[0]
    project = {"project_name": name, "project_color": color}
    texts = render(mail, project, data_dir=config.data_dir)
    if config.email_transport == "log":
        _write_to_log(mail, texts)
        return
    try:
        author = sender(config.email_from, default_name=name)
        message = compose(mail, texts, author=author, mail_id=mail_id)
        recipients = [address_spec(address) for address in _parse_all(mail, mail.recipients)]
    except ValueError as error:
        raise PermanentError(f"The mail has an address that cannot be used: {error}") from None
    deliver(message, config, sender=address_spec(author), recipients=recipients)


def _write_to_log(mail: Mail, texts: RenderedMail) -> None:
    """Log a mail on one line, with spaces around its links, so that a developer can open them."""
    lines = [one_line(texts.subject)]
    for line in texts.text.splitlines():
        text = line.strip()
        if text:
            lines.append(text)
    log.info("mail to %s: %s", ", ".join(mail.recipients), " | ".join(lines))


def compose(mail: Mail, texts: RenderedMail, *, author: Address, mail_id: str) -> EmailMessage:
    """Return the message of a mail.

    It has the headers below and no others, whatever the texts and names hold.
    """
    message = EmailMessage(SMTP)
    message["From"] = author
    # No header for `bcc`: these recipients are named to the mail server alone.
    addresses_by_header = {"To": mail.to, "Cc": mail.cc, "Reply-To": mail.reply_to}
    for header, addresses in addresses_by_header.items():
        if addresses:
            message[header] = _parse_all(mail, addresses)
    message["Subject"] = one_line(texts.subject)
    message["Date"] = datetime.now(UTC)
    # The same at each attempt, so that mail programs recognise a duplicate.
    message["Message-ID"] = f"<{mail_id}@{author.domain}>"
    # RFC 3834: other programs send no automatic replies to this, such as notes of absence.
    message["Auto-Submitted"] = "auto-generated"
    # Quoted-printable passes servers that take 7 bits only.
    message.set_content(texts.text, cte="quoted-printable")
    if texts.html is not None:
        message.add_alternative(texts.html, subtype="html", cte="quoted-printable")
    return message


def _parse_all(mail: Mail, addresses: Sequence[str]) -> list[Address]:
    return [parse_address(text, name=mail.names.get(text, "")) for text in addresses]
