//! An adapter's tensors in, packed branches out. Their bytes wait only until all that share an input are there.

use std::sync::Arc;

use super::{Adapter, Branch, INPUTS, Product};
use crate::bytes::{checksum, mixed};
use crate::error::{Error, ErrorKind, Result, reserve};
use crate::formats::Tensor;
use crate::kernels::elementwise::Pairs;
use crate::kernels::packed::{DecodedRows, Matrix, MatrixShape, Packing};
use crate::kernels::sections;
use crate::model::config::{Config, HeadOrder, Hybrid, MAX_RANK, Terms};
use crate::model::items::{check_shape, matrices, sizes};
use crate::model::load::decode::finite;
use crate::model::names::{Naming, TensorRole};
use crate::model::plan::ByteRange;
use crate::model::weights::macs;
use crate::quant::{Content, Float};

#[derive(Debug)]
pub struct Loader {
    tensors: Vec<Arc<Tensor>>,
    arrived: Vec<Option<Vec<u8>>>,
    hashes: Vec<u64>,
    /// One for each of the adapter's branches.
    planned: Vec<Option<Planned>>,
    branches: Vec<Option<Branch>>,
    /// Which branch each tensor belongs to.
    places: Vec<usize>,
    /// Bytes that the adapter will hold.
    pub bytes: u64,
    /// The largest of its ranks.
    pub rank: usize,
    /// How many matrices it adds to.
    pub matrices: usize,
}

#[derive(Debug)]
struct Planned {
    width: usize,
    /// The shape of all A matrices, stacked.
    a: MatrixShape,
    pairs: Vec<Pair>,
}

/// What is added to one matrix: its two tensors, and what becomes of B.
#[derive(Debug)]
struct Pair {
    a: usize,
    b: usize,
    shape: MatrixShape,
    factor: f32,
    /// The first of its columns.
    first: usize,
    order: Order,
}

/// How the rows of B, or the columns of A, become those of the model.
#[derive(Clone, Copy, Debug)]
enum Order {
    Same,
    /// Queries and keys whose rows are ordered for other pairs: the rows of a head, and the pairs of the model.
    Pairs(usize, Pairs),
    /// Value heads in another order.
    ValueHeads(ValueHeads),
}

/// Value heads of this many rows of B (or columns of A) each, behind `first` others.
#[derive(Clone, Copy, Debug)]
struct ValueHeads {
    in_a: bool,
    first: usize,
    size: usize,
    key_heads: usize,
    share: usize,
    /// The order of the model.
    to: HeadOrder,
}

impl ValueHeads {
    fn of(net: &Hybrid, role: TensorRole) -> Option<Self> {
        let (in_a, first, size) = match role {
            TensorRole::AttnQkv => (false, 2 * net.key_heads * net.head, net.head),
            TensorRole::AttnGate => (false, 0, net.head),
            TensorRole::SsmAlpha | TensorRole::SsmBeta => (false, 0, 1),
            TensorRole::SsmOut => (true, 0, net.head),
            _ => return None,
        };
        let share = net.value_heads / net.key_heads;
        Some(Self { in_a, first, size, key_heads: net.key_heads, share, to: net.order })
    }

    /// Reorders pieces of bytes, one for each row or column.
    fn apply(&self, bytes: &mut [u8], piece: usize) {
        let heads = &mut bytes[self.first * piece..];
        let (old, size) = (heads.to_vec(), self.size * piece);
        for (to, head) in heads.chunks_exact_mut(size).enumerate() {
            let from = match self.to {
                HeadOrder::Tiled => to % self.key_heads * self.share + to / self.key_heads,
                HeadOrder::Grouped => to % self.share * self.key_heads + to / self.share,
            };
            head.copy_from_slice(&old[from * size..][..size]);
        }
    }
}

/// Room for the matrices of a layer.
const MATRICES: usize = 8;

fn dense(rows: usize, cols: usize, float: Float) -> MatrixShape {
    MatrixShape { rows, cols, packing: Packing::Dense(float), parts: 1, lookup: false, five: false }
}

