//! An adapter's tensors in, packed branches out. Their bytes wait only until all that share an input are there.

use super::{Adapter, Branch, INPUTS, Product};
use crate::bytes::{checksum, mixed};
use crate::error::{Error, ErrorKind, Result, reserve};
use crate::formats::Tensor;
use crate::kernels::elementwise::Pairs;
use crate::kernels::packed::{Matrix, Packing, Rows, Shape};
use crate::kernels::sections;
use crate::model::config::{Config, MOST_RANK, Terms};
use crate::model::items::{MATRICES, sizes};
use crate::model::load::decode::finite;
use crate::model::names::{Naming, Part};
use crate::model::plan::Range;
use crate::quant::{Content, Float};

#[derive(Debug)]
pub struct Loader {
    /// In the order of their bytes.
    tensors: Vec<Tensor>,
    /// The place of each, see [`Loader::pairs`], and whether it is a B.
    places: Vec<(usize, bool)>,
    /// For each layer's matrices in order of execution, then for the head.
    pairs: Vec<Option<Pair>>,
    arrived: Vec<Option<Vec<u8>>>,
    marks: Vec<u64>,
    branches: Vec<Option<Branch>>,
}

/// The two halves of what is added to one matrix.
#[derive(Debug)]
struct Pair {
    a: usize,
    b: usize,
    rank: usize,
    rows: usize,
    cols: usize,
    factor: f32,
    /// The first of its columns of the result, and how many there are of all that share the input.
    first: usize,
    width: usize,
    /// Rows of heads, so many each, in the order of the other way of turning them: how they turn here.
    turned: Option<(usize, Pairs)>,
}

/// Of a layer's matrices, which read the same input.
const SHARED: [std::ops::Range<usize>; INPUTS] = [0..3, 3..4, 4..6, 6..7];

impl Loader {
    /// Puts every tensor in its place beside a model's; refuses what has none, and halves without the other.
    pub fn new(config: &Config, terms: &Terms, tensors: &[Tensor]) -> Result<Self> {
        let mut tensors = tensors.to_vec();
        tensors.sort_by_key(|tensor| tensor.offset);
        let matrices = config.layers * MATRICES.len() + 1;
        let mut halves: Vec<[Option<usize>; 2]> = vec![[None; 2]; matrices];
        let mut places = Vec::with_capacity(tensors.len());
        for (index, tensor) in tensors.iter().enumerate() {
            let (place, b) = place(config, terms.naming, tensor)?;
            if halves[place][usize::from(b)].replace(index).is_some() {
                return Err(Error::new(ErrorKind::BadHeader, "two tensors have this place").tensor(&tensor.name));
            }
            places.push((place, b));
        }
        let pair = |(place, halves): (usize, &[Option<usize>; 2])| match *halves {
            [None, None] => Ok(None),
            [Some(a), Some(b)] => joined(config, terms, &tensors, place, (a, b)).map(Some),
            [Some(one), None] | [None, Some(one)] => {
                let reason = "an adapter's A and B come together";
                Err(Error::new(ErrorKind::MissingTensor, reason).tensor(other_half(&tensors[one].name)))
            }
        };
        let pairs: Vec<_> = halves.iter().enumerate().map(pair).collect::<Result<_>>()?;
        if tensors.is_empty() {
            return Err(Error::new(ErrorKind::MissingTensor, "the adapter has no tensors"));
        }
        let branches = (0..=config.layers * INPUTS).map(|_| None).collect();
        let (arrived, marks) = (vec![None; tensors.len()], vec![0; tensors.len()]);
        Ok(Self { tensors, places, pairs, arrived, marks, branches })
    }

    /// The bytes of each tensor, in the order in which they lie.
    pub fn ranges(&self) -> impl Iterator<Item = Range> {
        self.tensors.iter().map(|&Tensor { file, offset, len, .. }| Range { file, offset, len })
    }

    /// Bytes that the adapter will hold.
    pub fn bytes(&self) -> u64 {
        (0..self.branches.len())
            .filter_map(|branch| self.shapes(branch))
            .map(|(a, bs)| a.bytes() + bs.iter().map(Shape::bytes).sum::<u64>())
            .sum()
    }

    /// The largest of its ranks, and how many matrices it adds to.
    pub fn summary(&self) -> (usize, usize) {
        let pairs = || self.pairs.iter().flatten();
        (pairs().map(|pair| pair.rank).max().unwrap_or(0), pairs().count())
    }

