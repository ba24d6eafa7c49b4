//! The results as Markdown: medians, and ratios to the first column.

use std::time::Duration;

use super::measure::Sample;

/// A measurement, with a cell for each program; g3 or studio is the first.
pub struct Row {
    name: String,
    cells: Vec<Cell>,
}

struct Cell {
    program: &'static str,
    samples: Vec<Sample>,
    memory: u64,
}

impl Row {
    /// Creates a row without results.
    pub fn new(name: &str, programs: impl IntoIterator<Item = &'static str>) -> Row {
        let cell = |program| Cell { program, samples: Vec::new(), memory: 0 };
        Row { name: name.to_owned(), cells: programs.into_iter().map(cell).collect() }
    }

    /// Adds a run of the program in this column.
    pub fn add(&mut self, column: usize, sample: Sample) {
        self.cells[column].samples.push(sample);
    }

    /// Adds the peak memory (KiB) of a run of the program in this column; the maximum is reported.
    pub fn add_memory(&mut self, column: usize, kib: u64) {
        let memory = &mut self.cells[column].memory;
        *memory = kib.max(*memory);
    }
}

/// Prints the header of the table to stdout.
#[allow(clippy::print_stdout, reason = "the table is what the benchmark is for")]
pub fn head() {
    println!("| what | program | wall ms | CPU ms | peak PSS MiB | ratio: wall | CPU | PSS |");
    println!("|---|---|---|---|---|---|---|---|");
}

impl Row {
    /// Prints the row to stdout, one line for each program.
    #[allow(clippy::print_stdout, reason = "the table is what the benchmark is for")]
    pub fn print(&self) {
        let ours = &self.cells[0];
        for cell in &self.cells {
            if cell.samples.is_empty() {
                println!("| {} | {} | not measured | | | | | |", self.name, cell.program);
                continue;
            }
            println!(
                "| {} | {} | {:.1} | {:.1} | {} | {} | {} | {} |",
                self.name,
                cell.program,
                ms(cell.wall()),
                ms(cell.cpu()),
                cell.mebibytes(),
                ratio(ms(ours.wall()), ms(cell.wall())),
                ratio(ms(ours.cpu()), ms(cell.cpu())),
                ratio(ours.memory as f64, cell.memory as f64),
            );
        }
    }
}

impl Cell {
    fn wall(&self) -> Duration {
        median(self.samples.iter().map(|sample| sample.wall).collect())
    }

    fn mebibytes(&self) -> String {
        if self.memory == 0 {
            "-".to_owned()
        } else {
            format!("{:.1}", self.memory as f64 / 1024.0)
        }
    }

    /// Returns the mean: one clock tick is 10 ms, so single short runs are meaningless.
    fn cpu(&self) -> Duration {
        let count = u32::try_from(self.samples.len().max(1)).unwrap_or(u32::MAX);
        self.samples.iter().map(|sample| sample.cpu).sum::<Duration>() / count
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn ratio(ours: f64, theirs: f64) -> String {
    if theirs > 0.0 { format!("{:.2}", ours / theirs) } else { "-".to_owned() }
}
