//! Small feed-forward networks, computed for a block of environments at a time.
//!
//! Activations lie with the environments of a block side by side: each weight is multiplied with a whole vector of
//! environments, and what a layer writes is what the next one reads.

use crate::dispatch::{Kernel, dispatch};
use crate::environment::BLOCK;
use crate::error::Error;
use crate::functions::{multiply_add, tanh};

/// The most layers of a network.
pub const LAYERS_MAX: usize = 32;
/// The most inputs and outputs of a layer.
pub const WIDTH_MAX: usize = 1 << 14;

/// So many outputs and environments are computed at a time, in registers.
const TILE_OUTPUTS: usize = 4;
const TILE_LANES: usize = 16;
/// Up to so many environments are computed one by one, with the outputs side by side instead: a tile would be mostly
/// empty. Sums have the same order in both ways, and so the same value.
const SINGLE_LANES_MAX: usize = 3;

/// What follows every layer but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The hyperbolic tangent.
    Tanh,
    /// The greater of the number and 0.
    Relu,
}

/// A layer as PyTorch's `nn.Linear` has it.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// The weights, `[outputs, inputs]`, the inputs of the first output first.
    pub weight: &'a [f32],
    /// A number for each output.
    pub bias: &'a [f32],
    /// How many inputs.
    pub inputs: usize,
}

/// A network: linear layers with activations between them.
///
/// ```
/// use aktis_simulate::{Activation, Layer, Network};
///
/// let layer = Layer { weight: &[1.0, 2.0], bias: &[0.5], inputs: 2 };
/// let network = Network::new("actor", &[layer], Activation::Tanh)?;
/// assert_eq!(network.outputs(&[1.0, 1.0, 10.0, 1.0]), [3.5, 12.5]);
/// # Ok::<(), aktis_simulate::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Network {
    layers: Vec<Packed>,
    activation: Activation,
}

/// A layer with its outputs in groups of a tile, the last one filled up with zeros.
#[derive(Clone, Debug)]
struct Packed {
    /// For each group and each input, the weights of the group's outputs.
    weights: Vec<[f32; TILE_OUTPUTS]>,
    biases: Vec<[f32; TILE_OUTPUTS]>,
    inputs: usize,
    outputs: usize,
}

/// The numbers of one feature, for all environments of a block.
pub(crate) type Column = [f32; BLOCK];

/// Memory for the activations of a network, to be used again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    front: Vec<Column>,
    back: Vec<Column>,
}

impl Network {
    /// A network of these layers. `name` is what messages call it.
    pub fn new(name: &str, layers: &[Layer<'_>], activation: Activation) -> Result<Self, Error> {
        if !(1..=LAYERS_MAX).contains(&layers.len()) {
            let hint = "pass a list of (weight, bias), one for each linear layer";
            return Err(Error::Count {
                what: "the number of layers",
                count: layers.len(),
                max: LAYERS_MAX,
                hint,
            });
        }
        let mut packed: Vec<Packed> = Vec::with_capacity(layers.len());
        for (number, layer) in layers.iter().enumerate() {
            let layer = Packed::new(name, number, layer)?;
            if let Some(before) = packed.last()
                && before.outputs != layer.inputs
            {
                let problem = format!(
                    "{} inputs, and layer {} has {} outputs",
                    layer.inputs,
                    number - 1,
                    before.outputs
                );
                let hint = "each layer takes what the one before it gives";
                return Err(Error::shape(format!("{name}: layer {number}"), problem, hint));
            }
            packed.push(layer);
        }
        Ok(Self { layers: packed, activation })
    }

    /// How many numbers it takes.
    pub fn input_width(&self) -> usize {
        self.layers[0].inputs
    }

    /// How many numbers it gives.
    pub fn output_width(&self) -> usize {
        self.layers[self.layers.len() - 1].outputs
    }

    /// The outputs for rows of inputs, one row after another.
    pub fn outputs(&self, rows: &[f32]) -> Vec<f32> {
        let (inputs, outputs) = (self.input_width(), self.output_width());
        let mut result = Vec::with_capacity(rows.len() / inputs * outputs);
        let mut scratch = Scratch::default();
        for block in rows.chunks(inputs * BLOCK) {
            let lanes = block.len() / inputs;
            let columns = self.forward(block, &mut scratch);
            for lane in 0..lanes {
                result.extend(columns[..outputs].iter().map(|column| column[lane]));
            }
        }
        result
    }

    /// The outputs for the rows of at most a block, as columns: at least `output_width` of them.
    pub(crate) fn forward<'a>(&self, rows: &[f32], scratch: &'a mut Scratch) -> &'a [Column] {
        let widest =
            self.layers.iter().map(|layer| layer.inputs.max(layer.biases.len() * TILE_OUTPUTS)).max();
        let widest = widest.unwrap_or_default();
        for columns in [&mut scratch.front, &mut scratch.back] {
            if columns.len() < widest {
                columns.resize(widest, [0.0; BLOCK]);
            }
        }
        dispatch(Forward { network: self, rows, scratch: &mut *scratch });
        &scratch.front
    }
}

