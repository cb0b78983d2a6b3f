//! Frames: how a stream of bytes is cut into messages.
//!
//! A frame is its length (four bytes, little-endian, of what follows the header), its kind (one byte), and its
//! payload. A length above the limit is refused when the header is read, before anything is kept for it.

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 5;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// What the users of a link send. Numbered by counting, and kept until it is acknowledged.
    Data = 0,
    /// How many data frames have arrived, over all connections of the link; also a sign of life.
    Acknowledged = 1,
    /// The sender closes the link; the payload says why.
    Closed = 2,
    /// The first frame of whoever has dialled.
    Hello = 3,
    /// The answer, if it is a yes.
    Welcome = 4,
    /// The answer, if it is a no.
    Refused = 5,
    /// A wish for a part of an object.
    Request = 6,
    /// The answer; the bytes follow, without frames.
    Answer = 7,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Data,
        Self::Acknowledged,
        Self::Closed,
        Self::Hello,
        Self::Welcome,
        Self::Refused,
        Self::Request,
        Self::Answer,
    ];
}

/// The bytes are not frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is above the limit.
    #[error("a frame of {length} bytes is longer than the limit of {limit} bytes")]
    TooLong {
        /// What the header says.
        length: u64,
        /// What is allowed here.
        limit: usize,
    },
    /// Nobody sends such frames.
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
}

/// One frame, in the bytes that it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// What it is for.
    pub(crate) kind: Kind,
    /// What it says.
    pub(crate) payload: &'a [u8],
}

impl Frame<'_> {
    /// Bytes on the wire.
    pub(crate) fn bytes(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }
}

/// The first frame in `bytes`; `None` if it is not whole yet.
pub(crate) fn parse(bytes: &[u8], limit: usize) -> Result<Option<Frame<'_>>, FrameError> {
    let Some((&[a, b, c, d, kind], rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes([a, b, c, d]);
    let kind = *Kind::ALL.get(usize::from(kind)).ok_or(FrameError::Kind(kind))?;
    let too_long = FrameError::TooLong { length: length.into(), limit };
    let length = usize::try_from(length).ok().filter(|length| *length <= limit).ok_or(too_long)?;
    Ok(rest.get(..length).map(|payload| Frame { kind, payload }))
}

/// The header of a frame with a payload of so many bytes, which is not above
/// [`FRAME_BYTES_MAX`](aktis_protocol::limits::FRAME_BYTES_MAX).
pub(crate) fn header(kind: Kind, payload_bytes: usize) -> [u8; HEADER_BYTES] {
    let [a, b, c, d] = u32::try_from(payload_bytes).expect("frames are short").to_le_bytes();
    [a, b, c, d, kind as u8]
}

/// Appends a frame.
pub(crate) fn append(kind: Kind, payload: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&header(kind, payload.len()));
    bytes.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kinds_are_their_place_in_the_list() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }

    #[test]
    fn a_frame_is_refused_by_its_header_alone() {
        let header = header(Kind::Data, 101);
        let too_long = FrameError::TooLong { length: 101, limit: 100 };
        assert_eq!(parse(&header, 100), Err(too_long));
        assert_eq!(parse(&header, 101), Ok(None));
        assert_eq!(parse(&[0xff; HEADER_BYTES], usize::MAX), Err(FrameError::Kind(0xff)));
    }

    proptest! {
        #[test]
        fn frames_are_read_as_they_are_written(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..20),
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut bytes = Vec::new();
            for (index, payload) in payloads.iter().enumerate() {
                append(Kind::ALL[index % Kind::ALL.len()], payload, &mut bytes);
            }
            let mut rest = &bytes[..];
            for (index, payload) in payloads.iter().enumerate() {
                let frame = parse(rest, 50).expect("a frame").expect("a whole one");
                prop_assert_eq!(frame, Frame { kind: Kind::ALL[index % Kind::ALL.len()], payload });
                let cut = cut.index(frame.bytes());
                prop_assert_eq!(parse(&rest[..cut], 50), Ok(None));
                rest = &rest[frame.bytes()..];
            }
            prop_assert!(rest.is_empty());
        }
    }
}
