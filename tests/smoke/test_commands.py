"""The command line beside `serve`: what it does, what it prints, what it keeps secret."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cms.embedded.lifetime import EmbeddedServer, start
from tests.smoke.running import (
    TIMEOUT_SECONDS,
    command,
    command_apart,
    environment,
    free_port,
    new_folder,
)

pytestmark = pytest.mark.slow

PASSWORD = re.compile(r"with the password (\S+) ")
FLOW = "00000000-0000-4000-8000-000000000000"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\n")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[EmbeddedServer]:
    """The folder's server, which the commands join: each of them is
    quicker than if it had to start it.
    """
    with start(folder / "data", settings={"fsync": "off"}) as embedded:
        yield embedded


@pytest.fixture(scope="module")
def ready(folder: Path, server: EmbeddedServer) -> Path:
    """A folder with a database that was migrated and has an admin."""
    assert command(folder, "bootstrap").returncode == 0
    return folder


def database(server: EmbeddedServer, name: str, *, options: str = "") -> str:
    """Make a database on the server and return its address."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 {options}".encode())
    return make_conninfo(server.dsn, dbname=name)


def test_a_database_is_migrated_once(folder: Path, server: EmbeddedServer) -> None:
    address = database(server, "to_migrate")
    first = command(folder, "migrate", DATABASE_URL=address)
    assert (first.returncode, first.stdout.splitlines()[0]) == (0, "Applied 0001_system_tables.")
    second = command(folder, "migrate", DATABASE_URL=address)
    assert (second.returncode, second.stdout) == (0, "The database is up to date.\n")


def test_bootstrap_makes_the_first_admin_and_no_second_one(
    folder: Path, server: EmbeddedServer
) -> None:
    address = database(server, "to_bootstrap")
    first = command(folder, "bootstrap", DATABASE_URL=address)
    assert first.returncode == 0
    assert len(PASSWORD.findall(first.stdout)) == 1
    second = command(folder, "bootstrap", DATABASE_URL=address)
    assert (second.returncode, second.stdout) == (0, "The database is ready.\n")


def test_a_user_is_made_with_a_role_and_a_password_that_nobody_sees(ready: Path) -> None:
    words = ("user", "create", "--email", "ann@example.com", "--role", "Administrator")
    result = command(ready, *words, CMS_USER_PASSWORD="correct horse battery")
    assert result.returncode == 0
    assert UUID.fullmatch(result.stdout)


def test_a_user_who_logs_in_elsewhere_needs_no_password(ready: Path) -> None:
    words = ("user", "create", "--email", "eve@example.com", "--no-password")
    result = command(ready, *words)
    assert result.returncode == 0
    assert UUID.fullmatch(result.stdout)


def test_what_is_refused_is_reported_in_a_sentence(ready: Path) -> None:
    words = ("user", "create", "--email", "bob@example.com", "--role", "no such role")
    refused = command(ready, *words, CMS_USER_PASSWORD="correct horse battery")
    assert refused.returncode == 1
    assert refused.stdout.startswith("Error: ")
    assert len(refused.stdout.splitlines()) == 1


def test_a_password_is_set_without_being_shown(ready: Path, server: EmbeddedServer) -> None:
    result = command(
        ready, "user", "password", "--email", "admin@example.com", CMS_USER_PASSWORD="a new one"
    )
    assert (result.returncode, result.stdout) == (0, "admin@example.com has a new password.\n")
    with psycopg.connect(server.dsn) as connection:
        row = connection.execute(
            "SELECT password FROM system_users WHERE email = 'admin@example.com'"
        ).fetchone()
    assert row
    assert row[0].startswith("$argon2id$v=19$m=19456,t=2,p=1$")


def test_a_token_is_printed_and_nothing_else(ready: Path) -> None:
    result = command(ready, "user", "token", "--email", "admin@example.com")
    assert result.returncode == 0
    assert re.fullmatch(r"\S{32,}\n", result.stdout)


