"""Backups: the database and the files of a service as one archive, and back again."""

from __future__ import annotations
