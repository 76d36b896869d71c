"""Disks that are full: 507, nothing is kept, and when there is room again all goes on by itself."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import psycopg
import pytest

from cms.app import create_app
from cms.auth import accounts
from cms.config import Config
from cms.config.locations import Location
from cms.database.migrate import migrate
from cms.embedded.lifetime import start
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Answer, Client
from tests.faults.small_disk import SmallDisk, small_disk
from tests.files.forms import FileService, file_service
from tests.files.images import picture
from tests.store.embedded.servers import FAST, running
from tests.things import Stage, Table, admin_token, field, table
from tests.waiting import eventually

pytestmark = pytest.mark.slow

MEGABYTE = 2**20


def refused(answer: Answer) -> tuple[int, list[str], object]:
    return answer.status, answer.codes, answer.errors[0]["service"]


def full(service: str) -> tuple[int, list[str], str]:
    return 507, ["INSUFFICIENT_STORAGE"], service


# The disk of files


@pytest.fixture(scope="module")
def disk() -> Iterator[SmallDisk]:
    with small_disk(32 * MEGABYTE) as disk:
        yield disk


@pytest.fixture(scope="module")
def files(
    settings: Config, disk: SmallDisk, make_database: Callable[..., str], template: str
) -> Iterator[FileService]:
    """A service whose first location is on a small disk, and whose second one is not."""
    folder = disk.folder / "files"
    locations = (Location("local", "local", str(folder)),)
    changes = {"locations": locations, "files_max_upload_size": 100 * MEGABYTE}
    with file_service(settings, folder, make_database, template, **changes) as files:
        yield files


@pytest.mark.parametrize("size", [3, 12], ids=["one part", "several parts"])
def test_an_upload_for_which_there_is_no_room_is_507_and_leaves_nothing(
    files: FileService, disk: SmallDisk, size: int
) -> None:
    content = os.urandom(size * MEGABYTE)
    key = files.add()["id"]
    disk.fill(leave=2 * MEGABYTE)
    room = disk.free_bytes()
    with files.nothing_stays():
        for method, path in (("POST", "/files"), ("PATCH", f"/files/{key}")):
            answer = files.send(method, path, ("file", content, "a.bin"))
            assert refused(answer) == full("storage")
    assert disk.free_bytes() == room
    disk.make_room()
    assert files.add(content)["filesize"] == len(content)


def test_of_several_files_none_is_kept_where_one_has_no_room(
    files: FileService, disk: SmallDisk
) -> None:
    disk.fill(leave=2 * MEGABYTE)
    content = b"x" * MEGABYTE
    parts = [("file", content, f"{number}.bin") for number in range(4)]
    with files.nothing_stays():
        assert refused(files.send("POST", "/files", *parts)) == full("storage")
    disk.make_room()


def test_a_derivative_for_which_there_is_no_room_is_made_once_there_is(
    files: FileService, disk: SmallDisk
) -> None:
    image = files.add(picture("PNG", (300, 300)), "a.png")
    path = f"/assets/{image['id']}?width=200&format=png"
    disk.fill()
    with files.nothing_stays():
        assert refused(files.admin.send("GET", path)) == full("storage")
        # The original needs no room.
        assert files.admin.send("GET", f"/assets/{image['id']}").content == picture(
            "PNG", (300, 300)
        )
    disk.make_room()
    assert files.admin.send("GET", path).status == 200


# Limits on the size of files, which the system tells like a full disk


@contextmanager
def max_file_size(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, which the system refuses."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_upload_beyond_a_limit_of_the_system_is_507_and_leaves_nothing(
    files: FileService,
) -> None:
    with files.nothing_stays(), max_file_size(MEGABYTE):
        answer = files.send("POST", "/files", ("file", b"x" * 3 * MEGABYTE, "a.bin"))
    assert refused(answer) == full("storage")


def test_an_import_for_which_temporary_files_have_no_room_is_507(files: FileService) -> None:
    notes = table(files.stage.admin, field("title", "string"))
    body = "title\n" + "a row\n" * 300_000
    with max_file_size(MEGABYTE):
        headers = {"Content-Type": "text/csv"}
        path = f"/utils/import/{notes.name}"
        answer = files.admin.send("POST", path, raw=body.encode(), **headers)
    assert refused(answer) == full("service")
    assert notes.column("id") == []


# The disk of the database


@pytest.fixture(scope="module")
def tablespace(files: FileService) -> Iterator[SmallDisk]:
    """A small disk on which the database may keep tables."""
    with small_disk(8 * MEGABYTE) as disk:
        folder = disk.folder / "tables"
        folder.mkdir()
        cluster = Path(str(files.stage.value("SHOW data_directory"))).stat()
        os.chown(folder, cluster.st_uid, cluster.st_gid)
        files.stage.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        yield disk
        disk.ballast.unlink(missing_ok=True)
        for name in tables_in(files.stage, "small"):
            files.stage.execute(f'ALTER TABLE "{name}" SET TABLESPACE pg_default')
        files.stage.execute("DROP TABLESPACE small")


def tables_in(stage: Stage, tablespace: str) -> list[str]:
    sql = f"SELECT array_agg(tablename::text) FROM pg_tables WHERE tablespace = '{tablespace}'"
    return list(stage.value(sql) or [])


def history(stage: Stage) -> object:
    return stage.value(
        "SELECT ARRAY[(SELECT count(*) FROM system_activity), "
        "(SELECT count(*) FROM system_revisions)]"
    )


def test_a_write_for_which_the_database_has_no_room_is_507_and_leaves_nothing(
    files: FileService, tablespace: SmallDisk
) -> None:
    notes = table(files.stage.admin, field("text", "text"))
    others = table(files.stage.admin, field("text", "text"))
    files.stage.execute(f'ALTER TABLE "{notes.name}" SET TABLESPACE small')
    tablespace.fill()
    before = history(files.stage)
    rows = [{"text": os.urandom(3000).hex()} for _ in range(20)]
    one = files.admin.post(f"/items/{notes.name}", rows[0])
    many = files.admin.post(f"/items/{notes.name}", rows)
    operation = {"method": "create", "collection": others.name, "data": {"text": "first"}}
    operations = [operation, {**operation, "collection": notes.name, "data": rows[0]}]
    batch = files.admin.post("/batch", {"operations": operations})
    header = {"Content-Type": "application/jsonl"}
    body = "\n".join(json.dumps(row) for row in rows).encode()
    imported = files.admin.send("POST", f"/utils/import/{notes.name}", raw=body, **header)
    for answer in (one, many, batch, imported):
        assert refused(answer) == full("database")
    # Reads need no room, and other tables have their own.
    assert notes.column("id") == []
    assert others.column("id") == []
    assert history(files.stage) == before
    assert others.add({"text": "there is room"})
    tablespace.make_room()
    assert len(notes.add(*rows)) == len(rows)


def test_an_upload_whose_row_has_no_room_keeps_no_content(
    files: FileService, tablespace: SmallDisk
) -> None:
    files.stage.execute("ALTER TABLE system_files SET TABLESPACE small")
    # For the content where it lies on the same disk, but not for the row.
    tablespace.fill(leave=8192)
    with files.nothing_stays():
        description = os.urandom(20_000).hex()
        answer = files.send("POST", "/files", ("description", description), ("file", b"x", "x"))
        assert refused(answer) == full("database")
    tablespace.make_room()
    assert files.add()["id"]


# The whole disk of a database server


def test_a_server_whose_disk_is_full_loses_no_write_and_goes_on_once_there_is_room(
    settings: Config,
) -> None:
    with small_disk(160 * MEGABYTE) as disk, ExitStack() as server:
        sizes = {"max_wal_size": "32MB", "min_wal_size": "32MB"}
        data = disk.folder / "server"
        run = partial(start, data, settings=FAST | sizes)
        dsn = server.enter_context(run()).dsn
        migrate(dsn)
        accounts.first_admin(dsn, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
        config = replace(settings, database_url=dsn, database_pool_size=2)
        admin = Client(create_app(config), admin_token(config, dsn))
        notes = table(admin, field("text", "text"))
        disk.fill(leave=4 * MEGABYTE)
        written = fill_with_rows(notes)
        disk.make_room()
        # It recovers by itself, unless the disk was still full when it tried: then it has ended. It
        # is not told to stop meanwhile: PostgreSQL 18 hangs if that comes before its recovery.
        eventually(lambda: answers(dsn) or not running(data))
        if not running(data):
            server.close()
            server.enter_context(run())
        assert written
        assert sorted(notes.column("id", "limit=-1")) == written
        assert len(notes.add({"text": "there is room"})) == 1
        admin.close()


def answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def fill_with_rows(notes: Table) -> list[int]:
    """Add rows until there is no room, and return the keys of those that were acknowledged."""
    keys: list[int] = []
    while True:
        answer = notes.api.post(notes.path, {"text": os.urandom(100_000).hex()})
        if answer.status != 200:
            break
        keys.append(answer.data["id"])
    assert answer.status in (503, 507)
    assert answer.errors[0]["service"] == "database"
    return keys