def test_what_is_announced_does_not_mix_with_what_is_printed() -> None:
    with new_folder() as fresh:
        result = command_apart(fresh, "migrate")
        assert result.returncode == 0
        assert "A new database is made in " in result.stderr
        assert result.stdout.startswith("Applied 0001_system_tables.\n")
        assert "A new database" not in result.stdout


USER = ("--email", "admin@example.com")


COMMANDS = [
    ("demo",),
    ("user", "create", *USER),
    ("user", "password", *USER),
    ("user", "token", *USER),
    ("flows", "list"),
    ("flows", "run", FLOW),
]
"""Commands that work on the data of a service."""


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_that_works_on_data_makes_no_database(words: tuple[str, ...]) -> None:
    with new_folder() as fresh:
        refused = command(fresh, *words, CMS_USER_PASSWORD="correct horse battery")
        assert refused.returncode == 1
        assert refused.stdout.startswith("Error: There is no database in ")
        assert "`cms serve`" in refused.stdout
        assert list(fresh.iterdir()) == []


def test_the_doctor_reports_a_missing_database_and_makes_none() -> None:
    with new_folder() as fresh:
        result = command(fresh, "doctor")
        assert result.returncode == 0
        assert "warning  database: There is no database in " in result.stdout
        assert list(fresh.iterdir()) == []


@pytest.mark.parametrize("words", COMMANDS)
def test_a_database_that_is_not_migrated_is_reported_in_a_sentence(
    words: tuple[str, ...], folder: Path, unmigrated: str
) -> None:
    refused = command(
        folder, *words, DATABASE_URL=unmigrated, CMS_USER_PASSWORD="correct horse battery"
    )
    assert refused.returncode == 1
    assert (
        refused.stdout
        == "Error: The database is not available. It is not migrated; run `cms migrate`.\n"
    )


def test_a_database_that_does_not_answer_is_reported_once(folder: Path) -> None:
    refused = command(folder, "flows", "list", DATABASE_URL="postgresql://127.0.0.1:1/none")
    assert refused.returncode == 1
    reason = "It does not answer, or all connections to it are in use."
    assert refused.stdout == f"Error: The database is not available. {reason}\n"


@pytest.fixture(scope="module")
def unmigrated(server: EmbeddedServer) -> str:
    return database(server, "unmigrated")


def test_the_demo_reports_whatever_is_wrong_with_the_address(ready: Path) -> None:
    result = command(ready, "demo", "--url", "nonsense://nowhere")
    assert result.returncode == 1
    assert result.stdout.startswith("Error: GET nonsense://nowhere/collections/")
    assert len(result.stdout.splitlines()) == 1


def test_the_demo_asks_no_proxy(ready: Path) -> None:
    proxy = f"http://127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as service:
        service.settimeout(TIMEOUT_SECONDS)
        url = f"http://127.0.0.1:{service.getsockname()[1]}"
        with ThreadPoolExecutor() as threads:
            running = threads.submit(
                command, ready, "demo", "--url", url, http_proxy=proxy, no_proxy=""
            )
            connection, _ = service.accept()
            service.close()  # before the answer, which brings the next connection
            with connection:
                assert connection.recv(1000).startswith(b"GET /collections/continents ")
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
                )
            assert running.result().stdout.startswith("Error: Nothing answers at ")


def test_a_password_that_is_not_given_is_asked_for(ready: Path) -> None:
    result = command(ready, "user", "password", "--email", "admin@example.com")
    assert result.returncode == 1
    assert "Password: " in result.stdout
    assert "Traceback" not in result.stdout


def test_config_prints_what_is_in_effect_and_no_secret(folder: Path) -> None:
    secret = "hunter2" * 5
    result = command(
        folder, "config", SECRET=secret, DATABASE_URL="postgresql://u:hunter2@h/d", WEB_THREADS="9"
    )
    assert result.returncode == 0
    assert "WEB_THREADS=9\n" in result.stdout
    assert "hunter2" not in result.stdout


