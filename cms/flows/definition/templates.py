"""Templates in the options of operations: `{{path}}` stands for a value of the run.

A template only looks values up. It has no operators, calls or filters, so that neither the author
of a flow nor a sender of its values can run code with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from cms import jsontext

Scope = Mapping[str, object]
"""The values of a run by name: `$trigger`, `$last`, the keys of operations and so on."""

# `$trigger.body.items[0]["first name"]`: names with hyphens and colons, in brackets numbers and
# quoted names of any characters.
_PATH = re.compile(r"""[\w$:-]+(?:\.[\w$:-]+|\[(?:\d+|"[^"]*"|'[^']*')\])*""")
_STEP = re.compile(r"""\["([^"]*)"\]|\['([^']*)'\]|([^.\[\]]+)""")
_MAX_INDEX_DIGITS = 9


MAX_RENDERED_SIZE = 2**24
"""Characters that templates of one operation may come to; each value counts for 16 more."""
_VALUE_SIZE = 16


class RenderedTooLarge(Exception):
    """Templates that repeat large values, until memory or time would not suffice for them."""


class TemplateError(ValueError):
    """The text between braces is not a path."""

    def __init__(self, text: str, path: tuple[str | int, ...]) -> None:
        super().__init__(f'"{{{{{text}}}}}" is no path such as {{{{$trigger.body.title}}}}')
        self.path = path


@dataclass(frozen=True, slots=True)
class Lookup:
    """A path into the scope, for instance `$trigger`, `body`, `0`, `title`."""

    steps: tuple[str, ...]

    def render(self, scope: Scope) -> object:
        """Return the value with its type; None where the path leads to nothing."""
        value: object = scope
        for step in self.steps:
            if isinstance(value, Mapping):
                value = value.get(step)
            elif isinstance(value, list):
                value = _element(value, step)
            else:
                return None
        return value


@dataclass(frozen=True, slots=True)
class Text:
    """A text with lookups inside it.

    In a URL the values of its query (`?q={{$trigger.q}}`) are percent-encoded.
    """

    parts: tuple[str | Lookup, ...]
    is_url: bool = False

    def render(self, scope: Scope) -> str:
        """Return the text, with every value written out; nothing for null.

        Raises `RenderedTooLarge`.
        """
        texts: list[str] = []
        room = MAX_RENDERED_SIZE
        for part in self.parts:
            if isinstance(part, Lookup):
                text = _written(part.render(scope))
                if self.is_url and _is_in_query_value("".join(texts)):
                    text = quote(text, safe="")
            else:
                text = part
            room -= len(text)
            if room < 0:
                raise RenderedTooLarge
            texts.append(text)
        return "".join(texts)


@dataclass(frozen=True, slots=True)
class FixedValue:
    """A value without a lookup."""

    value: object

    def render(self, scope: Scope) -> object:
        return self.value


@dataclass(frozen=True, slots=True)
class Object:
    """An object of templates; the names may hold lookups, too."""

    entries: tuple[tuple[Lookup | Text | FixedValue, Template], ...]

    def render(self, scope: Scope) -> dict[str, object]:
        return {_written(name.render(scope)): value.render(scope) for name, value in self.entries}


@dataclass(frozen=True, slots=True)
class List:
    """A list of templates."""

    elements: tuple[Template, ...]

    def render(self, scope: Scope) -> list[object]:
        return [element.render(scope) for element in self.elements]


Template = FixedValue | Lookup | Text | Object | List


def parse_template(value: object, path: tuple[str | int, ...] = ()) -> Template:
    """Return the template of a JSON value, whose texts may hold lookups at any depth.

    Raises `TemplateError`, whose `path` leads from the value to the text.
    """
    if isinstance(value, str):
        return _parse_text(value, path)
    if isinstance(value, Mapping):
        return _parse_object(value, path)
    if isinstance(value, list):
        return _parse_list(value, path)
    return FixedValue(value)


def parse_url_template(value: object) -> Template:
    """Return the template of a URL; raises as `parse_template` does."""
    template = parse_template(value)
    if isinstance(template, Text):
        return replace(template, is_url=True)
    return template


def _is_in_query_value(beginning: str) -> bool:
    """Tell whether a URL goes on with the value of a parameter."""
    _, _, query = beginning.partition("?")
    return "=" in query.rpartition("&")[2]


def _parse_object(value: Mapping[str, object], path: tuple[str | int, ...]) -> Template:
    """Return the template of an object.

    An object without lookups is a fixed value, however large: no run makes it anew.
    """
    entries = []
    has_lookups = False
    for name, inner in value.items():
        name_template = _parse_text(name, path)
        template = parse_template(inner, (*path, name))
        entries.append((name_template, template))
        if not isinstance(name_template, FixedValue) or not isinstance(template, FixedValue):
            has_lookups = True
    if not has_lookups:
        return FixedValue(value)
    return Object(tuple(entries))


def _parse_list(value: Sequence[object], path: tuple[str | int, ...]) -> Template:
    """Return the template of a list, which is a fixed value as an object may be."""
    elements = [parse_template(inner, (*path, index)) for index, inner in enumerate(value)]
    if all(isinstance(element, FixedValue) for element in elements):
        return FixedValue(value)
    return List(tuple(elements))


def require_size(rendered: object) -> None:
    """Check the size of a rendered template; raises `RenderedTooLarge`.

    A value that stands there several times counts as often: logs and scripts write it out.
    """
    room = MAX_RENDERED_SIZE
    # A list instead of recursion: the value may have any depth.
    values = [rendered]
    while values:
        value = values.pop()
        room -= _VALUE_SIZE
        if isinstance(value, str):
            room -= len(value)
        elif isinstance(value, Mapping):
            room -= sum(map(len, value))
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)
        if room < 0:
            raise RenderedTooLarge


