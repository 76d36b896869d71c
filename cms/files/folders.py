"""Folders: a tree; a folder is deleted with everything below it (docs/files.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, invalid_payload
from cms.files import file_rows
from cms.files.contents import Content, FieldValues
from cms.files.file_rows import NewRow, WriteRequest
from cms.files.media_library import LibraryCalls, MediaLibrary
from cms.items.write.calls import WriteCall
from cms.items.write.transaction.rows import link_revisions
from cms.schema.system import FILES, FOLDERS

_Parents = dict[str, str | None]
"""Folders, each with the folder around it."""


class _FileInFolder(NamedTuple):
    """A file that is deleted with its folder, and where its content is."""

    key: str
    folder: str
    storage: str
    path: str | None


def create(library: MediaLibrary, request: WriteRequest, payload: object) -> bytes | None:
    """Create a folder, or those of an array."""
    single = not isinstance(payload, list)
    payloads: Sequence[object] = payload if isinstance(payload, list) else [payload]
    # Folders have neither defaults nor fields that the service sets.
    rows = [NewRow(_checked(item), {}, {}) for item in payloads]
    write = library.new_write(request)
    for attempt in write:
        with attempt as context:
            call = FOLDER_CALLS.call(library, request, attempt, context, "create")
            written = file_rows.create(call, rows)
            _refuse_cycle(attempt.begin_transaction())
            write.answer = file_rows.response_body(written, single=single)
    return write.answer


def _delete_trees(call: WriteCall, payload: object) -> list[Content]:
    """Delete folders with everything below them, and return the contents of the deleted files."""
    call, executor = call.begun()
    transaction = executor.transaction
    keys = file_rows.keys_of(executor, call.collection, payload)
    # The permission on the folders comes first: a refusal for their contents would reveal them.
    call.authorizer.authorize_delete(call.collection, keys, transaction.execute)
    # All folders below, with the folder around each; the statement goes down the tree, and locks
    # it.
    parents: _Parents = dict(transaction.execute(statement("lock_folders_below"), (keys,)))
    below = [key for key in parents if key not in keys]
    rows = transaction.execute(statement("lock_files_in_folders"), ([*keys, *below],))
    files = [_FileInFolder(*row) for row in rows]
    file_keys = [file.key for file in files]
    file_revisions = file_rows.delete_below(call, executor, FILES, file_keys)
    folder_revisions = file_rows.delete_below(call, executor, FOLDERS, below)
    folder_revisions |= file_rows.delete(call, executor, call.collection, keys)
    # The revision of everything that went with a folder is linked to the revision of that folder.
    links: list[tuple[int, int]] = []
    for file in files:
        links += _link(file_revisions[file.key], folder_revisions[file.folder])
    for key in below:
        links += _link(folder_revisions[key], folder_revisions[str(parents[key])])
    link_revisions(executor, links)
    # Rows that other programs wrote may have no content.
    return [Content(file.storage, file.path) for file in files if file.path]


def _link(revision: int | None, parent: int | None) -> list[tuple[int, int]]:
    """Return a revision with its parent; without a history there is nothing to link."""
    if revision is None or parent is None:
        return []
    return [(revision, parent)]


def _checked_changes(payload: object) -> FieldValues:
    """Return the changes of a folder; raises `Refused` INVALID_PAYLOAD."""
    changes = _checked(payload)
    if "id" in changes:
        raise invalid_payload('"id" of a folder cannot be changed', field="id")
    return changes


def _checked(payload: object) -> FieldValues:
    """Return the fields of a folder; raises `Refused` INVALID_PAYLOAD."""
    if not isinstance(payload, Mapping):
        raise invalid_payload("A folder must be an object")
    if payload.get("name") == "":
        raise invalid_payload('"name" must not be empty', field="name", value="")
    return dict(payload)


def _lock_tree(transaction: Transaction) -> None:
    # Two moves at once could each put a folder into the other.
    transaction.execute(statement("lock_folder_tree"))


def _refuse_cycle(transaction: Transaction) -> None:
    """Raise `Refused` UNPROCESSABLE_CONTENT if a folder lies in itself."""
    if transaction.execute(statement("find_folder_cycle")):
        reason = "A folder cannot lie in itself or in a folder below it"
        raise Refused(
            Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason, "field": "parent"})
        )


FOLDER_CALLS = LibraryCalls(
    FOLDERS, _checked_changes, _delete_trees, lock=_lock_tree, check=_refuse_cycle
)
