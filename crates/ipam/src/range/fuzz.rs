//! Random texts are either read, or refused with an error that quotes them.

use alloc::{format, string::String, vec::Vec};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::{AddrSet, fuzzing};

/// A typing mistake.
#[derive(Clone, Debug)]
enum Slip {
    Drop(Index),
    Insert(Index, char),
    Swap(Index, Index),
}

impl Slip {
    fn happen(&self, text: &mut Vec<char>) {
        let length = text.len();
        if length == 0 {
            return;
        }
        match self {
            Self::Drop(at) => {
                text.remove(at.index(length));
            }
            Self::Insert(at, letter) => text.insert(at.index(length), *letter),
            Self::Swap(a, b) => text.swap(a.index(length), b.index(length)),
        }
    }
}

fn slip() -> impl Strategy<Value = Slip> {
    // The last few are digits to some programs, or take more than one byte, or end a C string.
    let letters: Vec<char> = "0123456789abcfgxAF.:/-, %[]+٣é²\0".chars().collect();
    let letter = prop::sample::select(letters);
    prop_oneof![
        any::<Index>().prop_map(Slip::Drop),
        (any::<Index>(), letter).prop_map(|(at, letter)| Slip::Insert(at, letter)),
        any::<(Index, Index)>().prop_map(|(a, b)| Slip::Swap(a, b)),
    ]
}

fn written() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<IpAddr>().prop_map(|addr| format!("{addr}")),
        any::<(IpAddr, u8)>().prop_map(|(addr, prefix)| format!("{addr}/{}", prefix % 130)),
        any::<(IpAddr, IpAddr)>().prop_map(|(first, last)| format!("{first}-{last}")),
    ]
}

fn nearly_right() -> impl Strategy<Value = String> {
    (written(), vec(slip(), 0..4)).prop_map(|(text, slips)| {
        let mut letters: Vec<char> = text.chars().collect();
        for slip in slips {
            slip.happen(&mut letters);
        }
        letters.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_text_is_read_as_ranges_that_print_the_same_or_refused_by_its_own_words(
        text in prop_oneof![1 => any::<String>(), 3 => nearly_right()]
    ) {
        fuzzing::block(&text);
    }

    #[test]
    fn a_cidr_is_the_network_of_each_of_its_addresses(addr: IpAddr, prefix in 0..=128_u8) {
        let longest = match Family::of(addr) { Family::V4 => 32, Family::V6 => 128 };
        let read = format!("{addr}/{prefix}").parse::<AddrBlock>();
        prop_assert_eq!(read.is_ok(), prefix <= longest);
        if let Ok(block) = read {
            prop_assert!(block.range().contains(addr));
            let network = format!("{}/{prefix}", block.range().first());
            prop_assert_eq!(network.parse(), Ok(block), "host bits do not count");
        }
    }

    #[test]
    fn merged_cidrs_have_the_same_addresses_and_none_lies_beside_its_other_half(
        networks in vec((0..64_u8, 26..=32_u8), 0..12)
    ) {
        let networks = networks.iter().map(|(host, prefix)| format!("10.0.0.{host}/{prefix}"));
        let blocks: Vec<AddrBlock> = networks.map(|text| text.parse().unwrap()).collect();
        let merged = AddrBlock::merge_v4_cidrs(blocks.iter().copied());
        let all = |blocks: &[AddrBlock]| blocks.iter().map(|block| block.range()).collect::<AddrSet>();
        prop_assert_eq!(all(&merged), all(&blocks));
        for block in &merged {
            let wider = block.v4_network().unwrap().supernet().unwrap();
            let halves = merged.iter().filter_map(|other| other.v4_network()?.supernet());
            let halves = halves.filter(|network| *network == wider);
            prop_assert_eq!(halves.count(), 1);
        }
    }
}
