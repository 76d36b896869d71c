"""The answer where the service's account lacks a right in the database."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Any

import falcon

from cms.database.statements import statement
from cms.errors import Problem, Refused
from cms.http.answers.error_handlers import on_refused, write_errors
from cms.http.requests.request import Request, is_administrator
from cms.store.store import Store

log = logging.getLogger("cms")


class MissingRights:
    """Names table and privilege in the log, and to administrators only."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_refused(
        self, request: Request, response: falcon.Response, refused: Refused, params: Any
    ) -> None:
        """Answer a request that the service refuses, for whatever reason."""
        problem = refused.problems[0]
        if problem.code != "DATABASE_RIGHTS":
            on_refused(request, response, refused, params)
            return
        reason = self._reason(problem)
        log.error("the database refuses a right: %s", reason, extra={"request": request.id})
        extensions = {"reason": reason} if is_administrator(self._store, request) else {}
        write_errors(response, refused.status, [replace(problem, extensions=extensions)])

    def _reason(self, problem: Problem) -> str:
        """Return PostgreSQL's sentence, with the privileges that the account lacks there."""
        sentence = str(problem.extensions["reason"])
        # No privilege lets an account that is not the owner change a table.
        if sentence.startswith("must be owner"):
            return sentence
        words = re.findall(r"[^\s\"]+", sentence)
        reasons = [sentence]
        for relation, privileges in self._store.database.fetch(statement("find_missing_rights")):
            if relation in words:
                reasons.append(f"the account lacks {privileges}")
        return "; ".join(reasons)
