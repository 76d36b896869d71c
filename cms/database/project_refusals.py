"""Refusals by what the project itself has put into the database: triggers, functions, views and
row policies.
"""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

_PROJECT_CLASSES = frozenset(
    {
        "09",  # a trigger
        "20",  # CASE in a function, without an ELSE
        "21",  # a sub-select in a view or function that has more than one row
        "27",  # a trigger that changes the row of its own statement
        "2F",  # a function, such as one that ends without RETURN
        "38",  # a function in another language
        "39",
        "44",  # WITH CHECK OPTION of a view
        "45",  # what whoever writes triggers raises
        "P0",  # PL/pgSQL: RAISE, ASSERT, and INTO STRICT
    }
)
"""Classes of errors by triggers, functions and views that the project itself has written."""


def is_of_project(error: psycopg.Error) -> bool:
    """Tell whether a trigger, function, view or row policy of the project refused the statement."""
    code = error.sqlstate or ""
    # psycopg has no class for codes that PostgreSQL itself never raises.
    is_unknown = type(error) is psycopg.DatabaseError
    # Violated constraints of tables have been mapped before: other such errors are of triggers.
    is_constraint = isinstance(error, psycopg.IntegrityError)
    if code[:2] in _PROJECT_CLASSES or is_unknown or is_constraint:
        return True
    # Of the errors of rights only this one is about a value: the row that is written. Its message
    # may be in any language.
    return (
        isinstance(error, pg.InsufficientPrivilege)
        and error.diag.source_function == "ExecWithCheckOptions"
    )