def lookups(template: Template) -> Iterator[Lookup]:
    """Yield every lookup of a template."""
    match template:
        case Lookup():
            yield template
        case Text(parts):
            for part in parts:
                if isinstance(part, Lookup):
                    yield part
        case Object(entries):
            for name, inner in entries:
                yield from lookups(name)
                yield from lookups(inner)
        case List(elements):
            for element in elements:
                yield from lookups(element)


def _parse_text(text: str, path: tuple[str | int, ...]) -> FixedValue | Lookup | Text:
    parts: list[str | Lookup] = []
    end = 0
    # No expression: with braces that nothing closes it would take quadratic time, or worse.
    while (opening := text.find("{{", end)) >= 0:
        closing = text.find("}}", opening + 2)
        if closing < 0:
            break
        if opening > end:
            parts.append(text[end:opening])
        parts.append(_parse_lookup(text[opening + 2 : closing].strip(), path))
        end = closing + 2
    if not parts:
        return FixedValue(text)
    if end < len(text):
        parts.append(text[end:])
    # A lookup alone keeps the type of its value: `{{$trigger.count}}` is a number.
    if len(parts) == 1 and isinstance(parts[0], Lookup):
        return parts[0]
    return Text(tuple(parts))


def _parse_lookup(text: str, path: tuple[str | int, ...]) -> Lookup:
    if not _PATH.fullmatch(text):
        raise TemplateError(text, path)
    return Lookup(tuple("".join(names) for names in _STEP.findall(text)))


def _element(elements: list[object], step: str) -> object:
    """Return the element that a step of a path names; None where there is none."""
    # Python refuses to read thousands of digits.
    if not step.isdecimal() or len(step) > _MAX_INDEX_DIGITS:
        return None
    index = int(step)
    if index < len(elements):
        return elements[index]
    return None


def _written(value: object) -> str:
    """Return a value as it stands in a text: null is empty, objects and numbers are JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return jsontext.dumps(value).decode()
