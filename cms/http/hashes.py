"""/utils/hash and /utils/random: hashes, and random texts."""

from __future__ import annotations

import falcon

from cms.auth.signed_in_calls import DEFAULT_RANDOM_LENGTH, generate_hash, random_text, verify_hash
from cms.http.answers.envelope import send
from cms.http.requests.media import check_texts, read_json_object, required_text
from cms.http.requests.request import Request
from cms.store.store import Store
from cms.text_shapes import WHOLE_NUMBER

# Any text that is no number becomes a length that `random_text` refuses, so that one place words
# the refusal.
_NO_LENGTH = 0


class GenerateHashResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_post(self, request: Request, response: falcon.Response) -> None:
        text = required_text(read_json_object(request), "string")
        send(response, generate_hash(self._store, request.identity, text))


class VerifyHashResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_post(self, request: Request, response: falcon.Response) -> None:
        """Answer whether the hash is that of the string."""
        payload = read_json_object(request)
        check_texts(payload, "string", "hash")
        text = required_text(payload, "string")
        stored = required_text(payload, "hash")
        send(response, verify_hash(self._store, request.identity, text, stored))


class RandomStringResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: Request, response: falcon.Response) -> None:
        sent = request.get_param("length", default=str(DEFAULT_RANDOM_LENGTH))
        length = int(sent) if WHOLE_NUMBER.fullmatch(sent) else _NO_LENGTH
        send(response, random_text(self._store, request.identity, length))
        # A client that asks again wants another text.
        response.set_header("Cache-Control", "no-store")
