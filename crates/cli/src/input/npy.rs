//! The npy format: magic, version, header length, a Python dict as text, then the array in C order.
//!
//! The dict is read by the few rules that numpy writes it by and nothing else, so that no nesting
//! and no code of the file is followed.

use super::mapped::{FileBytes, MappedFile};
use super::{InputError, shorten};
use ringattn::core::DType;
use std::sync::Arc;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Bytes of the longest header that is read; numpy itself stops at 10000.
const HEADER_LIMIT: u64 = 64 << 10;

/// An array of a type that attention takes.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: FileBytes,
}

/// The array in the file.
pub(crate) fn read(file: &Arc<MappedFile>) -> Result<Array, InputError> {
    let malformed = |place: &str, expected: &str, actual: String| InputError::Malformed {
        file: file.name(),
        place: place.to_owned(),
        expected: expected.to_owned(),
        actual,
    };
    let (text, len) = split(file)
        .map_err(|(expected, actual)| malformed("the start of the file", expected, actual))?;
    let header = Header::parse(text).map_err(|at| {
        let expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (..), }";
        malformed("the header", expected, format!("something else at its byte {at}"))
    })?;
    let dtype = element_type(&header.descr).map_err(|actual| InputError::ElementType {
        file: file.name(),
        tensor: "the array".to_owned(),
        expected: "'<f4' or '<f2'",
        actual,
    })?;
    if header.order == Order::Fortran {
        return Err(InputError::FortranOrder { file: file.name() });
    }
    let size = header.shape.iter().try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size));
    if size != Some(len) {
        let size = size.map_or("more than 2^64".to_owned(), |size| size.to_string());
        let expected = format!("{size} bytes by shape and type");
        return Err(malformed("the data", &expected, len.to_string()));
    }
    let bytes = FileBytes::tail(file, len);
    Ok(Array { dtype, shape: header.shape, bytes })
}

