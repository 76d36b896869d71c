"""The options of triggers and operations, and the values that they take.

Options are checked when a flow is saved, as far as they hold no templates, and again with the
values of a run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from cms import jsontext
from cms.distribution import install_command
from cms.emails import NO_ADDRESS, is_email, split_recipient, split_recipients
from cms.errors import Refused
from cms.flows.definition.signature import parse_secret
from cms.flows.definition.templates import (
    FixedValue,
    List,
    Lookup,
    Template,
    TemplateError,
    Text,
    parse_template,
    parse_url_template,
)
from cms.option_checks import IncompleteOption, OptionCheck, OptionError, json_object, text
from cms.query.language.parse import PARAMETERS
from cms.query.rules.payload_rules import parse_rule
from cms.schema.types.texts import parse_uuid

SCRIPT_ENGINE = "py_mini_racer"
"""The module that runs scripts, of the extra `script`."""

_EMPTY_LIST = "at least one is needed"
_METHOD_NAMES = ("GET", "POST", "PUT", "PATCH", "DELETE")
# A token of RFC 9110, section 5.6.2.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Null counts as not given.

    Of a required option that `may_become_null` a template may stand for null. An option that
    `is_json` may be written as a text that is JSON.
    """

    check: OptionCheck
    is_required: bool = False
    takes_templates: bool = True
    may_become_null: bool = False
    is_json: bool = False
    is_url: bool = False

    def template(self, value: object) -> Template:
        """Return the template of a value as it is stored; raises `TemplateError`.

        A text that is JSON is read before its templates are filled: a value of a run adds no keys.
        """
        if self.is_json and isinstance(value, str):
            value = _decoded(value)
        if not self.takes_templates:
            return FixedValue(value)
        if self.is_url:
            return parse_url_template(value)
        return parse_template(value)

    def is_known(self, template: Template) -> bool:
        """Tell whether a template can be checked before a run."""
        if isinstance(template, FixedValue):
            return True
        # A longer text with lookups stays a text, which no other check of JSON takes.
        return self.is_json and isinstance(template, Text) and self.check is not any_json


