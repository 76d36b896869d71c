"""An archive that is cut off or changed is refused before it changes anything."""

from __future__ import annotations

import gzip
import random
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from cms.backup import BackupError, DamagedArchive
from cms.backup.archive_format import Member, member_of, packed, unpacked
from cms.backup.archives import ArchiveFile
from cms.backup.checking import verified
from cms.backup.collection_restoring import CollectionRestoration
from cms.database.bulk import BulkError
from cms.errors import Refused
from tests.backup.archives import Installation, Notes, rewrite
from tests.backup.comparison import rows_of


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def is_refused(path: Path) -> bool:
    try:
        verified(ArchiveFile(path), Notes())
    except DamagedArchive:
        return True
    return False


def unpack(content: bytes) -> dict[str, bytes]:
    return {member.name: b"".join(member.pieces) for member in unpacked([content])}


def archive_parts(*parts: float) -> list[object]:
    return [pytest.param(part, marks=[] if part == 0.5 else pytest.mark.release) for part in parts]


@pytest.mark.parametrize("part", archive_parts(0.0, 0.01, 0.3, 0.5, 0.8, 0.999))
def test_an_archive_that_is_cut_off_leaves_nothing_behind(
    empty: Installation, archived: Path, part: float
) -> None:
    content = archived.read_bytes()
    cut = write(archived.with_name("cut"), content[: int(len(content) * part)])
    with pytest.raises(BackupError, match=r"damaged: .*Nothing has been changed"):
        empty.restore(cut)
    assert rows_of(empty.dsn) == {}
    assert empty.contents() == {}


def test_an_archive_is_refused_wherever_it_is_cut(archived: Path) -> None:
    content = archived.read_bytes()
    assert not is_refused(archived)
    lengths = {len(content) - number for number in range(1, 20)}
    lengths |= set(random.Random(1).sample(range(len(content)), 60))
    for length in sorted(lengths):
        assert is_refused(write(archived.with_name("cut"), content[:length])), length


def test_an_archive_is_refused_wherever_a_byte_changes_anything(archived: Path) -> None:
    """Few bits of a compressed file mean nothing, as those for letters that never come."""
    content = archived.read_bytes()
    contents = unpack(content)
    refused = 0
    # Neither the time nor the system in gzip's own head is part of what is restored.
    for position in random.Random(2).sample(range(10, len(content)), 80):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        if is_refused(write(archived.with_name("flipped"), bytes(flipped))):
            refused += 1
        else:
            assert unpack(bytes(flipped)) == contents, position
    assert refused >= 70


def test_a_small_archive_is_refused_at_every_cut_and_every_changed_bit_that_counts() -> None:
    contents = {"backup.json": b"{}", "files/a": b"hello world" * 5, "summary.json": b""}
    archive = b"".join(packed(member_of(*member) for member in contents.items()))
    lengths = range(len(archive))
    for length in lengths:
        with pytest.raises(DamagedArchive):
            unpack(archive[:length])
    changes = [replaced(archive, at, archive[at] ^ 1 << bit) for at in lengths for bit in range(8)]
    changes += [archive[:at] + b"\0" + archive[at:] for at in range(len(archive) + 1)]
    changes += [archive[:at] + archive[at + 1 :] for at in lengths]
    for changed in changes:
        # Few bits mean nothing, as those of the time in gzip's head.
        with suppress(DamagedArchive):
            assert unpack(changed) == contents


def replaced(content: bytes, position: int, byte: int) -> bytes:
    return content[:position] + bytes([byte]) + content[position + 1 :]


def test_what_is_changed_within_the_compression_is_refused(archived: Path) -> None:
    """Somebody has unpacked the archive, changed it and packed it again: gzip's sum is right."""
    tar = gzip.decompress(archived.read_bytes())
    changed = tar.replace(b"Topic 7", b"Topic 8")
    assert changed != tar
    assert is_refused(write(archived.with_name("changed"), gzip.compress(changed)))
    # Without a whole part of a table, and without the end.
    position = tar.index(b"tables/")
    assert is_refused(write(archived.with_name("cut"), gzip.compress(tar[:position])))
    longer = write(archived.with_name("longer"), archived.read_bytes() + gzip.compress(b"more"))
    assert is_refused(longer)
    assert is_refused(write(archived.with_name("other"), gzip.compress(tar + b"more")))


HEAD_CHANGES = ((b"0006_new_users", b"0006_mew_users"), (b'"format": 1', b'"format": 9'))


@pytest.mark.parametrize("change", HEAD_CHANGES, ids=("migration", "format"))
def test_a_changed_head_is_told_as_damage_and_not_believed(
    empty: Installation, archived: Path, change: tuple[bytes, bytes]
) -> None:
    tar = gzip.decompress(archived.read_bytes())
    assert change[0] in tar
    changed = write(archived.with_name("head"), gzip.compress(tar.replace(*change, 1)))
    for restore in (empty.restore, partial(restore_collection, empty, collection="topics")):
        with pytest.raises(DamagedArchive, match="its checksum is another one"):
            restore(changed)


