"""Marked secrets go into the service by every way there is; nothing
that it writes holds one of them.

What is shown once to whoever it belongs to (tokens at a login, a new second factor) and
what has to be kept as it is (the second factor, a mail's link in its job) is named
in `PLANTED`; anywhere else it is a leak.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pyotp
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from cms.app import create_app
from cms.cli import cms
from cms.cli.worker import tasks_of
from cms.config import Config, load
from cms.database.connections import Database
from cms.jobs.job_worker import drain
from cms.logs import JsonFormatter, start_logging
from tests import things
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Answer, Client
from tests.databases import SideDoor, drop_database
from tests.members import member
from tests.things import Stage
from tests.things import field as column

ENVIRONMENT = {
    "SECRET": "marked-secret-of-the-installation",
    "ADMIN_PASSWORD": "marked-admin-password",
    "EMAIL_SMTP_PASSWORD": "marked-smtp-password",
    "STORAGE_BUCKET_KEY": "marked-bucket-key",
    "STORAGE_BUCKET_SECRET": "marked-bucket-secret",
}
DATABASE_PASSWORD = "marked-database-password"
USER_PASSWORD = "marked-user-password"
NEW_PASSWORD = "marked-new-password"
WRONG_PASSWORD = "marked-wrong-password"
STATIC_TOKEN = "marked-static-token"
HASHED = "marked-hash-value"
CONCEALED = "marked-concealed-value"
AUTH_DATA = "marked-auth-data"
FORGED = "marked-forged-token"
IDEMPOTENCY_KEY = "marked-idempotency-key"
MISPLACED = "marked-misplaced-password"
EMAIL = "somebody@example.com"


@dataclass(frozen=True)
class Secret:
    """A value, the paths whose answers hold it, and the tables (or columns) that have to hold
    it.
    """

    value: str
    answered_at: tuple[str, ...] = ()
    kept_in: tuple[str, ...] = ()


PLANTED = [
    *(Secret(value) for value in (*ENVIRONMENT.values(), DATABASE_PASSWORD, ADMIN_PASSWORD)),
    *(
        Secret(value)
        for value in (USER_PASSWORD, NEW_PASSWORD, WRONG_PASSWORD, STATIC_TOKEN, HASHED)
    ),
    *(Secret(value) for value in (FORGED, IDEMPOTENCY_KEY, MISPLACED)),
    Secret(CONCEALED, kept_in=("safes.concealed",)),
    Secret(AUTH_DATA, kept_in=("system_users.auth_data",)),
]


@dataclass
class Trail:
    """What the service has written: its log, its answers, its tables, and what its commands
    print.
    """

    log: str = ""
    answers: list[tuple[str, Answer]] = field(default_factory=list)
    cells: list[tuple[str, str]] = field(default_factory=list)
    printed: str = ""
    secrets: list[Secret] = field(default_factory=lambda: list(PLANTED))


class Recording(Client):
    """A client that keeps every answer."""

    trail: Trail

    def send(self, method: str, path: str, *args: object, **options: object) -> Answer:
        answer = super().send(method, path, *args, **options)  # type: ignore[arg-type]
        self.trail.answers.append((path, answer))
        return answer

    def bearing(self, token: str) -> Recording:
        return self.of(self.app, self.trail, token)

    @classmethod
    def of(cls, app: object, trail: Trail, token: str | None = None) -> Recording:
        recording = cls(app, token)  # type: ignore[arg-type]
        recording.trail = trail
        return recording


@contextmanager
def logged(config: Config) -> Iterator[io.StringIO]:
    """Catch what the log of a process at the level debug shows, in both
    styles, and what Python adds by itself.
    """
    names = ("cms", "psycopg", "procrastinate", "asyncio", "")
    text = io.StringIO()
    before = {
        name: (log.handlers[:], log.propagate, log.level)
        for name in names
        if (log := logging.getLogger(name))
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stderr", text)
        start_logging(config)
        as_json = logging.StreamHandler(text)
        last = logging.StreamHandler(text)
        as_json.setFormatter(JsonFormatter())
        last.setLevel(logging.WARNING)
        logging.getLogger("cms").addHandler(as_json)
        logging.getLogger().addHandler(last)
        try:
            yield text
        finally:
            for name, (handlers, propagate, level) in before.items():
                log = logging.getLogger(name)
                log.handlers[:] = handlers
                log.propagate = propagate
                log.setLevel(level)


@pytest.fixture(scope="module")
def trail(
    make_database: Callable[..., str], template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trail]:
    folder = tmp_path_factory.mktemp("secrets")
    dsn = make_database(template)
    trail = Trail()
    named = make_conninfo(dsn, password=DATABASE_PASSWORD)
    environ = {
        **ENVIRONMENT,
        "DATABASE_URL": named,
        "LOG_LEVEL": "debug",
        "RATE_LIMITER_ENABLED": "false",
        "EMAIL_TRANSPORT": "smtp",
        "EMAIL_SMTP_HOST": "127.0.0.1",
        "EMAIL_SMTP_PORT": "9",
        "EMAIL_SMTP_USER": "marked",
        "STORAGE_LOCATIONS": "local,bucket",
        "STORAGE_LOCAL_DRIVER": "local",
        "STORAGE_BUCKET_DRIVER": "s3",
        "STORAGE_BUCKET_BUCKET": "files",
        "STORAGE_BUCKET_ENDPOINT": "http://127.0.0.1:9",
    }
    config = replace(load(environ, folder=folder), database_pool_size=3)
    try:
        with logged(config) as log:
            drive(config, dsn, trail)
            command(environ, folder, trail)
            trail.log = log.getvalue()
        trail.cells = list(cells(dsn))
        yield trail
    finally:
        drop_database(dsn)


def drive(config: Config, dsn: str, trail: Trail) -> None:
    app = create_app(config)
    anonymous = Recording.of(app, trail)
    side_door = SideDoor(dsn)
    admin = anonymous.bearing(things.admin_token(config, dsn))
    stage = Stage(admin, anonymous, dsn, side_door)
    try:
        user = plant(stage)
        log_in(stage, trail)
        fail(stage, config, trail, user)
        look(stage, user)
        write_mails(stage, config, trail)
    finally:
        side_door.close()
        anonymous.close()


def plant(stage: Stage) -> str:
    """Make a user and a collection with secrets of every kind, and change them."""
    admin = stage.admin
    fields = [
        column("code", "hash"),
        column("concealed", "string", special="conceal"),
        column("name", "string"),
    ]
    assert (
        admin.post("/collections", {"collection": "safes", "schema": {}, "fields": fields}).status
        == 200
    )
    values = {"code": HASHED, "concealed": CONCEALED, "name": "first"}
    assert (
        admin.send("POST", "/items/safes", values, **{"Idempotency-Key": IDEMPOTENCY_KEY}).status
        == 200
    )
    assert admin.patch("/items/safes/1", {**values, "name": "second"}).status == 200
    body = {
        "email": EMAIL,
        "password": USER_PASSWORD,
        "token": STATIC_TOKEN,
        "auth_data": {"key": AUTH_DATA},
    }
    user = admin.send("POST", "/users", body, **{"Idempotency-Key": f"{IDEMPOTENCY_KEY}-2"}).data
    assert (
        admin.patch(f"/users/{user['id']}", {"token": STATIC_TOKEN, "first_name": "x"}).status
        == 200
    )
    return str(user["id"])


def log_in(stage: Stage, trail: Trail) -> None:
    """Use every kind of login, and set up a second factor."""
    anonymous = stage.anonymous
    paths = ("/auth/login", "/auth/refresh")
    for mode in ("json", "cookie", "session"):
        answer = anonymous.post(
            "/auth/login", {"email": EMAIL, "password": USER_PASSWORD, "mode": mode}
        )
        tokens = [answer.data.get("access_token"), answer.data.get("refresh_token")]
        tokens += [cookie.value for cookie in answer.cookies.values()]
        trail.secrets += [Secret(value, paths) for value in tokens if value]
    session = anonymous.post("/auth/login", {"email": EMAIL, "password": USER_PASSWORD}).data
    trail.secrets += [Secret(session[name], paths) for name in ("access_token", "refresh_token")]
    own = anonymous.bearing(session["access_token"])
    assert own.get("/users/me").status == 200
    factor = own.post("/users/me/tfa/generate", {"password": USER_PASSWORD}).data
    trail.secrets.append(
        Secret(factor["secret"], ("/users/me/tfa/generate",), ("system_users.tfa_secret",))
    )
    for code in ("000000", pyotp.TOTP(factor["secret"]).now()):
        own.post("/users/me/tfa/enable", {"secret": factor["secret"], "otp": code})
    codes = own.post("/users/me/tfa/recovery-codes", {"password": USER_PASSWORD}).data
    trail.secrets += [Secret(code, ("/users/me/tfa/recovery-codes",)) for code in codes]
    assert (
        anonymous.post(
            "/auth/login", {"email": EMAIL, "password": USER_PASSWORD, "otp": codes[0]}
        ).status
        == 200
    )
    again = anonymous.post("/auth/refresh", {"refresh_token": session["refresh_token"]}).data
    trail.secrets += [Secret(again[name], paths) for name in ("access_token", "refresh_token")]
    assert anonymous.post("/auth/logout", {"refresh_token": again["refresh_token"]}).status == 204


def fail(stage: Stage, config: Config, trail: Trail, user: str) -> None:
    """Have requests refused that hold secrets where they belong and where they do not."""
    admin = stage.admin
    anonymous = stage.anonymous
    nobody = member(stage)
    anonymous.post("/auth/login", {"email": EMAIL, "password": WRONG_PASSWORD})
    anonymous.post("/auth/login", {"email": "nobody@example.com", "password": WRONG_PASSWORD})
    anonymous.post("/auth/login", {"email": MISPLACED, "password": MISPLACED, "mode": MISPLACED})
    anonymous.post("/auth/refresh", {"refresh_token": FORGED})
    anonymous.post("/auth/password/reset", {"token": FORGED, "password": NEW_PASSWORD})
    anonymous.get("/users/register/verify-email", token=FORGED)
    for token in (FORGED, f"a.{FORGED}.b", f"{FORGED}.{FORGED}"):
        anonymous.bearing(token).get("/users/me")
        anonymous.send("GET", "/users/me", Cookie=f"cms_session_token={token}")
        anonymous.send("GET", "/users/me", Authorization=f"Basic {token}")
    for caller in (admin, nobody):
        for body in (
            {"email": MISPLACED},
            {"email": EMAIL, "password": NEW_PASSWORD},
            {"email": "x@example.com", "status": MISPLACED},
            {"email": "x@example.com", "role": MISPLACED},
            {"email": "x@example.com", "avatar": MISPLACED},
            {"email": "x@example.com", "token": {"x": MISPLACED}},
            {"email": "x@example.com", "password": [MISPLACED]},
            {"email": "x@example.com", "password": MISPLACED * 100},
            {"email": "x@example.com", "tfa_secret": MISPLACED},
            {"email": "x@example.com", "id": MISPLACED},
            {"password": MISPLACED},
            [MISPLACED],
        ):
            caller.post("/users", body)
            caller.patch(f"/users/{user}", body)
            caller.post(
                "/batch", [{"method": "create", "collection": "system_users", "data": body}]
            )
        caller.post(
            "/users/invite", {"email": MISPLACED, "role": "5f6f9b1a-0000-4000-8000-000000000000"}
        )
        caller.post(
            "/items/safes",
            {"code": [MISPLACED], "concealed": {"x": MISPLACED}, "name": {"x": MISPLACED}},
        )
        caller.get("/items/safes", **{"filter[code][_eq]": MISPLACED})
        caller.get("/items/safes", **{"filter[id]": MISPLACED})
        caller.post("/files", {"filename_download": "x", "data": "eA==", "storage": "bucket"})
    admin.send("POST", "/users", raw=f'{{"password": "{MISPLACED}", '.encode())
    break_a_table(stage)
    lose_the_database(config, trail)


def break_a_table(stage: Stage) -> None:
    """Have a table refuse rows as nobody has foreseen, telling all that is in them."""
    stage.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'broken' USING ERRCODE = TG_ARGV[0], DETAIL = NEW::text, HINT = "
        "NEW::text; END $$"
    )
    for code in ("XX000", "22000", "23514", "23505", "0A000", "53100", "57014"):
        stage.execute(
            f"CREATE TRIGGER broken BEFORE INSERT ON safes FOR EACH ROW EXECUTE FUNCTION "
            f"fail('{code}')"
        )
        assert (
            stage.admin.post("/items/safes", {"concealed": CONCEALED, "code": HASHED}).status >= 400
        )
        assert stage.admin.post("/items/safes", {"concealed": CONCEALED, "name": "x"}).status >= 400
        stage.execute("DROP TRIGGER broken ON safes")


def lose_the_database(config: Config, trail: Trail) -> None:
    """Ask a process whose database does not answer, or whose address is none."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cms.database.connections._BORROW_SECONDS", 0.2)
        for address in (
            f"host=/nowhere password={DATABASE_PASSWORD}",
            f"postgresql://u:{DATABASE_PASSWORD}%zz@h/db",
        ):
            lost = Recording.of(create_app(replace(config, database_url=address)), trail)
            for path in ("/server/health", "/items/safes", "/users/me"):
                assert lost.get(path).status >= 401
            lost.close()


