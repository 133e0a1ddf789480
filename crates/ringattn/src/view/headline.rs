//! What plans, reports and traces say about the attention they are of, read from untrusted JSON, and
//! the plan that follows from it.

use super::error::{ViewError, shortened};
use super::{MAX_RANKS, MAX_TOKENS};
use ringattn_core::{AttentionShape, DType, Mask, Window};
use ringattn_plan::{Layout, LayoutKind, Plan, Problem, Schedule};
use serde::Deserialize;

/// The fields that all three kinds of file share, named as in the report.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Headline {
    pub(crate) ranks: u32,
    pub(crate) layout: String,
    #[serde(default)]
    pub(crate) block: Option<u64>,
    pub(crate) schedule: String,
    pub(crate) mask: String,
    #[serde(default)]
    pub(crate) layers: Option<u64>,
    pub(crate) tokens: u64,
    pub(crate) q_heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) kv_dtype: String,
}

/// What has to be the same for all layouts that are compared.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) ranks: u32,
    pub(crate) tokens: u64,
    pub(crate) shape: AttentionShape,
    pub(crate) mask: Mask,
    pub(crate) kv_dtype: DType,
}

impl Headline {
    /// The problem and the ranks, checked for what can be walked and drawn.
    pub(crate) fn subject(&self) -> Result<Subject, ViewError> {
        let too_many = |what, limit, actual| Err(ViewError::TooMany { what, limit, actual });
        if self.ranks == 0 {
            return Err(field("ranks", "at least 1", "0"));
        }
        if self.ranks > MAX_RANKS {
            return too_many("ranks", MAX_RANKS.into(), self.ranks.into());
        }
        if self.tokens > MAX_TOKENS {
            return too_many("tokens", MAX_TOKENS, self.tokens);
        }
        if self.schedule != Schedule::RingPassKv.to_string() {
            return Err(field("schedule", &Schedule::RingPassKv.to_string(), &self.schedule));
        }
        Ok(Subject {
            ranks: self.ranks,
            tokens: self.tokens,
            shape: AttentionShape::new(self.q_heads, self.kv_heads, self.head_dim)?,
            mask: mask(&self.mask)?,
            kv_dtype: dtype(&self.kv_dtype)?,
        })
    }

    /// The layout by name, and its block where the name leaves a choice.
    pub(crate) fn layout(&self) -> Result<(LayoutKind, Option<u64>), ViewError> {
        let kinds = [LayoutKind::Contiguous, LayoutKind::Striped, LayoutKind::Zigzag];
        let kind = kinds
            .into_iter()
            .find(|kind| kind.to_string() == self.layout)
            .ok_or_else(|| field("layout", "contiguous, striped or zigzag", &self.layout))?;
        let block = if kind == LayoutKind::Contiguous { None } else { self.block };
        Ok((kind, block))
    }
}

impl Subject {
    /// The plan of these tokens in a layout.
    pub(crate) fn plan(&self, kind: LayoutKind, block: Option<u64>) -> Result<Plan, ViewError> {
        let problem = Problem {
            shape: self.shape,
            queries: self.tokens,
            keys: self.tokens,
            mask: self.mask.clone(),
            kv_dtype: self.kv_dtype,
        };
        let layout = Layout::new(kind, block, self.tokens, self.ranks)?;
        Ok(Plan::new(problem, layout, Schedule::RingPassKv)?)
    }

    /// The same subject at `per_rank` tokens a rank, windows in proportion.
    pub(crate) fn scaled(&self, per_rank: u64) -> Self {
        let tokens = per_rank * u64::from(self.ranks);
        let mask = scaled_mask(&self.mask, tokens, self.tokens);
        Self { tokens, mask, ..self.clone() }
    }
}

fn field(field: &'static str, expected: &str, actual: &str) -> ViewError {
    ViewError::Field { field, expected: expected.to_owned(), actual: shortened(actual) }
}

fn dtype(text: &str) -> Result<DType, ViewError> {
    let all = [DType::F32, DType::Bf16, DType::F16];
    let found = all.into_iter().find(|dtype| dtype.to_string() == text);
    found.ok_or_else(|| field("kv_dtype", "f32, bf16 or f16", text))
}

/// A mask as `Display` writes it. Documents and intervals are written without their boundaries and
/// cannot be rebuilt.
fn mask(text: &str) -> Result<Mask, ViewError> {
    const MOST: usize = 8;
    let wrong = || field("mask", "full, causal, window(L,R) or several of them joined by +", text);
    let mut mask = Mask::Full;
    for (index, part) in text.split('+').enumerate() {
        if index >= MOST {
            return Err(wrong());
        }
        mask = mask.and(match part {
            "full" => Mask::Full,
            "causal" => Mask::Causal,
            other => Mask::Window(window(other).ok_or_else(wrong)?),
        });
    }
    Ok(mask)
}

fn window(text: &str) -> Option<Window> {
    let (left, right) = text.strip_prefix("window(")?.strip_suffix(')')?.split_once(',')?;
    Some(Window { left: left.parse().ok()?, right: right.parse().ok()? })
}

/// The mask for `tokens` tokens that looks as `mask` does for `of` tokens.
fn scaled_mask(mask: &Mask, tokens: u64, of: u64) -> Mask {
    match mask {
        Mask::Window(window) => {
            let scaled = |bound: i64| -> i64 {
                let exact = i128::from(bound) * i128::from(tokens);
                let of = i128::from(of.max(1));
                // Away from zero, so that a small window keeps its sign.
                let rounded = (exact.abs() + of - 1) / of * exact.signum();
                rounded.clamp(i64::MIN.into(), i64::MAX.into()) as i64
            };
            Mask::Window(Window { left: scaled(window.left), right: scaled(window.right) })
        }
        Mask::Intersection(masks) => {
            Mask::Intersection(masks.iter().map(|mask| scaled_mask(mask, tokens, of)).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_as_they_are_written() {
        for text in ["full", "causal", "window(3,-1)", "causal+window(9,0)"] {
            assert_eq!(mask(text).unwrap().to_string(), text);
        }
        for text in ["", "documents(3)", "intervals(4)", "window(1)", "window(1,x)", "causal+"] {
            assert!(matches!(mask(text), Err(ViewError::Field { field: "mask", .. })), "{text}");
        }
        assert!(mask(&["causal"; 9].join("+")).is_err());
    }

    #[test]
    fn windows_shrink_with_the_sequence() {
        let window = |left, right| Mask::Window(Window { left, right });
        assert_eq!(scaled_mask(&window(4095, 0), 16, 16384), window(4, 0));
        assert_eq!(scaled_mask(&window(-1, 2), 16, 16384), window(-1, 1));
        assert_eq!(scaled_mask(&window(i64::MAX, i64::MIN), 16, 0), window(i64::MAX, i64::MIN));
        assert_eq!(scaled_mask(&Mask::Causal, 16, 64), Mask::Causal);
    }
}
