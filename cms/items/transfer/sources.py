"""Files of items, read row by row: CSV, JSON and JSONL as exports write them, with the line of each row.

A row is never longer than `max_bytes` bytes, so that a file takes no more memory than its longest row. What spoils one
row is told with it; what leaves the rest of the file without meaning raises `Refused`.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import BinaryIO, NamedTuple, Protocol

from cms import jsontext
from cms.digits import TooManyDigits, too_many_digits
from cms.errors import Problem, Refused, invalid_payload

_CHUNK = 1 << 16
_RECORDS_AT_ONCE = 1_000
"""So many rows of CSV are read at once, or of so many bytes."""

_BLANKS = re.compile(r"[ \t\r\n]+")


class SourceRow(NamedTuple):
    """An item with its line and its bytes; `fault` is what is wrong with the text of the row itself."""

    line: int
    size: int
    item: object = None
    fault: Problem | None = None


ParseCell = Callable[[str], object]
"""Makes a value of the text of a cell; raises ValueError with a reason."""

ParseCells = Callable[[Sequence[str]], Sequence[object] | None]
"""Parses many texts, none of them empty, as `ParseCell` parses one; None where not all are of the usual form."""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """How the cells below a name of the header are read; an empty cell is null, or says nothing."""

    name: str
    cell: ParseCell
    cells: ParseCells | None = None
    takes_null: bool = True

    def read(self, texts: Sequence[str]) -> Sequence[object] | None:
        """Return the values of many cells; None where an empty one says nothing."""
        if "" in texts:
            return (
                [self.cell(text) if text else None for text in texts] if self.takes_null else None
            )
        return (self.cells and self.cells(texts)) or [self.cell(text) for text in texts]


class Header(Protocol):
    def __call__(self, names: Sequence[str], /) -> Sequence[SourceColumn]:
        """Return the columns of a header; raises `Refused` for a name that may not be there."""


class Lines:
    """The lines of a file, none of them and no row of several longer than `max_bytes` bytes."""

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._file = file
        self._most = max_bytes
        self.number = 0
        self.row_bytes = 0

    def __iter__(self) -> Iterator[str]:
        encoding = "utf-8-sig"
        while raw := self._file.readline(self._most + 1):
            self.number += 1
            self.row_bytes += len(raw)
            if self.row_bytes > self._most:
                raise _too_long(self._most, self.number)
            try:
                yield raw.decode(encoding)
            except UnicodeDecodeError:
                raise invalid_payload("The file is not UTF-8", line=self.number) from None
            encoding = "utf-8"

    def end_row(self) -> int:
        """Tell how many bytes the row took that ends here, and begin the next one."""
        size, self.row_bytes = self.row_bytes, 0
        return size


# CSV


def read_csv(file: BinaryIO, max_bytes: int, header: Header) -> Iterator[SourceRow]:
    """Read RFC 4180 with a header; blank lines are passed over."""
    csv.field_size_limit(
        max(max_bytes, csv.field_size_limit())
    )  # the process's own; rows are bounded by their lines
    lines = Lines(file, max_bytes)
    rows = csv.reader(lines, strict=True)
    columns = header(_cells(rows, lines) or ())
    lines.end_row()
    while records := _read_records(rows, lines):
        yield from _parse_columns(columns, records) or map(partial(_row, columns), records)


_Record = tuple[int, int, list[str]]
"""The line of a row, its bytes and its cells."""


def _read_records(rows: Iterator[list[str]], lines: Lines) -> list[_Record]:
    """Read some rows, none at the end of the file."""
    records: list[_Record] = []
    line, rest = lines.number + 1, _CHUNK
    while (
        rest > 0 and len(records) < _RECORDS_AT_ONCE and (cells := _cells(rows, lines)) is not None
    ):
        size = lines.end_row()
        if cells:
            records.append((line, size, cells))
            rest -= size
        line = lines.number + 1
    return records


def _cells(rows: Iterator[list[str]], lines: Lines) -> list[str] | None:
    try:
        return next(rows, None)
    except csv.Error as error:
        raise invalid_payload(f"The file is not usable CSV: {error}", line=lines.number) from None


def _parse_columns(
    columns: Sequence[SourceColumn], records: list[_Record]
) -> Iterator[SourceRow] | None:
    """Read rows column by column; None where something is wrong with a cell, or an empty one says nothing."""
    numbers, sizes, cells = zip(*records, strict=True)
    if set(map(len, cells)) != {len(columns)}:
        return None
    try:
        values = [
            column.read(texts)
            for column, texts in zip(columns, zip(*cells, strict=True), strict=True)
        ]
    except ValueError:
        return None
    told = [found for found in values if found is not None]
    if len(told) < len(values):
        return None
    names = [column.name for column in columns]
    return map(SourceRow, numbers, sizes, [dict(zip(names, row)) for row in zip(*told)])  # noqa: B905  (they were counted)


def _row(columns: Sequence[SourceColumn], record: _Record) -> SourceRow:
    line, size, cells = record
    if len(cells) != len(columns):
        return SourceRow(
            line, size, fault=_fault(f"it has {len(cells)} cells, and the header {len(columns)}")
        )
    item: dict[str, object] = {}
    for column, text in zip(columns, cells, strict=True):
        if not text:
            if column.takes_null:
                item[column.name] = None
            continue
        try:
            item[column.name] = column.cell(text)
        except TooManyDigits as error:
            return SourceRow(line, size, fault=_too_many_digits(error, column.name))
        except ValueError as error:
            return SourceRow(line, size, fault=_fault(str(error), column.name))
    return SourceRow(line, size, item)


# JSON


def read_jsonl(file: BinaryIO, max_bytes: int, header: Header) -> Iterator[SourceRow]:
    """Read one object a line; blank lines are passed over."""
    lines = Lines(file, max_bytes)
    for text in lines:
        size = lines.end_row()
        if text.isspace():
            continue
        try:
            yield SourceRow(lines.number, size, jsontext.loads(text))
        except TooManyDigits as error:
            yield SourceRow(lines.number, size, fault=_too_many_digits(error))
        except ValueError as error:
            yield SourceRow(lines.number, size, fault=_fault(f"it is not usable JSON: {error}"))


def read_json(file: BinaryIO, max_bytes: int, header: Header) -> Iterator[SourceRow]:
    """Read an array of objects."""
    text = _JsonStream(file, max_bytes)
    if text.next() != "[":
        raise text.fault("it is no array of items")
    if text.peek() == "]":
        text.next()
    else:
        yield from _elements(text)
    if text.peek():
        raise text.fault("something follows the array")


def _elements(text: _JsonStream) -> Iterator[SourceRow]:
    mark = ","
    while mark == ",":
        yield text.row()
        mark = text.next()
    if mark != "]":
        raise text.fault("after an item comes a comma or the end of the array")


class _JsonStream:
    """JSON on its way in: the part that is not read yet, and the line where it begins."""

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._file = file
        self._most = max_bytes
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text = ""
        self._at = 0
        self._line = 1

    def fault(self, reason: str) -> Refused:
        return invalid_payload(f"The file is not usable JSON: {reason}", line=self._line)

    def peek(self) -> str:
        """Return the next character that is no blank, and stay before it; nothing at the end of the file."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            self._advance(blanks.end() if blanks else self._at)
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def next(self) -> str:
        """Return the next character that is no blank, and go behind it."""
        found = self.peek()
        self._advance(self._at + len(found))
        return found

    def row(self) -> SourceRow:
        """Read the value that comes next."""
        self.peek()
        line = self._line
        value, end, fault = self._value()
        size = end - self._at
        if size > self._most:
            raise _too_long(self._most, line)
        self._advance(end)
        return SourceRow(line, size, value, fault)

    def _value(self) -> tuple[object, int, Problem | None]:
        """Read a value, once all of it is there; the end of a number may be missing, but that is no item anyway."""
        while True:
            try:
                return *jsontext.loads_at(self._text, self._at), None
            except TooManyDigits as error:
                return None, error.end, _too_many_digits(error)
            except ValueError as error:
                if len(self._text) - self._at > self._most:
                    raise _too_long(self._most, self._line) from None
                if not self._more():
                    raise self.fault(_reason(error)) from None

    def _advance(self, at: int) -> None:
        self._line += self._text.count("\n", self._at, at)
        self._at = at

    def _more(self) -> bool:
        """Take in as much again as is waiting, so that a long value is not looked at too often."""
        rest = self._text[self._at :]
        raw = self._file.read(max(_CHUNK, len(rest)))
        try:
            self._text, self._at = rest + self._decode(raw, final=not raw), 0
        except UnicodeDecodeError:
            raise invalid_payload("The file is not UTF-8", line=self._line) from None
        return bool(raw)


def _reason(error: ValueError) -> str:
    """A decoder counts lines from where it began."""
    return getattr(error, "msg", str(error))


def _fault(reason: str, name: str | None = None) -> Problem:
    place: Mapping[str, object] = {"field": name} if name else {}
    return invalid_payload(reason[0].upper() + reason[1:], **place).problems[0]


def _too_many_digits(error: TooManyDigits, *names: str) -> Problem:
    path = [*names, *error.path]
    return too_many_digits(error, field=path[0], path=path) if path else too_many_digits(error)


def _too_long(max_bytes: int, line: int) -> Refused:
    sentence = f"A row is longer than {max_bytes} bytes."
    return Refused(Problem("CONTENT_TOO_LARGE", sentence, {"limit": max_bytes, "line": line}))


SOURCES: Mapping[str, Callable[[BinaryIO, int, Header], Iterator[SourceRow]]] = MappingProxyType(
    {"csv": read_csv, "json": read_json, "jsonl": read_jsonl}
)
