"""The embedded PostgreSQL: its programs found, the server started, shared and stopped."""

from __future__ import annotations

from cms.embedded.data_folder import has_data
from cms.embedded.error import EmbeddedError
from cms.embedded.lifetime import EmbeddedServer, running_dsn, start

__all__ = ["EmbeddedError", "EmbeddedServer", "has_data", "running_dsn", "start"]
