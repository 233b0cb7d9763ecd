//! Mutable buffers divided among members by rows or by columns. Every member gets parts that no other member can reach.

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Zeroable;

use super::Team;

impl Team {
    /// Calls `work(first, part)` on parts that cover `buffer`, which is rows of `stride` values; the last row may be shorter.
    /// `first` is the index of the part's first row.
    ///
    /// # Panics
    /// As [`Team::parallel_for`] does.
    pub fn rows<T: Send>(&self, buffer: &mut [T], stride: usize, work: impl Fn(usize, &mut [T]) + Sync) {
        let base = SendPtr(buffer.as_mut_ptr());
        let (len, count) = (buffer.len(), if stride == 0 { 0 } else { buffer.len().div_ceil(stride) });
        self.parallel_for(count, 1, |rows| {
            let (from, end) = (rows.start * stride, len.min(rows.end * stride));
            // SAFETY: ranges lie within the buffer, which is borrowed mutably until all are done, and no two share a row.
            let part = unsafe { std::slice::from_raw_parts_mut(base.at(from), end - from) };
            work(rows.start, part);
        });
    }

    /// Does the same as [`Self::rows`] on some rows of a buffer that grows, within its capacity, to hold them. New rows are
    /// zeroed by the member that works on them, so that their memory is first touched there.
    ///
    /// # Panics
    /// If the buffer's capacity does not hold all rows, or as [`Team::parallel_for`] does.
    pub fn grow<T: Zeroable + Copy + Send>(
        &self,
        buffer: &mut Vec<T>,
        stride: usize,
        rows: Range<usize>,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let (from, end) = (rows.start * stride, rows.end * stride);
        assert!(end <= buffer.capacity(), "room for all rows");
        if buffer.len() < from {
            buffer.resize(from, T::zeroed());
        }
        let known = buffer.len();
        let base = SendPtr(buffer.as_mut_ptr());
        self.parallel_for(rows.len(), 1, |piece| {
            let (from, end) = (from + piece.start * stride, from + piece.end * stride);
            // SAFETY: the part is within the capacity and disjoint from all others, and zero bytes are a valid T.
            let part = unsafe {
                let new = from.max(known.min(end));
                base.at(new).write_bytes(0, end - new);
                std::slice::from_raw_parts_mut(base.at(from), end - from)
            };
            work(rows.start + piece.start, part);
        });
        // SAFETY: everything before `from` was initialised before, everything behind it has been written.
        unsafe { buffer.set_len(known.max(end)) };
    }

    /// Calls `work(section, units, columns)` on parts that cover the sections of a row-major buffer `[rows][stride]`, in
    /// multiples of `chunk` units.
    ///
    /// # Panics
    /// If the sections overlap, do not rise, or leave the rows, or as [`Team::parallel_for`] does.
    pub fn columns(
        &self,
        buffer: &mut [f32],
        stride: usize,
        sections: &[Section],
        chunk: usize,
        work: impl Fn(usize, Range<usize>, Columns) + Sync,
    ) {
        let count = buffer.len().checked_div(stride).unwrap_or(0);
        let mut end = 0;
        for section in sections {
            assert!(
                end <= section.first && section.first + section.width <= stride,
                "sections rise and stay within the rows"
            );
            end = section.first + section.width;
        }
        let base = SendPtr(buffer.as_mut_ptr());
        self.parallel_for(sections.iter().map(Section::units).sum(), chunk, |piece| {
            let mut first = 0;
            for (index, section) in sections.iter().enumerate() {
                let end = first + section.units();
                let units = piece.start.clamp(first, end) - first..piece.end.clamp(first, end) - first;
                if !units.is_empty() {
                    let range = section.columns(units.clone());
                    work(index, units, Columns { base: base.at(0), count, stride, range, buffer: PhantomData });
                }
                first = end;
            }
        });
    }

    /// Does what [`Self::columns`] does with one section of each of two buffers, which have as many units: a part gets the same units of both.
    ///
    /// # Panics
    /// If the sections have different numbers of units or leave the rows, or as [`Team::parallel_for`] does.
    pub fn paired_columns(
        &self,
        [one, other]: [(&mut [f32], usize, Section); 2],
        work: impl Fn(Range<usize>, Columns, Columns) + Sync,
    ) {
        assert_eq!(one.2.units(), other.2.units(), "as many units");
        let units = one.2.units();
        let [one, other] = [one, other].map(|(buffer, stride, section)| {
            assert!(section.first + section.width <= stride, "a section stays within the rows");
            (SendPtr(buffer.as_mut_ptr()), buffer.len().checked_div(stride).unwrap_or(0), stride, section)
        });
        self.parallel_for(units, 1, |units| {
            let [one, other] = [&one, &other].map(|(base, count, stride, section)| Columns {
                base: base.at(0),
                count: *count,
                stride: *stride,
                range: section.columns(units.clone()),
                buffer: PhantomData,
            });
            work(units, one, other);
        });
    }
}

/// Neighbouring columns that are divided in whole units; the last unit may be narrower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section {
    /// The first column.
    pub first: usize,
    /// The number of columns.
    pub width: usize,
    /// Columns of a unit.
    pub unit: usize,
}

impl Section {
    fn units(&self) -> usize {
        self.width.div_ceil(self.unit)
    }

    fn columns(&self, units: Range<usize>) -> Range<usize> {
        self.first + units.start * self.unit..self.first + (units.end * self.unit).min(self.width)
    }
}

/// A pointer that members may share.
struct SendPtr<T>(*mut T);

// SAFETY: only the methods of `Team` use it, for disjoint parts.
unsafe impl<T: Send> Sync for SendPtr<T> {}

impl<T> SendPtr<T> {
    fn at(&self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}

/// Some columns of a row-major buffer, which one member alone may write.
pub struct Columns<'a> {
    base: *mut f32,
    count: usize,
    stride: usize,
    range: Range<usize>,
    buffer: PhantomData<&'a mut [f32]>,
}

impl<'a> Columns<'a> {
    /// Takes all columns of some rows, each `stride` long.
    pub fn all(rows: &'a mut [f32], stride: usize) -> Self {
        let count = rows.len().checked_div(stride).unwrap_or(0);
        Self { base: rows.as_mut_ptr(), count, stride, range: 0..stride, buffer: PhantomData }
    }

    /// The columns, counted from the start of a row.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.count
    }

    /// These columns of one row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.count);
        // SAFETY: the row lies within the buffer, sections lie within the row and do not overlap, nor do parts of
        // them, and the borrow of `self` keeps this member from having it twice.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(row * self.stride + self.range.start), self.range.len()) }
    }

    /// These columns of every row.
    pub fn into_rows(self) -> impl ExactSizeIterator<Item = &'a mut [f32]> {
        (0..self.count).map(move |row| {
            // SAFETY: as for `row`; the rows do not overlap, and each is given out once.
            unsafe {
                std::slice::from_raw_parts_mut(self.base.add(row * self.stride + self.range.start), self.range.len())
            }
        })
    }
}
