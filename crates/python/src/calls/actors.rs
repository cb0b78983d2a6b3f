//! `Class.remote(...)`: creating actors.

use super::{Export, Heading, Signature, attempts, group_number, group_place, resources_from};
use crate::actor::Actor;
use crate::detached::detached;
use crate::object_ref::ObjectRef;
use crate::strategy::Wanted;
use crate::{codec, failure, head, session, worker};
use aktis_protocol::actor_log::LogSpec;
use aktis_runtime::{ActorOptions, Arguments};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::BTreeMap;

/// Calling it creates an actor.
#[pyclass(frozen, module = "aktis._native", weakref)]
pub(crate) struct ActorCaller {
    export: Py<Export>,
    signature: Py<Signature>,
    options: ActorOptions,
    /// Its resources, as it is told of them.
    assigned: Vec<u8>,
}

#[pymethods]
impl ActorCaller {
    #[new]
    #[pyo3(signature = (export, signature, *, type_name, name, details, resources, placement, environment, detached,
                        ends_with_creator, max_restarts, max_task_retries, max_concurrency, concurrency_groups, is_async, group,
                        strategy, priority=0, checkpoint=None))]
    #[expect(clippy::too_many_arguments, reason = "each is an option by name")]
    fn new(
        export: Py<Export>,
        signature: Py<Signature>,
        type_name: String,
        name: Option<String>,
        details: Vec<u8>,
        resources: BTreeMap<String, f64>,
        placement: BTreeMap<String, f64>,
        environment: String,
        detached: bool,
        ends_with_creator: bool,
        max_restarts: i64,
        max_task_retries: i64,
        max_concurrency: u32,
        concurrency_groups: Vec<(String, u32)>,
        is_async: bool,
        group: Option<(Vec<u8>, i64)>,
        strategy: Wanted,
        priority: i32,
        checkpoint: Option<(u32, u64, String)>,
    ) -> PyResult<Self> {
        let log = checkpoint.map(|(every_calls, every_milliseconds, directory)| LogSpec {
            every_calls,
            every_milliseconds,
            synced: !directory.is_empty(),
            directory,
            started: false,
        });
        let group = group.map(group_place).transpose()?;
        let resources = resources_from(resources)?;
        let assigned = head::assigned_text(&resources, group);
        let mut groups: Vec<_> =
            concurrency_groups.iter().map(|(name, limit)| (group_number(name), *limit)).collect();
        groups.sort_unstable();
        if groups.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(PyValueError::new_err(
                "two concurrency groups cannot be told apart\nhint: rename one",
            ));
        }
        let options = ActorOptions {
            placement: resources_from(placement)?,
            environment,
            details,
            type_name: Some(type_name),
            group,
            strategy: strategy.into_strategy()?,
            priority,
            resources,
            isolated: true,
            name,
            detached,
            awaits_arguments: false,
            ends_with_creator,
            restarts: attempts(max_restarts),
            call_retries: attempts(max_task_retries),
            concurrency: max_concurrency,
            groups,
            looped: is_async,
            log,
        };
        Ok(Self { export, signature, options, assigned })
    }

    /// Creates an actor. What its constructor waits for comes after it: it has no place before all of that is ready.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<(Actor, Vec<Py<ObjectRef>>)> {
        let py = args.py();
        self.signature.get().check(args, kwargs)?;
        let runtime = session::current_or_start(py)?;
        let function = self.export.get().exported(py, &runtime)?;
        let heading = Heading {
            flags: 0,
            function: Some(&function),
            returns: 1,
            max_calls: 0,
            name: "",
            retry: &[],
            assigned: &self.assigned,
        };
        let mut arguments = Arguments::new();
        heading.push(&mut arguments, &runtime, args, kwargs)?;
        // The actor takes the values of references among the arguments by itself: creating it never blocks its creator.
        let values = args
            .iter()
            .chain(kwargs.into_iter().flat_map(|kwargs| kwargs.values().iter().collect::<Vec<_>>()));
        let mut unready = Vec::new();
        for value in values {
            if let Ok(reference) = value.cast_exact::<ObjectRef>()
                && !reference.get().handle().is_ready()
            {
                unready.push(reference.clone().unbind());
            }
            codec::push_value(&mut arguments, &runtime, &value)?;
        }
        let waiting;
        let options = if unready.is_empty() {
            &self.options
        } else {
            waiting = ActorOptions { awaits_arguments: true, ..self.options.clone() };
            &waiting
        };
        let handle = detached(py, || runtime.create_actor(&worker::ACTOR, options, arguments));
        let handle = handle.map_err(|error| failure::to_exception(py, error))?;
        Ok((Actor { handle }, unready))
    }
}
