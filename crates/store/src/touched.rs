//! Which pages of the arena this process has touched: the others cost a fault each unless they are populated first.
//!
//! It is a memory, not a promise: a page that is wrongly taken for untouched costs a system call, one that is wrongly
//! taken for touched costs a fault.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const BITS: u64 = u64::BITS as u64;

/// One bit for each page.
pub(crate) struct TouchedPages {
    words: Box<[AtomicU64]>,
    /// How often memory was given back when it was last forgotten.
    give_backs: AtomicU64,
}

impl TouchedPages {
    /// None of `pages` pages has been touched.
    pub(crate) fn new(pages: u64) -> Self {
        let words = (0..pages.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect();
        Self { words, give_backs: AtomicU64::new(0) }
    }

    /// Forgets all, if memory was given back since that was last done: those pages are gone.
    pub(crate) fn renew(&self, give_backs: u64) {
        if self.give_backs.load(Relaxed) != give_backs
            && self.give_backs.swap(give_backs, Relaxed) != give_backs
        {
            self.words.iter().for_each(|word| word.store(0, Relaxed));
        }
    }

    /// The first run of untouched pages among these.
    pub(crate) fn first_untouched(&self, pages: Range<u64>) -> Option<Range<u64>> {
        let start = self.find(pages.clone(), false)?;
        let end = self.find(start..pages.end, true).unwrap_or(pages.end);
        Some(start..end)
    }

    /// Takes note that these were touched.
    pub(crate) fn mark(&self, pages: Range<u64>) {
        let mut page = pages.start;
        while page < pages.end {
            let end = (page / BITS * BITS + BITS).min(pages.end);
            let below = |bit: u64| if bit == BITS { u64::MAX } else { (1 << bit) - 1 };
            let mask = below(end - page / BITS * BITS) & !below(page % BITS);
            self.words[(page / BITS) as usize].fetch_or(mask, Relaxed);
            page = end;
        }
    }

    /// The first page among these that is touched, or that is not.
    fn find(&self, pages: Range<u64>, touched: bool) -> Option<u64> {
        let mut page = pages.start;
        while page < pages.end {
            let word = self.words[(page / BITS) as usize].load(Relaxed);
            let wanted = if touched { word } else { !word } >> (page % BITS);
            if wanted != 0 {
                return Some(page + u64::from(wanted.trailing_zeros())).filter(|found| *found < pages.end);
            }
            page = page / BITS * BITS + BITS;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_untouched_pages_are_found_across_words() {
        let touched = TouchedPages::new(300);
        assert_eq!(touched.first_untouched(0..300), Some(0..300));
        touched.mark(10..200);
        assert_eq!(touched.first_untouched(0..300), Some(0..10));
        assert_eq!(touched.first_untouched(10..300), Some(200..300));
        assert_eq!(touched.first_untouched(10..200), None);
        assert_eq!(touched.first_untouched(64..128), None);
        touched.mark(0..300);
        assert_eq!(touched.first_untouched(0..300), None);
    }

    #[test]
    fn marks_agree_with_a_plain_list() {
        let touched = TouchedPages::new(256);
        let mut plain = [false; 256];
        for step in 0..60_u64 {
            let start = step * 37 % 250;
            let end = (start + step % 7 + 1).min(256);
            touched.mark(start..end);
            plain[start as usize..end as usize].fill(true);
            for from in [0, start, 63, 64, 65] {
                let expected = (from..256).find(|page| !plain[*page as usize]);
                assert_eq!(touched.first_untouched(from..256).map(|run| run.start), expected);
            }
        }
    }

    #[test]
    fn all_is_forgotten_once_for_each_give_back() {
        let touched = TouchedPages::new(100);
        touched.mark(0..100);
        touched.renew(0);
        assert_eq!(touched.first_untouched(0..100), None, "nothing was given back");
        touched.renew(1);
        assert_eq!(touched.first_untouched(0..100), Some(0..100));
        touched.mark(0..50);
        touched.renew(1);
        assert_eq!(touched.first_untouched(0..100), Some(50..100));
    }
}