impl Loader {
    /// Puts every tensor in its place beside a model's; refuses what has none, and halves without the other.
    ///
    /// # Errors
    /// An error with the tensor that has no place in the model, has another shape or lacks its other half, or whose rank is out of range.
    pub fn new(config: &Config, terms: &Terms, mut tensors: Vec<Arc<Tensor>>) -> Result<Self> {
        // PEFT keeps an adapted head beside its adapter, as it was.
        tensors.retain(|tensor| terms.naming != Naming::HuggingFace || !tensor.name.ends_with(".base_layer.weight"));
        let count = tensors.len();
        let mut loader = Self {
            tensors,
            arrived: vec![None; count],
            hashes: vec![0; count],
            planned: Vec::new(),
            branches: Vec::new(),
            places: vec![0; count],
            bytes: 0,
            rank: 0,
            matrices: 0,
        };
        let mut halves: Vec<[Option<usize>; 2]> = vec![[None; 2]; config.layers * MATRICES + 1];
        for (index, tensor) in loader.tensors.iter().enumerate() {
            let (place, b) = place(config, terms.naming, tensor)?;
            if halves[place][usize::from(b)].replace(index).is_some() {
                return Err(Error::new(ErrorKind::BadHeader, "two tensors have this place").tensor(&tensor.name));
            }
        }
        for branch in 0..=config.layers * INPUTS {
            let (layer, input) = (branch / INPUTS, branch % INPUTS);
            let inputs = matrices(config, layer);
            let roles = if layer == config.layers { &[TensorRole::Output][..] } else { inputs[input] };
            let first: usize = inputs[..input].iter().map(|roles| roles.len()).sum();
            let halves = &halves[layer * MATRICES + first..][..roles.len()];
            let planned = loader.plan(config, terms, roles, halves)?;
            for Pair { a, b, .. } in planned.iter().flat_map(|planned| &planned.pairs) {
                (loader.places[*a], loader.places[*b]) = (branch, branch);
            }
            loader.planned.push(planned);
            loader.branches.push(None);
        }
        if loader.matrices == 0 {
            return Err(Error::new(ErrorKind::MissingTensor, "the adapter has no tensors"));
        }
        Ok(loader)
    }

    fn plan(
        &mut self,
        config: &Config,
        terms: &Terms,
        roles: &[TensorRole],
        halves: &[[Option<usize>; 2]],
    ) -> Result<Option<Planned>> {
        let mut planned = Planned { width: 0, a: dense(0, 0, Float::F32), pairs: Vec::with_capacity(roles.len()) };
        for (&role, half) in roles.iter().zip(halves) {
            let ((rows, cols), first) = (sizes(config, role), planned.width);
            planned.width += rows;
            let Some(any) = half[0].or(half[1]) else { continue };
            let module = module(terms.naming, &self.tensors[any].name).map_or("", |(module, _)| module);
            let [Some(a), Some(b)] = *half else {
                let (prefix, halves) = words(terms.naming);
                let missing = format!("{prefix}{module}{}", halves[usize::from(half[0].is_some())]);
                let reason = "an adapter's A and B come together";
                return Err(Error::new(ErrorKind::MissingTensor, reason).tensor(missing));
            };
            let (a_tensor, b_tensor) = (&self.tensors[a], &self.tensors[b]);
            let rank = terms.rank(module).unwrap_or(a_tensor.shape.first().map_or(0, |&rank| rank as usize));
            if rank == 0 || rank > MAX_RANK as usize {
                return Err(Error::new(ErrorKind::UnsupportedSetting, "a rank out of range")
                    .tensor(&a_tensor.name)
                    .expected(format_args!("1 to {MAX_RANK}"), rank));
            }
            check_shape(a_tensor, &[rank, cols])?;
            check_shape(b_tensor, &[rows, rank])?;
            let (float_a, shape) = (float(a_tensor)?, dense(rows, rank, float(b_tensor)?));
            // Of different types together: as the widest.
            let same = planned.pairs.is_empty() || planned.a.packing == Packing::Dense(float_a);
            planned.a = dense(planned.a.rows + rank, cols, if same { float_a } else { Float::F32 });
            let turns = matches!(role, TensorRole::AttnQ | TensorRole::AttnK) && terms.pairs != config.rope.pairs;
            let reorders = |net: &&Hybrid| (terms.naming == Naming::Gguf) != (net.order == HeadOrder::Tiled);
            let order = match config.hybrid.as_ref().filter(reorders).and_then(|net| ValueHeads::of(net, role)) {
                Some(heads) => Order::ValueHeads(heads),
                None if turns => Order::Pairs(config.head, config.rope.pairs),
                None => Order::Same,
            };
            planned.pairs.push(Pair { a, b, shape, factor: terms.factor(module, rank), first, order });
            self.bytes += shape.bytes();
            self.rank = self.rank.max(rank);
            self.matrices += 1;
        }
        self.bytes += planned.a.bytes();
        Ok((!planned.pairs.is_empty()).then_some(planned))
    }