    /// Takes the bytes of the tensor that is the `index`th of [`Self::ranges`].
    pub fn feed(&mut self, index: usize, bytes: Vec<u8>) -> Result<()> {
        let tensor = &self.tensors[index];
        let wrong = |error: Error| error.tensor(&tensor.name).offset(tensor.offset);
        if bytes.len() as u64 != tensor.len {
            let error = Error::new(ErrorKind::Truncated, "not all of the tensor has come");
            return Err(wrong(error.expected(tensor.len, bytes.len())));
        }
        finite(float(tensor)?, &bytes).map_err(wrong)?;
        self.marks[index] = checksum(&bytes);
        self.arrived[index] = Some(bytes);
        let branch = self.branch_of(self.places[index].0);
        let here = |index: usize| self.arrived[index].is_some();
        if self.pairs_of(branch).iter().flatten().all(|pair| here(pair.a) && here(pair.b)) {
            self.branches[branch] = Some(self.packed(branch)?);
        }
        Ok(())
    }

    /// The adapter, once every tensor has come.
    pub fn finish(self) -> Result<Adapter> {
        for (&(place, _), tensor) in self.places.iter().zip(&self.tensors) {
            if self.branches[self.branch_of(place)].is_none() {
                return Err(Error::new(ErrorKind::Truncated, "not all of the tensor has come").tensor(&tensor.name));
            }
        }
        let mut mark = 0;
        for (place, pair) in self.pairs.iter().enumerate() {
            let Some(Pair { a, b, factor, .. }) = pair else { continue };
            for word in [place as u64, self.marks[*a], self.marks[*b], u64::from(factor.to_bits())] {
                mark = mixed(mark, word);
            }
        }
        Ok(Adapter { id: 0, mark, branches: self.branches })
    }

    fn branch_of(&self, place: usize) -> usize {
        let (layer, matrix) = (place / MATRICES.len(), place % MATRICES.len());
        let input = SHARED.iter().position(|shared| shared.contains(&matrix)).unwrap_or(0);
        layer * INPUTS + input
    }

    /// Those that share an input.
    fn pairs_of(&self, branch: usize) -> &[Option<Pair>] {
        let span = &SHARED[branch % INPUTS];
        let first = branch / INPUTS * MATRICES.len();
        &self.pairs[first + span.start..self.pairs.len().min(first + span.end)]
    }

    fn shapes(&self, branch: usize) -> Option<(Shape, Vec<Shape>)> {
        let pairs = || self.pairs_of(branch).iter().flatten();
        let cols = pairs().next()?.cols;
        let shape = |rows, cols, float| Shape { rows, cols, packing: Packing::Dense(float), parts: 1 };
        let float = |index: usize| float(&self.tensors[index]).unwrap_or(Float::F32);
        let mut floats = pairs().map(|pair| float(pair.a));
        let first = floats.next()?;
        let common = if floats.all(|float| float == first) { first } else { Float::F32 };
        let a = shape(pairs().map(|pair| pair.rank).sum(), cols, common);
        Some((a, pairs().map(|pair| shape(pair.rows, pair.rank, float(pair.b))).collect()))
    }

    /// Packs a branch, whose bytes are then gone.
    fn packed(&mut self, branch: usize) -> Result<Branch> {
        let (a, shapes) = self.shapes(branch).expect("some of it has come");
        let Packing::Dense(common) = a.packing else { unreachable!("adapters are dense") };
        let first = branch / INPUTS * MATRICES.len() + SHARED[branch % INPUTS].start;
        let pairs = self.pairs[first..].iter().take(self.pairs_of(branch).len()).flatten();
        let (mut rows, mut bs) = (reserve("an adapter", a.bytes())?, Vec::with_capacity(shapes.len()));
        let (mut from, mut width) = (0, 0);
        for (pair, shape) in pairs.zip(shapes) {
            let mut take = |index: usize| self.arrived[index].take().expect("it has come");
            match float(&self.tensors[pair.a])? {
                own if own == common => rows.extend(take(pair.a)),
                own => own.values(&take(pair.a)).for_each(|value| rows.extend(value.to_le_bytes())),
            }
            let mut bytes = take(pair.b);
            if let Some((head, pairs)) = pair.turned {
                bytes = turned(&bytes, bytes.len() / pair.rows, head, pairs);
            }
            let sections = sections(&shape, pair.first).collect();
            bs.push(Product { b: packed(shape, &bytes)?, from, factor: pair.factor, sections });
            from += pair.rank;
            width = pair.width;
        }
        Ok(Branch { width, a: packed(a, &rows)?, bs })
    }
}

fn packed(shape: Shape, bytes: &[u8]) -> Result<Matrix> {
    let mut matrix = Matrix::reserve(shape)?;
    let row = bytes.len() / shape.rows;
    for tile in 0..shape.tiles() {
        let rows = shape.tile_rows(tile);
        let codes = &bytes[rows.start * row..rows.end * row];
        matrix.pack(tile, Rows { codes, scales: &[], mins: &[], units: &[] });
    }
    Ok(matrix)
}

