//! The gateway's subset hint: endpoints that it allows for this request.

use std::net::{IpAddr, SocketAddr};

use lmetric_scheduler::Subset;
use prost_types::{Value, value::Kind};

/// Reads `x-gateway-destination-endpoint-subset`: a list of strings, or one string with commas; each an address with
/// or without port, IPv6 with or without brackets. What is no address names no endpoint.
pub fn read(hint: &Value) -> Subset {
    let mut allowed = Vec::new();
    match &hint.kind {
        Some(Kind::StringValue(text)) => allowed.extend(addresses(text)),
        Some(Kind::ListValue(list)) => {
            for value in &list.values {
                if let Some(Kind::StringValue(text)) = &value.kind {
                    allowed.extend(addresses(text));
                }
            }
        }
        _ => {}
    }
    Subset(allowed)
}

fn addresses(text: &str) -> impl Iterator<Item = (IpAddr, Option<u16>)> {
    text.split(',').filter_map(|item| address(item.trim()))
}

fn address(text: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some((address.ip(), Some(address.port())));
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    bare.parse().ok().map(|ip| (ip, None))
}

#[cfg(test)]
mod tests {
    use prost_types::ListValue;
    use rstest::rstest;

    use super::*;

    fn string(text: &str) -> Value {
        Value {
            kind: Some(Kind::StringValue(text.to_owned())),
        }
    }

    #[rstest]
    #[case("10.0.0.1", &[("10.0.0.1", None)])]
    #[case("10.0.0.1:8000", &[("10.0.0.1", Some(8000))])]
    #[case("10.0.0.1:8000, 10.0.0.2", &[("10.0.0.1", Some(8000)), ("10.0.0.2", None)])]
    #[case("[fd00::1]:8000", &[("fd00::1", Some(8000))])]
    #[case("[fd00::1]", &[("fd00::1", None)])]
    #[case("fd00::1", &[("fd00::1", None)])]
    #[case("pod-1,10.0.0.1:99999,", &[])]
    #[case("", &[])]
    fn reads_each_form_from_string_and_list(#[case] text: &str, #[case] expected: &[(&str, Option<u16>)]) {
        let expected = Subset(
            expected
                .iter()
                .map(|(ip, port)| (ip.parse().unwrap(), *port))
                .collect(),
        );
        assert_eq!(read(&string(text)), expected);
        let list = Value {
            kind: Some(Kind::ListValue(ListValue {
                values: text.split(',').map(string).collect(),
            })),
        };
        assert_eq!(read(&list), expected);
    }
}
