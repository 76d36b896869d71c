"""Panels: their types, and the options that decide what they show (docs/dashboards.md).

Other options say how an application draws a panel. They are stored and returned as they came.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from cms.markdown import MAX_MARKDOWN_LENGTH
from cms.option_checks import (
    IncompleteOption,
    OptionCheck,
    OptionError,
    json_object,
    one_of,
    text,
    whole_number,
)
from cms.query.language.aggregates import AGGREGATES
from cms.query.language.literals import parse_variable
from cms.schema.references import (
    FieldChange,
    FollowChange,
    apply_to_filter,
    apply_to_path,
    apply_to_paths,
    apply_to_template,
)

Data = Mapping[str, object]
"""The data of a panel; its members depend on the type of the panel."""

ROW_FUNCTIONS = ("first", "last")
"""Functions of a metric that show the value of one row."""
# Grouping by parts, because the query language has no rounding of moments: all rows of one day have
# the same year, month and day.
PRECISIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "year": ("year",),
        "month": ("year", "month"),
        "week": ("isoyear", "week"),
        "day": ("year", "month", "day"),
        "hour": ("year", "month", "day", "hour"),
        "minute": ("year", "month", "day", "hour", "minute"),
        "second": ("year", "month", "day", "hour", "minute", "second"),
    }
)
"""The functions of a date whose values together are the moment of a point, by units."""
ALL_TIME = "auto"
"""The range of a time series without a beginning."""

MAX_LIST_ROWS = 500
MAX_DECIMALS = 20
MAX_SHORT_TEXT_LENGTH = 2_000
"""Characters of a display template, and of the texts before and behind a number."""

# "30 days", "1 month": a count without leading zeros and a unit; whether there is such a unit,
# `parse_variable` knows.
_RANGE = re.compile(r"[1-9][0-9]{0,8} ?[a-z]+")


def _text_up_to(max_length: int) -> OptionCheck:
    def check(value: object) -> None:
        if not isinstance(value, str):
            raise OptionError("it is a text")
        if len(value) > max_length:
            raise OptionError(f"it has at most {max_length} characters")

    return check


_SHORT_TEXT = _text_up_to(MAX_SHORT_TEXT_LENGTH)
_LONG_TEXT = _text_up_to(MAX_MARKDOWN_LENGTH)


def field_name(value: object) -> None:
    """Take the name of a field, or a function of one such as `year(published)`."""
    # Whether the field exists, the catalogue knows: cms/items/write/hooks/panels.py tries the
    # query. That reads " price" as "price", and its answer would lack the name that is looked for.
    if not isinstance(value, str) or not value or value != value.strip() or "," in value:
        raise OptionError("it is the name of a field")


def _field_names(value: object) -> None:
    """Take a list of names of fields, among which may be wildcards such as `author.*`."""
    if not isinstance(value, list):
        raise OptionError("it is a list of names of fields")
    for index, name in enumerate(value):
        try:
            field_name(name)
        except OptionError as error:
            raise OptionError(str(error), index) from None


def _range(value: object) -> None:
    """Take a length of time, such as "30 days"."""
    reason = f'it is a length of time such as "30 days", or "{ALL_TIME}"'
    if value == ALL_TIME:
        return
    if not isinstance(value, str) or not _RANGE.fullmatch(value):
        raise OptionError(reason)
    try:
        parse_variable(range_start(value))
    except ValueError:
        raise OptionError(reason) from None


def range_start(length: str) -> str:
    """Return the variable for the moment that a range begins at."""
    return f"$NOW(-{length})"


class Panel(NamedTuple):
    """A panel as it is stored."""

    id: str
    type: str
    options: Mapping[str, Any]
    name: str | None = None
    color: str | None = None


@dataclass(frozen=True, slots=True)
class PanelType:
    """A type of panels: its required options, and the checks of all. Null counts as not given."""

    required: tuple[str, ...] = ()
    checks: Mapping[str, OptionCheck] = field(default_factory=dict)
    required_by_function: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Options that are needed in addition, by the value of the option `function`."""

    def errors(self, options: object) -> Iterator[OptionError]:
        """Yield the problems of options that do not depend on the collections."""
        if options is None:
            options = {}
        if not isinstance(options, Mapping):
            yield OptionError("they are an object")
            return
        # A function of another type than text has no requirements of its own: its check refuses it
        # below.
        by_function = self.required_by_function.get(str(options.get("function")), ())
        for name in (*self.required, *by_function):
            if options.get(name) is None:
                yield IncompleteOption("it is needed", name)
        # Unknown options are let through: they are for apps.
        for name, check in self.checks.items():
            value = options.get(name)
            if value is None:
                continue
            try:
                check(value)
            except OptionError as error:
                yield type(error)(str(error), name, *error.path)


