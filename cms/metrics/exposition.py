"""The metrics of all processes of this machine as text in the format of Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cms.metrics.families import FAMILIES, Family
from cms.metrics.metrics import Labels, Metrics, SeriesKey, stored_values

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sums = Mapping[SeriesKey, list[float]]


class Gauge(NamedTuple):
    """A number that is determined for each answer, and not counted."""

    name: str
    help: str
    value: float


def exposition(metrics: Metrics, gauges: Iterable[Gauge]) -> bytes:
    """Return the counters and histograms of all processes, and the gauges, as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(metrics, gauges))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, metrics: Metrics, gauges: Iterable[Gauge]) -> None:
        self._metrics = metrics
        self._gauges = gauges

    def describe(self) -> Iterable[Metric]:
        """Return nothing: without this method, the library would collect twice."""
        return ()

    def collect(self) -> Iterator[Metric]:
        # First, so that a process that has counted nothing yet is among the others.
        own = self._metrics.open()
        sums: dict[SeriesKey, list[float]] = {}
        processes = set()
        for stored in stored_values(self._metrics.folder):
            _add(sums, stored.series)
            if stored.process is not None:
                processes.add(stored.process)
        if own.is_private:
            _add(sums, own.series())
            processes.add(os.getpid())
        for family in FAMILIES:
            yield _metric(family, sums)
        for gauge in (*self._gauges, *_memory(processes)):
            yield GaugeMetricFamily(gauge.name, gauge.help, value=gauge.value)


def _add(sums: dict[SeriesKey, list[float]], series: Sums) -> None:
    for key, numbers in series.items():
        before = sums.get(key, [0.0] * len(numbers))
        sums[key] = [a + b for a, b in zip(before, numbers, strict=True)]


def _metric(family: Family, sums: Sums) -> Metric:
    series = {key.labels: numbers for key, numbers in sums.items() if key.family == family.name}
    # Series without labels exist from the beginning, so that their first event is a rise.
    if not family.labels:
        series.setdefault((), [0.0] * family.width)
    if family.bounds:
        return _histogram(family, series)
    counter = CounterMetricFamily(family.name, family.help, labels=family.labels)
    for labels, numbers in sorted(series.items()):
        counter.add_metric(labels, numbers[0])
    return counter


def _histogram(family: Family, series: Mapping[Labels, list[float]]) -> Metric:
    histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    names = [*map(str, family.bounds), "+Inf"]
    for labels, numbers in sorted(series.items()):
        *buckets, total = numbers
        # Each bucket of Prometheus includes the counts of the smaller ones.
        counts = list(zip(names, accumulate(buckets), strict=True))
        histogram.add_metric(labels, counts, sum_value=total)
    return histogram


def _memory(processes: Iterable[int]) -> Iterator[Gauge]:
    sizes = []
    for process in processes:
        try:
            pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
        except OSError:
            continue  # it has ended, or the system has no such files
        sizes.append(pages * os.sysconf("SC_PAGE_SIZE"))
    if sizes:
        description = "Resident memory of the service's processes on this machine."
        yield Gauge("cms_process_memory_bytes", description, float(sum(sizes)))
