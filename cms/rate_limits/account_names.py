"""Names of accounts as limits compare them."""

from __future__ import annotations

import unicodedata

MAX_LENGTH = 1_000
"""Characters that are compared; no address has as many."""

_IGNORED = frozenset({"Mn", "Me", "Cf", "Cc", "Zs", "Zl", "Zp"})
"""The categories of marks above and below letters, of what cannot be seen, and of spaces."""


def account_name(account: str) -> str:
    """Return the name that all spellings of an account have in common.

    Databases and directories take different texts for the same account: PostgreSQL's lower() makes
    an i of the Turkish İ, and LDAP knows no width of letters. No spelling may have attempts of its
    own, so this compares less than any of them. It does no harm if two accounts count as one.
    """
    # Twice: what takes the place of a letter may be a capital.
    folded = unicodedata.normalize("NFKD", account.strip()[:MAX_LENGTH].casefold())
    decomposed = unicodedata.normalize("NFKD", folded.casefold())
    return "".join(each for each in decomposed if unicodedata.category(each) not in _IGNORED)
