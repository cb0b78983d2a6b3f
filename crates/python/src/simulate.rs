//! `aktis.simulate`: batches of environments and rollouts, on arrays that Python has allocated.

use aktis_simulate::{
    ActionSpace, Actions, Activation, AnyBatch, Autoreset, BUILTIN_IDS, Distribution, Episodes, Error,
    Fragment, Layer, Network, Policy, Population, builtin,
};
use parking_lot::Mutex;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

fn refused(error: Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The elements of a contiguous array.
///
/// # Safety
/// Nothing writes to the array meanwhile.
#[allow(unsafe_code)]
unsafe fn elements<T: Element>(array: &PyBuffer<T>) -> PyResult<&[T]> {
    if !array.is_c_contiguous() {
        return Err(PyBufferError::new_err("the array is not contiguous"));
    }
    if array.item_count() == 0 {
        return Ok(&[]);
    }
    // SAFETY: the type was checked when the view was taken, which keeps the memory in place; the caller says that
    // nothing writes to it.
    Ok(unsafe { std::slice::from_raw_parts(array.buf_ptr().cast(), array.item_count()) })
}

/// The elements of a contiguous array, to be written to; none if there is no array.
///
/// # Safety
/// The array is fresh: nothing else reads or writes it meanwhile.
#[allow(unsafe_code)]
unsafe fn elements_mut<T: Element>(array: &mut Option<PyBuffer<T>>) -> PyResult<&mut [T]> {
    let Some(array) = array else { return Ok(&mut []) };
    if !array.is_c_contiguous() || array.readonly() {
        return Err(PyBufferError::new_err("the array is not contiguous, or read-only"));
    }
    if array.item_count() == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as above; and the caller says that nobody else knows the array.
    Ok(unsafe { std::slice::from_raw_parts_mut(array.buf_ptr().cast(), array.item_count()) })
}

/// Bytes as truth values. They are set to false first, since other bytes than 0 and 1 are none.
#[allow(unsafe_code)]
fn as_flags(bytes: &mut [u8]) -> &mut [bool] {
    bytes.fill(0);
    // SAFETY: both types have the same size, and every byte is 0.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
}

/// The ids of the built-in environments.
#[pyfunction]
pub(crate) fn builtin_environments() -> Vec<&'static str> {
    BUILTIN_IDS.to_vec()
}

/// What Python needs to know of a kind of environments.
type Spaces = (Vec<f32>, Vec<f32>, Option<u32>, Vec<f32>, Vec<f32>);

fn spaces(batch: &dyn AnyBatch) -> Spaces {
    let observations = batch.observation_space();
    match batch.action_space() {
        ActionSpace::Discrete(choices) => {
            (observations.low, observations.high, Some(*choices), Vec::new(), Vec::new())
        }
        ActionSpace::Continuous { low, high } => {
            (observations.low, observations.high, None, low.clone(), high.clone())
        }
    }
}

/// Environments that are stepped together, with actions that Python gives.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct SimulatedBatch {
    batch: Mutex<Box<dyn AnyBatch>>,
}

/// Where episodes have ended, their returns and their lengths.
type Ended = (Vec<usize>, Vec<f64>, Vec<u32>);

#[pymethods]
impl SimulatedBatch {
    #[new]
    fn new(id: &str, count: usize, seed: u64, same_step: bool) -> PyResult<Self> {
        let autoreset = if same_step { Autoreset::SameStep } else { Autoreset::NextStep };
        Ok(Self { batch: Mutex::new(builtin(id, count, seed, autoreset).map_err(refused)?) })
    }

    /// Bounds of observations, the number of choices or none, and bounds of actions that are numbers.
    fn spaces(&self, py: Python<'_>) -> Spaces {
        py.detach(|| spaces(&**self.batch.lock()))
    }

    #[getter]
    fn steps_max(&self, py: Python<'_>) -> u32 {
        py.detach(|| self.batch.lock().steps_max())
    }

    #[getter]
    fn state_width(&self, py: Python<'_>) -> usize {
        py.detach(|| self.batch.lock().state_width())
    }

