"""/server/health: every part for administrators, and nothing but the status for others."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cms.config import Config, load
from cms.config.locations import Location
from cms.health import health as health_module
from cms.health.checks import Check, CheckResult, Part
from cms.health.health import Health
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.mail.server import mail_server
from tests.queues import QueueDatabase
from tests.smoke.running import free_port
from tests.sso.forger import running_forger


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture
def dsn(module_dsn: str) -> str:
    return module_dsn


@pytest.fixture
def config(config: Config, folder: Path) -> Config:
    return replace(config, locations=(Location("local", "local", str(folder)),))


def test_administrators_see_each_part_with_its_time(
    api: Client, anonymous: Client, folder: Path
) -> None:
    report = api.get("/server/health").data
    assert report.pop("status") == "ok"
    assert report.keys() == {"database", "queue", "storage"}
    for part in (report["database"], report["queue"], report["storage"]["local"]):
        assert part["status"] == "ok"
        assert 0 < part["ms"] < part["threshold_ms"]
    assert report["queue"].items() >= {"jobs": 0, "oldest_seconds": 0, "failed": 0}.items()
    assert list(folder.rglob("*.*")) == []
    assert anonymous.get("/server/health").data == {"status": "ok"}


def test_users_see_the_status_only(api: Client, anonymous: Client) -> None:
    role = api.post("/roles", {"name": "Editors"}).data["id"]
    api.post("/users", {"email": "e@example.com", "password": "a password", "role": role})
    user = anonymous.login("e@example.com", "a password")
    assert user.get("/server/health").data == {"status": "ok"}


def test_a_location_that_cannot_be_written_is_named_and_requests_are_still_served(
    api: Client, anonymous: Client, folder: Path
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("not a folder")
    report = api.get("/server/health").data
    assert report["status"] == "warn"
    assert report["storage"]["local"]["status"] == "error"
    assert '"local"' in report["storage"]["local"]["reason"]
    assert str(folder) not in str(report)
    assert report["database"]["status"] == "ok"
    assert anonymous.get("/server/health").data == {"status": "ok"}


def test_jobs_that_no_worker_runs_are_reported(
    queue: QueueDatabase, make_client: Callable[..., Client]
) -> None:
    queue.put("mail")
    queue.execute("UPDATE procrastinate_events SET at = at - interval '1 hour'")
    report = queue_report(make_client(database_url=queue.dsn).login(ADMIN_EMAIL, ADMIN_PASSWORD))
    assert (report["status"], report["reason"]) == ("warn", "Jobs wait and no worker runs")
    assert (report["jobs"], report["workers"]) == (1, 0)
    assert 3600 <= report["oldest_seconds"] < 3700
    queue.execute("INSERT INTO procrastinate_workers DEFAULT VALUES")
    report = queue_report(make_client(database_url=queue.dsn).login(ADMIN_EMAIL, ADMIN_PASSWORD))
    assert (report["status"], report["workers"]) == ("ok", 1)


def queue_report(client: Client) -> Any:
    return client.get("/server/health").data["queue"]


def test_the_mail_server_is_asked_and_gets_no_mail(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    with mail_server() as inbox:
        smtp = {
            "email_transport": "smtp",
            "email_smtp_host": "127.0.0.1",
            "email_smtp_ignore_tls": True,
        }
        client = make_client(**smtp, email_smtp_port=inbox.port).bearing(admin_token)
        assert client.get("/server/health").data["mail"]["status"] == "ok"
        client = make_client(**smtp, email_smtp_port=free_port()).bearing(admin_token)
        report = client.get("/server/health").data
        assert inbox.mails == []
    assert (report["status"], report["mail"]["status"]) == ("warn", "error")
    assert "mail server" in report["mail"]["reason"]


def test_a_password_that_the_mail_server_does_not_take_is_not_shown(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    with mail_server() as inbox:
        client = make_client(
            email_transport="smtp",
            email_smtp_host="127.0.0.1",
            email_smtp_port=inbox.port,
            email_smtp_ignore_tls=True,
            email_smtp_user="cms",
            email_smtp_password="hunter2",
        ).bearing(admin_token)
        answer = client.get("/server/health")
    assert answer.data["mail"]["status"] == "error"
    assert "hunter2" not in answer.text


def test_login_providers_are_asked_for_what_is_public(
    make_client: Callable[..., Client], admin_token: str, tmp_path: Path
) -> None:
    with running_forger() as forger:
        url = f"http://127.0.0.1:{free_port()}/.well-known/openid-configuration"
        settings = {
            "AUTH_PROVIDERS": "there,away,github",
            **forger.settings("there"),
            **forger.settings("away", issuer_url=url),
            **forger.settings("github", driver="oauth2", issuer_url=""),
            "AUTH_GITHUB_AUTHORIZE_URL": "https://example.com/a",
            "AUTH_GITHUB_ACCESS_URL": "https://example.com/b",
            "AUTH_GITHUB_PROFILE_URL": "https://example.com/c",
        }
        providers = load(settings, folder=tmp_path).providers
        client = make_client(providers=providers).bearing(admin_token)
        report = client.get("/server/health").data
        asked = dict(forger.requests)
    assert report["providers"].keys() == {"there", "away"}
    assert report["providers"]["there"]["status"] == "ok"
    assert report["providers"]["away"]["status"] == "error"
    assert report["status"] == "warn"
    assert "/token" not in asked


class Counted:
    """A check that counts how often it runs, and waits as the test wants it."""

    def __init__(
        self, warning: str | None = None, *, wait: Callable[[], object] = lambda: None
    ) -> None:
        self.times = 0
        self._wait = wait
        self._warning = warning

    def __call__(self) -> CheckResult:
        self.times += 1
        self._wait()
        return CheckResult(warning=self._warning)


def health_of(**checks: Counted) -> Health:
    parts = [Part("parts", name, Check(check, 1000)) for name, check in checks.items()]
    return Health(Check(Counted(), 1000), parts)


def all_parts(health: Health) -> Any:
    return health.all_parts(health.database())


def test_parts_are_asked_at_once_and_once_for_all_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health_module, "MAX_SECONDS", 60)
    together = threading.Barrier(10)  # one after the other would never pass it
    checks = {f"part_{number}": Counted(wait=partial(together.wait, 30)) for number in range(10)}
    health = health_of(**checks)
    with ThreadPoolExecutor(20) as pool:
        reports = list(pool.map(lambda _: all_parts(health), range(40)))
    assert {report["status"] for report in reports} == {"ok"}
    assert {check.times for check in checks.values()} == {1}


def test_a_part_that_hangs_is_reported_in_time_and_the_others_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health_module, "MAX_SECONDS", 0.2)
    may_end = threading.Event()
    hanging = Counted(wait=partial(may_end.wait, 30))
    health = health_of(hanging=hanging, good=Counted())
    for _ in range(3):
        report = all_parts(health)
        assert report["status"] == "warn"
        assert report["parts"]["good"]["status"] == "ok"
        assert report["parts"]["hanging"] == {
            "status": "error",
            "reason": "It has not answered within 0.2 seconds",
        }
    may_end.set()
    assert hanging.times == 1


def test_a_slow_part_is_a_warning(anonymous: Client) -> None:
    health = Health(
        Check(Counted(), 1000),
        [
            Part("slow", None, Check(Counted(), -1)),
            Part("odd", None, Check(Counted("x"), -1)),
        ],
    )
    report = all_parts(health)
    assert (report["slow"]["status"], report["slow"]["reason"]) == ("warn", "It answers slowly")
    assert (report["odd"]["status"], report["odd"]["reason"]) == ("warn", "x")


def test_an_unexpected_error_of_a_check_is_not_shown() -> None:
    def fail() -> CheckResult:
        raise ZeroDivisionError("a secret")

    health = Health(Check(Counted(), 1000), [Part("part", None, Check(fail, 1000))])
    report = all_parts(health)
    assert report["part"]["status"] == "error"
    assert "a secret" not in str(report)
