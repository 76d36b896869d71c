"""Archives with a right seal that `cms backup` has not written are refused as damaged."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from cms.backup import BackupError, DamagedArchive
from cms.backup.archive_format import Member, member_of, packed, unpacked
from cms.backup.archives import Archive, ArchiveFile
from cms.backup.checking import head_of, verified
from cms.database.bulk import BulkError
from cms.errors import Refused
from tests.backup.archives import Installation, Notes, rewrite
from tests.backup.comparison import rows_of
from tests.databases import drop_database
from tests.files.forms import locations_in
from tests.memory import resident_bytes

Contents = list[tuple[str, bytes]]
Change = Callable[[Contents], Contents]


def without(name: str) -> Change:
    return lambda members: [member for member in members if not member[0].startswith(name)]


def twice(name: str) -> Change:
    return lambda members: [
        one for member in members for one in [member] * (2 if member[0].startswith(name) else 1)
    ]


def renamed(name: str, other: str) -> Change:
    return lambda members: [(old.replace(name, other), content) for old, content in members]


def replaced(name: str, content: bytes) -> Change:
    return lambda members: [(one, content if one == name else old) for one, old in members]


def described(name: str, **values: object) -> Change:
    """Return a change of values in a description."""

    def change(members: Contents) -> Contents:
        changed = dict(members)
        changed[name] = json.dumps({**json.loads(changed[name]), **values}).encode()
        return list(changed.items())

    return change


def late(name: str) -> Change:
    """Return a change that puts a member where the archive ends."""
    return lambda members: [*without(name)(members), *(one for one in members if one[0] == name)]


def rows_twice(members: Contents) -> Contents:
    """Return the members with a table again behind all others, which has no primary key."""
    tables = [table["name"] for table in json.loads(dict(members)["backup.json"])["tables"]]
    folder = f"tables/{tables.index('days_rest') + 1:05}/"
    again = [member for member in members if member[0].startswith(folder)]
    assert again
    end = [name for name, _ in members].index("sequences.json")
    return [*members[:end], *again, *members[end:]]


CHANGES: dict[str, Change] = {
    "no rows of a table": without("tables/00001/"),
    "rows twice that no key tells apart": rows_twice,
    "rows of a table with the number 0": renamed("tables/00001/", "tables/00000/"),
    "rows of a table with a negative number": renamed("tables/00001/", "tables/-1/"),
    "rows of a table with a high number": renamed("tables/00001/", "tables/99999/"),
    "no keys and indexes": without("structure/after.sql"),
    "keys and indexes behind the rows": late("structure/after.sql"),
    "no positions of sequences": without("sequences.json"),
    "no list of files": without("lists/"),
    "a list of files twice": twice("lists/"),
    "no content of files": without("files/"),
    "a content of a file without an id": renamed("files/", "files/x"),
    "no summary": without("summary.json"),
    "structure that is no text": replaced("structure/before.sql", b"\xff\xfe"),
    "keys and indexes that are no text": replaced("structure/after.sql", b"\xff\xfe"),
    "positions that are none": replaced("sequences.json", b'[["a", "b"], 3]'),
    "positions of other types": replaced("sequences.json", b'[["a", "b", true]]'),
    "a list that is none": replaced("lists/0000001.json", b'{"id": []}'),
    "entries without ids": replaced("lists/0000001.json", b'[{"name": "a"}]'),
    "entries whose ids are lists": replaced("lists/0000001.json", b'[{"id": [], "name": "a"}]'),
    "a summary that is none": replaced("summary.json", b"[]"),
    "a summary of other types": described("summary.json", rows=["a"]),
    "another number of files": described("summary.json", files=7),
    "brackets without an end": replaced("backup.json", b"[" * 200_000),
    "another type of version": described("backup.json", server="15"),
    "another type of tables": described("backup.json", tables={"a": 1}),
    "another type of names": described(
        "backup.json", tables=[{"name": 1, "columns": [], "size": 0}]
    ),
    "another type of columns": described(
        "backup.json", tables=[{"name": "a", "columns": "bcd", "size": 0}]
    ),
    "another type of migrations": described("backup.json", migrations=[1, 2]),
    "another type of locations": described("backup.json", storages=3),
}


@pytest.fixture(scope="module")
def members(complete_archive: Path) -> Contents:
    """The members of a complete archive."""
    return [
        (member.name, b"".join(member.pieces))
        for member in unpacked([complete_archive.read_bytes()])
    ]


@pytest.fixture(scope="module")
def untouched(
    make_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """A database with nothing in it, which stays so: no archive of these tests is restored."""
    dsn = make_database()
    yield Installation(dsn, locations_in(tmp_path_factory.mktemp("untouched")))
    drop_database(dsn)


@pytest.mark.quick(2)
@pytest.mark.parametrize("change", list(CHANGES.values()), ids=list(CHANGES))
def test_what_no_backup_writes_is_damaged_and_changes_nothing(
    members: Contents, untouched: Installation, archive: Path, change: Change
) -> None:
    seal(archive, change(members))
    with pytest.raises(DamagedArchive):
        untouched.restore(archive)
    assert rows_of(untouched.dsn) == {}
    assert untouched.contents() == {}


def seal(archive: Path, members: Contents) -> None:
    archive.write_bytes(b"".join(packed(member_of(*member) for member in members)))


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("backup.json", head_of),
        ("lists/0000001.json", lambda archive: verified(archive, Notes())),
        ("end.json", lambda archive: verified(archive, Notes())),
    ],
)
def test_a_description_that_claims_to_be_huge_is_not_read_into_memory(
    name: str, read: Callable[[Archive], object]
) -> None:
    """Few bytes of gzip stand for very many zeros."""
    taken = 0

    def zeros() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 2**20
            yield bytes(2**20)

    before = resident_bytes()
    with pytest.raises(DamagedArchive, match=r"is too large|checksum"):
        read(Chunks(packed([Member(name, 2**40, zeros())])))
    assert taken < 2**24
    assert resident_bytes() - before < 2**24


@dataclass(frozen=True)
class Chunks:
    """An archive of these bytes."""

    chunks: Iterator[bytes]

    def read(self) -> Iterator[bytes]:
        return self.chunks

    def size(self) -> int:
        return 0

    def write(self, chunks: Iterable[bytes]) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]
)
def test_members_other_than_files_are_refused(archive: Path, kind: bytes) -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as file:
        info = tarfile.TarInfo("files/a")
        info.type = kind
        info.linkname = "/etc/passwd"
        file.addfile(info)
    archive.write_bytes(gzip.compress(tar.getvalue()))
    with pytest.raises(DamagedArchive, match="something that is no file"):
        verified(ArchiveFile(archive), Notes())


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "path", [b"/etc/x.txt", b"..", b".", b"", b"a/./b", b"a//b", b"a/", b"a/../b"]
)
def test_a_path_that_no_content_can_have_is_refused(
    service: Installation, empty: Installation, archived: Path, path: bytes
) -> None:
    (name,) = [name for name, content in service.contents().items() if content == b""]
    name = name.removeprefix("local/")
    rewrite(archived, {b"\t%s\t" % name.encode(): b"\t%s\t" % path})
    with pytest.raises(DamagedArchive, match="outside of the storage locations"):
        empty.restore(archived)
    assert rows_of(empty.dsn) == {}
    assert empty.contents() == {}


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "path",
    [b"/../../x.txt", b"..", b"a/../../x.txt", b"/etc/x.txt", b"a\\\\..\\\\x.txt", b"\\\\0.txt"],
)
def test_a_content_stays_within_its_location(
    service: Installation, empty: Installation, archived: Path, path: bytes
) -> None:
    """Its path is a value of a row, which another program may have written."""
    (name,) = [name for name, content in service.contents().items() if content == b""]
    name = name.removeprefix("local/")
    rewrite(archived, {b"\t%s\t" % name.encode(): b"\t%s\t" % path})
    before = set(archived.parent.rglob("*"))
    with suppress(BackupError, BulkError, Refused):
        empty.restore(archived)
    roots = {location.root for location in empty.locations}
    more = {str(one) for one in set(archived.parent.rglob("*")) - before}
    assert {one for one in more if not one.startswith(tuple(roots))} <= {
        str(archived.parent / "empty")
    }
    if not rows_of(empty.dsn):
        assert empty.contents() == {}
