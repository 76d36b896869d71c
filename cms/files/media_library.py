"""The media library, files and folders: its collaborators, and the changes that both kinds take.

A row of a file and one of a folder are changed and deleted in the same way. What differs is in the
values `FILE_CALLS` (cms/files/files.py) and `FOLDER_CALLS` (cms/files/folders.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cms.config import Config
from cms.database.connections import Transaction
from cms.database.error_mapping import Stale
from cms.errors import Refused
from cms.files import file_rows
from cms.files.contents import Content, Contents, FieldValues, are_kept
from cms.files.file_payloads import checked_batch
from cms.files.file_rows import WriteRequest
from cms.files.image_pool import ImagePool
from cms.items.read.reads import parse_key
from cms.items.write import item_writes
from cms.items.write.calls import WriteCall
from cms.outgoing.outgoing_addresses import AddressFilter
from cms.store.context import RequestContext
from cms.store.store import Store
from cms.store.write_attempts import Write, WriteAttempt

log = logging.getLogger("cms")


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

    def new_write(self, request: WriteRequest) -> Write[bytes | None]:
        """Return the write of a call on files or folders."""
        return self.store.write(request.identity, idempotency=request.idempotency)

    def remove_after_commit(self, transaction: Transaction, contents: Sequence[Content]) -> None:
        """Have contents that files had removed after the commit: a row needs its content.

        While a backup runs, which may need them, they stay, and `sweep` removes them later.
        """
        transaction.after_commit.append(lambda _: self._remove(contents))

    def _remove(self, contents: Sequence[Content]) -> None:
        try:
            is_due = contents and not are_kept(self.store.database.fetch_primary)
        except (Refused, Stale) as error:
            # The change is made: an error would tell its client that it is not.
            log.warning("%d contents are left to the next maintenance: %s", len(contents), error)
            return
        if is_due:
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
    delete_rows: Callable[[WriteCall, object], list[Content]]
    lock: Callable[[Transaction], None] | None = None
    check: Callable[[Transaction], None] = _nothing

    def change_one(
        self, library: MediaLibrary, request: WriteRequest, key: str, payload: object
    ) -> bytes | None:
        """Change one row, and return it as a body; None for a caller that may not read it."""
        changes = self.checked_changes(payload)
        write = library.new_write(request)
        for attempt in write:
            with attempt as context:
                call = self.call(library, request, attempt, context, "update")
                rows = file_rows.update(call, key, changes, if_match=request.if_match)
                self.check(attempt.begin_transaction())
                write.answer = file_rows.response_body(rows, single=True)
        return write.answer

    def change_many(
        self, library: MediaLibrary, request: WriteRequest, payload: object
    ) -> bytes | None:
        """Change rows: an array of objects with ids, or `data` with `keys` or `query`."""
        batch = checked_batch(payload, self.checked_changes)
        write = library.new_write(request)
        for attempt in write:
            with attempt as context:
                call = self.call(library, request, attempt, context, "update")
                rows = file_rows.update_many(call, batch)
                self.check(attempt.begin_transaction())
                write.answer = file_rows.response_body(rows, single=False)
        return write.answer

    def delete_one(self, library: MediaLibrary, request: WriteRequest, key: str) -> None:
        """Delete one row with the contents that belong to it."""
        self._delete(library, request, [key], key=key)

    def delete_many(self, library: MediaLibrary, request: WriteRequest, payload: object) -> None:
        """Delete rows with their contents: by an array of ids, by `keys`, or by `query`.

        Raises `Refused` FORBIDDEN when the caller may not delete one of them; then all stay.
        """
        self._delete(library, request, payload)

    def _delete(
        self,
        library: MediaLibrary,
        request: WriteRequest,
        payload: object,
        *,
        key: str | None = None,
    ) -> None:
        for attempt in library.new_write(request):
            with attempt as context:
                call = self.call(library, request, attempt, context, "delete")
                if key is not None:
                    row_key = parse_key(call.collection, key)
                    call = item_writes.require_match(call, row_key, request.if_match)
                contents = self.delete_rows(call, payload)
                library.remove_after_commit(attempt.begin_transaction(), contents)

    def call(
        self,
        library: MediaLibrary,
        request: WriteRequest,
        attempt: WriteAttempt,
        context: RequestContext,
        action: str,
    ) -> WriteCall:
        """Return the call of an attempt, under the lock of such rows, if they have one."""
        call = file_rows.new_call(
            library.store, request, attempt, context, collection=self.collection, action=action
        )
        if self.lock is None:
            return call
        self.lock(attempt.begin_transaction())
        return call.begun().call
