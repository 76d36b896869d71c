"""Who may have written, so that reads which follow go to the primary."""

from __future__ import annotations

import falcon

from cms.errors import Refused
from cms.http.requests.host_identity import IdentifyFailed
from cms.http.requests.origins import SAFE_METHODS
from cms.store.identity import ANONYMOUS
from cms.store.recent_writers import RecentWriters


class NoteOfWriters:
    """Notes who may have written, before the answer is sent: the next request may be a read."""

    def __init__(self, writers: RecentWriters) -> None:
        self._writers = writers

    def process_response(
        self,
        request: falcon.Request,
        response: falcon.Response,
        resource: object,
        req_succeeded: bool,  # noqa: FBT001  # Falcon calls it so
    ) -> None:
        # Logins by other services end with a GET.
        is_login = request.path.startswith("/auth/")
        if request.context.method in SAFE_METHODS and not is_login:
            return
        try:
            identity = request.context.identity
        except (Refused, IdentifyFailed):
            # A login or refresh takes no notice of credentials that are no longer good, nor of an
            # application around the service that cannot tell who is signed in.
            identity = ANONYMOUS.with_client(request.context.client)
        self._writers.note(identity)
