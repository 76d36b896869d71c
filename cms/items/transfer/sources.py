"""Files of items, read row by row with their lines: JSON and JSONL as exports write them, and CSV
as spreadsheet programs do, too.

No row is longer than `max_bytes` bytes, and no more of the file is in memory than a few rows. A
problem of one row comes with the row; one that makes the rest of the file unreadable raises
`Refused`.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import BinaryIO, NamedTuple, Protocol

from cms import jsontext
from cms.digits import TooManyDigits, too_many_digits
from cms.errors import Problem, Refused, invalid_payload

_CHUNK = 1 << 16
"""Bytes that are read at once."""

_MAX_RECORDS = 1_000
"""Rows of CSV that are parsed together, unless they have `_CHUNK` bytes before."""

_UTF8 = "utf-8-sig"
"""UTF-8 with or without a byte order mark, which Excel writes."""

_DELIMITERS = ",;\t|"

# The line with which Excel is told the delimiter.
_SEPARATOR_LINE = re.compile(r'"?sep=([,;\t|])"?[\r\n]*')
_QUOTED = re.compile(r'"[^"]*"')

# The blanks of JSON; \s would skip others, with which JSON is not valid.
_BLANKS = re.compile(r"[ \t\r\n]+")


class SourceRow(NamedTuple):
    """An item with its line and its size in bytes, or the problem that the row's text has."""

    line: int
    size: int
    item: object = None
    problem: Problem | None = None


ParseCell = Callable[[str], object]
"""Makes a value of the text of a cell; raises ValueError with a reason."""

ParseCells = Callable[[Sequence[str]], Sequence[object] | None]
"""Parses many texts, none of them empty, as `ParseCell` does one.

Returns None if some are of an unusual form.
"""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """How the cells below a name of the header are read.

    An empty cell is null where the field `takes_null`; otherwise the item lacks the field.
    """

    name: str
    parse_cell: ParseCell
    parse_cells: ParseCells | None = None
    takes_null: bool = True

    def read(self, texts: Sequence[str]) -> Sequence[object] | None:
        """Return the values of many cells; None where an item lacks the field."""
        if "" in texts:
            if not self.takes_null:
                return None
            return [self.parse_cell(text) if text else None for text in texts]
        if self.parse_cells:
            values = self.parse_cells(texts)
            # A column with unusual cells has none, and its cells are parsed one by one.
            if values:
                return values
        return list(map(self.parse_cell, texts))


class HeaderParser(Protocol):
    def __call__(self, names: Sequence[str], line: int, /) -> Sequence[SourceColumn]:
        """Return the columns of a header in this line; raises `Refused` for a wrong name."""


class _OpenText(io.TextIOWrapper):
    """The text of a file that stays open when nobody needs its text: it may be read again."""

    def close(self) -> None:
        pass


class Lines:
    """The lines of a file; a row, of one or several, has at most `max_bytes` bytes in UTF-8.

    A line ends with `newline`, as `io.TextIOWrapper` takes it.
    """

    def __init__(
        self, file: BinaryIO, max_bytes: int, *, encoding: str = _UTF8, newline: str = "\n"
    ) -> None:
        # Bytes that are no characters become surrogates, which show in which line they are.
        self._text = _OpenText(file, encoding, "surrogateescape", newline)
        self._encoding = encoding
        self._max_bytes = max_bytes
        self.number = 0
        # Since the last `end_row`: a row of CSV with line breaks in its cells has several lines.
        self.row_bytes = 0

    def __iter__(self) -> Iterator[str]:
        try:
            # One character more than allowed tells a line that is too long from one that fits.
            while line := self._text.readline(self._max_bytes + 1):
                self.number += 1
                self.row_bytes += len(line) if line.isascii() else len(line.encode())
                if self.row_bytes > self._max_bytes:
                    raise _too_long(self._max_bytes, self.number)
                yield line
        except UnicodeEncodeError:
            raise _wrong_encoding(self._encoding, self.number) from None
        except UnicodeDecodeError:
            raise _wrong_encoding(self._encoding, self.number + 1) from None

    def end_row(self) -> int:
        """Return the bytes of the row that ends here, and begin the next one."""
        size = self.row_bytes
        self.row_bytes = 0
        return size


# CSV


def read_csv(
    file: BinaryIO, max_bytes: int, header: HeaderParser, charset: str | None = None
) -> Iterator[SourceRow]:
    """Read CSV with a header, in UTF-8 or UTF-16 unless another `charset` is named.

    Cells are parted by what parts the names of the header; lines end in any of the usual ways.
    Rows without content are skipped, and cells without content behind those of the header.
    """
    # The limit is one for the whole process, so it may only grow. `Lines` bounds the rows.
    csv.field_size_limit(max(max_bytes, csv.field_size_limit()))
    lines = Lines(file, max_bytes, encoding=_csv_encoding(file, charset), newline="")
    rest = iter(lines)
    first = next((line for line in rest if line.strip()), "")
    delimiter = _delimiter(first)
    if _SEPARATOR_LINE.fullmatch(first):
        first = ""
    # Strict, or a quote that is never closed would take the rest of the file into its cell.
    rows = csv.reader(chain([first], rest), delimiter=delimiter, strict=True)
    names = _cells(rows, lines) or _cells(rows, lines) or []
    while names and not names[-1]:
        names.pop()
    columns = header(names, lines.number)
    lines.end_row()
    while (records := _read_records(rows, lines, len(columns))).lines:
        # Column by column is faster, but only one by one the rows have their problems.
        yield from _parse_columns(columns, records) or _parse_rows(columns, records)


