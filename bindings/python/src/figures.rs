//! Figures and origins, as the records of `mmq/_records.py`.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use pyo3::types::PyDict;

fn record<'py>(
    py: Python<'py>,
    class: &str,
    fields: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("mmq._records")?.getattr(class)?.call((), Some(fields))
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

/// Makes a dictionary of the named fields, and those that need a conversion.
macro_rules! fields {
    ($py:expr, $from:expr, [$($name:ident)*], [$($other:ident: $value:expr),*]) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($name), $from.$name)?;)*
        $(dict.set_item(stringify!($other), $value)?;)*
        dict
    }};
}

pub(crate) fn figures(py: Python<'_>, from: mmq::Stats) -> PyResult<Bound<'_, PyAny>> {
    let fields = fields!(
        py,
        from,
        [messages bytes segments spare_segments mapped_arenas mapped_bytes disk_bytes next_seq
         oldest_seq durable_seq enqueued dequeued consumers gaps lost_messages lost_damaged
         lost_unflushed lost_dropped lost_expired lost_rejected reserved_numbers flushes refused
         dropped expired rejected unclaimed last_flush_error],
        [oldest_age: seconds(from.oldest_age),
         flush_time: from.flush_time.as_secs_f64(),
         longest_flush: from.longest_flush.as_secs_f64(),
         wait_time: from.wait_time.as_secs_f64()]
    );
    record(py, "Stats", &fields)
}

pub(crate) fn consumer_figures(
    py: Python<'_>,
    from: mmq::ConsumerStats,
) -> PyResult<Bound<'_, PyAny>> {
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok();
    let fields = fields!(
        py,
        from,
        [name next_seq messages bytes in_flight holds_oldest kept],
        [oldest_age: seconds(from.oldest_age),
         acknowledged_at: seconds(from.acknowledged_at.and_then(since))]
    );
    record(py, "ConsumerStats", &fields)
}

/// Returns where a dead letter comes from.
pub(crate) fn origin(py: Python<'_>, from: Option<mmq::Origin>) -> PyResult<Option<Py<PyAny>>> {
    let Some(from) = from else { return Ok(None) };
    let id = pyo3::types::PyBytes::new(py, &from.queue_id);
    let fields = fields!(py, from, [seq attempts], [queue_id: id]);
    Ok(Some(record(py, "Origin", &fields)?.unbind()))
}

pub(crate) fn range(py: Python<'_>, range: Range<u64>) -> PyResult<Bound<'_, PyAny>> {
    py.import("builtins")?.getattr("range")?.call1((range.start, range.end))
}
