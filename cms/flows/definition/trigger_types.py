"""The triggers of flows and the options of each (docs/flows.md)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from zoneinfo import ZoneInfo

from cms.flows.definition.options import Option, Options, any_json, method
from cms.flows.definition.schedule import ScheduleError, parse_schedule
from cms.option_checks import IncompleteOption, OptionCheck, OptionError, boolean, one_of, texts
from cms.schema.system import FILES, FOLDERS, SYSTEM_PREFIX, SYSTEM_TABLES

WRITABLE_TABLES = tuple(table.name for table in SYSTEM_TABLES.values() if table.is_writable)
_WRITTEN = ("create", "update", "delete")

# Events without a payload that a flow could change.
_STRUCTURE = ("collections", "fields", "relations")
_ACTION_SCOPES = frozenset(
    {
        "items.sort",
        "auth.login",
        *(f"{name}.{action}" for name in _STRUCTURE for action in _WRITTEN),
    }
)


FILTER_SCOPES = frozenset(
    {
        "files.upload",
        *(
            f"{table.removeprefix(SYSTEM_PREFIX)}.{action}"
            for table in ("items", *WRITABLE_TABLES, FILES, FOLDERS)
            for action in _WRITTEN
        ),
    }
)
"""The events that a filter flow can wait for."""

SCOPES = FILTER_SCOPES | _ACTION_SCOPES
"""The events that a flow can wait for."""


def _scopes(value: object) -> None:
    """Take a list of events, of which one is known; a flow never waits for others."""
    texts(value)
    assert isinstance(value, list)
    if not value:
        raise IncompleteOption("at least one event is needed")
    if not SCOPES.intersection(value):
        raise OptionError("there is no such event; there are items.create and others", 0)


def _cron(value: object) -> None:
    try:
        # Whether a moment exists does not depend on the time zone, which may change later.
        parse_schedule(value, ZoneInfo("UTC"))
    except ScheduleError as error:
        raise IncompleteOption(str(error)) from None


def _fixed(check: OptionCheck, *, is_required: bool = False) -> Option:
    """Return an option that takes no templates: a trigger knows no values yet."""
    return Option(check, is_required=is_required, takes_templates=False)


_RETURN = Option(any_json)

TRIGGER_TYPES: Mapping[str, Options] = MappingProxyType(
    {
        "event": Options(
            {
                "type": _fixed(one_of("filter", "action"), is_required=True),
                "scope": _fixed(_scopes, is_required=True),
                "collections": _fixed(texts),
                "return": _RETURN,
            }
        ),
        "webhook": Options(
            {
                "method": _fixed(method),
                "async": _fixed(boolean),
                "return": _RETURN,
                "cacheEnabled": _fixed(boolean),
            }
        ),
        "schedule": Options({"cron": _fixed(_cron, is_required=True)}),
        "manual": Options(
            {
                "collections": _fixed(texts),
                "location": _fixed(one_of("both", "item", "collection")),
                "requireSelection": _fixed(boolean),
                "requireConfirmation": _fixed(any_json),
                "confirmationDescription": _fixed(any_json),
                "fields": _fixed(any_json),
                "async": _fixed(boolean),
                "return": _RETURN,
            }
        ),
        "operation": Options({"return": _RETURN}),
    }
)
