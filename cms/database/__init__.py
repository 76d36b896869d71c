"""PostgreSQL by psycopg: connections, the wire protocol, errors, statements, migrations."""