def look(stage: Stage, user: str) -> None:
    """Read everything that there is to read, in every form."""
    admin = stage.admin
    for path in (
        "/users",
        "/items/safes",
        "/activity",
        "/revisions",
        "/settings",
        "/files",
        "/permissions",
        "/roles",
    ):
        admin.get(path, limit=-1, fields="*.*")
        admin.search(path, {"search": CONCEALED[:10]}) if path == "/items/safes" else None
        for form in ("csv", "json", "jsonl", "xml", "yaml"):
            admin.get(path, limit=-1, export=form)
    admin.get("/items/safes/1/revisions")
    admin.get("/revisions", fields="data,delta", **{"filter[collection]": "system_users"})
    admin.post("/utils/revert/1")
    admin.get(f"/users/{user}", fields="*.*")
    for path in (
        "/server/health",
        "/server/info",
        "/server/ping",
        "/collections",
        "/fields",
        "/permissions/me",
    ):
        admin.get(path)
        stage.anonymous.get(path)
    admin.get("/utils/explain?path=/users")
    admin.get(f"/utils/explain?user={user}&path=/items/safes")
    admin.get(f"/permissions/explain?user={user}&collection=safes&action=read")


def write_mails(stage: Stage, config: Config, trail: Trail) -> None:
    """Have mails written that no server takes, and used."""
    role = stage.admin.post("/roles", {"name": "Guests"}).data["id"]
    assert stage.admin.patch("/settings", {"public_registration": True}).status == 200
    assert stage.anonymous.post("/auth/password/request", {"email": EMAIL}).status == 204
    assert (
        stage.admin.post("/users/invite", {"email": "guest@example.com", "role": role}).status
        == 204
    )
    registered = {"email": "new@example.com", "password": NEW_PASSWORD}
    assert stage.anonymous.post("/users/register", registered).status == 204
    with psycopg.connect(stage.dsn) as connection:
        links = [
            row[0]
            for row in connection.execute(
                "SELECT args #>> '{payload,data,url}' FROM procrastinate_jobs"
            )
        ]
    tokens = [parse_qs(urlsplit(link).query)["token"][0] for link in links]
    assert len(tokens) == 3
    trail.secrets += [Secret(token, kept_in=("procrastinate_jobs.args",)) for token in tokens]
    database = Database(config)
    try:
        drain(config, database, tasks_of(config, database))
    finally:
        database.close()
    for token in tokens:
        for path in ("/auth/password/reset", "/users/invite/accept"):
            stage.anonymous.post(path, {"token": token, "password": NEW_PASSWORD})
        stage.anonymous.get("/users/register/verify-email", token=token)