def _csv_encoding(file: BinaryIO, charset: str | None) -> str:
    """Return the encoding of a file, by its byte order mark if it has one; raises `Refused`."""
    beginning = file.read(2)
    file.seek(-len(beginning), io.SEEK_CUR)
    if beginning in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    if charset is None:
        return _UTF8
    try:
        encoding = codecs.lookup(charset).name
        # Some codecs of Python make no text, and some would unpack the file.
        "a".encode(encoding)
    except (LookupError, ValueError):
        raise invalid_payload(f'The charset "{charset[:50]}" is not known', line=1) from None
    return _UTF8 if encoding == "utf-8" else encoding


def _delimiter(header: str) -> str:
    """Return what parts the names of a header: spreadsheets of many countries use semicolons."""
    chosen = _SEPARATOR_LINE.fullmatch(header)
    if chosen:
        return chosen[1]
    unquoted = _QUOTED.sub("", header)
    return max(_DELIMITERS, key=unquoted.count)


@dataclass(slots=True)
class _Records:
    """The lines, bytes and cells of rows: lists of one length, because columns are parsed whole."""

    lines: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    cells: list[list[str]] = field(default_factory=list)


def _read_records(rows: Iterator[list[str]], lines: Lines, width: int) -> _Records:
    """Read some rows, none at the end of the file."""
    records = _Records()
    bytes_left = _CHUNK
    while bytes_left > 0 and len(records.lines) < _MAX_RECORDS:
        # A row begins on the line after those that the reader has taken so far.
        line = lines.number + 1
        cells = _cells(rows, lines)
        if cells is None:
            break
        size = lines.end_row()
        if len(cells) > width and not any(cells[width:]):
            del cells[width:]
        if any(cells):
            records.lines.append(line)
            records.sizes.append(size)
            records.cells.append(cells)
            bytes_left -= size
    return records


def _cells(rows: Iterator[list[str]], lines: Lines) -> list[str] | None:
    try:
        return next(rows, None)
    except csv.Error as error:
        raise invalid_payload(f"The file is not usable CSV: {error}", line=lines.number) from None


def _parse_columns(
    columns: Sequence[SourceColumn], records: _Records
) -> Iterator[SourceRow] | None:
    """Parse rows column by column; None if a cell is invalid, or an item lacks a field."""
    # Row by row, a row with another number of cells gets its problem.
    if set(map(len, records.cells)) != {len(columns)}:
        return None
    texts_of_columns = zip(*records.cells, strict=True)
    column_values = []
    try:
        for column, texts in zip(columns, texts_of_columns, strict=True):
            values = column.read(texts)
            if values is None:
                return None
            column_values.append(values)
    except ValueError:
        return None
    names = [column.name for column in columns]
    # Each column has a value for each record, and so each row one for each name.
    items = [dict(zip(names, values)) for values in zip(*column_values)]  # noqa: B905
    return map(SourceRow, records.lines, records.sizes, items)


def _parse_rows(columns: Sequence[SourceColumn], records: _Records) -> Iterator[SourceRow]:
    return map(partial(_parse_row, columns), records.lines, records.sizes, records.cells)


def _parse_row(
    columns: Sequence[SourceColumn], line: int, size: int, cells: Sequence[str]
) -> SourceRow:
    if len(cells) != len(columns):
        reason = f"it has {len(cells)} cells, and the header {len(columns)}"
        return SourceRow(line, size, problem=_problem(reason))
    item: dict[str, object] = {}
    for column, text in zip(columns, cells, strict=True):
        if not text:
            if column.takes_null:
                item[column.name] = None
            continue
        try:
            item[column.name] = column.parse_cell(text)
        # Before ValueError, of which it is a kind.
        except TooManyDigits as error:
            return SourceRow(line, size, problem=_too_many_digits(error, column.name))
        except ValueError as error:
            return SourceRow(line, size, problem=_problem(str(error), column.name))
    return SourceRow(line, size, item)


# JSON


def read_jsonl(
    file: BinaryIO, max_bytes: int, header: HeaderParser, charset: str | None = None
) -> Iterator[SourceRow]:
    """Read one object a line; blank lines are skipped."""
    lines = Lines(file, max_bytes)
    for text in lines:
        size = lines.end_row()
        if text.isspace():
            continue
        try:
            yield SourceRow(lines.number, size, jsontext.loads(text))
        except TooManyDigits as error:
            yield SourceRow(lines.number, size, problem=_too_many_digits(error))
        except ValueError as error:
            yield SourceRow(lines.number, size, problem=_problem(f"it is not usable JSON: {error}"))


