"""More requests than connections, and statements that take too long: 503, and nothing is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import psycopg
import pytest

from cms.config import Config
from tests.client import Answer
from tests.files.forms import FileService, file_service
from tests.things import Table, field, table
from tests.waiting import eventually

pytestmark = pytest.mark.slow

STATEMENT_TIMEOUT = timedelta(seconds=1)
POOL_SIZE = 3  # of the applications of a stage, to read, and as many to write
FOREVER = timedelta(seconds=60)
TIMEOUT_SECONDS = 60.0

SLEEPING = """
CREATE FUNCTION sleep() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;
"""


@contextmanager
def service(
    settings: Config,
    factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
    statement_timeout: timedelta,
) -> Iterator[FileService]:
    changes = {"db_statement_timeout": statement_timeout}
    folder = factory.mktemp("files")
    with file_service(settings, folder, make_database, template, **changes) as files:
        yield files


@pytest.fixture(scope="module")
def patient(
    settings: Config,
    tmp_path_factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
) -> Iterator[FileService]:
    """A service whose statements may take long."""
    with service(settings, tmp_path_factory, make_database, template, FOREVER) as files:
        yield files


@pytest.fixture(scope="module")
def hurried(
    settings: Config,
    tmp_path_factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
) -> Iterator[FileService]:
    """A service whose statements may not."""
    with service(settings, tmp_path_factory, make_database, template, STATEMENT_TIMEOUT) as files:
        yield files


@contextmanager
def locked(files: FileService, name: str) -> Iterator[None]:
    """Keep everybody from a table."""
    with psycopg.connect(files.stage.dsn) as connection:
        connection.execute(f'LOCK TABLE "{name}" IN ACCESS EXCLUSIVE MODE'.encode())
        yield


def waiting_for_locks(files: FileService) -> int:
    here = "datname = current_database() AND wait_event_type = 'Lock'"
    return int(files.stage.value(f"SELECT count(*) FROM pg_stat_activity WHERE {here}"))


def busy_sessions(files: FileService) -> int:
    """Return how many sessions run something, or have begun a transaction."""
    others = "datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"
    return int(files.stage.value(f"SELECT count(*) FROM pg_stat_activity WHERE {others}"))


def assert_unavailable(answer: Answer, reason: str) -> None:
    assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"])
    assert answer.errors[0]["service"] == "database"
    assert reason in str(answer.errors[0]["reason"])
    assert int(answer.headers["retry-after"]) > 0


# More requests than connections


def test_a_read_that_gets_no_connection_in_time_is_503_and_the_next_one_is_not(
    patient: FileService,
) -> None:
    notes = table(patient.stage.admin, field("text", "string"))
    notes.add({"text": "a"})
    others = table(patient.stage.admin, field("text", "string"))
    with ThreadPoolExecutor(POOL_SIZE) as threads:
        with locked(patient, notes.name):
            waiting = [threads.submit(notes.get) for _ in range(POOL_SIZE)]
            eventually(lambda: waiting_for_locks(patient) == POOL_SIZE)
            assert_unavailable(others.get(), "all connections to it are in use")
        assert [len(one.result(TIMEOUT_SECONDS).data) for one in waiting] == [1] * POOL_SIZE
    assert others.get().data == []


def test_a_write_that_gets_no_connection_in_time_is_503_and_leaves_nothing(
    patient: FileService,
) -> None:
    upload = partial(patient.send, "POST", "/files", ("file", b"x", "a.txt"))
    with ThreadPoolExecutor(POOL_SIZE) as threads:
        with locked(patient, "system_activity"):
            waiting = [threads.submit(upload) for _ in range(POOL_SIZE)]
            eventually(lambda: waiting_for_locks(patient) == POOL_SIZE)
            assert_unavailable(upload(), "all connections to it are in use")
            # Those that wait for the end of their writes have theirs.
            assert len(patient.contents()) == POOL_SIZE
        assert [one.result(TIMEOUT_SECONDS).status for one in waiting] == [200] * POOL_SIZE
    assert len(patient.contents()) == patient.rows() == POOL_SIZE
    assert patient.add()["id"]


# Statements that take too long


def test_a_read_that_takes_too_long_is_503_and_ends_in_the_database(hurried: FileService) -> None:
    notes = table(hurried.stage.admin, field("text", "string"))
    notes.add({"text": "a"})
    operation = {"method": "read", "collection": notes.name}
    with locked(hurried, notes.name):
        for answer in (
            notes.get(),
            notes.get(**{"aggregate[count]": "*"}),
            notes.get(export="csv"),
            hurried.admin.post("/batch", {"operations": [operation]}),
        ):
            assert_unavailable(answer, "DB_STATEMENT_TIMEOUT")
            assert waiting_for_locks(hurried) == 0
    assert len(notes.get().data) == 1


def sleeping(files: FileService, name: str) -> Table:
    """Return a collection whose new rows take a minute each."""
    notes = table(files.stage.admin, field("text", "string"))
    files.stage.execute(
        f'CREATE TRIGGER sleeping AFTER INSERT ON "{notes.name}" '
        f"FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
    return notes


def test_a_write_that_takes_too_long_is_503_and_leaves_nothing(hurried: FileService) -> None:
    hurried.stage.execute(SLEEPING)
    notes = sleeping(hurried, "sleep")
    others = table(hurried.stage.admin, field("text", "string"))
    history = "SELECT count(*) FROM system_activity"
    before = hurried.stage.value(history)
    create = {"method": "create", "data": {"text": "a"}}
    operations = [{**create, "collection": others.name}, {**create, "collection": notes.name}]
    csv = {"Content-Type": "text/csv"}
    path = f"/utils/import/{notes.name}"
    for answer in (
        hurried.admin.post(f"/items/{notes.name}", {"text": "a"}),
        hurried.admin.post(f"/items/{notes.name}", [{"text": "a"}, {"text": "b"}]),
        hurried.admin.post("/batch", {"operations": operations}),
        hurried.admin.send("POST", path, raw=b"text\na\n", **csv),
    ):
        assert_unavailable(answer, "DB_STATEMENT_TIMEOUT")
        assert busy_sessions(hurried) == 0
    assert notes.get().data == others.get().data == []
    assert hurried.stage.value(history) == before


def test_an_upload_whose_row_takes_too_long_keeps_no_content(hurried: FileService) -> None:
    with hurried.nothing_stays(), locked(hurried, "system_activity"):
        answer = hurried.send("POST", "/files", ("file", b"x", "a.txt"))
        assert_unavailable(answer, "DB_STATEMENT_TIMEOUT")
    assert hurried.add()["id"]