def command(environ: dict[str, str], folder: Path, trail: Trail) -> None:
    broken = {**environ, "DATABASE_URL": f"postgresql://u:{DATABASE_PASSWORD}%zz@h/db"}
    away = {**environ, "DATABASE_URL": f"postgresql://u:{DATABASE_PASSWORD}@127.0.0.1:9/db"}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for variables in (environ, broken, away):
            for words in (["config"], ["doctor"], ["migrate"], ["user", "token", "--email", EMAIL]):
                result = CliRunner().invoke(cms, words, env=variables)
                trail.printed += result.output + repr(result.exception)


def cells(dsn: str) -> Iterator[tuple[str, str]]:
    """Yield every value of every row of every table, with the name of table and column."""
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', "
            "'p') AND NOT relispartition"
        ).fetchall()
        for (table,) in tables:
            query = (
                f'SELECT d.key, d.value FROM "{table}" AS t, jsonb_each_text(to_jsonb(t)) AS d '
                "WHERE d.value <> $$$$"
            )
            for name, value in connection.execute(query.encode()).fetchall():
                text = (
                    bytes.fromhex(value[2:]).decode(errors="replace")
                    if value.startswith("\\x")
                    else value
                )
                yield f"{table}.{name}", text


def test_the_service_was_driven_everywhere(trail: Trail) -> None:
    statuses = {answer.status for _, answer in trail.answers}
    assert statuses >= {200, 204, 400, 401, 403, 422, 500, 503}
    assert "unexpected fault" in trail.log
    assert "of mail failed at attempt 1" in trail.log
    assert f"mail: {ADMIN_EMAIL}" not in trail.printed
    assert len(trail.secrets) > len(PLANTED) + 20
    assert {"system_revisions.data", "system_activity.action", "system_idempotency.answer"} <= {
        n for n, _ in trail.cells
    }


def test_no_secret_is_in_the_log(trail: Trail) -> None:
    assert [secret for secret in trail.secrets if secret.value in trail.log] == []


def test_no_secret_is_in_an_answer_but_the_one_that_gives_it(trail: Trail) -> None:
    leaks = [
        (secret.value, path, answer.text)
        for secret in trail.secrets
        for path, answer in trail.answers
        if secret.value in f"{answer.text}{answer.headers}" and path not in secret.answered_at
    ]
    assert leaks == []


def test_no_secret_is_in_a_table_but_where_it_has_to_be(trail: Trail) -> None:
    leaks = [
        (secret.value, cell, value)
        for secret in trail.secrets
        for cell, value in trail.cells
        if secret.value in value and cell not in secret.kept_in
    ]
    assert leaks == []


def test_no_command_prints_a_secret(trail: Trail) -> None:
    assert [secret for secret in trail.secrets if secret.value in trail.printed] == []