    /// Begins all episodes again.
    #[allow(unsafe_code)]
    fn reset(&self, py: Python<'_>, seed: Option<u64>, observations: PyBuffer<f32>) -> PyResult<()> {
        let mut observations = Some(observations);
        // SAFETY: the Python side passes an array that it has just made.
        let target = unsafe { elements_mut(&mut observations)? };
        py.detach(|| {
            let mut batch = self.batch.lock();
            batch.reset(seed);
            copy("observations", target, &batch.outcome().observations)
        })
    }

    /// Steps all environments, and fills in what comes of it.
    #[allow(unsafe_code, clippy::too_many_arguments)]
    fn step(
        &self,
        py: Python<'_>,
        choices: Option<PyBuffer<i64>>,
        numbers: Option<PyBuffer<f32>>,
        observations: PyBuffer<f32>,
        rewards: PyBuffer<f64>,
        terminated: PyBuffer<u8>,
        truncated: PyBuffer<u8>,
    ) -> PyResult<Ended> {
        let actions = match (&choices, &numbers) {
            // SAFETY: the Python side passes a copy of the actions, of which nobody else knows.
            (Some(choices), _) => Actions::Discrete(unsafe { elements(choices)? }),
            // SAFETY: as above.
            (_, Some(numbers)) => Actions::Continuous(unsafe { elements(numbers)? }),
            _ => return Err(PyValueError::new_err("there are no actions")),
        };
        let mut arrays = (Some(observations), Some(rewards), Some(terminated), Some(truncated));
        // SAFETY: the Python side passes arrays that it has just made.
        let (observations, rewards, terminated, truncated) = unsafe {
            (
                elements_mut(&mut arrays.0)?,
                elements_mut(&mut arrays.1)?,
                elements_mut(&mut arrays.2)?,
                elements_mut(&mut arrays.3)?,
            )
        };
        py.detach(|| {
            let mut batch = self.batch.lock();
            batch.step(actions).map_err(refused)?;
            let outcome = batch.outcome();
            copy("observations", observations, &outcome.observations)?;
            copy("rewards", rewards, &outcome.rewards)?;
            copy("terminated", as_flags(terminated), &outcome.terminated)?;
            copy("truncated", as_flags(truncated), &outcome.truncated)?;
            Ok((outcome.ended.clone(), outcome.episode_returns.clone(), outcome.episode_lengths.clone()))
        })
    }

    /// The last observations of the episodes that the last step ended, one after another.
    fn final_observations(&self, py: Python<'_>) -> Vec<f32> {
        py.detach(|| self.batch.lock().outcome().final_observations.clone())
    }

    /// The states of all environments, one after another.
    fn states(&self, py: Python<'_>) -> Vec<f64> {
        py.detach(|| self.batch.lock().states())
    }

    /// Puts the environments into these states, and fills in what they show.
    #[allow(unsafe_code)]
    fn set_states(&self, py: Python<'_>, states: PyBuffer<f64>, observations: PyBuffer<f32>) -> PyResult<()> {
        let mut observations = Some(observations);
        // SAFETY: as in `step`.
        let (states, target) = unsafe { (elements(&states)?, elements_mut(&mut observations)?) };
        py.detach(|| {
            let mut batch = self.batch.lock();
            batch.set_states(states).map_err(refused)?;
            copy("observations", target, &batch.outcome().observations)
        })
    }
}

fn copy<T: Copy>(what: &str, target: &mut [T], source: &[T]) -> PyResult<()> {
    if target.len() != source.len() {
        let (given, wanted) = (target.len(), source.len());
        return Err(PyValueError::new_err(format!("{what}: an array of {given} elements for {wanted}")));
    }
    target.copy_from_slice(source);
    Ok(())
}

fn parse_activation(activation: &str) -> PyResult<Activation> {
    match activation {
        "tanh" => Ok(Activation::Tanh),
        "relu" => Ok(Activation::Relu),
        other => {
            let message = format!(
                "activation must be 'tanh' or 'relu', got {other:?}\nhint: other networks run in PyTorch"
            );
            Err(PyValueError::new_err(message))
        }
    }
}

