"""sql/schema.sql is what somebody reads to learn the tables, so it must be true."""

from __future__ import annotations

from typing import Any

import psycopg

from cms.database.migrate import migrate, missing_migrations
from cms.database.statements import sql_folder

Connection = psycopg.Connection[tuple[Any, ...]]

CATALOGUES = {
    "tables": """
        SELECT relname, relkind, pg_get_partkeydef(oid), pg_get_expr(relpartbound, oid), reloptions
          FROM pg_class
         WHERE relnamespace = current_schema()::regnamespace
           AND relkind IN ('r', 'p', 'v', 'm', 'S')
    """,
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
            a.attidentity,
               a.attgenerated, pg_get_expr(d.adbin, d.adrelid)
          FROM pg_class AS c
          JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relnamespace = current_schema()::regnamespace
           AND c.relkind IN ('r', 'p', 'v', 'm')
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
          FROM pg_constraint
         WHERE connamespace = current_schema()::regnamespace
    """,
    "indexes": """
        SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()
    """,
    "triggers": """
        SELECT c.relname, t.tgname, pg_get_triggerdef(t.oid)
          FROM pg_trigger AS t
          JOIN pg_class AS c ON c.oid = t.tgrelid
         WHERE c.relnamespace = current_schema()::regnamespace
           AND NOT t.tgisinternal
    """,
    "functions": """
        SELECT p.proname, pg_get_functiondef(p.oid)
          FROM pg_proc AS p
         WHERE p.pronamespace = current_schema()::regnamespace
           AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = p.oid AND d.deptype = 'e')
    """,
    "comments": """
        SELECT object.type, object.identity, d.description
          FROM pg_description AS d
         CROSS JOIN LATERAL pg_identify_object(d.classoid, d.objoid, d.objsubid) AS object
         WHERE object.schema = current_schema()
           AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.objid = d.objoid AND e.deptype = 'e')
    """,
    "the row of settings": "SELECT row_to_json(s)::text FROM system_settings AS s",
    "the row of counters": "SELECT structure, access, flows FROM system_version",
}


def catalogues(connection: Connection) -> dict[str, set[str]]:
    return {
        name: {str(row) for row in connection.execute(query.encode())}
        for name, query in CATALOGUES.items()
    }


def test_the_schema_file_equals_what_the_migrations_make(empty_dsn: str) -> None:
    migrate(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        by_migrations = catalogues(connection)
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        connection.execute((sql_folder() / "schema.sql").read_bytes())
        for step in missing_migrations(()):
            connection.execute(step.text.encode())
        by_schema_file = catalogues(connection)
    for name, tables in by_migrations.items():
        assert tables, name
        assert tables == by_schema_file[name], name
