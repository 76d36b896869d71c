"""The suite's PostgreSQL: one private server for each process of the run, with a migrated template,
and a copy of it for each module, or for a test that asks for its own.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cms.app import create_app
from cms.auth import accounts
from cms.config import Config, load
from cms.database.migrate import migrate
from cms.embedded.lifetime import start
from tests import things
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.databases import drop_database, end_maintenance, maintenance
from tests.examples import register_profiles
from tests.files.forms import FileService, file_service
from tests.files.sources import Source, source
from tests.memory import use_memory
from tests.people import QUICK, Outbox, outbox, quick_hashes
from tests.queues import QueueDatabase, queue_database
from tests.sharing import Magazine, magazine
from tests.things import Stage, Table, field, staged

PROCESSORS = (
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)
# Each worker has a server of its own, and the longest files take as long however many there are.
MAX_WORKERS = 12

_RELEASE = (
    "browser",
    "faults",
    "machines",
    "sdk",
    "smoke",
    "sso",
    "sso/ldap",
    "sso/saml",
    "store/embedded",
    "unit/test_pattern_time.py",
    "web",
)
RELEASE_PATHS = {Path(__file__).parent / name for name in _RELEASE}

RECURSION_LIMIT = sys.getrecursionlimit()

_numbers = itertools.count()

register_profiles()  # before the option that chooses one is looked at


def pytest_configure() -> None:
    use_memory()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """More workers than processors: one in three waits for a server, a signal or a lock.

    By itself pytest-xdist counts cores, which are half as many as there are
    processors on many rented machines.
    """
    more = min(PROCESSORS + (PROCESSORS + 1) // 2, MAX_WORKERS)
    return int(os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or more)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Spare the workers of `make test` the import of folders and modules that it leaves out."""
    if config.getoption("markexpr").startswith("not release") and collection_path in RELEASE_PATHS:
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no worker is left alone with one at the end.

    What starts real processes, stops and kills them is for `make check`, which leaves nothing out.
    """
    cases: Counter[str] = Counter()
    for item in items:
        everyday = RELEASE_PATHS.isdisjoint((item.path, item.path.parent))
        if not everyday or _is_further_case(item, cases):
            item.add_marker("release")
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _is_further_case(item: pytest.Item, cases: Counter[str]) -> bool:
    """Tell whether a test has had as many cases as its mark `quick` leaves to `make test`."""
    quick = item.get_closest_marker("quick")
    if quick is None:
        return False
    function, _, _ = item.nodeid.partition("[")
    cases[function] += 1
    return cases[function] > int(quick.args[0])


def pytest_runtest_setup() -> None:
    """Begin each test with the interpreter's own limit: properties may leave a higher one."""
    sys.setrecursionlimit(RECURSION_LIMIT)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector away from the thousands of tests, which stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:  # a generator that pluggy drives
    """On CI a test that is skipped for a missing server has failed."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.skipped and os.environ.get("CMS_REQUIRE_SERVERS") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although every server is required: {report.longrepr}"
    return report  # type: ignore[return-value]


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """Hashes that cost nothing; processes that tests start make true ones."""
    with quick_hashes():
        yield


@pytest.fixture(scope="session")
def server_dsn() -> Iterator[str]:
    """A superuser's way into a server of the suite's own, whose programs POSTGRES_BIN may name."""
    named = os.environ.get("POSTGRES_BIN")
    programs = Path(named) if named else None
    fast = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "wal_level": "minimal"}
    sizes = {"max_connections": "300", "max_wal_size": "256MB", "max_wal_senders": "0"}
    # Each worker of the suite has a server of its own: not each an eighth of the memory.
    sizes["shared_buffers"] = "128MB"
    with TemporaryDirectory(prefix="cms-tests-") as folder:
        Path(folder).chmod(
            0o755
        )  # as root the server runs as another account, which must be able to enter
        with start(Path(folder, "data"), binaries=programs, settings=fast | sizes) as server:
            yield server.dsn
            end_maintenance()


@pytest.fixture(scope="session")
def make_database(server_dsn: str) -> Callable[..., str]:
    """Make a database, as a copy of a template when one is named, and return its dsn."""

    def make(template: str = "template1") -> str:
        name = f"test_{os.getpid()}_{next(_numbers)}"
        with maintenance(server_dsn) as connection:
            # Copies of files take half the time of copies through the log; PostgreSQL 14 knows
            # nothing else.
            strategy = "STRATEGY FILE_COPY" if connection.info.server_version >= 150000 else ""
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {strategy}')
        return make_conninfo(server_dsn, dbname=name)

    return make


@pytest.fixture
def empty_dsn(make_database: Callable[..., str]) -> Iterator[str]:
    """A fresh database with nothing in it."""
    dsn = make_database()
    yield dsn
    drop_database(dsn)


@pytest.fixture(scope="session")
def migrated_template(make_database: Callable[..., str]) -> str:
    """The name of a migrated database with nothing else in it."""
    dsn = make_database()
    migrate(dsn)
    return str(conninfo_to_dict(dsn)["dbname"])


@pytest.fixture(scope="module")
def module_migrated_dsn(make_database: Callable[..., str], migrated_template: str) -> Iterator[str]:
    """A migrated database without anybody in it, for all tests of a module."""
    dsn = make_database(migrated_template)
    yield dsn
    drop_database(dsn)


@pytest.fixture(scope="session")
def template(make_database: Callable[..., str], migrated_template: str) -> str:
    """The name of a migrated database with the first admin in it."""
    dsn = make_database(migrated_template)
    accounts.first_admin(dsn, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
    return str(conninfo_to_dict(dsn)["dbname"])


@pytest.fixture
def migrated_dsn(make_database: Callable[..., str], migrated_template: str) -> Iterator[str]:
    """A migrated database without anybody in it, for this test alone."""
    dsn = make_database(migrated_template)
    yield dsn
    drop_database(dsn)


@pytest.fixture
def dsn(make_database: Callable[..., str], template: str) -> Iterator[str]:
    """A migrated database with the first admin, for this test alone."""
    dsn = make_database(template)
    yield dsn
    drop_database(dsn)


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The default settings without rate limits, in a folder of the suite's own."""
    folder = tmp_path_factory.mktemp("settings")
    environ = {
        "SECRET": "only-for-tests-" * 3,
        "LOG_LEVEL": "fatal",
        "RATE_LIMITER_ENABLED": "false",
        "HASH_TIME_COST": str(QUICK.time_cost),
        "HASH_MEMORY_COST": str(QUICK.memory_cost),
        "HASH_PARALLELISM": str(QUICK.parallelism),
    }
    return load(environ, folder=Path(folder))


