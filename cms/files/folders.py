"""Folders: a tree; a folder is deleted with everything in it (docs/files.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, invalid_payload
from cms.files import file_rows
from cms.files.contents import Content, Json
from cms.files.file_rows import NewRow, WriteRequest
from cms.files.files import Library
from cms.files.payloads import checked_batch
from cms.items.write.calls import WriteCall, WrittenItems
from cms.items.write.rows import link_revisions
from cms.schema.system import FILES, FOLDERS
from cms.store.write_plan import WritePlan

T = TypeVar("T")


class _FileInFolder(NamedTuple):
    """A file that is deleted with its folder, and where its content is."""

    key: str
    folder: str
    storage: str
    path: str | None


def create(library: Library, request: WriteRequest, payload: object) -> bytes | None:
    """Create a folder, or those of an array."""
    many = isinstance(payload, list)
    payloads = payload
    if not isinstance(payloads, list):
        payloads = [payload]
    # Folders have neither defaults nor fields that the service sets.
    rows = [NewRow(_checked(item), {}, {}) for item in payloads]
    return _write(
        library,
        request,
        action="create",
        plan=lambda call: file_rows.plan_create(call, rows),
        many=many,
    )


def change_one(library: Library, request: WriteRequest, key: str, payload: object) -> bytes | None:
    """Rename a folder, or move it with everything below it."""
    changes = _checked_changes(payload)
    return _write(
        library,
        request,
        action="update",
        plan=lambda call: file_rows.plan_update(request, call, key=key, changes=changes),
        many=False,
    )


def change_many(library: Library, request: WriteRequest, payload: object) -> bytes | None:
    """Change folders: an array of objects with ids, or `data` with `keys` or `query`."""
    batch = checked_batch(payload, _checked_changes)
    return _write(
        library,
        request,
        action="update",
        plan=lambda call: file_rows.plan_update_many(call, batch),
        many=True,
    )


def delete_one(library: Library, request: WriteRequest, key: str) -> None:
    """Delete a folder with everything below it."""
    _delete(library, request, [key], key=key)


def delete_many(library: Library, request: WriteRequest, payload: object) -> None:
    """Delete folders with the folders below them and all files of these, whole or not at all.

    Raises `Refused` FORBIDDEN when the caller may not delete one of them.
    """
    _delete(library, request, payload)


def _delete(
    library: Library, request: WriteRequest, payload: object, *, key: str | None = None
) -> None:
    plan = partial(_DeleteFolders, request, payload, key)
    library.contents.remove(_with_tree_lock(library, request, action="delete", plan=plan))


@dataclass(frozen=True, slots=True)
class _DeleteFolders(WritePlan[list[Content]]):
    """The deletion of folders; with a `key` it depends on If-Match."""

    request: WriteRequest
    payload: object
    key: str | None
    call: WriteCall

    def run(self, transaction: Transaction) -> list[Content]:
        if self.key is not None:
            file_rows.check_match(self.request, self.call, transaction, self.key)
        return _delete_trees(self.call, transaction, self.payload)


def _delete_trees(call: WriteCall, transaction: Transaction, payload: object) -> list[Content]:
    """Delete folders with everything below them, and return the contents of the deleted files."""
    executor = call.executor(transaction)
    keys = file_rows.keys_of(executor, call.collection, payload)
    # First the right to the folders: a refusal for what is in them would tell that they exist.
    call.authorizer.authorize_delete(call.collection, keys, transaction.execute)
    parents: dict[str, str | None] = dict(
        transaction.execute(statement("lock_folders_below"), (keys,))
    )
    below = [key for key in parents if key not in keys]
    rows = transaction.execute(statement("lock_files_in_folders"), ([*keys, *below],))
    files = [_FileInFolder(*row) for row in rows]
    file_revisions = file_rows.delete_below(call, executor, FILES, [file.key for file in files])
    folder_revisions = file_rows.delete_below(call, executor, FOLDERS, below)
    folder_revisions |= file_rows.delete(call, executor, call.collection, keys)
    # The revision of everything that went with a folder is linked to the revision of that folder.
    links = [(file_revisions[file.key], folder_revisions[file.folder]) for file in files]
    links += [(folder_revisions[key], folder_revisions[str(parents[key])]) for key in below]
    # Without a history there are no revisions to link.
    link_revisions(
        executor, [(revision, parent) for revision, parent in links if revision and parent]
    )
    return [Content(file.storage, file.path) for file in files if file.path]


def _write(
    library: Library,
    request: WriteRequest,
    *,
    action: str,
    plan: Callable[[WriteCall], WritePlan[WrittenItems]],
    many: bool,
) -> bytes | None:
    """Write folders and return them as a body.

    Raises `Refused` UNPROCESSABLE_CONTENT for a folder that would lie in itself.
    """

    def plan_with_check(call: WriteCall) -> WritePlan[bytes | None]:
        return _FolderPlan(plan(call), many)

    return _with_tree_lock(library, request, action=action, plan=plan_with_check)


@dataclass(frozen=True, slots=True)
class _FolderPlan(WritePlan[bytes | None]):
    """A plan that leaves no folder in itself, and answers with a body."""

    plan: WritePlan[WrittenItems]
    many: bool

    def run(self, transaction: Transaction) -> bytes | None:
        written = self.plan.run(transaction)
        _refuse_cycle(transaction)
        return file_rows.response_body(written, many=self.many)


def _with_tree_lock(
    library: Library,
    request: WriteRequest,
    *,
    action: str,
    plan: Callable[[WriteCall], WritePlan[T]],
) -> T:
    """Change the tree, one change at a time."""

    def plan_with_lock(call: WriteCall) -> WritePlan[T]:
        return _TreePlan(plan(call))

    return file_rows.run_write(
        library.store, request, collection=FOLDERS, action=action, plan=plan_with_lock
    )


@dataclass(frozen=True, slots=True)
class _TreePlan(WritePlan[T]):
    """A plan that changes the tree of folders while nobody else does."""

    plan: WritePlan[T]

    def run(self, transaction: Transaction) -> T:
        # Two moves at once could each put a folder into the other.
        transaction.execute(statement("lock_folder_tree"))
        return self.plan.run(transaction)


def _checked_changes(payload: object) -> Json:
    """Return the changes of a folder; raises `Refused` INVALID_PAYLOAD."""
    changes = _checked(payload)
    if "id" in changes:
        raise invalid_payload('"id" of a folder cannot be changed', field="id")
    return changes


def _checked(payload: object) -> Json:
    """Return the fields of a folder; raises `Refused` INVALID_PAYLOAD."""
    if not isinstance(payload, Mapping):
        raise invalid_payload("A folder must be an object")
    if payload.get("name") == "":
        raise invalid_payload('"name" must not be empty', field="name", value="")
    return dict(payload)


def _refuse_cycle(transaction: Transaction) -> None:
    if transaction.execute(statement("find_folder_cycle")):
        reason = "A folder cannot lie in itself or in a folder below it"
        raise Refused(
            Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason, "field": "parent"})
        )
