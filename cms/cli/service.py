"""The running service as commands use it: over HTTP, by default as an administrator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click
import requests
from urllib3.exceptions import ProtocolError

from cms.auth.accounts import admin_token
from cms.cli.session import existing_database
from cms.config import Config
from cms.config.secret_file import secret_of

CONNECT_SECONDS = 60
_MAX_PRINTED_LENGTH = 500


class Service:
    """A service at an address; an answer with an error ends the command with its message.

    `has_own_token` says that the session's token was made with the settings of this folder.
    """

    def __init__(self, session: requests.Session, url: str, *, has_own_token: bool) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._has_own_token = has_own_token

    def has(self, collection: str) -> bool:
        answer = self._answer("GET", f"/collections/{collection}", seconds=CONNECT_SECONDS)
        return answer.status_code == 200

    def send(self, method: str, path: str, body: object = None) -> None:
        """Send JSON, for calls that are answered quickly."""
        answer = self._answer(method, path, json=body, seconds=CONNECT_SECONDS)
        if not answer.ok:
            text = answer.text[:_MAX_PRINTED_LENGTH]
            raise click.ClickException(f"{method} {path} was answered {answer.status_code}: {text}")

    def post(
        self, path: str, content: bytes | Iterable[bytes], *, media_type: str
    ) -> Mapping[str, Any]:
        """Send a body, and return the `data` of the answer, empty where it has none.

        It may be the chunks of a file, and the answer may take any time.
        """
        answer = self._answer("POST", path, data=content, headers={"Content-Type": media_type})
        _raise_for_error(answer)
        data: Mapping[str, Any] = answer.json()["data"] if answer.content else {}
        return data

    def download(self, path: str, params: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the chunks of a file."""
        # Streamed: an export may be larger than memory.
        with self._answer("GET", path, params=params, stream=True) as answer:
            _raise_for_error(answer)
            try:
                yield from answer.iter_content(1 << 16)
            except requests.RequestException:
                raise click.ClickException(
                    "The answer broke off: what has been written is not all."
                ) from None

    def _answer(
        self, method: str, path: str, *, seconds: int | None = None, **options: object
    ) -> requests.Response:
        try:
            answer = self._session.request(
                method,
                self._url + path,
                # Without `seconds` the answer may take any time: an import answers in the end only.
                timeout=(CONNECT_SECONDS, seconds),
                **options,  # type: ignore[arg-type]
            )
        except requests.ConnectionError as error:
            # The library has one error for a connection that was never made and one that ended.
            if error.args and isinstance(error.args[0], ProtocolError):
                raise click.ClickException(f"The connection to {self._url} broke off.") from None
            raise click.ClickException(
                f"Nothing answers at {self._url}. Start the service first: make run"
            ) from None
        except requests.RequestException as error:
            raise click.ClickException(f"{method} {self._url}{path} failed: {error}") from None
        if answer.status_code == 401 and self._has_own_token:
            raise click.ClickException(
                f"The service at {self._url} does not know the token that was made here. "
                "Its SECRET is not the one of this folder, or it serves another database: "
                "run this with its settings, or give a token with --token."
            )
        return answer


@contextmanager
def service(config: Config, *, url: str | None, token: str | None) -> Iterator[Service]:
    """Yield the service at `url` or else PUBLIC_URL; the default token is an administrator's."""
    with requests.Session() as session:
        # Proxies and .netrc of this account are ignored: proxies are for other hosts, and .netrc
        # would replace the token.
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {token or _administrator_token(config)}"
        yield Service(session, url or config.public_url, has_own_token=not token)


def _administrator_token(config: Config) -> str:
    # Anybody who has the settings has the database: the token gives no further rights.
    with existing_database(config) as dsn:
        return admin_token(dsn, secret=secret_of(config), life=timedelta(minutes=10))


def _raise_for_error(answer: requests.Response) -> None:
    """End the command with the messages of an error, a line for each."""
    if answer.ok:
        return
    try:
        sentences = [_sentence(entry) for entry in answer.json()["errors"]]
    except (ValueError, LookupError, TypeError):
        # Not the service has answered, but a proxy before it, perhaps with a page of HTML.
        sentences = [answer.text[:_MAX_PRINTED_LENGTH]]
    raise click.ClickException(
        "\n".join([f"The service answers {answer.status_code}:", *sentences])
    )


def _sentence(entry: Mapping[str, Mapping[str, object]]) -> str:
    # Errors of an import have the line of the file.
    line = entry["extensions"].get("line")
    return f"line {line}: {entry['message']}" if line else str(entry["message"])
