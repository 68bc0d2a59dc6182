//! The names in braces in a key.

use mmq::forward::Source;

const NAMES: [&str; 2] = ["{dir}", "{host}"];

/// Refuses a key that is empty, or has braces around or without a name.
pub(crate) fn check(key: &str) -> Result<(), String> {
    if key.is_empty() {
        return Err("the key of the stream is empty: name one, as in mmq:orders".to_owned());
    }
    let rest = NAMES.iter().fold(key.to_owned(), |rest, name| rest.replace(name, ""));
    if rest.contains(['{', '}']) {
        return Err(format!(
            "the key {key} has braces without a name that this knows: {{dir}} is the queue's \
             name, {{host}} the machine's"
        ));
    }
    Ok(())
}

/// The key of this source, with the lane behind it.
pub(crate) fn filled(key: &str, source: &Source) -> String {
    let mut filled = String::new();
    let mut rest = key;
    // (In one pass: what is filled in may have braces of its own.)
    while let Some((before, named)) = rest.split_once('{') {
        filled.push_str(before);
        let (name, behind) = named.split_once('}').unwrap_or((named, ""));
        match name {
            "dir" => filled.push_str(&source.name),
            _ => filled.push_str(&rustix::system::uname().nodename().to_string_lossy()),
        }
        rest = behind;
    }
    filled + rest + source.lane.suffix()
}
