"""Signatures of outgoing webhooks, as Standard Webhooks describes them (standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

# The names and the form are those of Standard Webhooks, so that receivers find libraries for it.
PREFIX = "whsec_"
MIN_KEY_BYTES = 24
MAX_KEY_BYTES = 64


def parse_secret(text: str) -> bytes:
    """Return the key of a secret: base64, with or without `whsec_` before it.

    Raises ValueError, whose text does not hold the secret.
    """
    encoded = text.removeprefix(PREFIX).rstrip("=")
    try:
        # Padding beyond what is needed does no harm, and some programs leave theirs out.
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise ValueError(
            f"it is {PREFIX} and {MIN_KEY_BYTES} to {MAX_KEY_BYTES} random bytes as base64"
        )
    return key


def signature_headers(
    keys: Sequence[bytes], *, message: str, seconds: int, body: bytes
) -> dict[str, str]:
    """Return the headers of a signed request: one signature for each key.

    `message` identifies the message over all attempts to deliver it, `seconds` is the time of this
    one, since 1970.
    """
    # Id and time are signed as well: a receiver can refuse a request that comes twice, or late.
    content = f"{message}.{seconds}.".encode() + body
    digests = [hmac.digest(key, content, hashlib.sha256) for key in keys]
    signatures = [f"v1,{base64.b64encode(digest).decode()}" for digest in digests]
    return {
        "webhook-id": message,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(signatures),
    }