/// The weight and the bias of each layer, as arrays.
type Layers = Vec<(PyBuffer<f32>, PyBuffer<f32>)>;

#[allow(unsafe_code)]
fn network(name: &str, layers: &Layers, activation: &str) -> PyResult<Network> {
    let activation = match activation {
        "tanh" => Activation::Tanh,
        "relu" => Activation::Relu,
        other => {
            let message = format!(
                "activation must be 'tanh' or 'relu', got {other:?}\nhint: other networks run in PyTorch"
            );
            return Err(PyValueError::new_err(message));
        }
    };
    let mut parts = Vec::with_capacity(layers.len());
    for (number, (weight, bias)) in layers.iter().enumerate() {
        let [_, inputs] = *weight.shape() else {
            let dimensions = weight.dimensions();
            let message = format!(
                "{name}: layer {number}: the weight has {dimensions} dimensions, and 2 are needed\n\
                 hint: its shape is [outputs, inputs], as in torch.nn.Linear"
            );
            return Err(PyValueError::new_err(message));
        };
        // SAFETY: the weights are copied before this function returns, with the interpreter's lock held.
        let (weight, bias) = unsafe { (elements(weight)?, elements(bias)?) };
        parts.push(Layer { weight, bias, inputs });
    }
    Network::new(name, &parts, activation).map_err(refused)
}

/// How a policy acts: the name of a distribution, and the numbers that some of them need.
#[derive(FromPyObject)]
pub(crate) struct Acting {
    #[pyo3(item("activation"))]
    activation: String,
    #[pyo3(item("distribution"))]
    distribution: String,
    #[pyo3(item("log_std"))]
    log_std: Option<Vec<f32>>,
    #[pyo3(item("epsilon"))]
    epsilon: f32,
}

impl Acting {
    fn distribution(&self) -> PyResult<Distribution> {
        Ok(match (self.distribution.as_str(), &self.log_std) {
            ("categorical", _) => Distribution::Categorical,
            ("greedy", _) => Distribution::Greedy,
            ("epsilon_greedy", _) => Distribution::EpsilonGreedy { epsilon: self.epsilon },
            ("gaussian", Some(log_std)) => Distribution::Gaussian { log_std: log_std.clone() },
            ("gaussian", None) => {
                let message =
                    "a gaussian policy needs log_std\nhint: pass one number for each number of an action";
                return Err(PyValueError::new_err(message));
            }
            (other, _) => {
                let message = format!(
                    "there is no distribution {other:?}\n\
                     hint: there are 'categorical', 'gaussian', 'greedy' and 'epsilon_greedy'"
                );
                return Err(PyValueError::new_err(message));
            }
        })
    }

    fn policy(&self, actor: &Layers, width: usize, space: &ActionSpace) -> PyResult<Policy> {
        let distribution = self.distribution()?;
        let network = network("actor", actor, &self.activation)?;
        Policy::new(network, distribution, width, space).map_err(refused)
    }
}

/// The arrays that a fragment is written to, by name.
#[derive(FromPyObject)]
struct Arrays {
    #[pyo3(item)]
    observations: Option<PyBuffer<f32>>,
    #[pyo3(item)]
    choices: Option<PyBuffer<i64>>,
    #[pyo3(item)]
    numbers: Option<PyBuffer<f32>>,
    #[pyo3(item)]
    log_probs: Option<PyBuffer<f32>>,
    #[pyo3(item)]
    rewards: Option<PyBuffer<f32>>,
    #[pyo3(item)]
    terminations: Option<PyBuffer<u8>>,
    #[pyo3(item)]
    truncations: Option<PyBuffer<u8>>,
    #[pyo3(item)]
    values: Option<PyBuffer<f32>>,
    #[pyo3(item)]
    next_values: Option<PyBuffer<f32>>,
    #[pyo3(item)]
    next_observations: Option<PyBuffer<f32>>,
    #[pyo3(item)]
    last_observations: Option<PyBuffer<f32>>,
}

