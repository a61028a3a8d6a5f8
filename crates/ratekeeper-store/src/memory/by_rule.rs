//! Values of rules by the numbers of their slots.

use crate::RuleSlot;

/// The values of one page.
const PAGE: usize = 256;

/// A value for each rule; the default where none was set.
///
/// Few rules have counters in a shard, and some have the largest numbers, such as limits that come with requests. So there are
/// pages, made as they are needed.
#[derive(Debug, Default)]
pub(super) struct ByRule<T> {
    /// By the upper byte of the number.
    pages: Vec<Option<Box<[T; PAGE]>>>,
}

impl<T: Copy + Default> ByRule<T> {
    pub(super) fn get(&self, rule: RuleSlot) -> T {
        let [page, place] = rule.0.to_be_bytes().map(usize::from);
        let page = self.pages.get(page).and_then(Option::as_deref);
        page.map_or_else(T::default, |page| page[place])
    }

    pub(super) fn get_mut(&mut self, rule: RuleSlot) -> &mut T {
        let [page, place] = rule.0.to_be_bytes().map(usize::from);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new([T::default(); PAGE]));
        &mut page[place]
    }

    /// The values of all rules that have one, and of some that have none.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RuleSlot, T)> {
        let pages = (0..=u8::MAX).zip(&self.pages);
        pages.flat_map(|(upper, page)| {
            let values = page.iter().flat_map(|page| page.iter().copied());
            (0..=u8::MAX)
                .map(move |lower| RuleSlot(u16::from_be_bytes([upper, lower])))
                .zip(values)
        })
    }

    /// Takes the values away, and keeps the pages.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (RuleSlot, T)> {
        let pages = (0..=u8::MAX).zip(&mut self.pages);
        pages.flat_map(|(upper, page)| {
            let values = page.iter_mut().flat_map(|page| page.iter_mut());
            (0..=u8::MAX)
                .map(move |lower| RuleSlot(u16::from_be_bytes([upper, lower])))
                .zip(values.map(std::mem::take))
        })
    }
}
