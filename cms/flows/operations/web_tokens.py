"""The operation `json-web-token`: signs, verifies and decodes tokens."""

from __future__ import annotations

import json
import math
import time

import jwt

from cms import jsontext
from cms.config.settings import parse_milliseconds
from cms.flows.run import Rejected, RenderedOptions, Run

ALGORITHMS = ("HS256", "HS384", "HS512")
"""The algorithms of tokens: never "none", and none whose key is public."""

# Names of options as in the JavaScript library jsonwebtoken, and their claims.
_CLAIMS = {"issuer": "iss", "audience": "aud", "subject": "sub", "jwtid": "jti"}
_TIMES = {"expiresIn": "exp", "notBefore": "nbf"}
_SIGNING = frozenset({"algorithm", *_CLAIMS, *_TIMES})
_VERIFYING = frozenset({"algorithm", "algorithms", *_CLAIMS, "clockTolerance"})


def json_web_token(options: RenderedOptions, run: Run) -> object:
    """Return a signed token, or the claims of one; reject where it does not verify."""
    settings = options.get("options") or {}
    try:
        match options["operation"]:
            case "sign":
                token = _signed(options, settings)
                # The holder of the token has its rights, so the log masks it.
                run.secrets.add(token)
                return token
            case "verify":
                return _storable(_verified(options, settings))
            case _:
                token = _text(options, "token")
                return _storable(jwt.decode(token, options={"verify_signature": False}))
    # TypeError: the library wants texts in some claims.
    except (jwt.PyJWTError, TypeError) as error:
        # Not the text of the error, which may hold parts of the token.
        raise _unusable(type(error).__name__) from None
    except ValueError as error:
        raise _unusable(str(error)) from None


def _unusable(reason: str) -> Rejected:
    return Rejected({"message": f"The token cannot be used: {reason}."})


def _signed(options: RenderedOptions, settings: RenderedOptions) -> str:
    # A misspelt option would make a token that never expires.
    _require_known(settings, _SIGNING)
    claims = dict(options.get("payload") or {})
    now = math.floor(time.time())
    claims.setdefault("iat", now)
    for name, claim in _TIMES.items():
        if settings.get(name) is not None:
            claims[claim] = now + _seconds(settings[name])
    for name, claim in _CLAIMS.items():
        if settings.get(name) is not None:
            claims[claim] = settings[name]
    algorithms = _algorithms(settings.get("algorithm"))
    if len(algorithms) > 1:
        raise ValueError("a token is signed by one algorithm")
    # The library writes no decimal numbers.
    plain_claims = json.loads(jsontext.dumps(claims))
    return jwt.encode(plain_claims, _text(options, "secret"), algorithm=algorithms[0])


def _storable(claims: object) -> object:
    """Return claims as a value of the run; raises ValueError for what PostgreSQL does not store."""
    # Through JSON text, because the library decodes floats and the values of a run have decimals.
    return jsontext.loads(json.dumps(claims))


def _verified(options: RenderedOptions, settings: RenderedOptions) -> object:
    _require_known(settings, _VERIFYING)
    # The library takes a token without a subject for one of any subject.
    required_claims = [] if settings.get("subject") is None else ["sub"]
    return jwt.decode(
        _text(options, "token"),
        _text(options, "secret"),
        algorithms=_algorithms(settings.get("algorithms") or settings.get("algorithm")),
        audience=settings.get("audience"),
        issuer=settings.get("issuer"),
        subject=settings.get("subject"),
        leeway=_seconds(settings.get("clockTolerance") or 0),
        # If no audience is asked for, the one that a token names does not matter.
        options={"verify_aud": settings.get("audience") is not None, "require": required_claims},
    )


def _require_known(settings: RenderedOptions, names: frozenset[str]) -> None:
    unknown = sorted(set(settings) - names)
    if unknown:
        raise ValueError(f"options has no {unknown[0]}; there are {', '.join(sorted(names))}")


def _text(options: RenderedOptions, name: str) -> str:
    value = options.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is needed")
    return value


def _algorithms(named: object) -> list[str]:
    names = named if isinstance(named, list) else [named or ALGORITHMS[0]]
    if not names or not set(map(str, names)) <= set(ALGORITHMS):
        raise ValueError(f"the algorithm is one of {', '.join(ALGORITHMS)}")
    return [str(name) for name in names]


def _seconds(value: object) -> int:
    """Return seconds, which are given as a number or as a text such as 15m."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return parse_milliseconds(str(value), default_unit="s") // 1000
    except ValueError:
        raise ValueError(
            "a time is a number of seconds, or a text such as 15m, 12h or 7d"
        ) from None
