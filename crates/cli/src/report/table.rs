//! Aligned tables without frames.

use comfy_table::{CellAlignment, ContentArrangement, presets};

use super::format::clean;
use super::style;

/// The cell that must be seen: its row is red on a terminal.
const FAILED: &str = "FAILED";

/// A column: its title and its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Text.
    Left(&'static str),
    /// Numbers.
    Right(&'static str),
}

impl Column {
    const fn title(self) -> &'static str {
        match self {
            Self::Left(title) | Self::Right(title) => title,
        }
    }
}

/// A table: a line of titles, a rule, rows. Columns are two spaces apart.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, bool)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(columns: &[Column]) -> Self {
        let columns = columns.iter().map(|c| (c.title().to_owned(), matches!(c, Column::Right(_)))).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a column of numbers whose title is known only now.
    pub(crate) fn right(&mut self, title: &str) {
        self.columns.push((title.to_owned(), true));
    }

    /// Adds a row; missing cells are empty, surplus ones are dropped.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The text, each line ended.
    pub(crate) fn render(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.columns.iter().map(|(title, _)| title.clone()));
        for row in &self.rows {
            let cell = |i: usize| row.get(i).map_or_else(String::new, |c| clean(c).replace(['\n', '\t'], " "));
            table.add_row((0..self.columns.len()).map(cell).collect::<Vec<_>>());
        }
        for ((_, right), column) in self.columns.iter().zip(table.column_iter_mut()) {
            column.set_padding((0, 2));
            column.set_cell_alignment(if *right { CellAlignment::Right } else { CellAlignment::Left });
        }
        let widths = table.column_max_content_widths();
        let rule = widths.iter().map(|&w| "-".repeat(usize::from(w))).collect::<Vec<_>>().join("  ");
        let mut out = String::new();
        for (i, line) in table.lines().enumerate() {
            let line = line.trim_end();
            // Line 0 is the titles; cells hold no line feeds, so each row is one line.
            let failed =
                i.checked_sub(1).and_then(|row| self.rows.get(row)).is_some_and(|r| r.iter().any(|c| c == FAILED));
            out += &if failed { style::failed_line(line) } else { line.to_owned() };
            out.push('\n');
            if i == 0 {
                out += &rule;
                out.push('\n');
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_left_numbers_are_right_and_nothing_else_is_drawn() {
        let mut table = Table::new(&[Column::Left("file"), Column::Right("tokens")]);
        table.right("w=8");
        table.row(["a.txt", "5", "1"]);
        table.row(["longer.txt", "12,345", "x\u{1b}y"]);
        table.row(["short"]);
        let expected = "\
file        tokens  w=8
----------  ------  ---
a.txt            5    1
longer.txt  12,345  x\u{fffd}y
short
";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn wide_characters_do_not_shift_columns() {
        let mut table = Table::new(&[Column::Left("name"), Column::Right("n")]);
        table.row(["漢字", "1"]);
        table.row(["abcd", "2"]);
        let text = table.render();
        assert_eq!(text.lines().skip(2).collect::<Vec<_>>(), ["漢字  1", "abcd  2"]);
    }
}
