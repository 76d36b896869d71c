"""/files, /folders, and /utils/export."""

from __future__ import annotations

import falcon

from cms.files import files, folders
from cms.files.exporting import export_to_file
from cms.files.file_rows import WriteRequest
from cms.files.files import FILE_CALLS
from cms.files.folders import FOLDER_CALLS
from cms.files.importing import import_url
from cms.files.media_library import LibraryCalls, MediaLibrary
from cms.http.answers.envelope import send_written
from cms.http.items import ItemResource, ItemsResource
from cms.http.requests.form import form_parts, is_form
from cms.http.requests.media import (
    idempotency_key_of,
    read_json,
    read_json_object,
    read_selection,
    require_no_body,
)
from cms.http.requests.request import Request


class LibraryItemsResource:
    """Reads, changes and deletes several files or folders."""

    def __init__(self, library: MediaLibrary, calls: LibraryCalls) -> None:
        self._library = library
        self._collection = calls.collection
        self._calls = calls
        self._items = ItemsResource(library.store)

    def on_get(self, request: Request, response: falcon.Response) -> None:
        self._items.on_get(request, response, self._collection)

    def on_query(self, request: Request, response: falcon.Response) -> None:
        self._items.on_query(request, response, self._collection)

    def on_patch(self, request: Request, response: falcon.Response) -> None:
        payload = read_selection(request)
        send_written(
            response, self._calls.change_many(self._library, write_request_of(request), payload)
        )

    def on_delete(self, request: Request, response: falcon.Response) -> None:
        payload = read_selection(request)
        self._calls.delete_many(self._library, write_request_of(request), payload)
        response.status = falcon.HTTP_204


class LibraryItemResource:
    """One file or folder by its id."""

    def __init__(self, library: MediaLibrary, calls: LibraryCalls) -> None:
        self._library = library
        self._collection = calls.collection
        self._calls = calls
        self._item = ItemResource(library.store)

    def on_get(self, request: Request, response: falcon.Response, key: str) -> None:
        self._item.on_get(request, response, self._collection, key=key)

    def on_query(self, request: Request, response: falcon.Response, key: str) -> None:
        self._item.on_query(request, response, self._collection, key=key)

    def on_patch(self, request: Request, response: falcon.Response, key: str) -> None:
        payload = read_json(request)
        send_written(
            response, self._calls.change_one(self._library, write_request_of(request), key, payload)
        )

    def on_delete(self, request: Request, response: falcon.Response, key: str) -> None:
        require_no_body(request)
        self._calls.delete_one(self._library, write_request_of(request), key)
        response.status = falcon.HTTP_204


class FilesResource(LibraryItemsResource):
    """Files; new ones come as a form or as JSON."""

    def __init__(self, library: MediaLibrary) -> None:
        super().__init__(library, FILE_CALLS)

    def on_post(self, request: Request, response: falcon.Response) -> None:
        library = self._library
        if is_form(request):
            created = files.upload(
                library,
                write_request_of(request),
                form_parts(request, max_bytes=library.contents.max_bytes),
            )
        else:
            payload = read_json_object(request)
            created = files.upload_json(library, write_request_of(request), payload)
        send_written(response, created)


class FileResource(LibraryItemResource):
    """One file; a form replaces its content."""

    def __init__(self, library: MediaLibrary) -> None:
        super().__init__(library, FILE_CALLS)

    def on_patch(self, request: Request, response: falcon.Response, key: str) -> None:
        if not is_form(request):
            return super().on_patch(request, response, key)
        # The parts are read one by one while the content is stored: a file never lies in memory as
        # a whole.
        form = form_parts(request, max_bytes=self._library.contents.max_bytes)
        return send_written(
            response, files.replace(self._library, write_request_of(request), key, form)
        )


class FileImportResource:
    """A file that the service fetches from a URL."""

    def __init__(self, library: MediaLibrary) -> None:
        self._library = library

    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json_object(request)
        send_written(response, import_url(self._library, write_request_of(request), payload))


class ExportResource:
    """A file of the items of a collection."""

    def __init__(self, library: MediaLibrary) -> None:
        self._library = library

    def on_post(self, request: Request, response: falcon.Response, collection: str) -> None:
        payload = read_json_object(request)
        export_to_file(self._library, write_request_of(request), collection, payload)
        response.status = falcon.HTTP_204


class FoldersResource(LibraryItemsResource):
    """The tree of folders."""

    def __init__(self, library: MediaLibrary) -> None:
        super().__init__(library, FOLDER_CALLS)

    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json(request)
        send_written(response, folders.create(self._library, write_request_of(request), payload))


class FolderResource(LibraryItemResource):
    """One folder."""

    def __init__(self, library: MediaLibrary) -> None:
        super().__init__(library, FOLDER_CALLS)


def write_request_of(request: Request) -> WriteRequest:
    """Return the caller and the conditions of a write; call it after a JSON body was read."""
    return WriteRequest(
        request.identity,
        request.query_string,
        idempotency_key_of(request),
        request.get_header("If-Match"),
    )
