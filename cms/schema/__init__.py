"""The model of collections, fields and relations; their definitions and DDL."""
