"""The archive as bytes: a tar file, compressed by gzip, with a seal at its end.

The last member, `end.json`, has the number of the members before it and the SHA-256 of their names,
sizes and contents. Without it, or with another sum, an archive is damaged. Everything is a stream:
at no time is more than a piece of a member in memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cms.backup import BackupError, DamagedArchive

BLOCK = tarfile.BLOCKSIZE
END = "end.json"

_LEVEL = 3  # higher levels take much longer than they save in rows; images are compressed already
_PIECE = 2**18


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the archive: its name, its size, and its bytes, to be read once and in order."""

    name: str
    size: int
    pieces: Iterable[bytes]


def member_of(name: str, content: bytes) -> Member:
    return Member(name, len(content), (content,))


def json_member(name: str, document: object) -> Member:
    return member_of(name, json.dumps(document, ensure_ascii=False, indent=1).encode())


class _Seal:
    """The sum over all members so far."""

    def __init__(self) -> None:
        self._members = 0
        self._hash = hashlib.sha256()

    def begin(self, name: str, size: int) -> None:
        self._members += 1
        self._hash.update(f"{name}\0{size}\0".encode())

    def add(self, piece: bytes) -> None:
        self._hash.update(piece)

    def document(self) -> dict[str, object]:
        return {"members": self._members, "sha256": self._hash.hexdigest()}


def packed(members: Iterable[Member]) -> Iterator[bytes]:
    """Yield the bytes of an archive; raises `BackupError` for a member of another size."""
    compressor = zlib.compressobj(_LEVEL, wbits=zlib.MAX_WBITS | 16)
    for block in _tar(members):
        if piece := compressor.compress(block):
            yield piece
    yield compressor.flush()


def _tar(members: Iterable[Member]) -> Iterator[bytes]:
    seal = _Seal()
    for member in members:
        seal.begin(member.name, member.size)
        yield _header(member)
        yield from _sealed(member, seal)
        yield bytes(-member.size % BLOCK)
    end = json.dumps(seal.document()).encode()
    yield _header(member_of(END, end))
    yield end + bytes(-len(end) % BLOCK)
    yield bytes(2 * BLOCK)


def _header(member: Member) -> bytes:
    info = tarfile.TarInfo(member.name)
    info.size = member.size
    info.mode = 0o600
    # GNU's form has room for sizes of more than 8 GB in the one block.
    header = info.tobuf(tarfile.GNU_FORMAT)
    assert len(header) == BLOCK, f"{member.name} is too long a name"
    return header


def _sealed(member: Member, seal: _Seal) -> Iterator[bytes]:
    size = 0
    for piece in member.pieces:
        size += len(piece)
        seal.add(piece)
        yield piece
    if size != member.size:
        raise BackupError(
            f"{member.name} has {size} bytes instead of {member.size}: it changed while it was "
            "read. Back up again."
        )


def unpacked(chunks: Iterable[bytes]) -> Iterator[Member]:
    """Yield the members of an archive before its seal; raises `DamagedArchive` as it reads.

    Of each member the pieces come before the next member; those that nobody reads are checked all
    the same. An archive is whole only when this has ended.
    """
    stream = _Stream(_decompressed(chunks))
    seal = _Seal()
    while (info := _next_header(stream)).name != END:
        seal.begin(info.name, info.size)
        pieces = _pieces(stream, info.size, seal)
        yield Member(info.name, info.size, pieces)
        for _unread in pieces:
            continue
        stream.read(-info.size % BLOCK)
    # A checksum of another size is wrong in any case, and may be larger than the memory.
    end = stream.read(min(info.size, BLOCK))
    if end != json.dumps(seal.document()).encode():
        raise DamagedArchive("its checksum is another one")
    stream.read(-info.size % BLOCK)
    stream.expect_end()


def _next_header(stream: _Stream) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(stream.read(BLOCK), "utf-8", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError):
        raise DamagedArchive("a member has no readable head") from None
    if not info.isreg() or info.size < 0:
        raise DamagedArchive("it holds something that is no file")
    return info


def _pieces(stream: _Stream, size: int, seal: _Seal) -> Iterator[bytes]:
    while size > 0:
        piece = stream.read(min(size, _PIECE))
        size -= len(piece)
        seal.add(piece)
        yield piece


def _decompressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    for chunk in chunks:
        if decompressor.eof and chunk:
            raise DamagedArchive("something follows its end")
        rest = chunk
        while rest and not decompressor.eof:
            # A bound, for a few bytes may stand for very many.
            try:
                piece = decompressor.decompress(rest, _PIECE)
            except zlib.error:
                raise DamagedArchive("it cannot be decompressed") from None
            yield piece
            rest = decompressor.unconsumed_tail
        if decompressor.unused_data:
            raise DamagedArchive("something follows its end")
    # Data of the last input that is still in the decompressor.
    yield decompressor.flush()
    if not decompressor.eof:
        raise DamagedArchive("it ends too early")


class _Stream:
    """Pieces of any size, read as many bytes at a time as are needed."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._buffer = io.BytesIO()

    def read(self, size: int) -> bytes:
        """Return exactly so many bytes; raises `DamagedArchive` where there are fewer."""
        parts = []
        while size > 0:
            part = self._buffer.read(size)
            if not part:
                self._refill()
                continue
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def expect_end(self) -> None:
        """Raise `DamagedArchive` unless nothing but zeros is left."""
        while rest := self._buffer.read(_PIECE):
            _refuse_bytes(rest)
        for piece in self._pieces:
            _refuse_bytes(piece)

    def _refill(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            raise DamagedArchive("it ends too early")
        self._buffer = io.BytesIO(piece)


def _refuse_bytes(rest: bytes) -> None:
    if rest.strip(b"\0"):
        raise DamagedArchive("something follows its end")