def test_wrong_settings_are_all_reported_by_every_command(folder: Path) -> None:
    result = command(folder, "config", PORT="x", LOG_STYLE="y")
    assert result.returncode == 1
    assert [line.split()[0] for line in result.stdout.removeprefix("Error: ").splitlines()] == [
        "PORT",
        "LOG_STYLE",
    ]


@pytest.mark.parametrize(
    "words", [("serve",), ("worker",), ("bootstrap",), ("user", "token", *USER)]
)
def test_settings_that_are_not_safe_or_cannot_be_read_stop_every_command(
    folder: Path, words: tuple[str, ...]
) -> None:
    refused = command(folder, *words, SECRET="y" * 31, REDIS="127.0.0.1")
    assert refused.returncode == 1
    assert refused.stdout.splitlines() == [
        "Error: SECRET takes a text of 32 characters or more.",
        "REDIS takes an address such as redis://:password@host:6379/0, rediss://… or "
        "redis+unix:///its/socket.",
    ]


def test_a_gunicorn_of_your_own_reports_wrong_settings_in_sentences(folder: Path) -> None:
    script = Path(__file__).parents[2] / "gunicorn.conf.py"
    refused = subprocess.run(
        [sys.executable, "-m", "gunicorn", "-c", str(script), "cms.app:create_wsgi()"],
        cwd=folder,
        env=environment(
            folder, free_port(), SECRET="short", PYTHONPATH=os.pathsep.join(filter(None, sys.path))
        ),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr == "Error: SECRET takes a text of 32 characters or more.\n"


def test_a_sound_installation_is_reported_as_such(ready: Path) -> None:
    sound = command(ready, "doctor")
    assert sound.returncode == 0
    levels = {line.split()[0] for line in sound.stdout.splitlines()}
    assert levels <= {"ok", "warning"}
    for word in (
        "settings",
        "SECRET",
        "DATA_DIR",
        "disk",
        "database",
        "encoding",
        "migrations",
        "pg_trgm",
        "unaccent",
    ):
        assert re.search(rf"^ok .*{word}", sound.stdout, re.MULTILINE), word


@pytest.mark.parametrize(
    ("setting", "value", "warning"),
    [
        ("DATABASE_POOL_SIZE", "1000", "warning  connections: up to 2532 of "),
    ],
)
def test_what_could_go_wrong_is_a_warning(
    setting: str, value: str, warning: str, ready: Path
) -> None:
    warned = command(ready, "doctor", **{setting: value})
    assert warned.returncode == 0
    assert warning in warned.stdout


def test_migrations_that_wait_are_reported(folder: Path, server: EmbeddedServer) -> None:
    waiting = command(folder, "doctor", DATABASE_URL=database(server, "waiting"))
    assert waiting.returncode == 0
    assert re.search(r"^warning  migrations: \d+ to apply", waiting.stdout, re.MULTILINE)
    assert "warning  extension pg_trgm: " in waiting.stdout


def test_names_that_lead_to_nothing_are_reported(folder: Path, server: EmbeddedServer) -> None:
    address = database(server, "unmet")
    assert command(folder, "migrate", DATABASE_URL=address).returncode == 0
    assert "ok       structure: " in command(folder, "doctor", DATABASE_URL=address).stdout
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE TABLE system_shop (id integer)")
    warned = command(folder, "doctor", DATABASE_URL=address)
    assert warned.returncode == 0
    assert "warning  table system_shop: no collection" in warned.stdout


def test_jobs_that_nobody_runs_are_reported(folder: Path, server: EmbeddedServer) -> None:
    address = database(server, "forgotten")
    assert command(folder, "migrate", DATABASE_URL=address).returncode == 0
    assert "ok       jobs: 0 wait" in command(folder, "doctor", DATABASE_URL=address).stdout
    with psycopg.connect(address) as connection:
        connection.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('mail', 'mail')"
        )
    result = command(folder, "doctor", DATABASE_URL=address)
    assert "warning  jobs: 1 wait and no worker runs; start `cms worker`" in result.stdout


