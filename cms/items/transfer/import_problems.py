"""The problems of an imported file, each with its line."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cms.errors import Problem, Refused

MAX_IMPORT_PROBLEMS = 100
"""How many problems of a file an answer holds."""


class _LineProblem(NamedTuple):
    line: int
    problem: Problem


@dataclass(slots=True)
class ImportProblems:
    """The first problems of a file with their lines, and how many are known in all.

    `is_partial` is set when some rows were only checked, not written: they may have more problems.
    """

    entries: list[_LineProblem] = field(default_factory=list)
    total: int = 0
    is_partial: bool = False

    @property
    def is_full(self) -> bool:
        return self.total >= MAX_IMPORT_PROBLEMS

    def add(self, problem: Problem, line: int) -> None:
        self.total += 1
        # The others are only counted: a file may have millions of them.
        if len(self.entries) < MAX_IMPORT_PROBLEMS:
            self.entries.append(_LineProblem(line, problem))

    def refuse(self) -> None:
        """Raise `Refused` with the problems by line, and with their number where there are more."""
        # They arrive batch by batch, and within a batch in the order in which its halves were
        # tried.
        entries = sorted(self.entries, key=lambda entry: entry.line)
        problems = [with_line(entry.problem, entry.line) for entry in entries]
        if self.is_partial or self.total > len(problems):
            problems.append(self._total_problem(problems))
        if problems:
            raise Refused(problems)

    def _total_problem(self, problems: list[Problem]) -> Problem:
        reason = f"The file has at least {self.total} faults; the first {len(problems)} are listed"
        extensions = {"reason": reason, "total": self.total}
        return Problem(problems[0].code, f"{reason}.", extensions)


def refusal_at(line: int, refused: Refused) -> Refused:
    """Return a refusal whose problems all have the line of one row."""
    return Refused(with_line(problem, line) for problem in refused.problems)


def with_line(problem: Problem, line: int) -> Problem:
    """Return a problem with the line of its row in place of the index in its batch."""
    extensions = {**problem.extensions, "line": line}
    # It counts from the first row of a batch, and a reader of the file knows no batches.
    extensions.pop("index", None)
    return replace(problem, extensions=extensions)
