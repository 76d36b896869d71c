"""The file formats of exports: batches of items in, chunks of bytes out."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from xml.sax.saxutils import escape, quoteattr

from cms import jsontext
from cms.items.read.reads import Item

Batches = Iterable[list[Item]]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What begins a formula; in some languages a spreadsheet takes full-width characters as well."""

# Characters that JSON does not escape, and that readers of YAML refuse or take for line breaks.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

# The characters that are no Char (XML 1.0, section 2.2), without surrogates: no text here has any.
_INVALID_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Format:
    """A file format: its media type, and the function that writes items with their keys."""

    media_type: str
    write: Callable[[Batches, list[str]], Iterator[bytes]]


def write_json(batches: Batches, keys: list[str]) -> Iterator[bytes]:
    """Write an array, one item a line."""
    yield b"["
    # The array ends behind the last item, which is known only when no other comes.
    separator = b"\n"
    for items in batches:
        for item in items:
            yield separator + jsontext.dumps(item)
            separator = b",\n"
    yield b"\n]\n"


def write_jsonl(batches: Batches, keys: list[str]) -> Iterator[bytes]:
    """Write one object a line."""
    for items in batches:
        yield b"".join(_one_line(jsontext.dumps(item)) + b"\n" for item in items)


def write_csv(batches: Batches, keys: list[str]) -> Iterator[bytes]:
    """Write RFC 4180 with a header; nested values are JSON in their cells."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    # Even a file without items tells what its columns are.
    writer.writerow(map(_cell, keys))
    for items in batches:
        for item in items:
            # All items have the same keys in the same order: they are rows of one statement.
            writer.writerow(map(_cell, item.values()))
        yield buffer.getvalue().encode()
        # Emptied for the next batch: the file may be larger than memory.
        buffer.seek(0)
        buffer.truncate()


def _cell(value: object) -> str:
    """Return the text of a cell, with an apostrophe before what a spreadsheet would run.

    A formula that has apostrophes already gets one more, because `unescape_formula` removes one.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return jsontext.dumps(value).decode()
    if value.lstrip("'").startswith(_FORMULA):
        return f"'{value}"
    return value


def unescape_formula(cell: str) -> str:
    """Return the text of a cell without the apostrophe that keeps a spreadsheet from running it."""
    if cell[0] == "'" and cell.lstrip("'").startswith(_FORMULA):
        return cell[1:]
    return cell


def write_yaml(batches: Batches, keys: list[str]) -> Iterator[bytes]:
    """Write a list of mappings, their values as JSON.

    YAML contains JSON, except for some characters that its readers refuse.
    """
    # A list without items would be no line at all, which YAML reads as null.
    is_empty = True
    for items in batches:
        for item in items:
            is_empty = False
            yield _UNPRINTABLE.sub(_escape, _yaml_mapping(item)).encode()
    if is_empty:
        yield b"[]\n"


def _yaml_mapping(item: Item) -> str:
    lines: list[bytes] = []
    for key, value in item.items():
        value_json = _one_line(jsontext.dumps(value))
        lines.append(jsontext.dumps(key) + b": " + value_json)
    # Two blanks put the other lines below the first, behind its dash.
    return (b"- " + b"\n  ".join(lines) + b"\n").decode()


def _escape(character: re.Match[str]) -> str:
    """Return the escape of JSON, which YAML reads as well: the characters are in strings only."""
    return f"\\u{ord(character[0]):04x}"


def _one_line(json: bytes) -> bytes:
    """Return JSON without line breaks, which would end a line of JSONL and a value of YAML.

    They are only between tokens: inside strings JSON escapes them.
    """
    return json.replace(b"\n", b" ")


def write_xml(batches: Batches, keys: list[str]) -> Iterator[bytes]:
    """Write `<data>` of `<item>`s with a `<field>` for each value; nested values are JSON.

    A key may be no name of XML, so it is an attribute.
    """
    yield b'<?xml version="1.0" encoding="UTF-8"?>\n<data>\n'
    for items in batches:
        yield b"".join(map(_element, items))
    yield b"</data>\n"


def _element(item: Item) -> bytes:
    fields = "".join(_field(key, value) for key, value in item.items())
    return f"  <item>\n{fields}  </item>\n".encode()


def _field(key: str, value: object) -> str:
    name = quoteattr(_valid_xml(key))
    if value is None:
        return f'    <field name={name} null="true"/>\n'
    text = value
    if not isinstance(text, str):
        text = jsontext.dumps(value).decode()
    return f"    <field name={name}>{escape(_valid_xml(text), _XML_ESCAPES)}</field>\n"


_XML_ESCAPES = {"\r": "&#13;"}
"""A reader of XML takes a bare carriage return for a line feed."""


def _valid_xml(text: str) -> str:
    """Return a text with U+FFFD in place of the characters that XML cannot hold."""
    return _INVALID_XML.sub("\ufffd", text)


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "csv": Format("text/csv; charset=utf-8", write_csv),
        "json": Format("application/json", write_json),
        "jsonl": Format("application/x-ndjson", write_jsonl),
        "xml": Format("application/xml", write_xml),
        "yaml": Format("application/yaml", write_yaml),
    }
)
