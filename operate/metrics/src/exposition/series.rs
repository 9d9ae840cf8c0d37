//! Families of series.

use super::PREFIX;
use natgate_gateway::Durations;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

/// Nanoseconds in a second.
const NANOSECONDS: f64 = 1e9;

/// A label's name and value.
type Label<'a> = (&'static str, &'a str);

/// The families so far.
#[derive(Default)]
pub(super) struct Page(Vec<MetricFamily>);

impl Page {
    /// The families with at least one series.
    pub(super) fn families(self) -> Vec<MetricFamily> {
        self.0
    }

    /// Adds a counter; its name ends in `_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str, fill: impl FnOnce(&mut Series)) {
        self.family(name, help, MetricType::COUNTER, fill);
    }

    /// Adds a gauge.
    pub(super) fn gauge(&mut self, name: &str, help: &str, fill: impl FnOnce(&mut Series)) {
        self.family(name, help, MetricType::GAUGE, fill);
    }

    /// Adds a histogram of durations; its name ends in `_seconds`.
    pub(super) fn histogram(&mut self, name: &str, help: &str, fill: impl FnOnce(&mut Series)) {
        self.family(name, help, MetricType::HISTOGRAM, fill);
    }

    /// Adds a counter of one series.
    pub(super) fn count(&mut self, name: &str, help: &str, value: u64) {
        self.counter(name, help, |series| series.add(&[], value as f64));
    }

    fn family(&mut self, name: &str, help: &str, kind: MetricType, fill: impl FnOnce(&mut Series)) {
        let mut series = Series { kind, metrics: Vec::new() };
        fill(&mut series);
        if series.metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(format!("{PREFIX}{name}"));
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(series.metrics);
        self.0.push(family);
    }
}

/// The series of one family.
pub(super) struct Series {
    kind: MetricType,
    metrics: Vec<Metric>,
}

impl Series {
    /// Adds a series.
    pub(super) fn add(&mut self, labels: &[Label<'_>], value: f64) {
        let mut metric = labelled(labels);
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.metrics.push(metric);
    }

    /// Adds a series of a histogram.
    pub(super) fn add_durations(&mut self, labels: &[Label<'_>], durations: &Durations) {
        let bucket = |(ns, count)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(ns as f64 / NANOSECONDS);
            bucket.set_cumulative_count(count);
            bucket
        };
        let mut histogram = Histogram::default();
        histogram.set_bucket(durations.cumulative().map(bucket).collect());
        histogram.set_sample_count(durations.count());
        histogram.set_sample_sum(durations.sum_ns as f64 / NANOSECONDS);
        let mut metric = labelled(labels);
        metric.set_histogram(histogram);
        self.metrics.push(metric);
    }
}

fn labelled(labels: &[Label<'_>]) -> Metric {
    let pair = |(name, value): &Label<'_>| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}
