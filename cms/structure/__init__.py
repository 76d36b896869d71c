"""Changes of collections, fields and relations: DDL, records, history."""