impl Packed {
    fn new(name: &str, number: usize, layer: &Layer<'_>) -> Result<Self, Error> {
        let Layer { weight, bias, inputs } = *layer;
        let outputs = bias.len();
        for (what, count) in [("the inputs of a layer", inputs), ("the outputs of a layer", outputs)] {
            if !(1..=WIDTH_MAX).contains(&count) {
                let hint = "the networks of rollouts are small ones; evaluate larger ones in PyTorch";
                return Err(Error::Count { what, count, max: WIDTH_MAX, hint });
            }
        }
        if weight.len() != inputs * outputs {
            let problem = format!("{} weights, {outputs} biases and {inputs} inputs", weight.len());
            let hint = "a weight has the shape [outputs, inputs], a bias [outputs], as in torch.nn.Linear";
            return Err(Error::shape(format!("{name}: layer {number}"), problem, hint));
        }
        let refuse = |place: String, value: f32| {
            let hint = "training has diverged, or the weights were never set";
            Err(Error::NotFinite { place, value: value.to_string(), hint })
        };
        if let Some(at) = weight.iter().position(|number| !number.is_finite()) {
            let place = format!("{name}: layer {number}: weight[{}, {}]", at / inputs, at % inputs);
            return refuse(place, weight[at]);
        }
        if let Some(at) = bias.iter().position(|number| !number.is_finite()) {
            return refuse(format!("{name}: layer {number}: bias[{at}]"), bias[at]);
        }
        let groups = outputs.div_ceil(TILE_OUTPUTS);
        let mut weights = vec![[0.0; TILE_OUTPUTS]; groups * inputs];
        let mut biases = vec![[0.0; TILE_OUTPUTS]; groups];
        for output in 0..outputs {
            let (group, place) = (output / TILE_OUTPUTS, output % TILE_OUTPUTS);
            biases[group][place] = bias[output];
            for input in 0..inputs {
                weights[group * inputs + input][place] = weight[output * inputs + input];
            }
        }
        Ok(Self { weights, biases, inputs, outputs })
    }

    #[inline(always)]
    fn forward<const FUSED: bool>(&self, input: &[Column], output: &mut [Column], lanes: usize) {
        let input = &input[..self.inputs];
        let groups = self.weights.chunks_exact(self.inputs).zip(&self.biases);
        for ((weights, biases), rows) in groups.zip(output.chunks_exact_mut(TILE_OUTPUTS)) {
            for first in (0..lanes).step_by(TILE_LANES) {
                let mut sums = biases.map(|bias| [bias; TILE_LANES]);
                for (weight, column) in weights.iter().zip(input) {
                    let column: &[f32; TILE_LANES] =
                        column[first..].first_chunk().expect("tiles fill blocks");
                    for (sum, weight) in sums.iter_mut().zip(weight) {
                        for (sum, number) in sum.iter_mut().zip(column) {
                            *sum = multiply_add::<FUSED>(*weight, *number, *sum);
                        }
                    }
                }
                for (row, sum) in rows.iter_mut().zip(sums) {
                    row[first..first + TILE_LANES].copy_from_slice(&sum);
                }
            }
        }
    }
}

impl Packed {
    /// The layer for one environment.
    #[inline(always)]
    fn forward_single<const FUSED: bool>(&self, lane: usize, input: &[Column], output: &mut [Column]) {
        /// As many independent sums as hide the latency of an addition.
        const GROUPS: usize = 4;
        let input = &input[..self.inputs];
        let weights = self.weights.chunks(self.inputs * GROUPS).zip(self.biases.chunks(GROUPS));
        for ((weights, biases), rows) in weights.zip(output.chunks_mut(TILE_OUTPUTS * GROUPS)) {
            let mut sums = [[0.0; TILE_OUTPUTS]; GROUPS];
            sums[..biases.len()].copy_from_slice(biases);
            let mut groups = [&weights[..self.inputs]; GROUPS];
            for (group, weights) in groups.iter_mut().zip(weights.chunks_exact(self.inputs)) {
                *group = weights;
            }
            for (place, column) in input.iter().enumerate() {
                for (sum, weights) in sums.iter_mut().zip(groups) {
                    for (sum, weight) in sum.iter_mut().zip(weights[place]) {
                        *sum = multiply_add::<FUSED>(weight, column[lane], *sum);
                    }
                }
            }
            for (row, sum) in rows.iter_mut().zip(sums.as_flattened()) {
                row[lane] = *sum;
            }
        }
    }
}

/// Computes a network for the rows of a block; the result is in `front`.
struct Forward<'a> {
    network: &'a Network,
    rows: &'a [f32],
    scratch: &'a mut Scratch,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { network, rows, scratch } = self;
        let width = network.input_width();
        for (lane, row) in rows.chunks_exact(width).enumerate() {
            for (column, number) in scratch.front.iter_mut().zip(row) {
                column[lane] = *number;
            }
        }
        let count = rows.len() / width;
        let singly = count <= SINGLE_LANES_MAX;
        let lanes = if singly { count } else { count.next_multiple_of(TILE_LANES).min(BLOCK) };
        let last = network.layers.len() - 1;
        for (number, layer) in network.layers.iter().enumerate() {
            if singly {
                for lane in 0..lanes {
                    layer.forward_single::<FUSED>(lane, &scratch.front, &mut scratch.back);
                }
            } else {
                layer.forward::<FUSED>(&scratch.front, &mut scratch.back, lanes);
            }
            if number != last {
                for column in &mut scratch.back[..layer.outputs] {
                    let column = &mut column[..lanes];
                    match network.activation {
                        Activation::Tanh => column.iter_mut().for_each(|x| *x = tanh::<FUSED>(*x)),
                        Activation::Relu => column.iter_mut().for_each(|x| *x = x.max(0.0)),
                    }
                }
            }
            std::mem::swap(&mut scratch.front, &mut scratch.back);
        }
    }
}