    /// The bytes of each tensor.
    pub fn ranges(&self) -> impl Iterator<Item = ByteRange> {
        self.tensors.iter().map(|tensor| ByteRange { file: tensor.file, offset: tensor.offset, len: tensor.len })
    }

    /// Takes the bytes of the tensor that is the `index`th of [`Self::ranges`].
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] for another number of bytes, [`ErrorKind::NonFinite`] for a weight that is NaN or infinite.
    pub fn feed(&mut self, index: usize, bytes: Vec<u8>) -> Result<()> {
        let tensor = &self.tensors[index];
        if bytes.len() as u64 != tensor.len {
            return Err(lacking(tensor));
        }
        finite(float(tensor)?, &bytes).map_err(|error| error.tensor(&tensor.name).offset(tensor.offset))?;
        self.hashes[index] = checksum(&bytes);
        self.arrived[index] = Some(bytes);
        let branch = self.places[index];
        let here = |index: usize| self.arrived[index].is_some();
        if let Some(planned) = &self.planned[branch]
            && planned.pairs.iter().all(|pair| here(pair.a) && here(pair.b))
        {
            self.branches[branch] = Some(packed(planned, &self.tensors, &mut self.arrived)?);
        }
        Ok(())
    }

    /// The adapter, once every tensor has come.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] with the first tensor that has not come.
    pub fn finish(self) -> Result<Adapter> {
        let Self { tensors, hashes, planned, branches, places, bytes, .. } = self;
        if let Some(index) = places.iter().position(|&place| branches[place].is_none()) {
            return Err(lacking(&tensors[index]));
        }
        let mut content_hash = 0;
        for (branch, planned) in planned.iter().enumerate() {
            for Pair { a, b, factor, first, .. } in planned.iter().flat_map(|planned| &planned.pairs) {
                for word in [branch as u64, *first as u64, hashes[*a], hashes[*b], u64::from(factor.to_bits())] {
                    content_hash = mixed(content_hash, word);
                }
            }
        }
        let width = planned.iter().flatten().map(|planned| planned.a.rows).max().unwrap_or(0);
        Ok(Adapter { id: 0, content_hash, bytes, width, branches })
    }
}

fn lacking(tensor: &Tensor) -> Error {
    Error::new(ErrorKind::Truncated, "not all of the tensor has come").tensor(&tensor.name).offset(tensor.offset)
}

/// Packs a branch; the bytes that it was made of are gone then.
fn packed(planned: &Planned, tensors: &[Arc<Tensor>], arrived: &mut [Option<Vec<u8>>]) -> Result<Branch> {
    let mut take = |index: usize| arrived[index].take().unwrap_or_default();
    let mut rows = reserve("an adapter", planned.a.bytes())?;
    let (mut bs, mut from) = (Vec::with_capacity(planned.pairs.len()), 0);
    let (mut bytes, mut products) = (0, 0);
    for &Pair { a, b, shape, factor, first, order } in &planned.pairs {
        let (mut own_a, mut own) = (take(a), take(b));
        let row = own.len() / shape.rows;
        match order {
            Order::Same => {}
            Order::Pairs(head, pairs) => own = turned(&own, row, head, pairs),
            Order::ValueHeads(heads) if heads.in_a => {
                let row = own_a.len() / shape.cols;
                own_a.chunks_exact_mut(row).for_each(|values| heads.apply(values, row / planned.a.cols));
            }
            Order::ValueHeads(heads) => heads.apply(&mut own, row),
        }
        match float(&tensors[a])? {
            float if planned.a.packing == Packing::Dense(float) => rows.extend(own_a),
            float => float.values(&own_a).for_each(|value| rows.extend(value.to_le_bytes())),
        }
        let b = matrix(shape, &own)?;
        bytes += b.bytes();
        products += macs(&b);
        bs.push(Product { b, from, factor, sections: sections(&shape, first).collect() });
        from += shape.cols;
    }
    let a = matrix(planned.a, &rows)?;
    Ok(Branch { width: planned.width, bytes: bytes + a.bytes(), macs: products + macs(&a), a, bs })
}