# Each check raises OptionError; `checks` are of options that may be left out, unless `required`
# names them too.
_SOURCE: Mapping[str, OptionCheck] = {"collection": text, "filter": json_object}
_ROWS: Mapping[str, OptionCheck] = {
    **_SOURCE,
    "limit": whole_number(1, MAX_LIST_ROWS),
    "sortField": field_name,
    "sortDirection": one_of("asc", "desc"),
}
_AXES: Mapping[str, OptionCheck] = {
    **_SOURCE,
    "xAxis": field_name,
    "yAxis": field_name,
    "grouping": field_name,
    "function": one_of(*AGGREGATES),
    "aggregation": one_of(*AGGREGATES),
}

PANEL_TYPES: Mapping[str, PanelType] = MappingProxyType(
    {
        "metric": PanelType(
            ("collection", "function"),
            {
                **_SOURCE,
                "field": field_name,
                "function": one_of(*AGGREGATES, *ROW_FUNCTIONS),
                "sortField": field_name,
                "prefix": _SHORT_TEXT,
                "suffix": _SHORT_TEXT,
                "decimals": whole_number(0, MAX_DECIMALS),
            },
            # The first or last row in which order, and which field of it?
            dict.fromkeys(ROW_FUNCTIONS, ("field", "sortField")),
        ),
        "list": PanelType(("collection",), {**_ROWS, "displayTemplate": _SHORT_TEXT}),
        "table": PanelType(("collection",), {**_ROWS, "fields": _field_names}),
        "time-series": PanelType(
            ("collection", "dateField"),
            {
                **_SOURCE,
                "dateField": field_name,
                "precision": one_of(*PRECISIONS),
                "function": one_of(*AGGREGATES),
                "valueField": field_name,
                "range": _range,
            },
        ),
        "line-chart": PanelType(("collection", "xAxis"), _AXES),
        "bar-chart": PanelType(("collection", "xAxis"), _AXES),
        "label": PanelType((), {"text": _LONG_TEXT}),
        "markdown": PanelType((), {"text": _LONG_TEXT}),
    }
)

_FIELD_OPTIONS = ("field", "sortField", "dateField", "valueField", "xAxis", "yAxis", "grouping")

PANEL_OPTIONS_WITH_NAMES: Mapping[str, FollowChange] = MappingProxyType(
    {
        **dict.fromkeys(_FIELD_OPTIONS, apply_to_path),
        "fields": apply_to_paths,
        "displayTemplate": apply_to_template,
        "filter": apply_to_filter,
    }
)
"""Options of panels that name fields of their `collection`."""


def apply_to_panel(options: object, _collection: str | None, change: FieldChange) -> object:
    """Return the options of a panel with the field's new name.

    A dropped field stays in them: a panel without it would show something else.
    """
    if change.after is None or not isinstance(options, Mapping):
        return options
    collection = options.get("collection")
    changed = {
        option: follow_change(options[option], collection, change)
        for option, follow_change in PANEL_OPTIONS_WITH_NAMES.items()
        if option in options
    }
    return {**options, **changed}
