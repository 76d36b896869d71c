"""Documents as files: YAML and JSON with a line for each value, which version control compares.

YAML of clients is read as values of JSON: no tags, no aliases, no dates, numbers exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

import yaml

from cms import jsontext


class _Dumper(yaml.SafeDumper):
    """Writes decimals with all their digits, and equal values twice instead of as an alias."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_decimal(dumper: _Dumper, value: Decimal) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", str(value))


def _represent_text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    # In any other style PyYAML writes this line break of old terminals as if it were a usual one.
    style = '"' if "\x85" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(Decimal, _represent_decimal)
_Dumper.add_representer(str, _represent_text)


def write_yaml(document: Mapping[str, object]) -> bytes:
    # Through JSON, so that every value is of a type that both formats have.
    plain = jsontext.loads_stored(jsontext.dumps(document))
    return yaml.dump(
        plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, encoding="utf-8", width=100
    )


class FileFormat(NamedTuple):
    suffix: str
    media_type: str
    write: Callable[[Mapping[str, object]], bytes]


FILE_FORMATS = {
    "json": FileFormat("json", "application/json", jsontext.dumps_indented),
    "yaml": FileFormat("yaml", "application/yaml", write_yaml),
}


_YAML_MEDIA_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")


def is_yaml(media_type: str) -> bool:
    """Tell whether a media type is one of those of YAML."""
    return media_type in _YAML_MEDIA_TYPES


# YAML of clients

MAX_LEVELS = 250

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_BOOLEAN_TAG = "tag:yaml.org,2002:bool"
_NULL_TAG = "tag:yaml.org,2002:null"
_TRUE = ("yes", "true", "on")
_RESOLVER = yaml.resolver.Resolver()
# The parser of libyaml, where it is there, is about ten times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(raw: bytes) -> object:
    """Return the value of a YAML text; raises ValueError with a reason for anything unusable.

    Texts and numbers are those of JSON, so that a file that was written from JSON is read back as
    the same values. A plain date is a text.
    """
    try:
        text = raw.decode()
        value = _value_of(yaml.parse(text, Loader=_LOADER))
        # The same limits as those of a JSON body.
        return jsontext.loads(jsontext.dumps(value))
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        raise ValueError(_sentence(error)) from None
    except yaml.reader.ReaderError as error:
        # The text of the error would go on with names of the library; libyaml counts bytes.
        line = raw.count(b"\n", 0, error.position) + 1
        raise ValueError(f"it has the character U+{error.character:04X} at line {line}") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except TypeError:  # half of a surrogate pair
        raise ValueError("a character in it is none of Unicode") from None


def _sentence(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "it cannot be read"
    if error.problem_mark is None:
        return str(problem)
    return f"{problem} at line {error.problem_mark.line + 1}"


class _Builder:
    """Builds a value from events without recursion."""

    def __init__(self) -> None:
        self.documents: list[object] = []
        self._open: list[list[object] | dict[str, object]] = []
        self._keys: list[str | None] = []

    def begin(self, container: list[object] | dict[str, object]) -> None:
        if len(self._open) == MAX_LEVELS:
            raise ValueError(jsontext.NESTED_TOO_DEEPLY)
        self.add(container)
        self._open.append(container)
        self._keys.append(None)

    def end(self) -> None:
        self._open.pop()
        self._keys.pop()

    def add(self, value: object) -> None:
        if not self._open:
            self.documents.append(value)
            return
        container = self._open[-1]
        if isinstance(container, list):
            container.append(value)
            return
        key = self._keys[-1]
        if key is None:
            raise ValueError("a key must be a text")
        container[key] = value
        self._keys[-1] = None

    @property
    def expects_key(self) -> bool:
        if not self._open or not isinstance(self._open[-1], dict):
            return False
        return self._keys[-1] is None

    def add_key(self, key: str) -> None:
        container = self._open[-1]
        if key in container:
            raise ValueError(f'the key "{key}" is there twice')
        self._keys[-1] = key


def _value_of(events: Iterator[yaml.Event]) -> object:
    builder = _Builder()
    for event in events:
        # The writer marks numbers such as 1E+3, which would be read as texts otherwise.
        if getattr(event, "tag", None) not in (None, *_NUMBER_TAGS):
            raise ValueError(f"it has a tag{_line_of(event)}")
        match event:
            case yaml.AliasEvent():
                raise ValueError(f"it has an alias{_line_of(event)}")
            case yaml.SequenceStartEvent():
                builder.begin([])
            case yaml.MappingStartEvent():
                builder.begin({})
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                builder.end()
            case yaml.ScalarEvent() if builder.expects_key:
                builder.add_key(event.value)
            case yaml.ScalarEvent():
                builder.add(_scalar(event))
    if len(builder.documents) != 1:
        raise ValueError("it must be one document")
    return builder.documents[0]


def _line_of(event: yaml.Event) -> str:
    return f" at line {event.start_mark.line + 1}" if event.start_mark else ""


def _scalar(event: yaml.ScalarEvent) -> object:
    text: str = event.value
    tag = event.tag
    if tag is None and event.implicit[0]:
        implicit = (True, False)
        tag = _RESOLVER.resolve(yaml.ScalarNode, text, implicit)  # type: ignore[no-untyped-call]
    # Of the numbers of YAML those that JSON has: 0x1F and 12:30 are texts.
    if tag in _NUMBER_TAGS and _NUMBER.fullmatch(text):
        return jsontext.loads(text)
    if tag == _NULL_TAG:
        return None
    if tag == _BOOLEAN_TAG:
        return text.lower() in _TRUE
    return text
