"""A client of the application as the tests speak to it: URL in, status and JSON out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from falcon import testing
from falcon.testing import Cookie

from cms.app import App

ADMIN_EMAIL = "admin@example.com"
ADMIN_PASSWORD = "correct horse battery staple"


MAX_PRINTED_CHARACTERS = 100


def shorten(text: str) -> str:
    return text if len(text) <= MAX_PRINTED_CHARACTERS else f"{text[:MAX_PRINTED_CHARACTERS]}…"


@dataclass(frozen=True, repr=False)
class Answer:
    status: int
    content: bytes = field(repr=False)
    headers: dict[str, str]
    cookies: Mapping[str, Cookie] = field(default_factory=dict)
    request: str = field(default="", compare=False)
    """Method, path and body of the request, for the message of a test that fails."""

    def __repr__(self) -> str:
        return f"<{shorten(self.request)} answered {self.status} {shorten(self.text)}>"

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    @property
    def body(self) -> Any:
        return json.loads(self.text) if self.text else None

    @property
    def data(self) -> Any:
        """The payload of a success; anything else fails the test with what was answered."""
        assert self.status == 200, repr(self)
        return self.body["data"]

    @property
    def codes(self) -> list[str]:
        return [error["code"] for error in self.errors]

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The errors of a refusal; anything else fails the test with what was answered."""
        assert self.text, repr(self)
        assert "errors" in self.body, repr(self)
        return [
            {"message": entry["message"], **entry["extensions"]} for entry in self.body["errors"]
        ]


def with_other_status(answers: Iterable[Answer], *statuses: int) -> list[Answer]:
    """Return the answers that have none of these statuses.

    A test expects that there are none; its message names their requests otherwise.
    """
    return [answer for answer in answers if answer.status not in statuses]


class Client:
    def __init__(self, app: App, token: str | None = None) -> None:
        self.app = app
        self._client = testing.TestClient(app)
        self._token = token

    def login(self, email: str, password: str) -> Client:
        """Return a client of the same application with this user's access token."""
        answer = self.post("/auth/login", {"email": email, "password": password})
        return self.bearing(answer.data["access_token"])

    def bearing(self, token: str) -> Client:
        return Client(self.app, token)

    def get(self, path: str, /, **params: object) -> Answer:
        """GET a path; keyword parameters are added to its query string."""
        return self.send("GET", path + (f"?{urlencode(params)}" if params else ""))

    def post(self, path: str, body: object = None) -> Answer:
        return self.send("POST", path, body)

    def patch(self, path: str, body: object = None) -> Answer:
        return self.send("PATCH", path, body)

    def delete(self, path: str, body: object = None) -> Answer:
        return self.send("DELETE", path, body)

    def search(self, path: str, query: object) -> Answer:
        return self.send("QUERY", path, {"query": query})

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        raw: bytes | str | None = None,
        **headers: str,
    ) -> Answer:
        """Send a request; `raw` is a body that is sent as it is, as JSON by its header."""
        bare, _, query_string = path.partition("?")
        content = raw
        if raw is None and body is not None:
            content = json.dumps(body)
        defaults = {"Content-Type": "application/json"} if content is not None else {}
        if self._token:
            defaults["Authorization"] = f"Bearer {self._token}"
        with warnings.catch_warnings():
            # QUERY and SEARCH are younger than wsgiref.
            warnings.filterwarnings("ignore", "Unknown REQUEST_METHOD")
            answer = self._client.simulate_request(
                method,
                bare,
                query_string=query_string,
                body=content,
                headers={**defaults, **headers},
            )
        request = f"{method} {path}"
        if content is not None:
            request += f" {content[:MAX_PRINTED_CHARACTERS]!r}"
        return Answer(
            answer.status_code,
            answer.content,
            dict(answer.headers),
            dict(answer.cookies),
            request,
        )

    def close(self) -> None:
        self.app.close()
