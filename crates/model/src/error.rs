//! What can be wrong with a model on disk. Every error names the file and, where there is one, the
//! field or tensor, what was expected and what was found.
//!
//! It knows no exit codes: a caller that needs them maps the variants.

use ringattn_engine::cpu::dense::DenseError;
use thiserror::Error;

/// Why a model, its weights or its tokenizer cannot be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The weights could not be packed: no memory.
    #[error(transparent)]
    Pack(#[from] DenseError),
    /// The operating system refused.
    #[error("{file}: {source}")]
    Io {
        /// Path of the file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is something at the path, but of another kind.
    #[error("{file}: expected {expected}, found {actual}")]
    WrongKind {
        /// Path of the file.
        file: String,
        /// The kind that can be read.
        expected: &'static str,
        /// The kind that is there.
        actual: &'static str,
    },
    /// A file that the model cannot do without is not there.
    #[error("{file}: no such file; {hint}")]
    MissingFile {
        /// Path of the file.
        file: String,
        /// What would be read, or what to do.
        hint: &'static str,
    },
    /// Bytes that are not what the format says.
    #[error("{file}: {place}: expected {expected}, found {actual}")]
    Malformed {
        /// Path of the file.
        file: String,
        /// Where in the file: a header field, a tensor, an offset.
        place: String,
        /// What the format asks for.
        expected: String,
        /// What is there.
        actual: String,
    },
    /// A file or a part of it that is larger than any sound one.
    #[error("{file}: {place} is {actual}, more than the limit of {limit}")]
    TooLarge {
        /// Path of the file.
        file: String,
        /// What is too large.
        place: String,
        /// The largest value that is read.
        limit: u64,
        /// The value found.
        actual: u64,
    },
    /// A field of the configuration holds a value that this program does not compute.
    #[error("{file}: field `{field}`: expected {expected}, found {actual}")]
    Field {
        /// Path of the file.
        file: String,
        /// The field's name in the file.
        field: String,
        /// What is supported.
        expected: String,
        /// What is there, shortened.
        actual: String,
    },
    /// A field that the configuration must have.
    #[error("{file}: field `{field}` is missing")]
    MissingField {
        /// Path of the file.
        file: String,
        /// The field's name in the file.
        field: String,
    },
    /// A field whose effect on the arithmetic is not known here.
    #[error("{file}: field `{field}` (value {actual}) is not supported, so it is refused")]
    UnknownField {
        /// Path of the file.
        file: String,
        /// The field's name in the file.
        field: String,
        /// What is there, shortened.
        actual: String,
    },
    /// An architecture that is not built here.
    #[error("{file}: model family {actual} is not supported; llama, mistral, qwen2, qwen3 are")]
    Family {
        /// Path of the file.
        file: String,
        /// The family's name in the file.
        actual: String,
    },
    /// A tensor that the configuration asks for.
    #[error("{file}: tensor `{tensor}` is missing")]
    MissingTensor {
        /// Path of the file or folder.
        file: String,
        /// The tensor's name in the file.
        tensor: String,
    },
    /// A tensor that nothing would use.
    #[error("{file}: tensor `{tensor}` is not used by this model family, so it is refused")]
    UnexpectedTensor {
        /// Path of the file or folder.
        file: String,
        /// The tensor's name in the file.
        tensor: String,
    },
    /// A tensor of another shape than the configuration says.
    #[error("{file}: tensor `{tensor}`: expected shape {expected:?}, found {actual:?}")]
    TensorShape {
        /// Path of the file or folder.
        file: String,
        /// The tensor's name in the file.
        tensor: String,
        /// The shape from the configuration, `[out, in]` or `[len]`.
        expected: Vec<u64>,
        /// The shape in the file.
        actual: Vec<u64>,
    },
    /// A tensor of an element type that is not read.
    #[error("{file}: tensor `{tensor}`: expected {expected}, found type {actual}")]
    TensorType {
        /// Path of the file or folder.
        file: String,
        /// The tensor's name in the file.
        tensor: String,
        /// The types that are read.
        expected: &'static str,
        /// The type in the file.
        actual: String,
    },
    /// The memory for the weights cannot be had.
    #[error("no memory for {bytes} bytes of {what}")]
    Memory {
        /// What the memory was for.
        what: String,
        /// How much was asked for.
        bytes: u64,
    },
    /// A tokenizer that cannot be built, or a text that it cannot take.
    #[error("{file}: tokenizer: {reason}")]
    Tokenizer {
        /// Path of the file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A token id outside the tokenizer's vocabulary.
    #[error("token {id} is outside the tokenizer's vocabulary of {vocabulary} tokens")]
    Token {
        /// The id.
        id: u32,
        /// Tokens of the vocabulary.
        vocabulary: usize,
    },
}

/// `text` in one line of about 80 characters, for an error message.
pub(crate) fn shorten(text: &str) -> String {
    const LIMIT: usize = 80;
    let mut short = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == LIMIT {
            short.push_str("...");
            break;
        }
        if character.is_control() {
            short.extend(character.escape_default());
        } else {
            short.push(character);
        }
    }
    short
}