/// What was expected and what was found instead.
type Mismatch = (&'static str, String);

/// The header's text, and how many bytes of data follow.
fn split(file: &MappedFile) -> Result<(&[u8], u64), Mismatch> {
    let bytes = file.bytes();
    let magic = "the 8 bytes that begin an npy file of version 1, 2 or 3";
    let Some((start, rest)) = bytes.split_first_chunk::<8>() else {
        return Err((magic, format!("a file of {} bytes", file.len())));
    };
    if !start.starts_with(MAGIC) {
        return Err((magic, shorten(&String::from_utf8_lossy(start))));
    }
    let (length, rest) = match start[6] {
        1 => {
            let short = rest.split_first_chunk::<2>();
            short.map(|(length, rest)| (u64::from(u16::from_le_bytes(*length)), rest))
        }
        2 | 3 => {
            let long = rest.split_first_chunk::<4>();
            long.map(|(length, rest)| (u64::from(u32::from_le_bytes(*length)), rest))
        }
        other => return Err((magic, format!("version {other}"))),
    }
    .ok_or_else(|| ("a header length", "the end of the file".to_owned()))?;
    if length > HEADER_LIMIT || length > rest.len() as u64 {
        let most = HEADER_LIMIT.min(rest.len() as u64);
        return Err(("a header within the file and 64 KiB", format!("{length} of {most} bytes")));
    }
    let (text, rest) = rest.split_at(length as usize);
    let unmapped = file.len() - bytes.len() as u64;
    Ok((text, rest.len() as u64 + unmapped))
}

/// What attention calls the type; else what to say of it.
fn element_type(descr: &str) -> Result<DType, String> {
    let reason = match descr {
        "<f4" => return Ok(DType::F32),
        "<f2" => return Ok(DType::F16),
        "<f8" => " (float64): convert it with astype",
        "<V2" | "|V2" => " (bfloat16, which npy cannot name): use a safetensors file",
        other if other.starts_with('[') => " (a structured array)",
        other if other.starts_with('>') => " (big-endian): convert it with astype",
        other if other.contains('O') => " (pickled objects, which are never loaded)",
        _ => "",
    };
    Err(format!("'{}'{reason}", shorten(descr)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    C,
    Fortran,
}

#[derive(Debug, PartialEq, Eq)]
struct Header {
    descr: String,
    order: Order,
    shape: Vec<u64>,
}

impl Header {
    /// The dict in `text`; else the byte where it is no such dict.
    fn parse(text: &[u8]) -> Result<Self, usize> {
        let mut dict = Cursor { text, at: 0 };
        let (mut descr, mut order, mut shape) = (None, None, None);
        dict.expect(b'{')?;
        while dict.peek() != Some(b'}') {
            let at = dict.at;
            let key = dict.string()?;
            dict.expect(b':')?;
            let fresh = match key.as_str() {
                "descr" => descr.replace(dict.descr()?).is_none(),
                "fortran_order" => order.replace(dict.order()?).is_none(),
                "shape" => shape.replace(dict.tuple()?).is_none(),
                _ => false,
            };
            if !fresh {
                return Err(at);
            }
            if dict.peek() != Some(b'}') {
                dict.expect(b',')?;
            }
        }
        dict.expect(b'}')?;
        match (dict.peek(), descr, order, shape) {
            (None, Some(descr), Some(order), Some(shape)) => Ok(Self { descr, order, shape }),
            _ => Err(dict.at),
        }
    }
}

/// A place in the header's text. White space before a word is skipped.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Result<(), usize> {
        if self.peek() != Some(byte) {
            return Err(self.at);
        }
        self.at += 1;
        Ok(())
    }

    /// The bytes up to the first that `ends`, which is not passed.
    fn until(&mut self, ends: impl Fn(u8) -> bool) -> Result<String, usize> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|&byte| ends(byte)).ok_or(self.at)?;
        self.at += len;
        Ok(String::from_utf8_lossy(&rest[..len]).into_owned())
    }

    fn string(&mut self) -> Result<String, usize> {
        let quote = self.peek().filter(|byte| b"'\"".contains(byte)).ok_or(self.at)?;
        self.at += 1;
        let string = self.until(|byte| byte == quote)?;
        self.at += 1;
        Ok(string)
    }

    /// A type's name, or the whole text of a structured type.
    fn descr(&mut self) -> Result<String, usize> {
        if self.peek() != Some(b'[') {
            return self.string();
        }
        let string = self.until(|byte| byte == b']')?;
        self.at += 1;
        Ok(string + "]")
    }

    fn order(&mut self) -> Result<Order, usize> {
        self.peek();
        let at = self.at;
        match self.until(|byte| !byte.is_ascii_alphabetic())?.as_str() {
            "False" => Ok(Order::C),
            "True" => Ok(Order::Fortran),
            _ => Err(at),
        }
    }

    fn tuple(&mut self) -> Result<Vec<u64>, usize> {
        let mut sizes = Vec::new();
        self.expect(b'(')?;
        while self.peek() != Some(b')') {
            let at = self.at;
            let digits = self.until(|byte| !byte.is_ascii_digit())?;
            sizes.push(digits.parse().map_err(|_| at)?);
            if self.peek() != Some(b')') {
                self.expect(b',')?;
            }
        }
        self.expect(b')')?;
        Ok(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_numpy_writes() {
        let parsed =
            Header::parse(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n");
        let expected = Header { descr: "<f4".into(), order: Order::C, shape: vec![2, 3] };
        assert_eq!(parsed, Ok(expected));
        let parsed = Header::parse(br#"{"shape":(),"fortran_order":True,"descr":"|O"}"#);
        let expected = Header { descr: "|O".into(), order: Order::Fortran, shape: vec![] };
        assert_eq!(parsed, Ok(expected));
    }

    #[test]
    fn anything_else_is_refused_where_it_begins() {
        for (text, at) in [
            ("", 0),
            ("{", 1),
            ("{'descr': '<f4'}", 16),
            ("{'descr': '<f4', 'descr': '<f4'}", 17),
            ("{'shape': (-1,)}", 11),
            ("{'shape': (99999999999999999999,)}", 11),
            ("{'shape': ((1,),)}", 11),
            ("{'fortran_order': 0}", 18),
            ("{'other': 'x'}", 1),
            ("((((((((", 0),
        ] {
            assert_eq!(Header::parse(text.as_bytes()), Err(at), "{text}");
        }
    }
}