def _decoded(text: str) -> object:
    try:
        return jsontext.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one kind of trigger or operation, and of which groups one is needed."""

    options: Mapping[str, Option]
    one_of: tuple[tuple[str, ...], ...] = ()
    needs: tuple[tuple[str, str], ...] = ()
    """Options that need another one as soon as they are set and not false."""
    list_with_keys: str | None = None
    """An option whose items hold their keys where it is a list: then no group is needed."""

    def errors(self, values: object, *, are_rendered: bool = False) -> Iterator[OptionError]:
        """Yield the problems of values, as they are saved or as a run renders them."""
        if values is None:
            values = {}
        if not isinstance(values, Mapping):
            yield OptionError("they are an object")
            return
        # Unknown options are let through: they are for apps. `cms doctor` names them.
        for name, option in self.options.items():
            yield from _errors_of(name, option, values.get(name), are_rendered=are_rendered)
        has_keys = self._may_have_keys(values, are_rendered=are_rendered)
        for names in self.one_of:
            if not has_keys and all(values.get(name) is None for name in names):
                yield IncompleteOption(f"one of {' and '.join(names)} is needed", names[0])
        for name, needed in self.needs:
            if values.get(name) and values.get(needed) is None:
                yield IncompleteOption(f"{name} needs it", needed)

    def _may_have_keys(self, values: Mapping[str, object], *, are_rendered: bool) -> bool:
        if self.list_with_keys is None:
            return False
        value = values.get(self.list_with_keys)
        if are_rendered:
            return isinstance(value, list)
        try:
            template = self.options[self.list_with_keys].template(value)
        except TemplateError:
            return False
        if isinstance(template, FixedValue):
            return isinstance(template.value, list)
        return isinstance(template, List | Lookup)


def _errors_of(
    name: str, option: Option, value: object, *, are_rendered: bool
) -> Iterator[OptionError]:
    if value is None:
        if option.is_required and not (are_rendered and option.may_become_null):
            yield IncompleteOption("it is needed", name)
        return
    try:
        # In a run a text may look like a template again.
        if are_rendered:
            option.check(value)
            return
        template = option.template(value)
        # The values of templates are known in a run only.
        if option.is_known(template):
            option.check(template.value if isinstance(template, FixedValue) else value)
    except IncompleteOption as error:
        yield IncompleteOption(str(error), name, *error.path)
    except (OptionError, TemplateError) as error:
        yield OptionError(str(error), name, *error.path)


def _elements(value: object) -> Iterator[tuple[tuple[int, ...], object]]:
    """Yield the elements of a list, each with its path; another value is its only element."""
    if not isinstance(value, list):
        yield (), value
        return
    for index, element in enumerate(value):
        yield (index,), element


# Checks of values


def any_json(value: object) -> None:
    """Take every value."""


def script(value: object) -> None:
    text(value)
    # Looked for without importing it: the engine takes tens of megabytes.
    if find_spec(SCRIPT_ENGINE) is None:
        raise OptionError(
            "no script can run here: the service is installed without the extra script "
            f"({install_command('script')})"
        )


def object_or_objects(value: object) -> None:
    """Take an object, or a list of objects."""
    for path, element in _elements(value):
        if not isinstance(element, Mapping):
            raise OptionError("it is an object, or a list of objects", *path)


def key(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise OptionError("it is a key")


def key_or_keys(value: object) -> None:
    """Take the key of an item, or a list of keys."""
    for path, element in _elements(value):
        # An array in the list is the key of several columns.
        parts = element if isinstance(element, list) else [element]
        for part in parts:
            if isinstance(part, bool) or not isinstance(part, str | int):
                raise OptionError("it is a key, or a list of keys", *path)


def uuid(value: object) -> None:
    # As a field takes it. Python takes more than PostgreSQL does, as digits of other scripts.
    try:
        parse_uuid(value)
    except ValueError:
        raise OptionError("it is a UUID") from None


def uuid_or_uuids(value: object) -> None:
    """Take a UUID, or a list of them."""
    if value == []:
        raise IncompleteOption(_EMPTY_LIST)
    for path, element in _elements(value):
        try:
            uuid(element)
        except OptionError as error:
            raise OptionError(str(error), *path) from None


def texts_of(value: object) -> list[str]:
    """Return the texts of an option that takes one, or a list of them."""
    return [str(element) for _, element in _elements(value)]


def mail_body(value: object) -> None:
    """Take a text, or JSON that is written out."""
    if not isinstance(value, Mapping | list):
        text(value)


def addresses(value: object) -> None:
    """Take an e-mail address, a list of them, or a text with commas between them.

    Each may have a name: `Ada <ada@example.com>`.
    """
    if value in ("", []):
        raise IncompleteOption(_EMPTY_LIST)
    if isinstance(value, str):
        for text in split_recipients(value):
            _check_address(text)
        return
    if not isinstance(value, list):
        raise OptionError("it is an e-mail address, or a list of them")
    for index, element in enumerate(value):
        _check_address(element, index)


def _check_address(value: object, *path: int) -> None:
    if not isinstance(value, str) or not is_email(split_recipient(value).address):
        raise OptionError(NO_ADDRESS, *path)


def permissions(value: object) -> None:
    """Take $trigger, $public, $full or the id of a role."""
    if value not in ("$trigger", "$public", "$full"):
        try:
            uuid(value)
        except OptionError:
            raise OptionError("it is $trigger, $public, $full or the id of a role") from None


def rule(value: object) -> None:
    """Take a filter that is tried on the values of the run."""
    try:
        parse_rule(value)
    except Refused as refused:
        problem = refused.problems[0]
        reason = str(problem.extensions.get("reason", problem.message)).removesuffix(".")
        raise OptionError(reason) from None


def query(value: object) -> None:
    """Take the parameters of a query: without its misspelt filter it would be one of all items."""
    json_object(value)
    assert isinstance(value, Mapping)
    for name in value:
        if name not in PARAMETERS:
            known = ", ".join(sorted(PARAMETERS))
            raise OptionError(f"there is no such parameter; there are {known}", str(name))


def http_token(value: object) -> None:
    """Take the name of any HTTP method."""
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise OptionError("it is the name of a method, such as GET")


def method(value: object) -> None:
    """Take the name of an HTTP method that a webhook can have, in any case."""
    if not isinstance(value, str) or value.upper() not in _METHOD_NAMES:
        raise OptionError(f"it is one of {', '.join(_METHOD_NAMES)}")


def signing_secrets(value: object) -> None:
    """Take the secret of a signature, or a list of them while one is being replaced."""
    for path, element in _elements(value):
        try:
            parse_secret(element if isinstance(element, str) else "")
        except ValueError as error:
            raise OptionError(str(error), *path) from None
    if value == []:
        raise IncompleteOption(_EMPTY_LIST)


def url(value: object) -> None:
    if not isinstance(value, str):
        raise OptionError("it is a text")
    if not value.startswith(("http://", "https://")):
        raise IncompleteOption("it is an address that begins with http:// or https://")


def headers(value: object) -> None:
    """Take an object of headers, or a list of objects with `header` and `value`."""
    for position, name, content in _header_entries(value):
        if name in (None, "") or content is None:
            raise IncompleteOption("a header needs a name and a value", position)
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise OptionError("it is not the name of a header", position)
        if not _is_header_value(content):
            raise OptionError("the value of a header is a text of one line", position)


def _is_header_value(content: object) -> bool:
    # A line break would begin another header.
    return isinstance(content, str | int) and not {"\r", "\n"} & set(str(content))


def _header_entries(value: object) -> Iterator[tuple[str | int, object, object]]:
    """Yield the headers of an option: where each stands in it, its name and its content."""
    if isinstance(value, Mapping):
        for name, content in value.items():
            yield str(name), name, content
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            if not isinstance(entry, Mapping):
                raise OptionError("it is an object with header and value", index)
            yield index, entry.get("header"), entry.get("value")
    else:
        raise OptionError("they are an object, or a list of objects with header and value")
