"""Mails reach a real mail server: over TLS, after it was away, once, and
with nothing in them that nobody wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trustme

from cms.cli.worker import tasks_of
from cms.errors import Refused
from cms.mail.mail_queue import Mail, post
from tests.mail.server import Inbox, mail_server, server_context
from tests.queues import QueueDatabase
from tests.smoke.running import free_port

PLAIN = {"email_transport": "smtp", "email_smtp_host": "127.0.0.1", "email_smtp_ignore_tls": True}
SECURED = PLAIN | {
    "email_smtp_ignore_tls": False,
    "email_smtp_user": "cms",
    "email_smtp_password": "right",
}


@dataclass(frozen=True)
class Mailer:
    """Posts mails and runs the worker's side of it."""

    queue: QueueDatabase
    settings: dict[str, object]

    def post(self, mail: Mail) -> None:
        with self.queue.database.transaction() as transaction:
            post(transaction.execute, mail)

    def work(self, **changes: object) -> None:
        settings = {**self.settings, **changes}
        config = replace(self.queue.config, **settings)  # type: ignore[arg-type]
        self.queue.drain(*tasks_of(config, self.queue.database))

    def send(self, mail: Mail, **changes: object) -> None:
        self.post(mail)
        self.work(**changes)


@pytest.fixture(scope="module")
def server() -> Iterator[Inbox]:
    with mail_server() as inbox:
        yield inbox


@pytest.fixture
def inbox(server: Inbox) -> Inbox:
    server.mails.clear()
    server.refuse.clear()
    return server


@pytest.fixture
def mailer(queue: QueueDatabase, inbox: Inbox) -> Mailer:
    return Mailer(queue, PLAIN | {"email_smtp_port": inbox.port, "email_from": "cms@example.com"})


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> Iterator[trustme.CA]:
    """An authority that this machine trusts while the test runs."""
    with authority.cert_pem.tempfile() as path:
        monkeypatch.setenv("SSL_CERT_FILE", path)
        yield authority


MAIL = Mail(["ann@example.com"], subject="Hello", body="Dear **Ann**")


# What is sent


def test_a_mail_has_its_headers_and_both_texts(mailer: Mailer, inbox: Inbox) -> None:
    mailer.send(
        replace(
            MAIL, cc=["bob@example.com"], bcc=["eve@example.com"], reply_to=["desk@example.com"]
        )
    )
    mail = inbox.only()
    message = inbox.only().message
    assert mail.sender == "cms@example.com"
    assert mail.recipients == ["ann@example.com", "bob@example.com", "eve@example.com"]
    received = {
        name: message[name]
        for name in ("From", "To", "Cc", "Bcc", "Reply-To", "Subject", "Auto-Submitted")
    }
    assert received == {
        "From": "CMS <cms@example.com>",
        "To": "ann@example.com",
        "Cc": "bob@example.com",
        "Bcc": None,
        "Reply-To": "desk@example.com",
        "Subject": "Hello",
        "Auto-Submitted": "auto-generated",
    }
    assert mail.part("plain") == "Dear **Ann**"
    assert "<p>Dear <strong>Ann</strong></p>" in mail.part("html")
    assert "eve@example.com" not in mail.raw.decode()


def test_a_mail_of_a_write_that_is_rolled_back_is_never_sent(mailer: Mailer, inbox: Inbox) -> None:
    def write() -> None:
        with mailer.queue.database.transaction() as transaction:
            post(transaction.execute, MAIL)
            raise ValueError("nothing of it")

    with pytest.raises(ValueError, match="nothing of it"):
        write()
    mailer.work()
    assert inbox.mails == []


def test_names_and_texts_of_every_language_arrive_as_they_are(mailer: Mailer, inbox: Inbox) -> None:
    body = "Ελλάδα " * 40
    mail = Mail(["ann@bücher.example"], subject="Grüße — 東京 🚀", body=body, kind="text")
    mailer.send(mail, email_from="Zoë, “東京” <cms@example.com>")
    received = inbox.only()
    assert received.recipients == ["ann@xn--bcher-kva.example"]
    assert received.raw.isascii()
    assert received.message["Subject"] == "Grüße — 東京 🚀"
    assert received.message["From"].addresses[0].display_name == "Zoë, “東京”"
    assert received.part("plain") == ("Ελλάδα " * 40).strip()
    assert received.message.get_body(("html",)) is None


