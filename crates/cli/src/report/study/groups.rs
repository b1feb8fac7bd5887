//! The cells of a study as a reader compares them: one group for each policy and rate, over its seeds.

use crate::simulate::{Cell, Figures, Share, Study};

/// The policy that ratios compare with unless another is named.
pub(super) const HERO: &str = "lmetric";

/// A figure to read off.
pub(super) type Figure = fn(&Figures) -> f64;

/// Cells that differ in their seed only.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    pub(crate) cells: Vec<&'a Cell>,
}

impl<'a> Group<'a> {
    /// The first cell; what it says besides its outcome holds for all.
    pub(crate) fn first(&self) -> &'a Cell {
        self.cells[0]
    }

    /// Policy with what differs from its source's parameters.
    pub(crate) fn label(&self) -> &'a str {
        &self.first().label
    }

    /// Mean over seeds.
    pub(crate) fn mean(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        let sum: f64 = self.cells.iter().map(|cell| figure(&cell.outcome.figures)).sum();
        sum / self.cells.len() as f64
    }

    /// Quantiles, averaged over seeds.
    pub(crate) fn quantiles(&self, of: impl Fn(&'a Cell) -> &'a [f64]) -> Vec<f64> {
        let points = of(self.first()).len();
        (0..points)
            .map(|at| {
                let sum: f64 = self.cells.iter().filter_map(|cell| of(cell).get(at)).sum();
                sum / self.cells.len() as f64
            })
            .collect()
    }
}

/// Groups of `study` whose cells `keep` likes, in the order of the study.
pub(crate) fn groups(study: &Study, keep: impl Fn(&Cell) -> bool) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for cell in study.cells.iter().filter(|cell| keep(cell)) {
        let same = |group: &&mut Group<'_>| {
            let first = group.first();
            first.label == cell.label
                && first.share == cell.share
                && first.rate_scale == cell.rate_scale
                && first.sweep == cell.sweep
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.cells.push(cell),
            None => groups.push(Group { cells: vec![cell] }),
        }
    }
    groups
}

/// Rate scales of a study, ascending.
pub(crate) fn rates(study: &Study) -> Vec<f64> {
    let mut rates: Vec<f64> = Vec::new();
    for cell in &study.cells {
        if !rates.contains(&cell.rate_scale) {
            rates.push(cell.rate_scale);
        }
    }
    rates.sort_by(f64::total_cmp);
    rates
}

/// The rate that tables and distributions are shown at: half of capacity where it is there, else the middle one.
pub(crate) fn main_rate(study: &Study) -> f64 {
    let half = study.cells.iter().find(|cell| cell.fraction == Some(0.5));
    let rates = rates(study);
    let middle = || rates.get(rates.len() / 2).copied().unwrap_or(1.0);
    half.map_or_else(middle, |cell| cell.rate_scale)
}

/// Plain cells of the whole fleet.
pub(crate) fn is_plain(cell: &Cell) -> bool {
    cell.sweep.is_none() && cell.share == Share::Whole
}

/// Colours by name: the policy that the study is about, vLLM's, the improved one and the best of the others; the rest are
/// the field.
pub(crate) struct Colours {
    named: Vec<(String, usize)>,
}

impl Colours {
    pub(crate) fn of(study: &Study) -> Self {
        let rate = main_rate(study);
        let plain = groups(study, |cell| is_plain(cell) && cell.rate_scale == rate);
        let mut named: Vec<(String, usize)> = Vec::new();
        for (label, colour) in [(HERO, 0), ("vllm", 1), ("lmetric-marginal", 4)] {
            if plain.iter().any(|group| group.label() == label) {
                named.push((label.to_owned(), colour));
            }
        }
        for (colour, figure) in [
            (3, (|figures| figures.ttft_ms.mean) as Figure),
            (5, |figures| figures.tpot_ms.mean),
        ] {
            let others = plain.iter().filter(|group| {
                named.iter().all(|(label, _)| label != group.label()) && !group.label().starts_with("lmetric")
            });
            let best = others.min_by(|one, other| one.mean(figure).total_cmp(&other.mean(figure)));
            if let Some(best) = best {
                named.push((best.label().to_owned(), colour));
            }
        }
        Self { named }
    }

    pub(crate) fn get(&self, label: &str) -> Option<usize> {
        self.named
            .iter()
            .find(|(name, _)| name == label)
            .map(|(_, colour)| *colour)
    }
}
