//! `{% generation %}` … `{% endgeneration %}`: marks what the assistant said, for training. When
//! rendering, only its scope counts, which is that of a `with` block.

use std::borrow::Cow;

/// Rewrites the tags so that the engine, which does not know them, sees a `with` block.
pub(super) fn without_generation(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(end + 2);
        let inner = &tag[2..end];
        let word = inner.trim_matches(['-', '+']).trim();
        match word {
            "generation" => out.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}
