"""`python -m bench`: starts what is needed, measures, prints the tables and keeps the results."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench import assets, data, growth
from bench.cases import PING, READS, RULED_READS, WRITES, Case
from bench.growth import Growth
from bench.ratio_check import compare_ratios, lines, recorded_ratios
from bench.report import case_data, case_table, growth_data, growth_table
from bench.rounds import Length, Result, Tokens, compare
from bench.stage import (
    BenchEnvironment,
    Servers,
    login,
    prepared,
    sender,
    service_and_floor,
)

RESULTS = Path(__file__).with_name("results")
CASES_FILE = RESULTS / "latest.json"
GROWTH_FILE = RESULTS / "growth.json"
QUICK = Length(3, 0.5)
FULL = Length(19, 0.5)
CHECK = Length(7, 0.5)


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One run: its database and servers, the callers, and how long each case is measured."""

    stage: BenchEnvironment
    servers: Servers
    tokens: Tokens
    length: Length

    def cases(self) -> list[Case]:
        stored = assets.stored_derivative(self.stage, self.servers.service, self.tokens.admin)
        return [PING, *READS, *RULED_READS, *WRITES, stored]

    def measure(self, case: Case) -> Result:
        _announce(case.name)
        return compare(case, *self.servers, tokens=self.tokens, length=self.length)

    def growth(self, sizes: tuple[int, ...]) -> Growth:
        _announce("Growth with the rows")
        return growth.by_size(
            self.servers.service,
            self.stage.dsn,
            tokens=self.tokens,
            sizes=sizes,
            length=self.length,
        )


def main() -> None:
    arguments = _parse_arguments()
    if arguments.check:
        sys.exit(_check())
    length = QUICK if arguments.quick else FULL
    with _running(length) as run:
        if not arguments.growth:
            results = [run.measure(case) for case in run.cases()]
            print(case_table(results), flush=True)
            if not arguments.quick:
                _save(CASES_FILE, case_data(results))
        grown = run.growth(_sizes(arguments))
    print(growth_table(grown))
    if not arguments.quick:
        _save(GROWTH_FILE, growth_data(grown))


def _check() -> int:
    """Compare the ratios of a short run with those that are recorded; return the exit code."""
    recorded = recorded_ratios(orjson.loads(CASES_FILE.read_bytes()))
    with _running(CHECK) as run:
        cases = {case.name: case for case in run.cases()}
        compared = compare_ratios(recorded, cases, lambda name: run.measure(cases[name]).ratio)
    print("\n".join(lines(compared)))
    return 0 if all(one.is_kept for one in compared) else 1


@contextmanager
def _running(length: Length) -> Iterator[BenchRun]:
    """Start the database and both servers, and make the data."""
    with prepared() as stage, service_and_floor(stage) as servers:
        token = login(servers.service)
        _announce("Making the data")
        data.make(sender(servers.service, token), stage.dsn)
        yield BenchRun(stage, servers, Tokens(token, data.make_member(stage.dsn)), length)


def _sizes(arguments: Namespace) -> tuple[int, ...]:
    if arguments.large:
        return growth.LARGE
    return growth.QUICK if arguments.quick else growth.SIZES


def _parse_arguments() -> Namespace:
    parser = ArgumentParser(
        prog="python -m bench", description="Measure the service beside its floor."
    )
    parser.add_argument("--quick", action="store_true", help="a part of the time; keeps no results")
    parser.add_argument(
        "--large", action="store_true", help="also 10,000,000 rows, which take minutes to make"
    )
    parser.add_argument("--growth", action="store_true", help="measure only growth with the rows")
    parser.add_argument(
        "--check",
        action="store_true",
        help="only compare the ratios with the recorded ones: fails where one is below 0.85 of its",
    )
    return parser.parse_args()


def _save(file: Path, measured: dict[str, object]) -> None:
    file.write_bytes(orjson.dumps(measured, option=orjson.OPT_INDENT_2) + b"\n")


def _announce(text: str) -> None:
    print(f"{text} …", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
