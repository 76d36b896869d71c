"""What a run measured: as tables for people, as JSON for programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.bulk import Bulk
from bench.crowds import TARGET, Crowd, Overload
from bench.depth import Depth
from bench.endurance import Endurance, endurance_promises
from bench.flows import MAX_P99, MIN_RUNS, WAITING, FlowResult
from bench.growth import Growth
from bench.growth_report import growth_data, growth_lines
from bench.limiting import LimitComparison, limit_lines
from bench.load import CONNECTIONS, Round
from bench.logins import LoginRound, login_promises, login_table
from bench.machine import describe_machine
from bench.rounds import Result
from bench.searching import Search
from bench.structures import StructureResult, structure_lines, structure_promises
from bench.tables import MAX_WORKER, Promise, promise_table, row, rule, verdict
from bench.uploading import Uploading


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one run measured; times are milliseconds unless a name says seconds.

    `busy` is how many processes wanted a core, on average over five minutes. With more of them than
    cores the run shared the cores, within itself (client, two servers, database) and with whatever
    else the machine did. `transforms` are first transforms a second, of a 4000 x 3000 JPEG to a
    WebP of 300 x 300.
    """

    results: list[Result]
    bulk: Bulk
    imported: Bulk
    memory: float
    growth: Growth
    depths: list[Depth]
    search: Search
    transforms: float
    uploading: Uploading
    limits: list[LimitComparison]
    crowds: list[Crowd]
    overloads: list[Overload]
    flows: FlowResult
    endurance: Endurance
    logins: list[LoginRound]
    structures: StructureResult
    quick: bool
    first_seconds: float = 0.0
    busy: float = field(default_factory=lambda: os.getloadavg()[1])
    machine: str = field(default_factory=describe_machine)

    def lines(self) -> list[Promise]:
        """Return the promises that are not a ratio to the floor."""
        return [
            self._row_in_bulk(),
            *_bulk_lines(f"create {self.bulk.rows:,} in one POST", self.bulk),
            *_bulk_lines(f"import a CSV of {self.imported.rows:,} rows", self.imported),
            *self._process_lines(),
            *self._size_lines(),
            *self._file_lines(),
            *_flow_lines(self.flows),
            *endurance_promises(self.endurance),
            *login_promises(self.logins),
            *structure_promises(self.structures),
        ]

    def _row_in_bulk(self) -> Promise:
        rate = {result.case.name: result.service.rate * result.case.rows for result in self.results}
        faster = rate["create 100 in one POST"] / rate["create one"]
        return Promise(
            "create 100: a row against a single create",
            "20 times faster",
            f"{faster:.1f}",
            faster >= 20,
        )

    def _process_lines(self) -> Iterator[Promise]:
        tail = max(result.service.p99 / result.service.p50 for result in self.results)
        yield Promise("the longest p99 against its p50", "4 times", f"{tail:.1f}", tail <= 4)
        yield Promise(
            "memory of a worker",
            "under 120 MB",
            f"{self.memory:.0f} MiB",
            self.memory < MAX_WORKER,
        )
        yield Promise(
            "first request after start",
            "under 3 s",
            f"{self.first_seconds:.2f} s",
            self.first_seconds < 3,
        )

    def _size_lines(self) -> Iterator[Promise]:
        span = f"{self.growth.sizes[0]:,} to {self.growth.sizes[-1]:,} rows"
        for grown in self.growth.rows:
            if grown.reason is None:
                name = f"{grown.name}, {span}"
                yield Promise(name, "flat", f"{grown.times:.2f} times", grown.kept)
        yield from _search_lines(self.search)

    def _file_lines(self) -> Iterator[Promise]:
        yield Promise(
            "first transforms of 12 megapixels a second",
            "8",
            f"{self.transforms:.1f}",
            self.transforms >= 8,
        )
        yield Promise(
            "an upload against cat, both on the disk",
            "0.25 as fast",
            _upload(self.uploading),
            self.uploading.ratio >= 0.25,
        )


def _search_lines(search: Search) -> Iterator[Promise]:
    name = f"a search in {search.rows:,} rows"
    times = {
        "by index": search.index,
        "by relevance": search.ranked,
        "by relevance for a word of every row": search.frequent,
    }
    for how, milliseconds in times.items():
        text = f"{milliseconds:.1f} ms"
        yield Promise(f"{name}, {how}", "under 20 ms", text, milliseconds < 20)
    slower = search.scan / search.contains
    yield Promise(
        f"{name} without an index against `_contains`", "3 times", f"{slower:.1f}", slower <= 3
    )
    answered = f"{search.answered / 1000:.2f} s"
    yield Promise(f"{name} made searchable: the answer", "1 s", answered, search.answered < 1000)


def _bulk_lines(name: str, bulk: Bulk) -> Iterator[Promise]:
    """Yield the promises on many rows, and their time beside a COPY without a history."""
    slower = "3 times slower"
    yield Promise(
        f"{name}, without history, against COPY",
        slower,
        f"{bulk.bare.ratio:.1f}",
        bulk.bare.ratio <= 3,
    )
    both = f"{name} against COPY of rows and history"
    yield Promise(both, slower, f"{bulk.recorded.ratio:.1f}", bulk.recorded.ratio <= 3)
    yield Promise(f"{name} against COPY of the rows alone", "", f"{bulk.cost_of_history:.1f}", None)
    yield Promise(
        f"{name}: memory that a worker gains",
        "under 50 MiB",
        f"{bulk.grown:.0f} MiB",
        bulk.grown < 50,
    )


def _upload(uploading: Uploading) -> str:
    return f"{uploading.ratio:.2f} ({uploading.upload:,.0f} of {uploading.cat:,.0f} MiB/s)"


