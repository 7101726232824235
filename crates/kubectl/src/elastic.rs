//! Columns as wide as what is in them: tab stops that stretch, two blanks apart.
//!
//! Text in, text out. A cell ends with a tab; what follows a line's last tab is no cell and is not
//! padded. Adjacent lines that have a cell at the same place share a column, any other line ends
//! it. So the tool that this one stands in for lays out its tables, and people's scripts read them
//! (facts/aliyun-gpushare.md 4.2).

/// Blanks between two columns.
const PADDING: usize = 2;

/// The text with its tabs replaced by blanks.
pub(crate) fn align(text: &str) -> String {
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let widths = widths(&lines);
    let mut aligned = String::with_capacity(text.len() * 2);
    for (line, widths) in lines.iter().zip(&widths) {
        for (index, cell) in line.iter().enumerate() {
            aligned.push_str(cell);
            let width = widths.get(index).copied().unwrap_or(0);
            let blanks = width.saturating_sub(cell.chars().count());
            aligned.extend(std::iter::repeat_n(' ', blanks));
        }
        aligned.push('\n');
    }
    aligned
}

/// The width of each cell of each line.
fn widths(lines: &[Vec<&str>]) -> Vec<Vec<usize>> {
    let cells = |line: &[&str]| line.len().saturating_sub(1);
    let columns = lines.iter().map(|line| cells(line)).max().unwrap_or(0);
    let mut widths: Vec<Vec<usize>> = lines.iter().map(|line| vec![0; cells(line)]).collect();
    for column in 0..columns {
        let mut start = 0;
        for block in lines.chunk_by(|a, b| (cells(a) > column) == (cells(b) > column)) {
            let texts = block.iter().filter(|line| cells(line) > column);
            let widest = texts.filter_map(|line| line.get(column)).map(|cell| cell.chars().count());
            let width = widest.max().unwrap_or(0) + PADDING;
            for line in widths.iter_mut().skip(start).take(block.len()) {
                if let Some(cell) = line.get_mut(column) {
                    *cell = width;
                }
            }
            start += block.len();
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_cells_ends_a_column() {
        assert_eq!(align("a\tb\nccc\td\n---\nlonger\te\n"), "a    b\nccc  d\n---\nlonger  e\n");
    }

    #[test]
    fn a_cell_at_the_end_of_a_line_is_padded_and_other_text_is_not() {
        assert_eq!(align("a\tb\t\nc\tdd\t\n"), "a  b   \nc  dd  \n");
    }

    #[test]
    fn an_empty_cell_is_as_wide_as_its_column() {
        assert_eq!(align("a\t\tb\nc\t1\td\n"), "a     b\nc  1  d\n");
        assert_eq!(align("\tb\n"), "  b\n");
    }
}
