//! How activations are rounded. [`act`](super::act) rounds them.

/// How activations are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// −127 to 127.
    Int8,
    /// −8191 to 8191.
    Int14,
    /// f32, not rounded.
    Float,
    /// −7 to 7, in the form of int8.
    Int4,
    /// −1 to 1, in the form of int8.
    Int2,
}

/// Lower bounds of max |x|, which keep the scale of a row near zero finite. BitNet's training clamps at 1e-5.
const MIN_ABS_INT8: f32 = 1e-5;
const MIN_ABS_INT14: f32 = 1e-30;

impl Precision {
    pub const ALL: [Self; 5] = [Self::Int8, Self::Int14, Self::Float, Self::Int4, Self::Int2];

    /// The one whose form the codes have.
    pub fn stored(self) -> Self {
        match self {
            Self::Int4 | Self::Int2 => Self::Int8,
            other => other,
        }
    }

    /// The greatest magnitude of a code.
    pub fn limit(self) -> f32 {
        match self {
            Self::Int8 => 127.0,
            Self::Int4 => 7.0,
            Self::Int2 => 1.0,
            _ => 8191.0,
        }
    }

    /// What the values of a group are multiplied by before they are rounded, given the largest magnitude among them: the order of operations
    /// in training, which gives the same factor bit for bit.
    pub fn factor(self, most: f32) -> f32 {
        let least = if self == Self::Int14 { MIN_ABS_INT14 } else { MIN_ABS_INT8 };
        1.0 / if most < least { least } else { most } * self.limit()
    }

    /// The name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Int14 => "int14",
            Self::Float => "float",
            Self::Int4 => "int4",
            Self::Int2 => "int2",
        }
    }
}