def _flow_lines(flows: FlowResult) -> Iterator[Promise]:
    p99 = flows.waiting.p99
    yield Promise(
        f"p99 of an asynchronous webhook while {WAITING:,} runs wait",
        f"under {MAX_P99:.0f} ms",
        f"{p99:.1f} ms",
        p99 < MAX_P99,
    )
    yield Promise(
        "runs of two steps a second, one worker",
        f"{MIN_RUNS:.0f}",
        f"{flows.runs:,.0f}",
        flows.runs >= MIN_RUNS,
    )


def flow_table(flows: FlowResult) -> str:
    """Return what was measured of flows, alone."""
    parts = (_flows(flows), promise_table(_flow_lines(flows)))
    return "\n\n".join("\n".join(part) for part in parts)


def table(report: Report) -> str:
    """Return the report as Markdown that also reads well in a terminal."""
    parts = (
        _cases,
        _limits,
        _flow_part,
        _crowds,
        _overloads,
        _logins,
        _promises,
        _growth,
        _depths,
        _structures,
    )
    return "\n\n".join("\n".join(part(report)) for part in parts)


def _cases(report: Report) -> Iterator[str]:
    yield f"{report.machine}; load {report.busy:.1f}."
    yield (
        f"{CONNECTIONS} keep-alive connections; "
        "medians of rounds that floor and service took in turns."
    )
    yield ""
    heads = (
        "case",
        "floor/s",
        "p50 ms",
        "p99 ms",
        "service/s",
        "p50 ms",
        "p99 ms",
        "longest ms",
        "ratio",
        "target",
        "",
    )
    yield row(heads)
    yield rule(len(heads))
    for result in report.results:
        word = verdict(kept=result.ratio >= result.case.target)
        longest = f"{result.service.longest:.1f}"
        figures = (*_figures(result.floor), *_figures(result.service), longest)
        yield row(
            (result.case.name, *figures, f"{result.ratio:.2f}", f"{result.case.target}", word)
        )
    yield ""
    yield "The floor of writes leaves an activity and a revision, as the service does."


def _limits(report: Report) -> Iterator[str]:
    return limit_lines(report.limits)


def _flow_part(report: Report) -> Iterator[str]:
    return _flows(report.flows)


def _flows(flows: FlowResult) -> Iterator[str]:
    yield row(("flows", "/s", "p99 ms", "against/s", "p99 ms", "ratio", "target", ""))
    yield rule(8)
    for compared in flows.comparisons:
        figures = (
            f"{compared.flow.rate:,.0f}",
            f"{compared.flow.p99:.2f}",
            f"{compared.other.rate:,.0f}",
            f"{compared.other.p99:.2f}",
        )
        word = verdict(kept=compared.ratio >= compared.target)
        yield row((compared.name, *figures, f"{compared.ratio:.2f}", f"{compared.target}", word))


def _crowds(report: Report) -> Iterator[str]:
    yield row(("clients that stop; p99 of others beside them", "ping", "25 rows", "target", ""))
    yield rule(5)
    for crowd in report.crowds:
        word = verdict(kept=max(crowd.ping, crowd.items) <= TARGET)
        yield row(
            (
                crowd.name,
                f"{crowd.ping:.1f} times",
                f"{crowd.items:.1f} times",
                f"{TARGET:.0f} times",
                word,
            )
        )


def _overloads(report: Report) -> Iterator[str]:
    yield row(
        ("connections that ask for 25 rows", "200/s", "p50 ms", "p99 ms", "503/s", "8 after it/s")
    )
    yield rule(6)
    for overload in report.overloads:
        under_load = overload.under_load
        figures = (*_figures(under_load), f"{under_load.refused:,.0f}", f"{overload.after:,.0f}")
        yield row((f"{overload.connections:,}", *figures))


def _logins(report: Report) -> Iterator[str]:
    yield login_table(report.logins)


def _promises(report: Report) -> Iterator[str]:
    return promise_table(report.lines())


def _growth(report: Report) -> Iterator[str]:
    return growth_lines(report.growth)


def _depths(report: Report) -> Iterator[str]:
    yield row(("levels opened", "items in the answer", "ms", "µs an item"))
    yield rule(4)
    for depth in report.depths:
        each = depth.took * 1000 / depth.items
        yield row((str(depth.depth), f"{depth.items:,}", f"{depth.took:.2f}", f"{each:.1f}"))


def _structures(report: Report) -> Iterator[str]:
    return structure_lines(report.structures)


def _figures(measured: Round) -> tuple[str, str, str]:
    return f"{measured.rate:,.0f}", f"{measured.p50:.2f}", f"{measured.p99:.2f}"


def as_data(report: Report) -> dict[str, Any]:
    """Return the report as data; it holds no date and no name of a machine."""
    return {
        "machine": report.machine,
        "quick": report.quick,
        "load": report.busy,
        "cases": [
            {
                "name": result.case.name,
                "target": result.case.target,
                "ratio": result.ratio,
                "service": asdict(result.service),
                "floor": asdict(result.floor),
            }
            for result in report.results
        ],
        "promises": [asdict(line) for line in report.lines()],
        "bulk": asdict(report.bulk),
        "import": asdict(report.imported),
        "growth": growth_data(report.growth),
        "depths": [asdict(depth) for depth in report.depths],
        "search": asdict(report.search),
        "transforms": report.transforms,
        "uploading": asdict(report.uploading),
        "limits": [asdict(compared) for compared in report.limits],
        "crowds": [asdict(crowd) for crowd in report.crowds],
        "flows": asdict(report.flows),
        "endurance": asdict(report.endurance),
        "structures": asdict(report.structures),
        "overloads": [asdict(overload) for overload in report.overloads],
    }
