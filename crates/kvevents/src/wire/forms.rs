//! The fast ways of reading numbers give what the slow ones give, whatever form the numbers have.

use proptest::prelude::*;

use super::{
    Event, Hash,
    cursor::{Cursor, Fault},
    decode_batch,
};

/// A number in one of the forms that MessagePack has for it, not only the shortest.
#[derive(Clone, Copy, Debug)]
struct Written {
    number: u64,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    One,
    Unsigned(usize),
    Signed(usize),
}

impl Written {
    fn bytes(self) -> Vec<u8> {
        let (marker, length) = match self.form {
            Form::One => return vec![self.number as u8],
            Form::Unsigned(length) => (0xcc, length),
            Form::Signed(length) => (0xd0, length),
        };
        let mut bytes = vec![marker + length.trailing_zeros() as u8];
        bytes.extend(&self.number.to_be_bytes()[8 - length..]);
        bytes
    }
}

/// Numbers below 2³², each in any form that is wide enough.
fn written() -> impl Strategy<Value = Written> {
    let number = prop_oneof![0_u64..0x80, 0_u64..0x100, 0_u64..0x1_0000, 0_u64..0x1_0000_0000];
    (number, any::<prop::sample::Index>()).prop_map(|(number, which)| {
        let bits = 64 - number.leading_zeros() as usize;
        let lengths = [1, 2, 4, 8];
        let unsigned = lengths.into_iter().filter(|length| bits <= 8 * length);
        let signed = lengths.into_iter().filter(|length| bits < 8 * length);
        let one = (number < 0x80).then_some(Form::One);
        let forms: Vec<Form> = one
            .into_iter()
            .chain(unsigned.map(Form::Unsigned))
            .chain(signed.map(Form::Signed))
            .collect();
        let form = *which.get(&forms);
        Written { number, form }
    })
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(0xa0 | text.len() as u8);
    bytes.extend(text.as_bytes());
}

fn array(bytes: &mut Vec<u8>, elements: &[Written]) {
    bytes.push(0xdc);
    bytes.extend((elements.len() as u16).to_be_bytes());
    bytes.extend(elements.iter().flat_map(|element| element.bytes()));
}

/// A batch with one stored run.
fn batch(hashes: &[Written], tokens: &[Written]) -> Vec<u8> {
    let mut bytes = vec![0x92, 1, 0x91, 0x84];
    text(&mut bytes, "type");
    text(&mut bytes, "BlockStored");
    text(&mut bytes, "block_hashes");
    array(&mut bytes, hashes);
    text(&mut bytes, "token_ids");
    array(&mut bytes, tokens);
    text(&mut bytes, "block_size");
    bytes.push(16);
    bytes
}

fn numbers(written: &[Written]) -> Vec<u64> {
    written.iter().map(|written| written.number).collect()
}

proptest! {
    #[test]
    fn numbers_are_the_same_in_every_form(
        hashes in prop::collection::vec(written(), 0..40),
        tokens in prop::collection::vec(written(), 0..200),
        wide in any::<bool>(),
    ) {
        let mut hashes = hashes;
        if wide {
            for hash in &mut hashes {
                hash.form = Form::Unsigned(8);
            }
        }
        let payload = batch(&hashes, &tokens);
        let decoded = decode_batch(&payload).unwrap();
        let Event::Stored(stored) = &decoded.events[0] else { panic!() };
        prop_assert_eq!(stored.hashes.iter().map(Hash::get).collect::<Vec<_>>(), numbers(&hashes));
        let ids: Vec<u64> = stored.tokens.iter().map(|token| u64::from(*token)).collect();
        prop_assert_eq!(ids, numbers(&tokens));
    }

    #[test]
    fn many_tokens_are_read_as_one_after_the_other(
        tokens in prop::collection::vec(written(), 0..60), cut in any::<prop::sample::Index>(), whole in any::<bool>(),
        odd in any::<u8>(), at in any::<prop::sample::Index>(),
    ) {
        let mut bytes: Vec<u8> = tokens.iter().flat_map(|token| token.bytes()).collect();
        if !whole && !bytes.is_empty() {
            bytes.truncate(cut.index(bytes.len()));
        }
        if !whole && !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = odd;
        }
        let mut slow = Cursor::new(&bytes);
        let expected: Result<Vec<u32>, Fault> = tokens.iter().map(|_| slow.int()).collect();
        let (mut fast, mut read) = (Cursor::new(&bytes), vec![7]);
        // a promise of more ids than there are bytes is refused before any is read
        let expected = expected.map_err(|fault| if tokens.len() > bytes.len() { Fault::Truncated } else { fault });
        let result = fast.tokens(tokens.len(), &mut read).map(|()| read[1..].to_vec());
        prop_assert_eq!(result, expected);
    }
}
