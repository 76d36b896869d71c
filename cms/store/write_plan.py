"""What the store is given to write: a plan that was made outside of any transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cms.database.connections import Transaction
from cms.store.context import RequestContext

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class WritePlan(ABC, Generic[T_co]):
    """A planned write, which is a value: it runs in a transaction, or alone in one statement."""

    __slots__ = ()

    @property
    def is_one_statement(self) -> bool:
        """Whether `run_alone` does all of it."""
        return False

    @abstractmethod
    def run(self, transaction: Transaction) -> T_co:
        """Do the write in a transaction, which has compared the counters."""

    def run_alone(self) -> T_co:
        """Do the write in one statement, which compares the counters itself.

        It refuses nothing once it has written: work that is refused may be tried again.
        """
        raise NotImplementedError


TransactionWork = Callable[[Transaction, RequestContext], T]
"""What is done in a transaction, by the structure and rights of a context."""


@dataclass(frozen=True, slots=True)
class TransactionPlan(WritePlan[T]):
    """A write of fixed statements, of which nothing is planned."""

    work: TransactionWork[T]
    context: RequestContext

    def run(self, transaction: Transaction) -> T:
        return self.work(transaction, self.context)
