"""The media library, files and folders: its collaborators, and the changes that both kinds take.

A row of a file and one of a folder are changed and deleted in the same way. What differs is in the
values `FILE_CALLS` (cms/files/files.py) and `FOLDER_CALLS` (cms/files/folders.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cms.config import Config
from cms.database.connections import Transaction
from cms.files import file_rows
from cms.files.contents import Content, Contents, FieldValues, are_kept
from cms.files.file_payloads import checked_batch
from cms.files.file_rows import WriteRequest
from cms.files.image_pool import ImagePool
from cms.items.write.calls import WriteCall, WrittenItems
from cms.outgoing.outgoing_addresses import AddressFilter
from cms.store.store import Store
from cms.store.write_plan import WritePlan

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MediaLibrary:
    """The collaborators and limits of the calls on files.

    `max_field_bytes` is the limit of all fields of a form together.
    """

    store: Store
    contents: Contents
    address_filter: AddressFilter
    import_seconds: float
    max_field_bytes: int

    @classmethod
    def from_config(cls, store: Store, config: Config, image_pool: ImagePool) -> MediaLibrary:
        return cls(
            store,
            Contents(config, image_pool),
            AddressFilter.from_config(config),
            import_seconds=config.import_timeout.total_seconds(),
            max_field_bytes=config.max_payload_size,
        )

    def remove(self, contents: Sequence[Content]) -> None:
        """Remove contents that files had, after the commit.

        While a backup runs, which may need them, they stay, and `sweep` removes them later.
        """
        if contents and not are_kept(self.store.database.fetch_primary):
            self.contents.remove(contents)


def _nothing(transaction: Transaction) -> None:
    """Stand for a step that a kind of rows does not need."""


# Files and folders differ in these few steps only; all else of a change or a deletion is the same.
@dataclass(frozen=True, slots=True)
class LibraryCalls:
    """The changes and deletions of one kind of rows: of files, or of folders.

    `checked_changes` returns the changes in a body, or raises `Refused` INVALID_PAYLOAD.
    `delete_rows` deletes the rows that a payload names, and returns the contents that go with them.
    `lock` is done before any write of such rows, `check` after a change.
    """

    collection: str
    checked_changes: Callable[[object], FieldValues]
    delete_rows: Callable[[WriteCall, Transaction, object], list[Content]]
    lock: Callable[[Transaction], None] = _nothing
    check: Callable[[Transaction], None] = _nothing

    def change_one(
        self, library: MediaLibrary, request: WriteRequest, key: str, payload: object
    ) -> bytes | None:
        """Change one row, and return it as a body; None for a caller that may not read it."""
        changes = self.checked_changes(payload)
        plan = partial(file_rows.plan_update, request, key=key, changes=changes)
        return self.write(library, request, action="update", plan=plan, single=True)

    def change_many(
        self, library: MediaLibrary, request: WriteRequest, payload: object
    ) -> bytes | None:
        """Change rows: an array of objects with ids, or `data` with `keys` or `query`."""
        batch = checked_batch(payload, self.checked_changes)
        plan = partial(file_rows.plan_update_many, payload=batch)
        return self.write(library, request, action="update", plan=plan, single=False)

    def delete_one(self, library: MediaLibrary, request: WriteRequest, key: str) -> None:
        """Delete one row with the contents that belong to it."""
        self._delete(library, request, [key], key=key)

    def delete_many(self, library: MediaLibrary, request: WriteRequest, payload: object) -> None:
        """Delete rows with their contents: by an array of ids, by `keys`, or by `query`.

        Raises `Refused` FORBIDDEN when the caller may not delete one of them; then all stay.
        """
        self._delete(library, request, payload)

    def write(
        self,
        library: MediaLibrary,
        request: WriteRequest,
        *,
        action: str,
        plan: Callable[[WriteCall], WritePlan[WrittenItems]],
        single: bool,
    ) -> bytes | None:
        """Write rows and return them as a body: a `single` one, or an array."""
        body_plan = partial(self._plan_body, plan=plan, single=single)
        return self._run(library, request, action=action, plan=body_plan)

    def _plan_body(
        self, call: WriteCall, *, plan: Callable[[WriteCall], WritePlan[WrittenItems]], single: bool
    ) -> WritePlan[bytes | None]:
        return WritePlan(partial(_write_rows, plan(call), self.check, single=single))

    def _delete(
        self,
        library: MediaLibrary,
        request: WriteRequest,
        payload: object,
        *,
        key: str | None = None,
    ) -> None:
        delete_rows = partial(self._delete_rows, library, payload)
        plan = partial(self._plan_delete, delete_rows, request=request, key=key)
        self._run(library, request, action="delete", plan=plan)

    def _delete_rows(
        self, library: MediaLibrary, payload: object, call: WriteCall, transaction: Transaction
    ) -> None:
        contents = self.delete_rows(call, transaction, payload)
        # Only after the commit: a content without a row is removed later, a row needs its content.
        transaction.after_commit.append(lambda _: library.remove(contents))

    def _plan_delete(
        self,
        delete_rows: Callable[[WriteCall, Transaction], None],
        call: WriteCall,
        *,
        request: WriteRequest,
        key: str | None,
    ) -> WritePlan[None]:
        plan = WritePlan(partial(delete_rows, call))
        if key is None:
            return plan
        return file_rows.with_row_precondition(request, call, plan, key=key)

    def _run(
        self,
        library: MediaLibrary,
        request: WriteRequest,
        *,
        action: str,
        plan: Callable[[WriteCall], WritePlan[T]],
    ) -> T:
        locked_plan = partial(self._plan_locked, plan=plan)
        return file_rows.run_write(
            library.store, request, collection=self.collection, action=action, plan=locked_plan
        )

    def _plan_locked(
        self, call: WriteCall, *, plan: Callable[[WriteCall], WritePlan[T]]
    ) -> WritePlan[T]:
        return WritePlan(partial(_run_locked, plan(call), self.lock))


def _run_locked(
    plan: WritePlan[T], lock: Callable[[Transaction], None], transaction: Transaction
) -> T:
    lock(transaction)
    return plan.run(transaction)


def _write_rows(
    plan: WritePlan[WrittenItems],
    check: Callable[[Transaction], None],
    transaction: Transaction,
    *,
    single: bool,
) -> bytes | None:
    """Change rows, check what they have become, and return them as a body."""
    written = plan.run(transaction)
    check(transaction)
    return file_rows.response_body(written, single=single)