def test_an_extension_that_came_after_the_tables_is_reported_and_used(
    folder: Path, server: EmbeddedServer
) -> None:
    address = database(server, "late")
    assert command(folder, "migrate", DATABASE_URL=address).returncode == 0
    with psycopg.connect(address, autocommit=True) as connection:
        definition = str(
            connection.execute(
                "SELECT pg_get_functiondef('system_fold_letters(text)'::regprocedure)"
            ).fetchone()
        )
        assert "unaccent" in definition
        connection.execute(
            "CREATE OR REPLACE FUNCTION system_fold_letters(text) RETURNS text LANGUAGE sql "
            "IMMUTABLE STRICT PARALLEL SAFE"
            " RETURN lower($1)"  # what the migration makes without it
        )
        connection.execute(
            "CREATE OR REPLACE FUNCTION system_fold_unindexed(text) RETURNS text LANGUAGE sql "
            "STABLE PARALLEL SAFE RETURN lower($1)"
        )
        connection.execute("CREATE TABLE words (word text); INSERT INTO words VALUES ('É')")
        connection.execute("CREATE INDEX ON words USING gin (system_fold(word) gin_trgm_ops)")
    result = command(folder, "doctor", DATABASE_URL=address)
    assert "warning  extension unaccent: younger than the tables" in result.stdout
    assert "unaccent" in command(folder, "migrate", DATABASE_URL=address).stdout
    assert "up to date" in command(folder, "migrate", DATABASE_URL=address).stdout
    assert (
        "ok       extension unaccent: installed"
        in command(folder, "doctor", DATABASE_URL=address).stdout
    )
    with psycopg.connect(address) as connection:
        connection.execute("SET enable_seqscan = off")
        words = connection.execute(
            "SELECT word FROM words WHERE system_fold(word) LIKE system_fold('%E%')"
        ).fetchall()
        assert words == [("É",)]
        unindexed = connection.execute("SELECT system_fold_unindexed('É')").fetchone()
        assert unindexed == ("e",)


def test_a_database_of_another_encoding_is_wrong(folder: Path, server: EmbeddedServer) -> None:
    address = database(server, "ascii", options="ENCODING 'SQL_ASCII' LOCALE 'C'")
    wrong = command(folder, "doctor", DATABASE_URL=address)
    assert wrong.returncode == 1
    assert "wrong    encoding: SQL_ASCII" in wrong.stdout


def test_a_replica_that_does_not_answer_is_wrong(folder: Path, server: EmbeddedServer) -> None:
    replica = f"postgresql://u:hunter2@127.0.0.1:{free_port()}/d"
    wrong = command(folder, "doctor", DATABASE_URL=server.dsn, DATABASE_READ_URL=replica)
    assert wrong.returncode == 1
    assert "wrong    DATABASE_READ_URL: " in wrong.stdout
    assert "hunter2" not in wrong.stdout


def test_a_database_that_does_not_answer_is_wrong(folder: Path) -> None:
    wrong = command(
        folder, "doctor", DATABASE_URL=f"postgresql://u:hunter2@127.0.0.1:{free_port()}/d"
    )
    assert wrong.returncode == 1
    assert "wrong    database: " in wrong.stdout
    assert "hunter2" not in wrong.stdout


def test_a_data_folder_that_is_a_file_is_wrong(folder: Path) -> None:
    (folder / "a file").write_text("")
    wrong = command(folder, "doctor", DATA_DIR="a file")
    assert wrong.returncode == 1
    assert "is not a folder" in wrong.stdout


def test_settings_that_cannot_be_read_are_wrong(folder: Path) -> None:
    wrong = command(folder, "doctor", PORT="x", LOG_STYLE="y")
    assert wrong.returncode == 1
    assert [line.split()[:2] for line in wrong.stdout.splitlines()] == [
        ["wrong", "PORT"],
        ["wrong", "LOG_STYLE"],
    ]
