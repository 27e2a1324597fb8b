//! Named figures of a run, their medians, and a table of them.

use std::fmt::Write as _;

/// Figures in the order in which they were measured.
#[derive(Debug, Clone, Default, serde::Serialize)]
#[serde(transparent)]
pub(crate) struct Figures(Vec<(String, f64)>);

impl Figures {
    pub(crate) fn set(&mut self, name: &str, value: f64) {
        self.0.push((name.to_owned(), value));
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Of every figure the median of the runs.
    pub(crate) fn medians(runs: &[Self]) -> Self {
        let mut medians = Self::default();
        for (name, _) in runs.first().map(|run| run.0.clone()).unwrap_or_default() {
            let mut values: Vec<f64> = runs.iter().filter_map(|run| run.get(&name)).collect();
            values.sort_unstable_by(f64::total_cmp);
            medians.set(&name, percentile(&values, 0.5));
        }
        medians
    }

    pub(crate) fn table(&self) -> String {
        let mut table = "| figure | |\n| --- | ---: |\n".to_owned();
        for (name, value) in &self.0 {
            let _ = writeln!(table, "| {name} | {} |", shown(*value));
        }
        table
    }

    /// These figures as the cells of a row.
    pub(crate) fn row(&self, names: &[&str]) -> String {
        let cells = names.iter().map(|name| self.get(name).map_or_else(String::new, shown));
        cells.fold("|".to_owned(), |row, cell| row + " " + &cell + " |")
    }
}

fn shown(value: f64) -> String {
    let digits = if value >= 1000.0 { 0 } else { 2 };
    format!("{value:.digits$}")
}

/// Of sorted values the one below which that share of them lies.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = ((sorted.len() as f64 - 1.0).max(0.0) * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}
