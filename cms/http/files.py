"""/files and /folders (specification, sections 4.8 and 4.9)."""

from __future__ import annotations

from types import ModuleType

import falcon

from cms.files import files, folders
from cms.files.files import Library
from cms.files.importing import import_url
from cms.files.records import FILES, FOLDERS, Ask
from cms.http.form import is_form, parts
from cms.http.items import Item, Items
from cms.http.media import body, fields, once_of, send_written


class Rows:
    """What files and folders have in common: several rows by query, change and deletion."""

    def __init__(self, library: Library, collection: str, calls: ModuleType) -> None:
        self._library = library
        self._collection = collection
        self._calls = calls
        self._items = Items(library.store, library.most)

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        self._items.on_get(request, response, self._collection)

    def on_query(self, request: falcon.Request, response: falcon.Response) -> None:
        self._items.on_query(request, response, self._collection)

    def on_patch(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = body(request, most=self._library.most)
        send_written(response, self._calls.change_many(self._library, ask_of(request), payload))

    def on_delete(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = body(request, most=self._library.most)
        self._calls.delete_many(self._library, ask_of(request), payload)
        response.status = falcon.HTTP_204


class Row:
    """One of them by its id."""

    def __init__(self, library: Library, collection: str, calls: ModuleType) -> None:
        self._library = library
        self._collection = collection
        self._calls = calls
        self._item = Item(library.store, library.most)

    def on_get(self, request: falcon.Request, response: falcon.Response, key: str) -> None:
        self._item.on_get(request, response, self._collection, key=key)

    def on_patch(self, request: falcon.Request, response: falcon.Response, key: str) -> None:
        payload = body(request, most=self._library.most)
        send_written(response, self._calls.change_one(self._library, ask_of(request), key, payload))

    def on_delete(self, request: falcon.Request, response: falcon.Response, key: str) -> None:
        self._calls.delete_one(self._library, ask_of(request), key)
        response.status = falcon.HTTP_204


class Files(Rows):
    """Files; new ones come as a form or as JSON."""

    def __init__(self, library: Library) -> None:
        super().__init__(library, FILES, files)

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        library = self._library
        if is_form(request):
            found = files.upload(library, ask_of(request), parts(request, most=library.contents.most))
        else:
            payload = fields(request, most=library.most)
            found = files.upload_json(library, ask_of(request), payload)
        send_written(response, found)


class File(Row):
    """One file; a form brings it a new content."""

    def __init__(self, library: Library) -> None:
        super().__init__(library, FILES, files)

    def on_patch(self, request: falcon.Request, response: falcon.Response, key: str) -> None:
        if not is_form(request):
            return super().on_patch(request, response, key)
        form = parts(request, most=self._library.contents.most)
        return send_written(response, files.replace(self._library, ask_of(request), key, form))


class Import:
    """A file from elsewhere."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = fields(request, most=self._library.most)
        send_written(response, import_url(self._library, ask_of(request), payload))


class Folders(Rows):
    """The tree of folders."""

    def __init__(self, library: Library) -> None:
        super().__init__(library, FOLDERS, folders)

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = body(request, most=self._library.most)
        send_written(response, folders.create(self._library, ask_of(request), payload))


class Folder(Row):
    """One folder."""

    def __init__(self, library: Library) -> None:
        super().__init__(library, FOLDERS, folders)


def ask_of(request: falcon.Request) -> Ask:
    """Return who asks, and under which conditions; of a JSON body once it has been read."""
    once = once_of(request) if request.method == "POST" else None
    return Ask(request.context.identity, request.query_string, once, request.get_header("If-Match"))