/// Environments that a policy acts in, without Python between the steps.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct Rollouts {
    rollouts: Mutex<aktis_simulate::Rollouts>,
    observation_width: usize,
    space: ActionSpace,
}

#[pymethods]
impl Rollouts {
    #[new]
    fn new(id: &str, count: usize, seed: u64) -> PyResult<Self> {
        let rollouts = aktis_simulate::Rollouts::builtin(id, count, seed).map_err(refused)?;
        let observation_width = rollouts.batch().observation_width();
        let space = rollouts.batch().action_space().clone();
        Ok(Self { rollouts: Mutex::new(rollouts), observation_width, space })
    }

    /// As those of a batch.
    fn spaces(&self, py: Python<'_>) -> Spaces {
        py.detach(|| spaces(self.rollouts.lock().batch()))
    }

    /// Steps all environments and fills in the arrays. Returns the returns and lengths of episodes that ended.
    #[allow(unsafe_code)]
    fn collect(
        &self,
        py: Python<'_>,
        steps: usize,
        actor: Layers,
        critic: Option<Layers>,
        acting: Acting,
        mut arrays: Arrays,
    ) -> PyResult<(Vec<f64>, Vec<u32>)> {
        let policy = acting.policy(&actor, self.observation_width, &self.space)?;
        let critic = critic.map(|layers| network("critic", &layers, &acting.activation)).transpose()?;
        // SAFETY: the Python side passes arrays that it has just made.
        let fragment = unsafe {
            Fragment {
                observations: elements_mut(&mut arrays.observations)?,
                choices: elements_mut(&mut arrays.choices)?,
                numbers: elements_mut(&mut arrays.numbers)?,
                log_probs: elements_mut(&mut arrays.log_probs)?,
                rewards: elements_mut(&mut arrays.rewards)?,
                terminations: as_flags(elements_mut(&mut arrays.terminations)?),
                truncations: as_flags(elements_mut(&mut arrays.truncations)?),
                values: elements_mut(&mut arrays.values)?,
                next_values: elements_mut(&mut arrays.next_values)?,
                next_observations: elements_mut(&mut arrays.next_observations)?,
                last_observations: elements_mut(&mut arrays.last_observations)?,
            }
        };
        let collected = py.detach(|| self.rollouts.lock().collect(steps, &policy, critic.as_ref(), fragment));
        let Episodes { returns, lengths } = collected.map_err(refused)?;
        Ok((returns, lengths))
    }

    /// Plays whole episodes in environments of their own.
    fn evaluate(
        &self,
        py: Python<'_>,
        episodes: usize,
        actor: Layers,
        acting: Acting,
        seed: u64,
    ) -> PyResult<(Vec<f64>, Vec<u32>)> {
        let policy = acting.policy(&actor, self.observation_width, &self.space)?;
        let played = py.detach(|| self.rollouts.lock().evaluate(episodes, &policy, seed));
        let Episodes { returns, lengths } = played.map_err(refused)?;
        Ok((returns, lengths))
    }

    /// All that the future depends on beside the policy.
    fn state<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| self.rollouts.lock().save());
        PyBytes::new(py, &bytes)
    }

    /// Goes on where `state` was called.
    fn set_state(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        py.detach(|| self.rollouts.lock().load(state)).map_err(refused)
    }
}

/// Plays episodes with each row of parameters. Returns the mean return of each, and the number of all steps.
#[pyfunction]
#[allow(unsafe_code)]
pub(crate) fn evaluate_population(
    py: Python<'_>,
    id: &str,
    sizes: Vec<usize>,
    parameters: PyBuffer<f32>,
    episodes: usize,
    seed: u64,
    acting: Acting,
) -> PyResult<(Vec<f64>, u64)> {
    let activation = parse_activation(&acting.activation)?;
    let distribution = acting.distribution()?;
    // SAFETY: the Python side passes a copy of the parameters, of which nobody else knows.
    let parameters = unsafe { elements(&parameters)? };
    py.detach(|| {
        let population = Population { id, sizes: &sizes, activation, distribution, episodes, seed };
        population.evaluate(parameters).map_err(refused)
    })
}
