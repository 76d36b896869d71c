"""A content management service: a REST interface over PostgreSQL (docs/code-map.md)."""
