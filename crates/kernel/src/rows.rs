//! Rows of a tensor where they lie: at which element the row of a `(head, slot)` begins.
//!
//! A tensor is `[tokens, heads, d]` or `[heads, tokens, d]`, which differ in their strides alone:
//! `start = head * head_stride + token * token_stride`. A list says which token each slot is; without
//! one, slot `i` is token `i`. Knows no layout and no rank.

use crate::KernelError;
use crate::prefetch::{AHEAD, prefetch_first};
use ringattn_core::{DType, ElementsView};

/// How the rows of a tensor follow each other in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrangement {
    heads: usize,
    tokens: usize,
    head_dim: usize,
    head_stride: usize,
    token_stride: usize,
}

impl Arrangement {
    /// `[tokens, heads, d]`.
    pub fn token_major(heads: usize, tokens: usize, head_dim: usize) -> Self {
        let token_stride = heads.saturating_mul(head_dim);
        Self { heads, tokens, head_dim, head_stride: head_dim, token_stride }
    }

    /// `[heads, tokens, d]`.
    pub fn head_major(heads: usize, tokens: usize, head_dim: usize) -> Self {
        let head_stride = tokens.saturating_mul(head_dim);
        Self { heads, tokens, head_dim, head_stride, token_stride: head_dim }
    }

    /// Heads.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Tokens of the whole tensor.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Elements of a row.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Elements of the whole tensor; `usize::MAX`, which no buffer has, when there are more.
    fn elements(&self) -> usize {
        self.heads.saturating_mul(self.tokens).saturating_mul(self.head_dim)
    }
}

/// An arrangement, and which of its tokens are meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) arrangement: Arrangement,
    /// The token of each slot; `None`: all tokens in order.
    pub(crate) tokens: Option<&'a [usize]>,
}

impl Placed<'_> {
    /// Slots.
    pub(crate) fn len(&self) -> usize {
        self.tokens.map_or(self.arrangement.tokens, <[usize]>::len)
    }

    /// Where the row begins. Inside the tensor when [`Placed::check`] has passed, `head` is one of the
    /// arrangement's and `slot` is below `len`.
    #[inline(always)]
    pub(crate) fn start(&self, head: usize, slot: usize) -> usize {
        let token = match self.tokens {
            None => slot,
            Some(tokens) => tokens[slot],
        };
        head * self.arrangement.head_stride + token * self.arrangement.token_stride
    }

    /// Checks that every row lies inside a tensor of `elements`.
    pub(crate) fn check(&self, tensor: &'static str, elements: usize) -> Result<(), KernelError> {
        let (expected, tokens) = (self.arrangement.elements(), self.arrangement.tokens);
        if expected != elements {
            return Err(KernelError::Length { tensor, expected, actual: elements });
        }
        let list = self.tokens.unwrap_or_default();
        match list.iter().position(|&token| token >= tokens) {
            None => Ok(()),
            Some(slot) => Err(KernelError::Row { tensor, slot, token: list[slot], tokens }),
        }
    }
}

/// Rows to read, in any element type.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    pub(crate) data: ElementsView<'a>,
    pub(crate) placed: Placed<'a>,
}

impl<'a> Rows<'a> {
    /// All tokens of `data` in order.
    pub fn whole(data: ElementsView<'a>, arrangement: Arrangement) -> Self {
        Self { data, placed: Placed { arrangement, tokens: None } }
    }

    /// Of `data` the tokens in the list, one for each slot.
    pub fn listed(data: ElementsView<'a>, arrangement: Arrangement, tokens: &'a [usize]) -> Self {
        Self { data, placed: Placed { arrangement, tokens: Some(tokens) } }
    }

    /// Slots.
    pub fn len(&self) -> usize {
        self.placed.len()
    }

    /// Whether there is no slot.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Heads and elements of a row.
    pub fn shape(&self) -> (usize, usize) {
        (self.placed.arrangement.heads, self.placed.arrangement.head_dim)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.data.dtype()
    }

    /// The `d` elements of a row; empty when there is no such row.
    pub fn row(&self, head: usize, slot: usize) -> ElementsView<'a> {
        let Placed { arrangement, tokens } = self.placed;
        let token = tokens.map_or(Some(slot), |tokens| tokens.get(slot).copied());
        let exists = head < arrangement.heads && token.is_some_and(|t| t < arrangement.tokens);
        let start = if exists { self.placed.start(head, slot) } else { usize::MAX };
        self.data.slice(start..start.saturating_add(arrangement.head_dim))
    }

    /// Visits all rows, with their head and slot, heads in the outer loop.
    pub fn for_each(&self, mut visit: impl FnMut(usize, usize, ElementsView<'a>)) {
        for head in 0..self.placed.arrangement.heads {
            for slot in 0..self.len() {
                self.prefetch(head, slot + AHEAD);
                visit(head, slot, self.row(head, slot));
            }
        }
    }

    /// Asks for a row that is read soon, when there is one.
    #[inline(always)]
    pub(crate) fn prefetch(&self, head: usize, slot: usize) {
        if slot < self.len() {
            let (start, len) = (self.start(head, slot), self.placed.arrangement.head_dim);
            match self.data {
                ElementsView::F32(x) => prefetch_first(x.as_ptr().wrapping_add(start), len),
                ElementsView::Bf16(x) => prefetch_first(x.as_ptr().wrapping_add(start), len),
                ElementsView::F16(x) => prefetch_first(x.as_ptr().wrapping_add(start), len),
            }
        }
    }

    /// Elements from one head to the next and from one slot to the next, where these are constant.
    pub(crate) fn strides(&self) -> Option<(usize, usize)> {
        let Placed { arrangement, tokens } = self.placed;
        tokens.is_none().then_some((arrangement.head_stride, arrangement.token_stride))
    }

    /// Where the row begins in `data`; see [`Placed::start`].
    #[inline(always)]
    pub(crate) fn start(&self, head: usize, slot: usize) -> usize {
        self.placed.start(head, slot)
    }

    /// Checks that the rows lie inside the data and are those of `heads` heads of dimension
    /// `head_dim`.
    pub(crate) fn check(
        &self,
        tensor: &'static str,
        expected: (usize, usize),
    ) -> Result<(), KernelError> {
        let actual = self.shape();
        if actual != expected {
            return Err(KernelError::Heads { tensor, expected, actual });
        }
        self.placed.check(tensor, self.data.len())
    }
}
