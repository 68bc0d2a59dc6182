//! `Consumer`: a named place in a queue.

use pyo3::prelude::*;

use crate::arguments::callable;
use crate::iterators::Deliveries;
use crate::reader::Reader;
use crate::source::{Held, Source};

/// A named reader of a queue, with a place of its own: `Queue.consumer`.
///
/// >>> q = mmq.Queue(path)
/// >>> mail, audit = q.consumer("mail"), q.consumer("audit")
/// >>> q.put(b"order 17")
/// 0
/// >>> mail.get(), audit.get()
/// (b'order 17', b'order 17')
#[pyclass(module = "mmq", extends = Reader, frozen, subclass)]
pub(crate) struct Consumer {
    /// The consumer's name.
    #[pyo3(get)]
    name: String,
}

impl Consumer {
    pub(crate) fn new<'py>(
        py: Python<'py>,
        name: &str,
        source: Source,
        on_gap: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, Consumer>> {
        let source = Held(Some(source));
        let reader = PyClassInitializer::from(Reader { source, on_gap: callable(py, on_gap)? });
        Bound::new(py, reader.add_subclass(Consumer { name: name.to_owned() }))
    }
}

#[pymethods]
impl Consumer {
    fn __iter__(slf: Bound<'_, Self>, py: Python<'_>) -> PyResult<Deliveries> {
        Deliveries::new(py, slf.into_super().unbind(), None)
    }

    fn __aiter__<'py>(slf: Bound<'py, Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let deliveries = Deliveries::new(py, slf.into_super().unbind(), None)?;
        Bound::new(py, deliveries)?.call_method0("__aiter__")
    }

    fn __repr__(&self) -> String {
        format!("<mmq.Consumer {:?}>", self.name)
    }
}
