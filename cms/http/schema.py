"""/schema/snapshot: the structure as a document."""

from __future__ import annotations

import falcon

from cms.errors import invalid_query
from cms.http.media import send
from cms.schema_sync.snapshot import read_snapshot
from cms.schema_sync.texts import FILE_FORMATS, FileFormat
from cms.store.store import Store


class SchemaSnapshotResource:
    """The structure in the common form of answers, or as a file."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        # Whoever asks for rights or flows must not take a document without them for whole.
        if request.get_param("include", default="") != "":
            raise invalid_query("a snapshot holds the structure only", parameter="include")
        file_format = _file_format(request)
        document = read_snapshot(self._store, request.context.identity)
        if file_format is None:
            send(response, document)
        else:
            response.data = file_format.write(document)
            response.content_type = file_format.media_type


def _file_format(request: falcon.Request) -> FileFormat | None:
    name = request.get_param("export")
    if name is None:
        return None
    if name not in FILE_FORMATS:
        raise invalid_query(f"export is one of {', '.join(FILE_FORMATS)}", parameter="export")
    return FILE_FORMATS[name]