def test_an_address_that_only_newer_servers_take_reaches_one(mailer: Mailer, inbox: Inbox) -> None:
    mailer.send(replace(MAIL, to=["zoë@example.com"]))
    assert inbox.only().recipients == ["zoë@example.com"]


@pytest.mark.quick(3)
@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\r\n\r\n", "\x85", "\u2028", "\x0b"])
def test_nothing_begins_a_header_of_its_own(mailer: Mailer, inbox: Inbox, end: str) -> None:
    text = f"Hello{end}Bcc: eve@example.com"
    mailer.send(replace(MAIL, subject=text), email_from=f"{text} <cms@example.com>")
    message = inbox.only().message
    assert message["Bcc"] is None
    assert message["Subject"] == message["From"].addresses[0].display_name == " ".join(text.split())
    assert inbox.only().recipients == ["ann@example.com"]
    assert inbox.only().part("plain") == "Dear **Ann**"


NO_ADDRESSES = [
    "ann@example.com\r\nBcc: eve@example.com",
    "ann@example.com\n",
    "ann@example.com, eve@example.com",
    "Ann <ann@example.com>",
    "ann",
    "ann@",
    "@example.com",
    "ann@exa mple.com",
    "ann@a@b",
    '"ann"@example.com',
    "ann@bü..example",
    "",
]


@pytest.mark.parametrize("field", ["to", "cc", "bcc", "reply_to"])
def test_what_is_no_address_is_refused_before_anything_is_done(mailer: Mailer, field: str) -> None:
    for address in NO_ADDRESSES:
        with pytest.raises(Refused) as refused:
            mailer.post(replace(MAIL, **{field: [address]}))  # type: ignore[arg-type]
        assert refused.value.problems[0].code == "INVALID_PAYLOAD"
        assert refused.value.problems[0].extensions["field"] == field
    assert mailer.queue.jobs() == []


def test_a_mail_to_nobody_is_refused(mailer: Mailer) -> None:
    with pytest.raises(Refused, match="needs a recipient"):
        mailer.post(replace(MAIL, to=[]))


@pytest.mark.parametrize("name", ["../secret", "a/b", "", ".", "a.html", "x" * 65])
def test_the_name_of_a_template_leads_nowhere_else(mailer: Mailer, name: str) -> None:
    with pytest.raises(Refused, match="template"):
        mailer.post(replace(MAIL, template=name))


# TLS


def test_starttls_and_a_login(mailer: Mailer, trusted: trustme.CA) -> None:
    with mail_server(tls=server_context(trusted, "127.0.0.1")) as inbox:
        mailer.send(MAIL, **SECURED, email_smtp_port=inbox.port)
        assert len(inbox.mails) == 1
        assert inbox.logins == [(b"cms", b"right")]