@pytest.fixture(scope="module")
def stage_settings(settings: Config) -> Config:
    """The settings of the module's application; a module with other ones has this fixture too."""
    return settings


@pytest.fixture(scope="module")
def stage(
    stage_settings: Config, make_database: Callable[..., str], template: str
) -> Iterator[Stage]:
    """One application over one database for all tests of a module,
    each with collections of its own.

    A module puts its content there in a fixture of its own, `autouse` and for the module as well.
    """
    with staged(stage_settings, make_database, template) as stage:
        yield stage


@pytest.fixture
def pages(stage: Stage) -> Table:
    """A collection for flows to act upon, with a title and a number, and no rows."""
    return stage.empty_table(field("title", "string"), field("views", "integer"))


@pytest.fixture(scope="module")
def module_dsn(make_database: Callable[..., str], template: str) -> Iterator[str]:
    """A migrated database with the first admin, for all tests of a module.

    A module whose tests leave nothing behind that hinders another has it as its `dsn`: to copy a
    database for each test takes longer than most of them.
    """
    dsn = make_database(template)
    yield dsn
    drop_database(dsn)


@pytest.fixture(scope="module")
def admin(stage: Stage) -> Client:
    """The administrator's client of the module's application; quicker than `api`."""
    return stage.admin


@pytest.fixture(scope="module")
def module_queue(
    settings: Config, make_database: Callable[..., str], template: str
) -> Iterator[QueueDatabase]:
    with queue_database(settings, make_database, template) as queue:
        yield queue


@pytest.fixture
def queue(module_queue: QueueDatabase) -> QueueDatabase:
    """A database with a queue: the module's, with nothing in the queue."""
    module_queue.empty()
    return module_queue


@pytest.fixture(scope="module")
def files(
    settings: Config,
    tmp_path_factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
) -> Iterator[FileService]:
    """One application with storage locations for all tests of a module."""
    with file_service(settings, tmp_path_factory.mktemp("files"), make_database, template) as files:
        yield files


@pytest.fixture(scope="module")
def mag(files: FileService) -> Magazine:
    """The magazine of tests/sharing.py, with a writer who may share its articles."""
    return magazine(files)


@pytest.fixture(scope="module")
def other_server() -> Iterator[Source]:
    """A web server that the service asks: for files to import, or by requests of flows."""
    with source() as server:
        yield server


@pytest.fixture
def mails() -> Iterator[Outbox]:
    """The mails that are written while the test runs; none is sent."""
    with outbox() as mails:
        yield mails


@pytest.fixture
def config(settings: Config, dsn: str) -> Config:
    return replace(settings, database_url=dsn, database_pool_size=3)


@pytest.fixture
def make_client(config: Config) -> Iterator[Callable[..., Client]]:
    """Make a client of an application of its own: two of them are two
    processes that share the database.
    """
    clients: list[Client] = []

    def make(**changes: object) -> Client:
        clients.append(Client(create_app(replace(config, **changes))))  # type: ignore[arg-type]
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def anonymous(make_client: Callable[..., Client]) -> Client:
    """A client without credentials."""
    return make_client()


@pytest.fixture
def admin_token(config: Config) -> str:
    return things.admin_token(config, config.database_url or "")


@pytest.fixture
def api(anonymous: Client, admin_token: str) -> Client:
    """The administrator's client, of the same application as `anonymous`."""
    return anonymous.bearing(admin_token)
