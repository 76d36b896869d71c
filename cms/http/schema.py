"""/schema: the structure as a document, its differences, and changes by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import falcon

from cms import jsontext
from cms.errors import invalid_payload, invalid_query, no_object
from cms.files.contents import too_large
from cms.files.media_types import without_parameters
from cms.files.storage import CHUNK_BYTES
from cms.files.upload_form import second_file, unknown_part
from cms.http.answers.envelope import send
from cms.http.requests.form import form_parts, is_form
from cms.http.requests.media import idempotency_key_of, read_json
from cms.http.requests.request import Request
from cms.mappings import without
from cms.schema_sync.content import TABLES
from cms.schema_sync.diff_document import parse_diff
from cms.schema_sync.document import parse_document
from cms.schema_sync.document_texts import FILE_FORMATS, FileFormat, is_yaml
from cms.schema_sync.schema_snapshot import read_snapshot
from cms.schema_sync.synchronizing import apply_diff, diff_snapshot
from cms.schema_sync.yaml_reading import read_yaml
from cms.store.store import Store

_ALLOW_DESTRUCTIVE = "allow_destructive"


class SchemaSnapshotResource:
    """The structure in the common form of answers, or as a file."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: Request, response: falcon.Response) -> None:
        include = _include(request)
        file_format = _file_format(request)
        document = read_snapshot(self._store, request.identity, include=include)
        if file_format is None:
            send(response, document)
        else:
            response.data = file_format.write(document)
            response.content_type = file_format.media_type
            response.set_header(
                "Content-Disposition", f'attachment; filename="schema.{file_format.suffix}"'
            )


def _include(request: Request) -> list[str]:
    """Return the sections that are asked for besides those of the structure."""
    names = [name for name in request.get_param("include", default="").split(",") if name]
    for name in names:
        if name not in TABLES:
            raise invalid_query(f"include takes {', '.join(TABLES)}", parameter="include")
    return names


class SchemaDiffResource:
    """The diff from the structure to a snapshot, sent as JSON, YAML, or a form with a file."""

    def __init__(self, store: Store, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes

    def on_post(self, request: Request, response: falcon.Response) -> None:
        identity = request.identity
        # A caller who may not compare anything need not send a document.
        self._store.require_administrator(identity)
        document = parse_document(_read_document(request, max_bytes=self._max_bytes))
        diff = diff_snapshot(self._store, identity, document)
        if diff is None:
            response.status = falcon.HTTP_204
        else:
            send(response, diff)


def _read_document(request: Request, *, max_bytes: int) -> object:
    """Return a body in JSON or YAML, or the file of a form."""
    if is_form(request):
        return _read_file(_form_content(request, max_bytes=max_bytes))
    if is_yaml(without_parameters(request.content_type)):
        chunks = iter(lambda: request.stream.read(CHUNK_BYTES), b"")
        return _read_file(_joined(chunks, max_bytes))
    return read_json(request)


def _form_content(request: Request, *, max_bytes: int) -> bytes:
    """Return the content of a form's file."""
    content = None
    for part in form_parts(request, max_bytes=max_bytes):
        if not part.is_file:
            raise unknown_part(part.name)
        if content is not None:
            raise second_file()
        content = _joined(part.chunks, max_bytes)
    if content is None:
        raise invalid_payload("The form has no file", field="file")
    return content


def _joined(chunks: Iterator[bytes], max_bytes: int) -> bytes:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > max_bytes:
            raise too_large(max_bytes)
    return bytes(content)


def _read_file(content: bytes) -> object:
    try:
        # In YAML not every number of JSON is one.
        is_json = content.lstrip().startswith(b"{")
        if is_json:
            return jsontext.loads(content)
        return read_yaml(content)
    except ValueError as error:
        raise invalid_payload(f"The document cannot be read: {error}") from None


class SchemaApplyResource:
    """Changes the structure by a diff or by a snapshot, whole or not at all."""

    def __init__(self, store: Store, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes

    def on_post(self, request: Request, response: falcon.Response) -> None:
        identity = request.identity
        self._store.require_administrator(identity)
        payload = _read_document(request, max_bytes=self._max_bytes)
        if not isinstance(payload, dict):
            raise no_object()
        allows_loss = _allows_loss(request, payload)
        diff: Mapping[str, object] | None = payload
        # A snapshot is compared first. The hash of that diff lets no other change come between.
        if "version" in payload and "hash" not in payload:
            document = parse_document(without(payload, (_ALLOW_DESTRUCTIVE,)))
            diff = diff_snapshot(self._store, identity, document)
        if diff is not None:
            apply_diff(
                self._store,
                identity,
                parse_diff(diff),
                allows_loss=allows_loss,
                idempotency=idempotency_key_of(request),
            )
        response.status = falcon.HTTP_204


def _allows_loss(request: Request, payload: Mapping[str, object]) -> bool:
    """Tell whether the query or the body allows changes that delete data."""
    value = payload.get(_ALLOW_DESTRUCTIVE, False)
    if not isinstance(value, bool):
        reason = f"{_ALLOW_DESTRUCTIVE} must be true or false"
        raise invalid_payload(reason, field=_ALLOW_DESTRUCTIVE)
    parameter = request.get_param(_ALLOW_DESTRUCTIVE, default="false")
    if parameter not in ("true", "false"):
        reason = f"{_ALLOW_DESTRUCTIVE} is true or false"
        raise invalid_query(reason, parameter=_ALLOW_DESTRUCTIVE)
    return value or parameter == "true"


def _file_format(request: Request) -> FileFormat | None:
    name = request.get_param("export")
    if name is None:
        return None
    if name not in FILE_FORMATS:
        raise invalid_query(f"export is one of {', '.join(FILE_FORMATS)}", parameter="export")
    return FILE_FORMATS[name]
