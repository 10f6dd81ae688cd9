//! The form of quantized matrices.

/// The method of NVIDIA's Model Optimizer.
pub(super) const MODELOPT: &str = "modelopt";
/// The method of files of MLX, in messages.
pub(super) const MLX: &str = "mlx";
/// Sizes of groups.
pub(super) const GROUPS: [usize; 3] = [32, 64, 128];
/// Maximum number of groups of modules.
pub(super) const MOST_SCHEMES: usize = 16;

/// The form of quantized matrices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scheme {
    pub(super) codes: Codes,
    pub(super) grid: Grid,
    /// True if zero points are stored.
    pub(super) zeros: bool,
    /// The name of the method.
    pub(super) method: &'static str,
}

/// The form of the codes of a matrix `[n, k]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Codes {
    /// Signed bytes `[n, k]` with integers of this number of bits.
    Integers(u32),
    /// 8-bit floats `[n, k]` with 4 bits of exponent, without infinities.
    Floats,
    /// Bytes of two 4-bit floats with 2 bits of exponent, `[n, k / 2]`, the first in the low bits (NVFP4). Scales
    /// are 8-bit floats, and all have one factor.
    Nvfp4,
    /// Bytes of two 4-bit floats, as those of NVFP4, with scales that are powers of two (OCP MX).
    Mxfp4,
    /// Codes of this number of bits `[n, k * bits / 32]` that follow each other from the low bits of a word on, also
    /// from one word into the next. Each group has a scale and a minimum.
    Stream(u32),
    /// Words along the inputs, `[n, k / codes in a word]`.
    Packed(u32),
    /// Words along the inputs, transposed: `[k / codes in a word, n]`.
    Gptq(Gptq),
    /// Words of 4-bit codes along the outputs, transposed, first the even outputs of eight: `[k, n / 8]`.
    Awq,
}

/// The variants of GPTQ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gptq {
    pub(super) bits: u32,
    /// True if stored zero points are one less.
    pub(super) one_less: bool,
    /// True if inputs belong to groups in another order than their own, so that `g_idx` must be stored.
    pub(super) ordered: bool,
}

/// The weights of a matrix that share a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Grid {
    /// All.
    Matrix,
    /// A row.
    Rows,
    /// A group of this number of consecutive weights of a row.
    Groups(usize),
    /// A block of this number of rows and columns.
    Blocks([usize; 2]),
}

impl Scheme {
    /// Bits of a code.
    pub(super) fn bits(&self) -> u32 {
        match self.codes {
            Codes::Integers(_) | Codes::Floats => 8,
            Codes::Packed(bits) | Codes::Stream(bits) | Codes::Gptq(Gptq { bits, .. }) => bits,
            Codes::Awq | Codes::Nvfp4 | Codes::Mxfp4 => 4,
        }
    }

    /// The last part of the name of the tensor with the codes.
    pub(super) fn tensor(&self) -> &'static str {
        match self.codes {
            Codes::Integers(_) | Codes::Floats | Codes::Stream(_) | Codes::Mxfp4 => "weight",
            Codes::Nvfp4 if [MODELOPT, MLX].contains(&self.method) => "weight",
            Codes::Packed(_) | Codes::Nvfp4 => "weight_packed",
            Codes::Gptq(_) | Codes::Awq => "qweight",
        }
    }

    /// True if scales are stored transposed.
    pub(super) fn is_transposed(&self) -> bool {
        matches!(self.codes, Codes::Gptq(_) | Codes::Awq)
    }

    /// Bits and grid in words.
    pub(super) fn about(&self) -> String {
        let codes = match self.codes {
            Codes::Floats if self.method == MLX => "MXFP8".to_owned(),
            Codes::Floats => "FP8 E4M3".to_owned(),
            Codes::Nvfp4 => "NVFP4".to_owned(),
            Codes::Mxfp4 => "MXFP4".to_owned(),
            Codes::Integers(bits) => format!("{bits} bits"),
            _ => format!("{} bits", self.bits()),
        };
        let grid = match self.grid {
            Grid::Matrix => "a scale per matrix".to_owned(),
            Grid::Rows => "a scale per row".to_owned(),
            Grid::Groups(size) => format!("groups of {size}"),
            Grid::Blocks([rows, columns]) => format!("blocks of {rows} x {columns}"),
        };
        format!("{codes}, {grid}")
    }
}
