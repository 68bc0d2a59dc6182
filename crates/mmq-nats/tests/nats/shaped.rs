//! A link that the kernel shapes, between two networks of its own. Only root may have one. Nothing
//! of it has a name outside: it is gone with the two processes that hold the networks.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where the far side is, as seen from the near one.
pub(super) const FAR: &str = "10.0.0.2";

pub(super) struct Link {
    pub(super) near: Network,
    pub(super) far: Network,
}

impl Link {
    /// At so many bytes a second to the far side, and as fast as it goes back. An error says why
    /// this machine has none.
    pub(super) fn new(rate: u64) -> Result<Link, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root may make networks".into());
        }
        let link = Link { near: Network::new()?, far: Network::new()? };
        let far = link.far.0.id();
        link.near.inside(|| {
            run(&format!("ip link add link0 type veth peer name link0 netns {far}"))?;
            run(&format!("tc qdisc add dev link0 root tbf rate {rate}bps burst 5kb latency 1s"))?;
            set_up("10.0.0.1")
        })?;
        link.far.inside(|| set_up(FAR))?;
        Ok(link)
    }

    /// Bytes that went over it to the far side, the headers of each packet with them.
    pub(super) fn up(&self) -> u64 {
        let table = self.near.inside(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
        let table = table.unwrap();
        let line = table.lines().find_map(|line| line.trim().strip_prefix("link0:")).unwrap();
        line.split_whitespace().nth(8).unwrap().parse().unwrap()
    }
}

fn set_up(address: &str) -> Result<(), String> {
    run(&format!("ip address add {address}/24 dev link0"))?;
    run("ip link set link0 up")?;
    run("ip link set lo up")
}

fn run(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let mut command = crate::support::command(words.next().unwrap());
    let output = command.args(words).output().map_err(|error| format!("{line}: {error}"))?;
    let reported = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("{line}: {}", reported.trim()))
}

/// A network that nothing else is in. It lasts as long as this process, which ends with its input.
pub(super) struct Network(Child);

impl Network {
    fn new() -> Result<Network, String> {
        let mut command = crate::support::command("unshare");
        command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("unshare: {error}"))?;
        let mut network = Network(child);
        let mut answer = [0];
        let _ = network.0.stdin.as_mut().unwrap().write_all(&answer);
        let answered = network.0.stdout.as_mut().unwrap().read_exact(&mut answer);
        answered.map(|()| network).map_err(|_| "unshare --net: this machine allows it not".into())
    }

    /// Runs this in a thread inside of it: what it connects, listens on or starts is there, too.
    pub(super) fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let work = || {
            let network = File::open(format!("/proc/{}/ns/net", self.0.id())).unwrap();
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), kind).unwrap();
            what()
        };
        thread::scope(|scope| scope.spawn(work).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
