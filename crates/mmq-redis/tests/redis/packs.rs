//! Several messages of the queue in one entry.

use mmq::Queue;
use mmq::forward::{ForwardEnd, Forwarder};
use mmq_redis::RedisStream;

use super::proxy::Proxy;
use super::server::{Entry, Server, check};
use super::{KEY, put};

const MANUAL: &str = include_str!("../../../../docs/forward.md");

fn forwarder(queue: &Queue, url: &str, pack: u64) -> Forwarder<RedisStream> {
    let far = RedisStream::new(url, KEY).unwrap().pack(pack);
    Forwarder::new(queue, "forward", far).unwrap()
}

/// Each round packs another number of messages into one entry, and the last one none.
#[test]
fn packs_and_messages_follow_each_other() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let (mut count, mut expected) = (0, 0);
    for (pack, more) in [(32, 640), (1, 3), (7, 71), (1000, 1), (100, 1_000), (1, 10)] {
        let queue = Queue::open(dir.path()).unwrap();
        put(&queue, more);
        let mut forwarder = forwarder(&queue, &server.url(), pack);
        assert_eq!(forwarder.once().unwrap(), ForwardEnd::Drained);
        count += more;
        expected += more.div_ceil(pack);
        let entries = server.entries(KEY);
        assert_eq!(entries.len() as u64, expected, "packs of {pack}");
        let last = entries.last().unwrap();
        assert_eq!((last.seq() + 1, last.text("sum").len()), (count, 8));
        check(&entries.into_iter().flat_map(Entry::unpacked).collect::<Vec<_>>(), count);
    }
}

/// What the manual says in Python reads what the forwarder writes.
#[test]
fn the_manuals_python_reads_a_pack() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 200);
    forwarder(&queue, &server.url(), 1).once().unwrap();
    queue.enqueue([b'x'; 300]).unwrap();
    queue.enqueue("").unwrap();
    put(&queue, 3);
    forwarder(&queue, &server.url(), 9).once().unwrap();
    let entries = server.entries(KEY);
    let pack = &entries.last().unwrap().fields["pack"];
    let file = dir.path().join("pack");
    std::fs::write(&file, pack).unwrap();
    let block = MANUAL.split_once("```python\n").unwrap().1.split_once("```").unwrap().0;
    let print = "import sys\nfor seq, message in unpack(open(sys.argv[1], 'rb').read()):\n    \
                 print(seq, message.decode())\n";
    let mut python = crate::support::command("python3");
    let output = python.args(["-c", &format!("{block}{print}")]).arg(file).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let x = "x".repeat(300);
    let expected = format!("200 {x}\n201 \n202 message 202\n203 message 203\n204 message 204\n");
    assert_eq!(printed, expected, "{said}");
}

/// The bytes of a message beside its own, on the link and in the server's memory: that depends on
/// how long the server's blocks of entries may be.
#[test]
fn a_packed_message_weighs_little_more_than_its_bytes() {
    let count = 20_000;
    let mut lines = Vec::new();
    for (pack, block, most) in
        [(1, "4096", 40.0), (32, "4096", 40.0), (256, "4096", 10.0), (32, "65536", 10.0)]
    {
        let dir = crate::support::tempdir().unwrap();
        let server = Server::start(&["--stream-node-max-bytes", block]);
        let queue = Queue::open(dir.path()).unwrap();
        for _ in 0..count {
            queue.enqueue([b'x'; 100]).unwrap();
        }
        let proxy = Proxy::start(server.port(), Some(u64::MAX));
        let began = std::time::Instant::now();
        forwarder(&queue, &proxy.url(), pack).once().unwrap();
        let rate = count as f64 / began.elapsed().as_secs_f64();
        let stored: u64 = server.call(&["MEMORY", "USAGE", KEY, "SAMPLES", "0"]);
        let beside = |bytes: u64| bytes as f64 / count as f64 - 100.0;
        let (up, stored) = (beside(proxy.up()), beside(stored));
        lines.push(format!("{pack}, {block}: {up:.1} and {stored:.1} bytes, {rate:.0}/s"));
        assert!(up <= 10.0, "{up} bytes on the link");
        assert!(stored <= most, "{stored} bytes in memory, packs of {pack}, blocks of {block}");
    }
    println!("beside 100 bytes, packs and blocks of {}", lines.join("; "));
}