def test_tls_from_the_first_byte(mailer: Mailer, trusted: trustme.CA) -> None:
    with mail_server(tls=server_context(trusted, "127.0.0.1"), implicit=True) as inbox:
        mailer.send(MAIL, **SECURED, email_smtp_port=inbox.port, email_smtp_secure=True)
        assert len(inbox.mails) == 1


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("name", ["127.0.0.1", "another.example"])
def test_a_server_whose_certificate_does_not_hold_gets_neither_password_nor_letter(
    mailer: Mailer,
    authority: trustme.CA,
    name: str,
    *,
    implicit: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if name == "another.example":
        with authority.cert_pem.tempfile() as path:
            monkeypatch.setenv("SSL_CERT_FILE", path)
            _refused_by_us(mailer, authority, name, implicit=implicit)
    else:
        _refused_by_us(mailer, authority, name, implicit=implicit)


def _refused_by_us(mailer: Mailer, authority: trustme.CA, name: str, *, implicit: bool) -> None:
    with mail_server(tls=server_context(authority, name), implicit=implicit) as inbox:
        mailer.send(MAIL, **SECURED, email_smtp_port=inbox.port, email_smtp_secure=implicit)
        assert (inbox.mails, inbox.logins) == ([], [])
    assert mailer.queue.jobs() == [("mail", "todo", 1)]


def test_a_server_without_tls_gets_nothing_unless_a_setting_allows_it(
    mailer: Mailer, inbox: Inbox
) -> None:
    mailer.send(MAIL, email_smtp_ignore_tls=False)
    assert inbox.mails == []
    assert mailer.queue.jobs() == [("mail", "todo", 1)]
    mailer.queue.make_due()
    mailer.work()
    assert len(inbox.mails) == 1


def test_a_wrong_password_is_reported_without_it(
    mailer: Mailer, trusted: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    with mail_server(tls=server_context(trusted, "127.0.0.1")) as inbox:
        mailer.send(
            MAIL, **(SECURED | {"email_smtp_password": "s3cret"}), email_smtp_port=inbox.port
        )
    assert "takes neither EMAIL_SMTP_USER nor its password" in caplog.text
    assert "s3cret" not in caplog.text
    assert mailer.queue.jobs() == [("mail", "todo", 1)]


# What goes wrong


def test_a_mail_waits_for_a_server_that_is_away_and_is_then_sent_once(mailer: Mailer) -> None:
    port = free_port()
    mailer.send(MAIL, email_smtp_port=port)
    assert mailer.queue.jobs() == [("mail", "todo", 1)]
    mailer.queue.make_due()
    with mail_server(port=port) as inbox:
        mailer.work(email_smtp_port=port)
        mailer.work(email_smtp_port=port)
        assert len(inbox.mails) == 1
    assert mailer.queue.jobs() == []


def test_each_attempt_has_the_same_message_id(mailer: Mailer, inbox: Inbox) -> None:
    mailer.post(MAIL)
    ((payload,),) = mailer.queue.execute(
        "SELECT args -> 'payload' ->> 'id' FROM procrastinate_jobs"
    )
    mailer.work()
    assert inbox.only().message["Message-ID"] == f"<{payload}@example.com>"


@pytest.mark.quick(2)
@pytest.mark.parametrize("address", ["ann@example.com", "data"])
@pytest.mark.parametrize(
    ("answer", "left"), [("550 5.1.1 nobody here", "failed"), ("451 4.3.2 not now", "todo")]
)
def test_a_refusal_for_good_ends_it_and_one_for_now_does_not(
    mailer: Mailer,
    inbox: Inbox,
    caplog: pytest.LogCaptureFixture,
    address: str,
    answer: str,
    left: str,
) -> None:
    inbox.refuse[address] = answer
    mailer.send(MAIL)
    assert mailer.queue.jobs() == [("mail", left, 1)]
    assert answer[4:] in caplog.text


def test_a_mail_that_some_recipients_do_not_get_is_not_sent_again_to_the_others(
    mailer: Mailer, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    inbox.refuse["bob@example.com"] = "550 5.1.1 nobody here"
    mailer.send(replace(MAIL, cc=["bob@example.com"]))
    assert inbox.only().recipients == ["ann@example.com"]
    assert "took a mail, but not for bob@example.com (550 5.1.1 nobody here)" in caplog.text
    assert mailer.queue.jobs() == []


# Without a server


def test_without_a_mail_server_the_log_has_the_mail_with_its_link(
    mailer: Mailer, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cms")
    mail = Mail(
        ["ann@example.com"], "password-reset", {"url": "http://localhost/reset?token=t0ken"}
    )
    mailer.send(mail, email_transport="log")
    assert "mail to ann@example.com: Your password for CMS" in caplog.text
    assert " | http://localhost/reset?token=t0ken | " in caplog.text
    assert inbox.mails == []


def test_with_a_mail_server_no_link_comes_into_the_log(
    mailer: Mailer, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    inbox.refuse["ann@example.com"] = "451 4.3.2 not now"
    mail = Mail(
        ["ann@example.com"], "password-reset", {"url": "http://localhost/reset?token=t0ken"}
    )
    mailer.send(mail)
    inbox.refuse.clear()
    mailer.queue.make_due()
    mailer.work()
    assert "t0ken" in inbox.only().part("plain")
    ours = [
        record
        for record in caplog.records
        if record.name.startswith(("cms", "procrastinate", "psycopg"))
    ]
    assert "t0ken" not in "".join(f"{record.getMessage()} {record.__dict__}" for record in ours)


# Templates


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "name", ["password-reset", "user-invitation", "user-registration", "share"]
)
def test_a_template_of_the_service_shows_link_name_and_colour(
    mailer: Mailer, inbox: Inbox, name: str
) -> None:
    mailer.queue.execute(
        "UPDATE system_settings SET project_name = 'Ann & <Bob>', project_color = '#AA1122'"
    )
    url = "https://cms.example/x?a=1&b=<2>"
    mailer.send(Mail(["ann@example.com"], name, {"url": url}))
    mailer.queue.execute(
        "UPDATE system_settings SET project_name = DEFAULT, project_color = DEFAULT"
    )
    mail = inbox.only()
    assert "Ann & <Bob>" in mail.message["Subject"]
    assert mail.message["From"].addresses[0].display_name == "Ann & <Bob>"
    assert url in mail.part("plain").splitlines()
    assert 'href="https://cms.example/x?a=1&amp;b=&lt;2&gt;"' in mail.part("html")
    assert "Ann &amp; &lt;Bob&gt;" in mail.part("html")
    assert "#AA1122" in mail.part("html")
    assert "<Bob>" not in mail.part("html")


def test_files_of_the_operator_go_before_those_of_the_service(
    mailer: Mailer, inbox: Inbox, tmp_path: Path
) -> None:
    folder = tmp_path / "templates"
    folder.mkdir()
    (folder / "password-reset.subject.txt").write_text("{{ project_name }}: neues Passwort\n")
    (folder / "password-reset.html").write_text(
        '{% extends "base.html" %}{% block content %}Hier: {{ url }}{% endblock %}'
    )
    (folder / "base.html").write_text("<main>{% block content %}{% endblock %}</main>")
    mailer.send(Mail(["ann@example.com"], "password-reset", {"url": "<u>"}), data_dir=tmp_path)
    mail = inbox.only()
    assert mail.message["Subject"] == "CMS: neues Passwort"
    assert mail.part("html") == "<main>Hier: &lt;u&gt;</main>"
    assert "Somebody asked for a new password" in mail.part("plain")


def test_a_template_of_the_operator_alone_needs_one_file(
    mailer: Mailer, inbox: Inbox, tmp_path: Path
) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "order.html").write_text(
        '<p>Thanks, {{ name }}.</p><p><a href="{{ url }}">Track</a></p>'
    )
    data = {"name": "Ann", "url": "https://shop.example/1"}
    mailer.send(Mail(["ann@example.com"], "order", data, subject="Your order"), data_dir=tmp_path)
    assert inbox.only().message["Subject"] == "Your order"
    assert inbox.only().part("plain") == "Thanks, Ann.\n\nTrack (https://shop.example/1)"


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ url", "unexpected end of template"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__'"),
        ("{{ url.no.such }}", "'url' is undefined"),
    ],
)
def test_a_template_that_is_wrong_is_reported_and_waits_to_be_mended(
    mailer: Mailer,
    inbox: Inbox,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    text: str,
    message: str,
) -> None:
    (tmp_path / "templates").mkdir()
    broken = tmp_path / "templates" / "order.txt"
    broken.write_text(text)
    mailer.send(Mail(["ann@example.com"], "order", subject="Your order"), data_dir=tmp_path)
    assert message in caplog.text
    broken.write_text("mended")
    mailer.queue.make_due()
    mailer.work(data_dir=tmp_path)
    assert inbox.only().part("plain") == "mended"


