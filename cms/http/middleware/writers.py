"""Notes callers who may have written, so that their next reads go to the primary."""

from __future__ import annotations

import falcon

from cms.errors import Refused
from cms.http.requests.authenticator import IdentifyFailed
from cms.http.requests.origins import SAFE_METHODS
from cms.http.requests.request import Request
from cms.store.identity import ANONYMOUS
from cms.store.recent_writers import RecentWriters


class NoteOfWriters:
    """Notes the caller of a write before its answer is sent: the next request may be a read."""

    def __init__(self, writers: RecentWriters) -> None:
        self._writers = writers

    def process_response(
        self,
        request: Request,
        response: falcon.Response,
        resource: object,
        req_succeeded: bool,  # noqa: FBT001  # Falcon calls it so
    ) -> None:
        # Logins by other services end with a GET.
        is_login = request.path.startswith("/auth/")
        if request.sent_method in SAFE_METHODS and not is_login:
            return
        try:
            identity = request.identity
        except (Refused, IdentifyFailed):
            # A login or refresh ignores expired credentials, and an application around the service
            # that cannot say who is signed in.
            identity = ANONYMOUS.with_client(request.client)
        self._writers.note(identity)
