//! The arrays of one member in one operation.

/// What an operation reads, and where it writes.
pub(crate) enum Data<'a> {
    /// The same array.
    InPlace(&'a mut [u8]),
    /// Two arrays.
    Into(&'a [u8], &'a mut [u8]),
    /// The member gets no result.
    Only(&'a [u8]),
}

impl Data<'_> {
    pub(crate) fn input(&self) -> &[u8] {
        match self {
            Data::InPlace(both) => both,
            Data::Into(input, _) | Data::Only(input) => input,
        }
    }

    pub(crate) fn output(&mut self) -> Option<&mut [u8]> {
        match self {
            Data::InPlace(both) => Some(both),
            Data::Into(_, output) => Some(output),
            Data::Only(_) => None,
        }
    }
}
