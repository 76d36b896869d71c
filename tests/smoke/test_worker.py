"""`cms worker` in a process of its own: it hears of jobs, ends
cleanly, and loses none however it ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import pytest

from cms.config import Config
from cms.jobs.job_worker import GRACE_SECONDS, POLL_SECONDS
from cms.mail.mail_queue import Mail, post
from cms.schema.model import BuildKind
from cms.structure.index_requests import request_build
from tests.databases import end_connections
from tests.mail.server import Inbox, mail_server
from tests.queues import QueueDatabase, queue_database
from tests.smoke.running import TIMEOUT_SECONDS, environment
from tests.waiting import eventually

pytestmark = pytest.mark.slow

MAX_MEMORY_BYTES = 80 * 1024**2

BUILDS = "FROM pg_stat_progress_create_index WHERE datname = current_database()"
INVALID = "SELECT indexrelid FROM pg_index WHERE NOT indisvalid"


@dataclass(frozen=True)
class Worker:
    process: subprocess.Popen[bytes]
    output: Path

    def log_text(self) -> str:
        return self.output.read_text()

    def registered(self, queue: QueueDatabase) -> bool:
        assert self.process.poll() is None, self.log_text()
        return bool(queue.execute("SELECT id FROM procrastinate_workers"))

    def wait_for_exit(self) -> int:
        return self.process.wait(TIMEOUT_SECONDS)


@dataclass(frozen=True)
class Home:
    """A database and a mail server, between which workers run."""

    queue: QueueDatabase
    inbox: Inbox
    folder: Path

    def post(self, *, hold: bool = False) -> None:
        self.inbox.paused = hold
        with self.queue.database.transaction() as transaction:
            post(transaction.execute, Mail(["ann@example.com"], subject="Hello"))

    @contextmanager
    def worker(self, **environ: str) -> Iterator[Worker]:
        """Run a worker and yield it once it hears of jobs."""
        with self.starting(**environ) as worker:
            eventually(
                lambda: (
                    worker.registered(self.queue)
                    and ("DATABASE_PREPARE" in environ or listens(self.queue))
                )
            )
            yield worker

    @contextmanager
    def starting(self, **environ: str) -> Iterator[Worker]:
        settings = {
            "DATABASE_URL": self.queue.dsn,
            "EMAIL_TRANSPORT": "smtp",
            "EMAIL_SMTP_HOST": "127.0.0.1",
            "EMAIL_SMTP_PORT": str(self.inbox.port),
            "EMAIL_SMTP_IGNORE_TLS": "true",
        }
        with tempfile.NamedTemporaryFile(prefix="cms-output-") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "cms", "worker"],
                cwd=self.folder,
                env=environment(self.folder, 1, **settings, **environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                yield Worker(process, Path(output.name))
            finally:
                self.inbox.paused = False
                if process.poll() is None:
                    process.kill()
                    process.wait(TIMEOUT_SECONDS)


def listens(queue: QueueDatabase) -> bool:
    here = "datname = current_database() AND pid <> pg_backend_pid()"
    return (
        queue.execute(f"SELECT pid FROM pg_stat_activity WHERE {here} AND query LIKE 'LISTEN%'")
        != []
    )


@pytest.fixture(scope="module")
def shared(
    settings: Config,
    make_database: Callable[..., str],
    template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Home]:
    with queue_database(settings, make_database, template) as queue, mail_server() as inbox:
        yield Home(queue, inbox, tmp_path_factory.mktemp("worker"))


@pytest.fixture
def home(shared: Home) -> Home:
    shared.queue.empty()
    shared.inbox.mails.clear()
    shared.inbox.received = 0
    return shared


@pytest.mark.clock
def test_a_worker_hears_of_a_job_at_once_and_needs_little_memory(home: Home) -> None:
    with home.worker() as worker:
        posted = time.monotonic()
        home.post()
        eventually(lambda: bool(home.inbox.mails))
        assert time.monotonic() - posted < POLL_SECONDS / 2
        assert psutil.Process(worker.process.pid).memory_info().rss < MAX_MEMORY_BYTES
        worker.process.terminate()
        assert worker.wait_for_exit() == 0
        assert "Traceback" not in worker.log_text()
    assert home.queue.execute("SELECT id FROM procrastinate_workers") == []


def test_behind_a_pooler_it_looks_for_jobs_and_listens_for_none(home: Home) -> None:
    with home.worker(DATABASE_PREPARE="false"):
        home.post()
        eventually(lambda: bool(home.inbox.mails))
        assert not listens(home.queue)


def test_past_a_pooler_it_is_notified_as_without_one(home: Home) -> None:
    settings = {"DATABASE_PREPARE": "false", "DATABASE_DIRECT_URL": home.queue.dsn}
    with home.worker(**settings):
        eventually(lambda: listens(home.queue))
        home.post()
        eventually(lambda: bool(home.inbox.mails))


def test_a_job_that_was_running_when_its_worker_was_killed_runs_again(home: Home) -> None:
    with home.worker() as killed:
        home.post(hold=True)
        eventually(lambda: home.inbox.received == 1)
        killed.process.kill()
        killed.wait_for_exit()
    home.inbox.mails.clear()  # the server had all of it but the end of the conversation
    assert home.queue.jobs() == [("mail", "doing", 0)]
    home.queue.execute(
        "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute'"
    )
    with home.worker() as second:
        eventually(lambda: bool(home.inbox.mails))
        eventually(lambda: home.queue.jobs() == [])
        assert "lost its worker and runs again" in second.log_text()


@pytest.mark.parametrize("server_goes_on", [True, False])
@pytest.mark.parametrize(
    "kind",
    [BuildKind.INDEX, BuildKind.UNIQUE],
)
def test_an_index_whose_worker_was_killed_is_built_all_the_same(
    home: Home, kind: BuildKind, *, server_goes_on: bool
) -> None:
    query = home.queue.execute
    query("DROP TABLE IF EXISTS things; CREATE TABLE things (id serial PRIMARY KEY, a text)")
    with home.worker() as killed, psycopg.connect(home.queue.dsn) as reader:
        # A build waits for older snapshots; this one stands for minutes of work.
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        with home.queue.database.transaction() as transaction:
            request_build(transaction, "things", "a", kind)
        # From then on a build that is broken off leaves something behind.
        eventually(lambda: query(INVALID) != [])
        killed.process.kill()
        killed.wait_for_exit()
        if not server_goes_on:
            query(f"SELECT pg_terminate_backend(pid) {BUILDS}")
            eventually(lambda: query(f"SELECT pid {BUILDS}") == [])
            assert query(INVALID) != []
        query("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute'")
        with home.worker():
            eventually(lambda: home.queue.jobs() == [("build", "doing", 1)])
            reader.rollback()
            eventually(lambda: home.queue.jobs() == [])
    assert query(INVALID) == []
    assert query("SELECT count(*) FROM pg_indexes WHERE tablename = 'things'") == [(2,)]
    unique = (
        "SELECT count(*) FROM pg_constraint WHERE conrelid = 'things'::regclass AND contype = 'u'"
    )
    assert query(unique) == [(1 if kind is BuildKind.UNIQUE else 0,)]


def test_a_job_that_runs_when_the_end_is_asked_for_is_done(home: Home) -> None:
    with home.worker() as worker:
        home.post(hold=True)
        eventually(lambda: home.inbox.received == 1)
        worker.process.terminate()
        time.sleep(0.5)
        assert worker.process.poll() is None
        home.inbox.paused = False
        assert worker.wait_for_exit() == 0
    assert len(home.inbox.mails) == 1
    assert home.queue.jobs() == []


@pytest.mark.clock
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_takes_too_long_is_given_back(home: Home, number: signal.Signals) -> None:
    with home.worker() as worker:
        home.post(hold=True)
        eventually(lambda: home.inbox.received == 1)
        began = time.monotonic()

        def has_ended() -> bool:
            worker.process.send_signal(number)  # the second one hurries
            return worker.process.poll() is not None

        eventually(has_ended)
        assert worker.wait_for_exit() == 0
        assert time.monotonic() - began < GRACE_SECONDS
        assert "was not done in time and runs again" in worker.log_text()
    assert home.queue.jobs() == [("mail", "todo", 1)]


def test_a_database_that_goes_away_for_a_moment_stops_nothing(home: Home) -> None:
    with home.worker() as worker:
        end_connections(home.queue.dsn)
        home.post()
        eventually(lambda: bool(home.inbox.mails))
        worker.process.terminate()
        assert worker.wait_for_exit() == 0


def test_a_worker_that_begins_before_the_database_is_migrated_waits_for_it(home: Home) -> None:
    home.queue.execute("ALTER TABLE procrastinate_workers RENAME TO away")
    with home.starting() as worker:
        eventually(lambda: "the queue cannot be reached" in worker.log_text())
        home.queue.execute("ALTER TABLE away RENAME TO procrastinate_workers")
        home.post()
        eventually(lambda: bool(home.inbox.mails))
        assert "Traceback" not in worker.log_text()
