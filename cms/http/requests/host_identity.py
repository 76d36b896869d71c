"""The user who is signed in to the application around the service (docs/embedding.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from cms.emails import is_email
from cms.errors import invalid_token
from cms.store.identity import ANONYMOUS, Identity

Identify = Callable[[dict[str, Any]], str | None]
"""Returns the e-mail address of the user who is signed in, from the WSGI environment of a request.

None stands for nobody. The environment is a copy without a body, which is the service's to read.
"""


class IdentifyFailed(Exception):
    """The function of the surrounding application failed, which is no fault of the request."""


def host_identity(
    identify: Identify, environ: Mapping[str, Any], *, may_be_unknown: bool
) -> Identity | None:
    """Return the user whom the surrounding application names; None where it names nobody.

    With `may_be_unknown` a value that is no address of a user stands for a public request, and is
    `Refused` INVALID_TOKEN otherwise. Raises `IdentifyFailed`.
    """
    try:
        email = identify(_without_body(environ))
    except Exception as error:
        # Always the same type: an error of a web framework could be taken for a refusal, and some
        # refusals make the caller anonymous.
        raise IdentifyFailed("identify raised an exception") from error
    if email is None:
        return None
    # Not `isinstance`: lazy values of frameworks pretend to be of the type that they stand for.
    if not issubclass(type(email), str):
        raise IdentifyFailed(f"identify returned {type(email).__name__}, not str or None")
    # A subclass may have other methods, as one for HTML.
    email = str.__str__(email)
    # Nobody has such an address, and the database takes not every text.
    if not is_email(email) or not email.isprintable():
        if may_be_unknown:
            return ANONYMOUS
        raise invalid_token()
    return Identity(email=email, may_be_unknown=may_be_unknown)


def _without_body(environ: Mapping[str, Any]) -> dict[str, Any]:
    # Frameworks make a request of it, and some read a form without being asked.
    copy = {**environ, "wsgi.input": BytesIO(), "CONTENT_LENGTH": "0"}
    copy.pop("HTTP_TRANSFER_ENCODING", None)
    return copy
