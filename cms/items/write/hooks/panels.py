"""Panels of dashboards: readable queries, and positions on the grid (docs/dashboards.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cms import jsontext
from cms.access.guard import QueryBounds, guard
from cms.dashboards.definition.panel_queries import PanelQuery, panel_query
from cms.dashboards.definition.panel_types import PANEL_TYPES
from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.errors import Problem, Refused
from cms.option_checks import IncompleteOption, OptionError
from cms.query.language.paging import PageSizes
from cms.query.language.parse import parse
from cms.query.plan.bindings import bind_values
from cms.query.plan.plan import plan
from cms.query.sql.statement import finish_statement
from cms.schema.system import PANELS
from cms.store.context import RequestContext
from cms.store.table_hooks import (
    HookedRow,
    TableHooks,
    ValueCheck,
    check_color,
    failed_validation,
    one_of,
)

MAX_POSITION = 10_000
"""Units of the grid."""
MAX_DEPTH = 10
"""Relations that the fields of a panel may go through."""


def _grid_check(minimum: int) -> ValueCheck:
    def check(value: object, context: RequestContext) -> None:
        # Python takes a boolean for a number.
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("it is a whole number")
        if not minimum <= value <= MAX_POSITION:
            raise ValueError(f"it is from {minimum} to {MAX_POSITION}")

    return check


def _after(fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow]) -> None:
    """Raise `Refused` with the problems of the options of panels as they are stored now.

    A change of the type alone can make the options wrong.
    """
    keys: list[str] = []
    for row in rows:
        if {"type", "options"} & row.values.keys():
            keys.append(str(row.key))
    if not keys:
        return
    problems = []
    for key, panel_type, options in fetch(statement("find_panels"), (keys,)):
        for error in _errors(context, panel_type, jsontext.loads_optional(options)):
            # A panel may be incomplete: its data tell what is missing.
            if not isinstance(error, IncompleteOption):
                problems.append(_problem(key, error))
    if problems:
        raise Refused(problems)


def _errors(context: RequestContext, panel_type: str, options: object) -> Iterator[OptionError]:
    errors = list(PANEL_TYPES[panel_type].errors(options))
    yield from errors
    # A query can be made of valid options only.
    if errors or not isinstance(options, dict):
        return
    # The user who saves a panel must be able to read its data.
    query = panel_query(panel_type, options)
    if query:
        try:
            _require_readable(context, query)
        except Refused as refused:
            for problem in refused.problems:
                reason = str(problem.extensions.get("reason", problem.message))
                yield OptionError(reason.removesuffix("."))


def _require_readable(context: RequestContext, query: PanelQuery) -> None:
    """Raise `Refused` where the caller could not run the query."""
    parsed = parse(query.params, PageSizes())
    guarded = guard(
        parsed.query,
        query.collection,
        catalogue=context.snapshot.catalogue,
        policy=context.actor.policy,
        bounds=QueryBounds(MAX_DEPTH),
    )
    # All but run: operands that do not fit are found when they are bound.
    query_statement = finish_statement(plan(guarded), guarded.touched_collections)
    bind_values(query_statement.values, context.bindings(parsed.literals))


def _problem(key: str, error: OptionError) -> Problem:
    row = {"collection": PANELS, "key": key}
    return failed_validation(row, ("options", *error.path), str(error))


DASHBOARD_HOOKS = TableHooks(checks={"color": check_color})
PANEL_HOOKS = TableHooks(
    checks={
        "color": check_color,
        "type": one_of(*PANEL_TYPES),
        "position_x": _grid_check(1),
        "position_y": _grid_check(1),
        "width": _grid_check(1),
        "height": _grid_check(1),
    },
    after=_after,
)