fn matrix(shape: MatrixShape, bytes: &[u8]) -> Result<Matrix> {
    let mut matrix = Matrix::reserve(shape)?;
    let row = bytes.len() / shape.rows;
    for tile in 0..shape.tiles() {
        let rows = shape.tile_rows(tile);
        let codes = &bytes[rows.start * row..rows.end * row];
        matrix.pack(tile, DecodedRows { codes, scales: &[], mins: &[], super_scales: &[] });
    }
    Ok(matrix)
}

/// Reorders the rows of every head for the pairs that this model rotates: two halves, or each value beside its partner.
fn turned(bytes: &[u8], row: usize, head: usize, pairs: Pairs) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for bytes in bytes.chunks_exact(head * row) {
        for i in 0..head {
            let from = match pairs {
                Pairs::Adjacent => i % 2 * (head / 2) + i / 2,
                Pairs::Halves => i % (head / 2) * 2 + i / (head / 2),
            };
            out.extend_from_slice(&bytes[from * row..][..row]);
        }
    }
    out
}

/// The prefix and the suffixes that PEFT and llama.cpp add to a module's name for its A and B.
fn words(naming: Naming) -> (&'static str, [&'static str; 2]) {
    match naming {
        Naming::HuggingFace => ("base_model.model.", [".lora_A.weight", ".lora_B.weight"]),
        Naming::Gguf => ("", [".weight.lora_a", ".weight.lora_b"]),
    }
}

/// The name of a module, and whether this is its B.
fn module(naming: Naming, name: &str) -> Option<(&str, bool)> {
    let (prefix, [a, b]) = words(naming);
    let name = name.strip_prefix(prefix)?;
    name.strip_suffix(a).map(|module| (module, false)).or_else(|| name.strip_suffix(b).map(|module| (module, true)))
}

/// Which matrix a tensor belongs to, in order of execution, and whether it is its B.
fn place(config: &Config, naming: Naming, tensor: &Tensor) -> Result<(usize, bool)> {
    let refuse = |expected: &str| {
        Error::new(ErrorKind::UnsupportedSetting, "the adapter changes what cannot be adapted")
            .tensor(&tensor.name)
            .expected(expected, &tensor.name)
    };
    let known = "A and B of the layers' matrices or of the head";
    let (module, b) = module(naming, &tensor.name).ok_or_else(|| refuse(known))?;
    let slot = naming.slot(&format!("{module}.weight")).ok_or_else(|| refuse(known))?;
    let position = |layer| matrices(config, layer).into_iter().flatten().position(|&role| role == slot.role);
    let place = match slot.in_layer() {
        Some(layer) if layer >= config.layers => {
            return Err(refuse(&format!("layers 0 to {}", config.layers - 1)));
        }
        Some(layer) => layer * MATRICES + position(layer).ok_or_else(|| refuse(known))?,
        None if slot.role == TensorRole::Output => config.layers * MATRICES,
        None => return Err(refuse(known)),
    };
    Ok((place, b))
}

fn float(tensor: &Tensor) -> Result<Float> {
    match tensor.runnable()?.content {
        Content::Dense(float) => Ok(float),
        _ => Err(Error::new(ErrorKind::UnsupportedType, "adapters are floats")
            .tensor(&tensor.name)
            .expected("F32, F16 or BF16", &tensor.type_name)),
    }
}
