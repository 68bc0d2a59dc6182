//! How wide a line for people may be, and lines that are no wider.

use std::env;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// That of a terminal which does not say.
const USUAL: usize = 80;

/// The columns of a line. `None`: as many as it takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Width(Option<usize>);

impl Width {
    /// That of what goes to this stream: its terminal's, or else what COLUMNS says.
    pub(crate) fn of(stream: &(impl AsFd + IsTerminal)) -> Width {
        let wanted = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let wanted = wanted.filter(|columns| *columns > 0);
        if !stream.is_terminal() {
            return Width(wanted);
        }
        let columns = tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
        let columns = Some(columns).filter(|columns| *columns > 0);
        Width(columns.or(wanted).or(Some(USUAL)))
    }

    #[cfg(test)]
    pub(crate) fn of_columns(columns: usize) -> Width {
        Width(Some(columns))
    }

    /// The text in lines that fit, broken at blanks where that is possible. What goes on stands so
    /// far in.
    pub(crate) fn fold(self, text: &str, indent: usize) -> String {
        let Some(columns) = self.0 else { return text.to_owned() };
        let indent = indent.min(columns / 3);
        let mut fold = Fold { columns, indent, column: 0, text: String::with_capacity(text.len()) };
        for line in text.split_inclusive('\n') {
            line.split_inclusive(' ').for_each(|word| fold.word(word));
        }
        fold.text
    }

    /// How many columns are left beside this text, in a line that moves. (In the last column some
    /// terminals go on in the next line.)
    pub(crate) fn beside(self, text: &str) -> usize {
        let columns = self.0.unwrap_or(usize::MAX) - 1;
        columns.saturating_sub(text.chars().map(columns_of).sum())
    }

    /// The beginning of the text, as far as it fits into a line that moves.
    pub(crate) fn cut(self, text: &str) -> String {
        let mut left = self.beside("");
        let fits = |c: &char| {
            let fits = columns_of(*c) <= left;
            left = left.saturating_sub(columns_of(*c));
            fits
        };
        text.chars().take_while(fits).collect()
    }
}

/// A text that grows by words.
struct Fold {
    columns: usize,
    indent: usize,
    /// Where the next character goes.
    column: usize,
    text: String,
}

impl Fold {
    /// A word, with what follows it: a blank, the end of a line, or nothing.
    fn word(&mut self, word: &str) {
        let ends_line = word.ends_with('\n');
        let (word, has_blank) = match word.trim_end_matches('\n').strip_suffix(' ') {
            Some(word) => (word, true),
            None => (word.trim_end_matches('\n'), false),
        };
        if self.column > self.indent && self.column + shown(word) > self.columns {
            self.go_on();
        }
        let mut in_escape = false;
        for c in word.chars() {
            in_escape |= c == '\x1b';
            let wide = if in_escape { 0 } else { columns_of(c) };
            if self.column + wide > self.columns {
                self.go_on();
            }
            self.text.push(c);
            self.column += wide;
            in_escape &= c != 'm';
        }
        if has_blank && self.column < self.columns {
            self.text.push(' ');
            self.column += 1;
        }
        if ends_line {
            self.text.push('\n');
            self.column = 0;
        }
    }

    fn go_on(&mut self) {
        self.text.truncate(self.text.trim_end_matches(' ').len());
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n(' ', self.indent));
        self.column = self.indent;
    }
}

/// The columns of a text in which colours may be.
fn shown(text: &str) -> usize {
    let mut in_escape = false;
    let width = |c: char| {
        in_escape |= c == '\x1b';
        let wide = if in_escape { 0 } else { columns_of(c) };
        in_escape &= c != 'm';
        wide
    };
    text.chars().map(width).sum()
}

/// The columns of a character, at most.
fn columns_of(c: char) -> usize {
    match c {
        '\t' => 8,
        '\u{1100}'.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_blanks_and_words_where_they_are_too_long() {
        let fold = |columns, text: &str| Width(Some(columns)).fold(text, 4);
        assert_eq!(fold(12, "one two three\nfour\n"), "one two\n    three\nfour\n");
        assert_eq!(
            fold(12, "abcdefghijklmnopqrstuvwxyz"),
            "abcdefghijkl\n    mnopqrst\n    uvwxyz"
        );
        assert_eq!(fold(12, "a abcdefghijklmnop b"), "a abcdefghij\n    klmnop b");
        assert_eq!(fold(12, "  in  flight "), "  in  flight");
        assert_eq!(fold(12, "\x1b[31mone two\x1b[0m three"), "\x1b[31mone two\x1b[0m\n    three");
        assert_eq!(
            fold(6, "\u{6f22}\u{5b57}\u{6f22}\u{5b57}"),
            "\u{6f22}\u{5b57}\u{6f22}\n  \u{5b57}"
        );
        assert_eq!(Width(None).fold("one two three", 4), "one two three");
    }

    #[test]
    fn a_line_that_moves_leaves_the_last_column_free() {
        let width = Width(Some(8));
        assert_eq!((width.cut("123456789"), width.beside("abc")), ("1234567".to_owned(), 4));
        assert_eq!(width.cut("\u{6f22}\u{6f22}\u{6f22}\u{6f22}").chars().count(), 3);
        assert_eq!(Width(None).cut("123456789"), "123456789");
    }
}
