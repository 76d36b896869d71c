"""The query language: parsers, the syntax tree, limits, operators and aggregates."""
