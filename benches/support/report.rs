//! What the matrix says at its end: bigqueue's own table, and a page with plots of it.

use std::fmt::Write;
use std::path::Path;

/// What an operation of one benchmark takes: the median time of its rounds, and memory on average.
#[derive(Debug)]
pub struct Row {
    pub operation: &'static str,
    pub id: String,
    pub ns: f64,
    pub bytes: f64,
    pub allocations: f64,
}

/// bigqueue's time, bytes and allocations.
type Theirs = Option<[f64; 3]>;

const BLUE: &str = "#0072B2";
const RED: &str = "#D55E00";

/// Prints the table, writes the page into Cargo's target directory, and prints its path.
pub fn report(machine: &str, rows: &[Row]) {
    let bigqueue = bigqueues_output();
    let mut page = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>mmq: the matrix</title>\n\
         <body style=\"font: 14px sans-serif; max-width: 980px; margin: 2em auto\">\n\
         <h1>The matrix</h1><p>{machine}</p><p>Time of an operation, scaled by its logarithm: \
         <b style=\"color: {BLUE}\">mmq</b>, <b style=\"color: {RED}\">bigqueue</b>.</p>\n"
    );
    for rows in rows.chunk_by(|row, next| row.operation == next.operation) {
        let theirs: Vec<Theirs> = rows.iter().map(|row| find(&bigqueue, row)).collect();
        println!("{}", table(rows, &theirs));
        page += &plot(rows, &theirs);
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("matrix.html");
    match std::fs::write(&path, page) {
        Ok(()) => println!("plots: {}", path.display()),
        Err(error) => println!("no plots: {}: {error}", path.display()),
    }
}

fn bigqueues_output() -> String {
    let Some(file) = std::env::var_os("MMQ_BIGQUEUE") else { return String::new() };
    std::fs::read_to_string(&file).unwrap_or_else(|error| {
        println!("bigqueue's figures are left out: {}: {error}", Path::new(&file).display());
        String::new()
    })
}

/// The figures of the same cell in what bigqueue's benchmarks print, lines such as
/// `BenchmarkEnqueue/ArenaSize-4KB/.../MaxMem-12KB-8  2000000  827 ns/op  21 B/op  0 allocs/op`.
/// The last number of a name counts threads; it is missing if there was one.
fn find(output: &str, row: &Row) -> Theirs {
    // The Dequeue of a bigqueue with Peek delivers nothing.
    let names: &[&str] = match (row.operation, output.contains("BenchmarkPeek/")) {
        ("open", _) => &["NewMmapQueue", "NewBigQueue"],
        ("enqueue", _) => &["Enqueue"],
        ("enqueue_str", _) => &["EnqueueString"],
        ("peek", _) => &["Peek"],
        ("peek_str", _) => &["PeekString"],
        ("skip", true) | ("dequeue", false) => &["Dequeue"],
        ("parallel", _) => &["Parallel"],
        _ => &[],
    };
    let id = row.id.strip_suffix("-1").filter(|_| row.operation == "parallel").unwrap_or(&row.id);
    let full: Vec<_> = names.iter().map(|name| format!("Benchmark{name}/{id}")).collect();
    output.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let rest = full.iter().find_map(|full| words.first()?.strip_prefix(full.as_str()))?;
        let threads = rest.strip_prefix('-').map(str::parse::<u32>);
        let is_it = match threads {
            None => rest.is_empty(),
            // The number of the threads of a parallel cell is in its id.
            Some(threads) => threads.is_ok() && row.operation != "parallel",
        };
        let number = |unit| {
            let at = words.iter().position(|&word| word == unit)?;
            words[at.checked_sub(1)?].parse().ok()
        };
        let figures = [number("ns/op")?, number("B/op")?, number("allocs/op")?];
        is_it.then_some(figures)
    })
}

fn table(rows: &[Row], theirs: &[Theirs]) -> String {
    let wide = rows.iter().map(|row| row.id.len()).max().unwrap_or(0).max(12);
    let columns = |[ns, bytes, allocations]: [f64; 3]| {
        format!("{:>10} {:>10} {:>10}", short(ns), short(bytes), short(allocations))
    };
    let head = format!("{:>10} {:>10} {:>10}", "ns/op", "B/op", "allocs/op");
    let mut text = format!("\n{:wide$} {head}", rows[0].operation);
    if theirs.iter().any(Option::is_some) {
        write!(text, "   bigqueue: {head}      times").unwrap();
    }
    for (row, theirs) in rows.iter().zip(theirs) {
        write!(text, "\n{:wide$} {}", row.id, columns([row.ns, row.bytes, row.allocations]))
            .unwrap();
        if let Some(theirs) = theirs {
            let times = short(theirs[0] / row.ns);
            write!(text, "             {} {times:>10}", columns(*theirs)).unwrap();
        }
    }
    text
}

/// A bar for each row, in SVG, with lines at the powers of ten.
fn plot(rows: &[Row], theirs: &[Theirs]) -> String {
    const LEFT: f64 = 370.0;
    const WIDTH: f64 = 480.0;
    let times = rows.iter().map(|row| row.ns).chain(theirs.iter().flatten().map(|of| of[0]));
    let (least, most) =
        times.fold((f64::MAX, 0.0_f64), |(low, high), ns| (low.min(ns), high.max(ns)));
    let (low, high) = ((least.log10() - 0.3).floor(), most.log10().ceil());
    let x = |ns: f64| LEFT + WIDTH * (ns.log10() - low) / (high - low);
    let height = 20 * rows.len() + 24;
    let mut svg = format!(
        "<h2>{}</h2>\n<svg width=\"980\" height=\"{height}\" font-size=\"12\">\n",
        rows[0].operation
    );
    for power in low as i32..=high as i32 {
        let (ns, bottom) = (10_f64.powi(power), height - 18);
        let (at, label) = (x(ns), time(ns));
        writeln!(
            svg,
            "<path d=\"M{at:.0} 0V{bottom}\" stroke=\"#DDD\"/>\
             <text x=\"{at:.0}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{label}</text>",
            height - 4
        )
        .unwrap();
    }
    for (at, (row, theirs)) in rows.iter().zip(theirs).enumerate() {
        let (top, end) = (20 * at, x(row.ns));
        let mut label = time(row.ns);
        if let Some([ns, ..]) = theirs {
            let (top, long) = (top + 11, x(*ns) - LEFT);
            write!(
                svg,
                "<path d=\"M{LEFT} {top}h{long:.1}\" stroke=\"{RED}\" stroke-width=\"6\"/>"
            )
            .unwrap();
            write!(label, " ({})", time(*ns)).unwrap();
        }
        writeln!(
            svg,
            "<path d=\"M{LEFT} {}H{end:.1}\" stroke=\"{BLUE}\" stroke-width=\"7\"/>\
             <text y=\"{text}\">{}</text><text x=\"{:.0}\" y=\"{text}\">{label}</text>",
            top + 5,
            row.id,
            end.max(theirs.map_or(0.0, |of| x(of[0]))) + 4.0,
            text = top + 12
        )
        .unwrap();
    }
    svg + "</svg>\n"
}

/// `827 ns`, `5.44 us`
fn time(ns: f64) -> String {
    let (unit, name) = match ns {
        ..1e3 => (1.0, "ns"),
        ..1e6 => (1e3, "us"),
        ..1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {name}", short(ns / unit))
}

/// Three digits, or all before the point.
fn short(value: f64) -> String {
    match value {
        0.0 => "0".to_string(),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