def test_a_template_that_is_missing_is_reported_and_waits_to_be_put_back(
    mailer: Mailer, inbox: Inbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mailer.send(Mail(["ann@example.com"], "digest", subject="Today"), data_dir=tmp_path)
    assert "There is no mail template named digest" in caplog.text
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "digest.txt").write_text("put back")
    mailer.queue.make_due()
    mailer.work(data_dir=tmp_path)
    assert inbox.only().part("plain") == "put back"


# Bodies


def test_a_body_in_markdown_becomes_html_and_brings_none_of_its_own(
    mailer: Mailer, inbox: Inbox
) -> None:
    body = "[a](https://x.example) [b](javascript:alert(1)) <script>"
    mailer.send(replace(MAIL, body=body))
    assert inbox.only().part("plain") == body
    assert (
        '<a href="https://x.example">a</a> [b](javascript:alert(1)) &lt;script&gt;'
        in inbox.only().part("html")
    )


def test_a_body_in_html_is_read_as_text_too(mailer: Mailer, inbox: Inbox) -> None:
    body = "<h1>Hi</h1><p>a<br>b &amp; c</p><style>p {}</style>"
    mailer.send(replace(MAIL, body=body, kind="html"))
    assert inbox.only().part("plain") == "Hi\n\na\nb & c"
    assert body in inbox.only().part("html")


def test_a_body_is_no_template(mailer: Mailer, inbox: Inbox) -> None:
    mailer.send(replace(MAIL, body="{{ 7 * 7 }} {% include 'base.html' %}", subject="{{ 7 * 7 }}"))
    assert "{{ 7 * 7 }}" in inbox.only().part("plain")
    assert inbox.only().message["Subject"] == "{{ 7 * 7 }}"