def read_json(
    file: BinaryIO, max_bytes: int, header: HeaderParser, charset: str | None = None
) -> Iterator[SourceRow]:
    """Read an array of objects."""
    stream = _JsonStream(file, max_bytes)
    if stream.next() != "[":
        raise stream.refusal("it is no array of items")
    if stream.peek() == "]":
        stream.next()
    else:
        yield from _elements(stream)
    if stream.peek():
        raise stream.refusal("something follows the array")


def _elements(stream: _JsonStream) -> Iterator[SourceRow]:
    separator = ","
    while separator == ",":
        yield stream.row()
        separator = stream.next()
    if separator != "]":
        raise stream.refusal("after an item comes a comma or the end of the array")


class _JsonValue(NamedTuple):
    """A value, the position behind its text, and the problem of a value that is none."""

    value: object
    end: int
    problem: Problem | None = None


class _JsonStream:
    """JSON that is read piece by piece: the part that is not parsed yet, and its first line."""

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        # A piece may end within a character, whose first bytes the decoder keeps for the next one.
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text = ""
        self._position = 0
        self._line = 1

    def refusal(self, reason: str) -> Refused:
        return invalid_payload(f"The file is not usable JSON: {reason}", line=self._line)

    def peek(self) -> str:
        """Return the next character that is no blank, without moving past it; "" at the end."""
        # Blanks may fill several pieces.
        while True:
            blanks = _BLANKS.match(self._text, self._position)
            self._advance(blanks.end() if blanks else self._position)
            if self._position < len(self._text) or not self._more():
                return self._text[self._position : self._position + 1]

    def next(self) -> str:
        """Return the next character that is no blank, and move past it."""
        character = self.peek()
        self._advance(self._position + len(character))
        return character

    def row(self) -> SourceRow:
        """Read the next value."""
        # Past the blanks, which may hold line breaks.
        self.peek()
        line = self._line
        read = self._value()
        size = read.end - self._position
        if size > self._max_bytes:
            raise _too_long(self._max_bytes, line)
        self._advance(read.end)
        return SourceRow(line, size, read.value, read.problem)

    def _value(self) -> _JsonValue:
        """Return the next value when all of its text has been read.

        A number at the end of a piece is cut off there; but a number is no item anyway.
        """
        while True:
            try:
                return _JsonValue(*jsontext.loads_at(self._text, self._position))
            except TooManyDigits as error:
                # The value is complete, so reading goes on behind it.
                return _JsonValue(None, error.end, _too_many_digits(error))
            except ValueError as error:
                # The text may be wrong, or only not all there yet: the next piece tells.
                if len(self._text) - self._position > self._max_bytes:
                    raise _too_long(self._max_bytes, self._line) from None
                if not self._more():
                    raise self.refusal(_reason(error)) from None

    def _advance(self, position: int) -> None:
        self._line += self._text.count("\n", self._position, position)
        self._position = position

    def _more(self) -> bool:
        """Read as much again as is not parsed yet; tell whether anything came.

        A long value is parsed anew with each piece: with pieces that grow, only a few times.
        """
        rest = self._text[self._position :]
        raw = self._file.read(max(_CHUNK, len(rest)))
        try:
            self._text = rest + self._decode(raw, final=not raw)
            self._position = 0
        except UnicodeDecodeError:
            raise _wrong_encoding(_UTF8, self._line) from None
        return bool(raw)


def _wrong_encoding(encoding: str, line: int) -> Refused:
    if encoding == _UTF8:
        return invalid_payload(
            "The file is not UTF-8. Save it as UTF-8; of a CSV file the type of the content may "
            "name another encoding: text/csv; charset=windows-1252",
            line=line,
        )
    return invalid_payload(f"The file is not {encoding}", line=line)


def _reason(error: ValueError) -> str:
    """Return a decoder's message without its line, which is not that of the file."""
    return getattr(error, "msg", str(error))


def _problem(reason: str, name: str | None = None) -> Problem:
    extensions: dict[str, object] = {}
    if name:
        extensions["field"] = name
    return invalid_payload(reason[0].upper() + reason[1:], **extensions).problems[0]


def _too_many_digits(error: TooManyDigits, *names: str) -> Problem:
    path = [*names, *error.path]
    if not path:
        return too_many_digits(error)
    return too_many_digits(error, field=path[0], path=path)


def _too_long(max_bytes: int, line: int) -> Refused:
    sentence = f"A row is longer than {max_bytes} bytes."
    return Refused(Problem("CONTENT_TOO_LARGE", sentence, {"limit": max_bytes, "line": line}))


SOURCES: Mapping[str, Callable[[BinaryIO, int, HeaderParser, str | None], Iterator[SourceRow]]] = (
    MappingProxyType({"csv": read_csv, "json": read_json, "jsonl": read_jsonl})
)
"""Readers by format; they take a file, the limit of a row, the header's parser and a charset."""