def restore_collection(installation: Installation, archive: Path, *, collection: str) -> None:
    file = ArchiveFile(archive)
    CollectionRestoration(installation.dsn, file, Notes(), collection).run()


NO_ARCHIVES = (b"", b"x" * 5000, gzip.compress(b""), gzip.compress(b"text"))


@pytest.mark.parametrize("content", NO_ARCHIVES, ids=("empty", "letters", "gzip", "gzip of text"))
def test_what_is_no_archive_is_refused(empty: Installation, archive: Path, content: bytes) -> None:
    with pytest.raises(BackupError, match="damaged"):
        empty.restore(write(archive, content))
    assert rows_of(empty.dsn) == {}


def test_members_come_out_as_they_went_in() -> None:
    contents = {"a": b"", "b/c": b"x" * 512, "d": bytes(range(256)) * 4097, "ä" * 40: b"y"}
    chunks = packed(member_of(name, content) for name, content in contents.items())
    assert unpack(b"".join(chunks)) == contents


def test_a_member_of_another_size_than_announced_fails() -> None:
    with pytest.raises(BackupError, match="has 2 bytes instead of 3"):
        list(packed([Member("file", 3, [b"ab"])]))


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        pytest.param(b"1\tTopic 0", b"x\tTopic 0", BulkError, marks=pytest.mark.release),
        (b"\n2\tTopic 1\\n", b"", DamagedArchive),
        pytest.param(
            b"PRIMARY KEY (id)", b"PRIMARY KEY (nothing)", BulkError, marks=pytest.mark.release
        ),
        (b'"sha256": "', b'"sha256": "0', DamagedArchive),
        pytest.param(b"\tlocal\t", b"\tnowhere\t", Refused, marks=pytest.mark.release),
        pytest.param(b".txt\t", b"/../../x.txt\t", DamagedArchive, marks=pytest.mark.release),
        pytest.param(
            b'"name": "topics"', b'"name": "nothing"', BulkError, marks=pytest.mark.release
        ),
    ],
)
def test_a_restoration_that_fails_at_any_stage_leaves_nothing_behind(
    empty: Installation,
    archived: Path,
    old: bytes,
    new: bytes,
    error: type[Exception],
) -> None:
    rewrite(archived, {old: new})
    with pytest.raises(error):
        empty.restore(archived)
    assert rows_of(empty.dsn) == {}
    assert empty.contents() == {}


@pytest.mark.release
def test_a_failed_restoration_keeps_what_was_there(
    service: Installation, empty: Installation, dsn: str, archived: Path
) -> None:
    """Also a content that lies where one of the archive belongs."""
    rewrite(archived, {b'"sha256": "': b'"sha256": "0'})
    path, content = next(iter(service.contents().items()))
    location, _, name = path.partition("/")
    root = Path({one.name: one.root for one in empty.locations}[location])
    root.mkdir(parents=True)
    (root / name).write_bytes(content)
    before = rows_of(dsn)
    with pytest.raises(DamagedArchive):
        Installation(dsn, empty.locations).restore(archived)
    assert rows_of(dsn) == before
    assert empty.contents() == {path: content}


def test_an_error_of_a_restoration_quotes_no_row(empty: Installation, archived: Path) -> None:
    rewrite(archived, {b"1\tTopic 0": b"SECRET\tTopic 0"})
    with pytest.raises(BulkError) as caught:
        empty.restore(archived)
    assert "SECRET" not in str(caught.value)


@pytest.mark.release
def test_a_backup_that_fails_leaves_no_file(service: Installation, archive: Path) -> None:
    class Failing(Notes):
        def advance(self, count: int) -> None:
            raise OSError("the test")

    with pytest.raises(OSError, match="the test"):
        service.back_up(archive, watcher=Failing())
    assert list(archive.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["x" * 300, "nowhere/a.gz"])
def test_an_archive_that_cannot_be_written_is_refused(
    service: Installation, archive: Path, name: str
) -> None:
    with pytest.raises(BackupError, match="cannot be written"):
        service.back_up(archive.parent / name)


def test_two_backups_into_one_file_are_refused(service: Installation, archive: Path) -> None:
    archive.with_name(f"{archive.name}.part").touch()
    with pytest.raises(BackupError, match="another backup is under way"):
        service.back_up(archive)


def test_an_archive_without_a_service_is_not_made(empty: Installation, archive: Path) -> None:
    with pytest.raises(BackupError, match="no service"):
        empty.back_up(archive)
    assert list(archive.parent.glob("*.gz*")) == []
