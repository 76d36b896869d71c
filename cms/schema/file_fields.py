"""The fields of files that clients may not set, or not always."""

from __future__ import annotations

SERVER_OWNED = frozenset(
    {
        "filename_disk",
        "filesize",
        "type",
        "width",
        "height",
        "charset",
        "metadata",
        "uploaded_by",
        "uploaded_on",
        "modified_by",
        "modified_on",
    }
)
"""Fields that clients cannot set."""

CREATE_ONLY = frozenset({"id", "storage"})
"""Fields that clients can set only when they create a file."""
