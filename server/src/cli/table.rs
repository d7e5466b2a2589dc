//! Plain tables: columns of text, two spaces apart.

use super::output::safe;

/// Tables fit this many columns where their content lets them.
pub(crate) const WIDTH: usize = 120;
/// A note narrower than this is put on lines of its own.
const NARROW: usize = 28;
const GAP: &str = "  ";

/// How a cell is meant; a colour on a terminal, nothing elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Just text.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// Not there yet.
    Waiting,
    /// Needs somebody.
    Bad,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Text that stands out by its tone. An empty text is shown as `-`.
    pub(crate) fn toned(text: &str, tone: Tone) -> Cell {
        let text = if text.is_empty() {
            "-".to_owned()
        } else {
            safe(text).into_owned()
        };
        Cell { text, tone }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::toned(text.as_ref(), Tone::Plain)
    }
}

/// One row: a cell a column, and what is to be said besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// As many as the table has columns.
    pub(crate) cells: Vec<Cell>,
    /// Free text, wrapped; may be empty.
    pub(crate) note: String,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// The names of the columns.
    pub(crate) columns: Vec<&'static str>,
    /// The column that goes first if the table does not fit: what it says stands elsewhere too.
    pub(crate) spare: Option<usize>,
    /// The name of the column of notes, which is there only if some row has one.
    pub(crate) note: &'static str,
    /// The rows in order.
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// The table as text, a line end after each line.
    pub(crate) fn render(&self, colour: bool) -> String {
        let layout = self.layout();
        let mut text = layout.head(self);
        for row in &self.rows {
            text.push_str(&layout.row(row, colour));
        }
        text
    }

    /// Widths that fit the rows that the table has now; rows that come later may use them too.
    pub(crate) fn layout(&self) -> Layout {
        let mut layout = Layout {
            widths: self.columns.iter().map(|name| name.len()).collect(),
            hidden: None,
        };
        for row in &self.rows {
            layout.widen(row);
        }
        if layout.note_at().saturating_sub(GAP.len()) > WIDTH {
            layout.hidden = self.spare;
        }
        layout
    }
}

/// The widths of a table's columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    widths: Vec<usize>,
    hidden: Option<usize>,
}

impl Layout {
    /// The line of names.
    pub(crate) fn head(&self, table: &Table) -> String {
        let beside = table.rows.iter().any(|row| !row.note.is_empty()) && self.room() >= NARROW;
        let note = if beside { table.note } else { "" };
        let names: Vec<Cell> = table.columns.iter().map(Cell::from).collect();
        self.line(&names, note, false)
    }

    /// One row, with its note wrapped beside it, or below it if there is no room.
    pub(crate) fn row(&self, row: &Row, colour: bool) -> String {
        let note = safe(&row.note);
        let room = self.room();
        if note.is_empty() {
            return self.line(&row.cells, "", colour);
        }
        if room < NARROW {
            let mut text = self.line(&row.cells, "", colour);
            for part in wrap(&note, WIDTH - 2 * GAP.len()) {
                text.push_str(&format!("{GAP}{GAP}{part}\n"));
            }
            return text;
        }
        let mut parts = wrap(&note, room).into_iter();
        let mut text = self.line(&row.cells, &parts.next().unwrap_or_default(), colour);
        for part in parts {
            text.push_str(&format!("{:indent$}{part}\n", "", indent = self.note_at()));
        }
        text
    }

    /// Makes room for a row.
    pub(crate) fn widen(&mut self, row: &Row) {
        for (width, cell) in self.widths.iter_mut().zip(&row.cells) {
            *width = (*width).max(cell.width());
        }
    }

    /// Where notes start.
    fn note_at(&self) -> usize {
        let shown = self
            .widths
            .iter()
            .enumerate()
            .filter(|(n, _)| Some(*n) != self.hidden);
        shown.map(|(_, width)| width + GAP.len()).sum()
    }

    /// How many characters there are beside the columns.
    fn room(&self) -> usize {
        WIDTH.saturating_sub(self.note_at())
    }

    fn line(&self, cells: &[Cell], note: &str, colour: bool) -> String {
        let mut line = String::new();
        for (n, (cell, width)) in cells.iter().zip(&self.widths).enumerate() {
            if Some(n) == self.hidden {
                continue;
            }
            line.push_str(&painted(cell, colour));
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.width())));
            line.push_str(GAP);
        }
        line.push_str(note);
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

fn painted(cell: &Cell, colour: bool) -> String {
    let code = match cell.tone {
        Tone::Good => "32",
        Tone::Waiting => "33",
        Tone::Bad => "31",
        Tone::Plain => "",
    };
    if colour && !code.is_empty() {
        format!("\x1b[{code}m{}\x1b[0m", cell.text)
    } else {
        cell.text.clone()
    }
}

/// Cuts text at spaces into lines of at most this many characters; a longer word stays whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, &str, &str)]) -> Table {
        let row = |(a, b, note): &(&str, &str, &str)| Row {
            cells: vec![a.into(), Cell::toned(b, Tone::Good)],
            note: (*note).to_owned(),
        };
        Table {
            columns: vec!["NAME", "PHASE"],
            spare: Some(0),
            note: "REASON",
            rows: rows.iter().map(row).collect(),
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_content() {
        let table = table(&[("web", "Bound", ""), ("a-long-name", "", "")]);
        assert_eq!(
            table.render(false),
            "NAME         PHASE\nweb          Bound\na-long-name  -\n"
        );
    }

    #[test]
    fn a_long_note_is_wrapped_beside_its_row() {
        let note = "word ".repeat(30);
        let text = table(&[("web", "Pending", &note), ("b", "Bound", "")]).render(false);
        let expected = format!(
            "NAME  PHASE    REASON\nweb   Pending  {}\n               {}\nb     Bound\n",
            "word ".repeat(21).trim_end(),
            "word ".repeat(9).trim_end()
        );
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.len() <= WIDTH));
    }

    #[test]
    fn a_note_without_room_beside_its_row_stands_below_it() {
        let name = "n".repeat(100);
        let text = table(&[(&name, "Pending", "why it waits")]).render(false);
        let line = text.lines().last().unwrap();
        assert_eq!(line, "    why it waits");
    }

    #[test]
    fn the_spare_column_goes_if_the_table_does_not_fit() {
        let name = "n".repeat(150);
        let text = table(&[(&name, "Bound", "")]).render(false);
        assert_eq!(text, "PHASE\nBound\n");
    }

    #[test]
    fn colours_change_no_width_and_appear_only_when_asked_for() {
        let table = table(&[("web", "Bound", "note")]);
        let coloured = table.render(true);
        assert_eq!(
            coloured,
            "NAME  PHASE  REASON\nweb   \u{1b}[32mBound\u{1b}[0m  note\n"
        );
        assert!(!table.render(false).contains('\u{1b}'));
    }

    #[test]
    fn control_characters_in_cells_and_notes_are_replaced() {
        let text = table(&[("a\u{1b}[2J", "b\nc", "d\u{7}")]).render(false);
        assert_eq!(text, "NAME   PHASE  REASON\na?[2J  b c    d?\n");
    }
}
