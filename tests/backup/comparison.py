"""Everything that a database holds, read from PostgreSQL's own catalogue and without the service's
code, so that two databases can be compared.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

# Each is a list of facts about the schema `public`, without numbers that differ between databases.
FACTS = {
    "columns": """
        SELECT attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull,
               -- Partitions have the identity of their table since PostgreSQL 17.
               CASE WHEN NOT relispartition THEN attidentity END,
               attgenerated, attcollation, pg_get_expr(adbin, adrelid)
        FROM pg_attribute
        JOIN pg_class AS class ON class.oid = attrelid
        LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped
    """,
    "relations": """
        SELECT oid::regclass, relkind, relpersistence, pg_get_expr(relpartbound, oid), reloptions
        FROM pg_class WHERE relnamespace = 'public'::regnamespace
    """,
    "constraints": """
        SELECT conname, conrelid::regclass, pg_get_constraintdef(oid)
        FROM pg_constraint
        -- NOT NULL, which is among the columns, is a constraint since PostgreSQL 18.
        WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
    """,
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "triggers": "SELECT pg_get_triggerdef(oid), tgenabled FROM pg_trigger WHERE NOT tgisinternal",
    "functions": """
        SELECT CASE WHEN prokind = 'a' THEN proname ELSE pg_get_functiondef(oid) END
        FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    """,
    "views": """
        SELECT oid::regclass, pg_get_viewdef(oid) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('v', 'm')
    """,
    "types": """
        SELECT oid::regtype, typtype, typnotnull, typdefault,
               ARRAY(SELECT enumlabel FROM pg_enum WHERE enumtypid = type.oid
                     ORDER BY enumsortorder)
        FROM pg_type AS type WHERE typnamespace = 'public'::regnamespace
    """,
    "comments": """
        SELECT objoid::regclass, attname, description
        FROM pg_description
        LEFT JOIN pg_attribute ON attrelid = objoid AND attnum = objsubid
        WHERE classoid = 'pg_class'::regclass
          AND objoid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
    """,
    "sequences": "SELECT * FROM pg_sequences WHERE schemaname = 'public'",
    "extensions": "SELECT extname, extnamespace::regnamespace FROM pg_extension",
}


def structure_of(dsn: str) -> dict[str, list[str]]:
    """Return all facts about the schema, each as a text."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SET TRANSACTION READ ONLY")
        return {name: _facts(connection, query) for name, query in FACTS.items()}


def rows_of(dsn: str) -> dict[str, list[str]]:
    """Return all rows of all tables and views, as PostgreSQL writes them."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SET TRANSACTION READ ONLY")
        names = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
            "AND relkind IN ('r', 'p', 'v', 'm')"
        ).fetchall()
        return {name: _rows(connection, name) for (name,) in names}


def differences(one: dict[str, list[str]], other: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the facts or rows that are in one of the two only, by their names."""
    differing = {}
    for name in one.keys() | other.keys():
        if one.get(name) != other.get(name):
            differing[name] = sorted(set(one.get(name, [])) ^ set(other.get(name, [])))
    return differing


def _rows(connection: psycopg.Connection[Any], table: str) -> list[str]:
    query = sql.SQL("SELECT stored::text FROM ONLY {} AS stored").format(sql.Identifier(table))
    if _is_partitioned(connection, table):
        query = sql.SQL("SELECT found::text FROM {} AS found").format(sql.Identifier(table))
    return sorted(row for (row,) in connection.execute(query))


def _is_partitioned(connection: psycopg.Connection[Any], table: str) -> bool:
    query = "SELECT FROM pg_class WHERE relname = %s AND relkind IN ('p', 'v', 'm')"
    return bool(connection.execute(query, [table]).rowcount)


def _facts(connection: psycopg.Connection[Any], query: str) -> list[str]:
    return sorted(str(row) for row in connection.execute(query.encode()))


def execute(dsn: str, statement: str) -> None:
    """Change a database behind the service's back."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())
