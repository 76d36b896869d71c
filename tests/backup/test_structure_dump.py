"""pg_dump's script as any server takes it, and without a password on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from cms.backup import BackupError
from cms.backup.structure_dump import dump_structure, for_server
from cms.database.bulk import address_without_password

PASSWORD = "hunter 2'\\"


def test_a_setting_of_newer_versions_is_left_out_for_older_servers() -> None:
    script = "SET lock_timeout = 0;\nSET transaction_timeout = 0;\nCREATE TABLE a ();\n"
    assert for_server(script, 180000) == script
    assert for_server(script, 160004) == "SET lock_timeout = 0;\nCREATE TABLE a ();\n"


def test_a_password_is_in_the_environment_and_not_on_the_command_line(tmp_path: Path) -> None:
    program = tmp_path / "pg_dump"
    program.write_text('#!/bin/sh\necho "$@"\necho "$PGPASSWORD"\n')
    program.chmod(0o755)
    dsn = make_conninfo("", host="db", user="cms", password=PASSWORD)
    output = dump_structure(program, dsn, schema='a"b', snapshot="1", section="pre-data")
    arguments, password = output.splitlines()
    assert password == PASSWORD
    assert "hunter" not in arguments
    assert '--schema="a""b"' in arguments
    assert "host=db" in arguments
    assert address_without_password("postgresql://cms@db/x")[1] is None


def test_a_failure_of_pg_dump_is_reported_in_its_words(tmp_path: Path) -> None:
    program = tmp_path / "pg_dump"
    program.write_text("#!/bin/sh\necho 'server version mismatch' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(BackupError, match="server version mismatch"):
        dump_structure(program, "host=db", schema="a", snapshot="1", section="pre-data")


def test_commands_of_psql_and_of_the_schema_itself_are_left_out(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(
        "\\restrict abc\nSET a = 0;\nCREATE SCHEMA public;\n"
        "COMMENT ON SCHEMA public IS 'it''s';\n"
        "CREATE TABLE a (t text DEFAULT '\n\\restrict abc\n');"
        "\n\\unrestrict abc\n"
    )
    program = tmp_path / "pg_dump"
    program.write_text(f'#!/bin/sh\ncat "{script}"\n')
    program.chmod(0o755)
    output = dump_structure(program, "host=db", schema="public", snapshot="1", section="pre-data")
    kept = "CREATE TABLE a (t text DEFAULT '\n\\restrict abc\n');"
    assert [line for line in output.splitlines() if line] == ["SET a = 0;", *kept.splitlines()]
