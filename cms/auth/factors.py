"""The second factor: codes of an authenticator app (TOTP, RFC 6238), and recovery codes."""

from __future__ import annotations

import base64
import hmac
import re
import time
from collections.abc import Sequence

import pyotp

from cms.database.connections import Fetch, Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, invalid_payload
from cms.hashing.passwords import digest

RECOVERY_CODES = 10

# Base32 in capitals without padding; 16 characters are 80 bits.
_SECRET = re.compile(r"[A-Z2-7]{16,128}")
_STEP_SECONDS = 30
# The clocks of the service and of a phone may be one step apart.
_STEP_OFFSETS = (0, -1, 1)


def new_secret() -> str:
    """Return a random secret of 160 bits in base32."""
    return pyotp.random_base32()


def otpauth_url(secret: str, *, account: str, issuer: str) -> str:
    """Return the address that an authenticator app reads from a QR code."""
    return pyotp.TOTP(secret).provisioning_uri(name=account, issuer_name=issuer)


def time_step_of(secret: str, code: str) -> int | None:
    """Return the time step of a code, the current one or its neighbour; None for a wrong code."""
    if not re.fullmatch(r"[0-9]{6}", code):
        return None
    totp = pyotp.TOTP(secret)
    current_step = int(time.time()) // _STEP_SECONDS
    for offset in _STEP_OFFSETS:
        step = current_step + offset
        # In constant time: the duration of a comparison must not reveal how many digits were right.
        if hmac.compare_digest(totp.generate_otp(step), code):
            return step
    return None


def use_code(execute: Fetch, user: str, *, secret: str, code: str) -> bool:
    """Use up a code or a recovery code; return False when it is wrong or was used before.

    `execute` runs a statement at once, or in a transaction: then the code is used up by its commit.
    """
    step = time_step_of(secret, code.replace(" ", ""))
    if step is not None:
        # The statement accepts only a step after the last used one: a code that somebody has
        # watched is useless.
        return bool(execute(statement("use_code_step"), (user, step, secret)))
    # One statement finds and deletes the code: of two calls with it, one gets the row.
    return bool(execute(statement("use_recovery_code"), (user, digest(_normalised(code)))))


def enable(transaction: Transaction, user: str, *, secret: str, code: str) -> None:
    """Give a user a second factor, proven by one of its codes.

    Raises `Refused` INVALID_OTP or INVALID_PAYLOAD.
    """
    if not _SECRET.fullmatch(secret) or not _is_base32(secret):
        raise invalid_payload(
            '"secret" is not one that /users/me/tfa/generate gives', field="secret"
        )
    step = time_step_of(secret, code.replace(" ", ""))
    if step is None:
        raise invalid_otp()
    # The step is used up with it: the code that proves the secret is not good for a login as well.
    if not transaction.execute(statement("enable_factor"), (user, secret, step)):
        raise has_factor_already()


def has_factor_already() -> Refused:
    """Return the refusal of a second factor beside the first."""
    return invalid_payload("There is a second factor already")


def recovery_codes_of(seed: bytes, *, secret: str) -> list[str]:
    """Return the recovery codes of a seed; only the seed together with SECRET gives them."""
    # From SECRET and a purpose, so that the key of recovery codes is good for nothing else.
    key = hmac.digest(secret.encode(), b"recovery codes", "sha256")
    numbers = range(RECOVERY_CODES)
    return [_recovery_code(hmac.digest(key, seed + bytes([each]), "sha256")) for each in numbers]


def store_recovery_codes(transaction: Transaction, user: str, codes: Sequence[str]) -> None:
    """Replace a user's recovery codes; only their digests are kept."""
    # Without the lock two calls at once would each leave their codes valid.
    transaction.execute(statement("lock_account"), (user,))
    transaction.execute(statement("delete_recovery_codes"), (user,))
    digests = [digest(_normalised(code)) for code in codes]
    transaction.execute(statement("store_recovery_codes"), (user, digests))


def invalid_otp() -> Refused:
    return Refused(Problem("INVALID_OTP", "The one-time code is not right."))


def _recovery_code(random: bytes) -> str:
    """Return a code of 80 random bits, in four groups of four letters and digits."""
    # Ten bytes are 16 characters of base32, without padding.
    characters = base64.b32encode(random[:10]).decode()
    return "-".join(characters[start : start + 4] for start in range(0, len(characters), 4))


def _normalised(code: str) -> str:
    # People type recovery codes from paper.
    return re.sub(r"[\s-]", "", code).upper()


def _is_base32(secret: str) -> bool:
    # Not every text of these characters is: a last group may have an impossible length.
    try:
        return len(pyotp.TOTP(secret).byte_secret()) >= 10
    except ValueError:
        return False