/// Puts the rows of every head into the order in which they turn here: halves one behind the other, or each beside its partner.
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

/// What lies between a tensor's name here and its matrix': PEFT's and llama.cpp's words.
const HALVES: [(Naming, &str, &str, &str); 2] = [
    (Naming::HuggingFace, "base_model.model.", ".lora_A.weight", ".lora_B.weight"),
    (Naming::Gguf, "", ".weight.lora_a", ".weight.lora_b"),
];

/// The name of a module, and whether this is its B.
fn module(naming: Naming, name: &str) -> Option<(&str, bool)> {
    let (_, prefix, a, b) = HALVES.into_iter().find(|(own, ..)| *own == naming)?;
    let name = name.strip_prefix(prefix)?;
    name.strip_suffix(a).map(|module| (module, false)).or_else(|| name.strip_suffix(b).map(|module| (module, true)))
}

fn other_half(name: &str) -> String {
    let swap = |(_, _, a, b): (Naming, &str, &str, &str)| match (name.strip_suffix(a), name.strip_suffix(b)) {
        (Some(stem), _) => Some(format!("{stem}{b}")),
        (_, Some(stem)) => Some(format!("{stem}{a}")),
        _ => None,
    };
    HALVES.into_iter().find_map(swap).unwrap_or_default()
}

/// Which matrix a tensor belongs to, in the order of [`Loader::pairs`], and whether it is its B.
fn place(config: &Config, naming: Naming, tensor: &Tensor) -> Result<(usize, bool)> {
    let refuse = |expected: &str| {
        Error::new(ErrorKind::UnsupportedSetting, "the adapter changes what cannot be adapted")
            .tensor(&tensor.name)
            .expected(expected, &tensor.name)
    };
    let known = "A and B of the layers' matrices or of the head";
    let (module, b) = module(naming, &tensor.name).ok_or_else(|| refuse(known))?;
    let slot = naming.slot(&format!("{module}.weight")).ok_or_else(|| refuse(known))?;
    let place = match (slot.in_layer(), MATRICES.iter().position(|part| *part == slot.part)) {
        (Some(layer), _) if layer >= config.layers => {
            return Err(refuse(&format!("layers 0 to {}", config.layers - 1)));
        }
        (Some(layer), Some(matrix)) => layer * MATRICES.len() + matrix,
        (None, None) if slot.part == Part::Output => config.layers * MATRICES.len(),
        _ => return Err(refuse(known)),
    };
    Ok((place, b))
}

fn joined(config: &Config, terms: &Terms, tensors: &[Tensor], place: usize, (a, b): (usize, usize)) -> Result<Pair> {
    let head = place == config.layers * MATRICES.len();
    let matrix = place % MATRICES.len();
    let part = if head { Part::Output } else { MATRICES[matrix] };
    let (rows, cols) = sizes(config, part);
    let name = &tensors[a].name;
    let (module, _) = module(terms.naming, name).expect("it has its place");
    let rank = terms.rank(module).unwrap_or(tensors[a].shape.first().map_or(0, |&rank| rank as usize));
    if rank == 0 || rank > MOST_RANK as usize {
        return Err(Error::new(ErrorKind::UnsupportedSetting, "a rank out of range")
            .tensor(name)
            .expected(format_args!("1 to {MOST_RANK}"), rank));
    }
    for (tensor, expected) in [(&tensors[a], [rank, cols]), (&tensors[b], [rows, rank])] {
        if !tensor.shape.iter().copied().eq(expected.map(|dim| dim as u64)) {
            return Err(Error::new(ErrorKind::ShapeMismatch, "wrong shape")
                .tensor(&tensor.name)
                .expected(format_args!("{expected:?}"), format_args!("{:?}", tensor.shape)));
        }
        float(tensor)?;
    }
    let columns = |parts: &[Part]| parts.iter().map(|&part| sizes(config, part).0).sum();
    let (first, width) = match SHARED.iter().find(|shared| shared.contains(&matrix)) {
        Some(shared) if !head => (columns(&MATRICES[shared.start..matrix]), columns(&MATRICES[shared.clone()])),
        _ => (0, rows),
    };
    let turns = matches!(part, Part::AttnQ | Part::AttnK) && terms.pairs != config.rope.pairs;
    let turned = turns.then_some((config.head, config.rope.pairs));
    Ok(Pair { a, b, rank, rows, cols, factor: terms.factor(module, rank), first, width, turned })
}

fn float(tensor: &Tensor) -> Result<Float> {
    match tensor.runnable()?.content {
        Content::Dense(float) => Ok(float),
        _ => Err(Error::new(ErrorKind::UnsupportedType, "adapters are floats")
            .tensor(&tensor.name)
            .expected("F32, F16 or BF16", &tensor.type_name)),
    }
}
