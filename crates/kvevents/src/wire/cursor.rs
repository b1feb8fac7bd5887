//! Reading MessagePack from a slice, one value at a time, without recursion and without trust.

use rmp::Marker;

/// Why a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The bytes end in the middle of it: nothing after it can be found.
    Truncated,
    /// It is there, but it is not of the wanted type.
    Type,
}

/// Markers of unsigned integers; the one after the first has four bytes.
const TWO_BYTES: u8 = 0xcd;
const EIGHT_BYTES: u8 = 0xcf;
/// Bytes of an integer of eight, with its marker.
const LONG: usize = 9;

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'p> {
    rest: &'p [u8],
}

impl<'p> Cursor<'p> {
    pub(super) fn new(bytes: &'p [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes between `self` and `later`, a cursor further on in the same message.
    pub(super) fn up_to(&self, later: Self) -> &'p [u8] {
        &self.rest[..self.rest.len() - later.rest.len()]
    }

    fn marker(&mut self) -> Result<Marker, Fault> {
        let (&first, rest) = self.rest.split_first().ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(Marker::from_u8(first))
    }

    fn take(&mut self, count: usize) -> Result<&'p [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array_of<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<usize, Fault> {
        self.array_of::<1>().map(|[byte]| usize::from(byte))
    }

    fn u16(&mut self) -> Result<usize, Fault> {
        self.array_of()
            .map(|bytes| usize::from(u16::from_be_bytes(bytes)))
    }

    fn u32(&mut self) -> Result<usize, Fault> {
        self.array_of().map(|bytes| u32::from_be_bytes(bytes) as usize)
    }

    /// Steps over nil, if that is what comes.
    pub(super) fn nil(&mut self) -> bool {
        let is_nil = self.rest.first() == Some(&Marker::Null.to_u8());
        if is_nil {
            self.rest = &self.rest[1..];
        }
        is_nil
    }

    /// Number of elements of an array.
    pub(super) fn array(&mut self) -> Result<usize, Fault> {
        match self.marker()? {
            Marker::FixArray(length) => Ok(usize::from(length)),
            Marker::Array16 => self.u16(),
            Marker::Array32 => self.u32(),
            _ => Err(Fault::Type),
        }
    }

    /// Number of entries of a map.
    pub(super) fn map(&mut self) -> Result<usize, Fault> {
        match self.marker()? {
            Marker::FixMap(length) => Ok(usize::from(length)),
            Marker::Map16 => self.u16(),
            Marker::Map32 => self.u32(),
            _ => Err(Fault::Type),
        }
    }

    /// Whether a map comes next.
    pub(super) fn at_map(&self) -> bool {
        self.peek()
            .is_some_and(|marker| matches!(marker, Marker::FixMap(_) | Marker::Map16 | Marker::Map32))
    }

    pub(super) fn peek(&self) -> Option<Marker> {
        self.rest.first().map(|&byte| Marker::from_u8(byte))
    }

    /// Bytes of a string; not checked to be UTF-8.
    pub(super) fn text(&mut self) -> Result<&'p [u8], Fault> {
        let length = match self.marker()? {
            Marker::FixStr(length) => usize::from(length),
            Marker::Str8 => self.u8()?,
            Marker::Str16 => self.u16()?,
            Marker::Str32 => self.u32()?,
            _ => return Err(Fault::Type),
        };
        self.take(length)
    }

    /// A string.
    pub(super) fn str(&mut self) -> Result<&'p str, Fault> {
        std::str::from_utf8(self.text()?).map_err(|_| Fault::Type)
    }

    /// A byte string.
    pub(super) fn bin(&mut self) -> Result<&'p [u8], Fault> {
        let length = match self.marker()? {
            Marker::Bin8 => self.u8()?,
            Marker::Bin16 => self.u16()?,
            Marker::Bin32 => self.u32()?,
            _ => return Err(Fault::Type),
        };
        self.take(length)
    }

    /// Any integer from −2⁶³ to 2⁶⁴ − 1.
    pub(super) fn integer(&mut self) -> Result<i128, Fault> {
        Ok(match self.marker()? {
            Marker::FixPos(value) => i128::from(value),
            Marker::FixNeg(value) => i128::from(value),
            Marker::U8 => self.u8()? as i128,
            Marker::U16 => self.u16()? as i128,
            Marker::U32 => self.u32()? as i128,
            Marker::U64 => i128::from(u64::from_be_bytes(self.array_of()?)),
            Marker::I8 => i128::from(i8::from_be_bytes(self.array_of()?)),
            Marker::I16 => i128::from(i16::from_be_bytes(self.array_of()?)),
            Marker::I32 => i128::from(i32::from_be_bytes(self.array_of()?)),
            Marker::I64 => i128::from(i64::from_be_bytes(self.array_of()?)),
            _ => return Err(Fault::Type),
        })
    }

    /// An integer that fits `T`.
    pub(super) fn int<T: TryFrom<i128>>(&mut self) -> Result<T, Fault> {
        T::try_from(self.integer()?).map_err(|_| Fault::Type)
    }

    /// A number as a float.
    pub(super) fn float(&mut self) -> Result<f64, Fault> {
        match self.peek() {
            Some(Marker::F64) => {
                self.marker()?;
                Ok(f64::from_be_bytes(self.array_of()?))
            }
            Some(Marker::F32) => {
                self.marker()?;
                Ok(f64::from(f32::from_be_bytes(self.array_of()?)))
            }
            _ => self.integer().map(|value| value as f64),
        }
    }

    /// Appends `count` token ids to `tokens`.
    pub(super) fn tokens(&mut self, count: usize, tokens: &mut Vec<u32>) -> Result<(), Fault> {
        if count > self.rest.len() {
            return Err(Fault::Truncated);
        }
        let before = tokens.len();
        tokens.resize(before + count, 0);
        let (pairs, last) = tokens[before..].as_chunks_mut::<2>();
        for pair in pairs {
            if let Some(two) = self.two_tokens() {
                *pair = two;
            } else {
                *pair = [self.int()?, self.int()?];
            }
        }
        for token in last {
            *token = self.int()?;
        }
        Ok(())
    }

    /// Two token ids, if both have two or four bytes after their marker, as most have. Which of the two is in no order
    /// that a processor could guess, so what differs between them is computed and not chosen; and where the next pair
    /// begins is known from one load.
    #[inline]
    fn two_tokens(&mut self) -> Option<[u32; 2]> {
        let head = u64::from_le_bytes(*self.rest.first_chunk()?);
        let one = (head & 0xff).wrapping_sub(u64::from(TWO_BYTES));
        let after_short = (head >> 24 & 0xff).wrapping_sub(u64::from(TWO_BYTES));
        let after_long = (head >> 40 & 0xff).wrapping_sub(u64::from(TWO_BYTES));
        let two = after_short ^ (after_short ^ after_long) & one.wrapping_neg();
        if one | two > 1 {
            return None;
        }
        let next = self.rest.get(3 + 2 * one as usize..)?;
        let tail = u64::from_be_bytes(*next.first_chunk()?);
        self.rest = self.rest.get(6 + 2 * (one + two) as usize..)?;
        let value = |bytes: u64, long: u64| (bytes << 8 >> (48 - 16 * long)) as u32;
        Some([value(head.swap_bytes(), one), value(tail, two)])
    }

    /// `count` integers of eight bytes each, markers included, if that is what comes.
    pub(super) fn long_integers(&mut self, count: usize) -> Option<&'p [u8]> {
        let (all, rest) = self.rest.split_at_checked(count.checked_mul(LONG)?)?;
        if !all.chunks_exact(LONG).all(|one| one[0] == EIGHT_BYTES) {
            return None;
        }
        self.rest = rest;
        Some(all)
    }

    /// An integer of eight bytes, if that is what comes.
    pub(super) fn long_integer(&mut self) -> Option<u64> {
        let (&[marker, ref value @ ..], rest) = self.rest.split_first_chunk::<LONG>()?;
        if marker != EIGHT_BYTES {
            return None;
        }
        self.rest = rest;
        Some(u64::from_be_bytes(*value))
    }

    /// Steps over one value, however deep. O(bytes), no recursion, no allocation: what is left to skip is
    /// a number, and a message that promises more values than it has bytes is truncated.
    pub(super) fn skip(&mut self) -> Result<(), Fault> {
        let mut left = 1_usize;
        while left > 0 {
            if left > self.rest.len() {
                return Err(Fault::Truncated);
            }
            left -= 1;
            let (children, bytes) = match self.marker()? {
                Marker::FixPos(_)
                | Marker::FixNeg(_)
                | Marker::Null
                | Marker::True
                | Marker::False
                | Marker::Reserved => (0, 0),
                Marker::U8 | Marker::I8 => (0, 1),
                Marker::U16 | Marker::I16 | Marker::FixExt1 => (0, 2),
                Marker::U32 | Marker::I32 | Marker::F32 => (0, 4),
                Marker::U64 | Marker::I64 | Marker::F64 => (0, 8),
                Marker::FixExt2 => (0, 3),
                Marker::FixExt4 => (0, 5),
                Marker::FixExt8 => (0, 9),
                Marker::FixExt16 => (0, 17),
                Marker::FixStr(length) => (0, usize::from(length)),
                Marker::Str8 | Marker::Bin8 => (0, self.u8()?),
                Marker::Str16 | Marker::Bin16 => (0, self.u16()?),
                Marker::Str32 | Marker::Bin32 => (0, self.u32()?),
                Marker::Ext8 => (0, self.u8()? + 1),
                Marker::Ext16 => (0, self.u16()? + 1),
                Marker::Ext32 => (0, self.u32()? + 1),
                Marker::FixArray(length) => (usize::from(length), 0),
                Marker::Array16 => (self.u16()?, 0),
                Marker::Array32 => (self.u32()?, 0),
                Marker::FixMap(length) => (2 * usize::from(length), 0),
                Marker::Map16 => (2 * self.u16()?, 0),
                Marker::Map32 => (2 * self.u32()?, 0),
            };
            self.take(bytes)?;
            left = left.saturating_add(children);
        }
        Ok(())
    }
}
